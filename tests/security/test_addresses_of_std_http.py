# SPDX-License-Identifier: Apache-2.0
"""A workflow cannot use std.http to reach services that trust this machine.

That a Mistral obeys its list: embedded/test_embedded_process.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.embedded import settings
from mistral_failover.server import credential, service
from mistral_failover.server.options import Options


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
