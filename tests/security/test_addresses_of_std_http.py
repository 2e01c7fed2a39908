# SPDX-License-Identifier: Apache-2.0
"""A workflow cannot use std.http to reach services that trust this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.embedded import settings
from mistral_failover.embedded.process import MistralProcess
from mistral_failover.mistral.client import MistralError
from mistral_failover.server import credential, service
from mistral_failover.server.options import Options

METADATA = "http://169.254.169.254/latest/meta-data/"


@pytest.mark.parametrize(("emulated", "denied"), [(True, ""), (False, None)])
def test_a_server_denies_mistral_s_own_list_except_with_an_emulated_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulated: bool, denied: str | None
) -> None:
    made: dict[str, Mapping[str, Any]] = {}
    monkeypatch.setattr(credential, "project_of", lambda *_: "project")
    monkeypatch.setattr(service, "EmbeddedMistral", lambda *_, **given: made.update(given))

    options = replace(Options(tmp_path), cloud="home", emulated=emulated)
    service._mistral(options)

    assert made["overrides"].get("action_std_http.denied_cidrs") == denied


def test_the_embedded_mistral_leaves_mistral_s_list_alone() -> None:
    assert "action_std_http" not in settings.DEFAULTS


@pytest.mark.drills
def test_a_workflow_reaches_neither_this_machine_nor_the_metadata_service(tmp_path: Path) -> None:
    with MistralProcess(tmp_path / "state") as mistral:
        for url in (mistral.url, mistral.url.replace("127.0.0.1", "localhost"), METADATA):
            with pytest.raises(MistralError) as refused:
                mistral.client.run_action("std.http", {"url": url, "timeout": 5})
            assert "blocked" in refused.value.message or "not allowed" in refused.value.message
