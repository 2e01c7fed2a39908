# SPDX-License-Identifier: Apache-2.0
"""An embedded Mistral does not keep finished executions forever."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.mistral_process import MistralProcess
from support.waiting import until

pytestmark = pytest.mark.drills  # two processes
GREET = """
version: '2.0'
greet:
  tasks:
    say: {action: std.noop}
"""


def test_finished_executions_beyond_a_number_are_deleted(tmp_path: Path) -> None:
    file = tmp_path / "greet.yaml"
    file.write_text(GREET)
    with MistralProcess(tmp_path / "state", workflows=[file]) as mistral:
        ran = [mistral.client.run("greet")["id"] for _ in range(3)]
        assert len(mistral.client.executions()) == 3

    policy = "execution_expiration_policy"
    fewer = {f"{policy}.max_finished_executions": 1, f"{policy}.evaluation_interval": 1}
    with MistralProcess(tmp_path / "state", overrides=fewer) as mistral:
        until(lambda: len(mistral.client.executions()) == 1)
        (left,) = mistral.client.executions()
        assert mistral.client.run("greet")["state"] == "SUCCESS"
    assert left["id"] in ran
