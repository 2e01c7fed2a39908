# SPDX-License-Identifier: Apache-2.0
"""The workflow files as texts: they tell what they take. ``make lint`` validates them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mistral_failover import workflows

BODIES = {
    name: body
    for path in workflows.paths()
    for name, body in yaml.safe_load(Path(path).read_text(encoding="utf-8")).items()
    if name != "version"
}


@pytest.mark.parametrize("path", workflows.paths(), ids=lambda path: Path(path).stem)
def test_a_file_is_named_after_its_one_workflow(path: str) -> None:
    document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))

    assert set(document) == {"version", f"failover.{Path(path).stem}"}


@pytest.mark.parametrize("name", BODIES)
def test_a_description_names_every_input(name: str) -> None:
    body = BODIES[name]
    inputs = [next(iter(i)) if isinstance(i, dict) else i for i in body.get("input", [])]
    # The keys of an alarm's body are Aodh's own words.
    own = [i for i in inputs if not i.startswith("alarm_") and name != "failover.on_alarm"]

    assert [i for i in own if i not in body["description"]] == []
