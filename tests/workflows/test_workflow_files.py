# SPDX-License-Identifier: Apache-2.0
"""The workflow files as texts: free of slips, and the same thing in place as by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mistral_failover import workflows
from mistral_failover.embedded.validate import validate
from mistral_failover.model.types import OperationSpec, shipped_types

IN_PLACE = {
    spec.workflow: spec
    for resource_type in shipped_types().values()
    for spec in resource_type.operations.values()
    if spec.action is not None
}
BODIES = {
    name: body
    for path in workflows.paths()
    for name, body in yaml.safe_load(Path(path).read_text(encoding="utf-8")).items()
    if name != "version"
}


def test_no_file_has_a_problem_by_the_strictest_rules() -> None:
    assert validate(workflows.paths(), strict=True) == []


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


@pytest.mark.parametrize("spec", IN_PLACE.values(), ids=IN_PLACE.keys())
def test_an_operation_in_place_is_exactly_the_action_of_its_workflow(spec: OperationSpec) -> None:
    body = BODIES[spec.workflow]

    assert body["input"] == ["operation"]
    (task,) = body["tasks"].values()
    assert task["action"] == spec.action
    assert task["input"] == {"operation": "<% $.operation %>"}
    assert set(task) == {"action", "input", "publish", "publish-on-error"}
    assert set(body["output"]) == {"physical_id", "attributes"}


@pytest.mark.parametrize("resource_type", shipped_types().values(), ids=shipped_types().keys())
def test_every_operation_of_a_shipped_type_has_a_shipped_workflow(resource_type: object) -> None:
    specs = resource_type.operations.values()  # type: ignore[attr-defined]

    assert [spec.workflow for spec in specs if spec.workflow not in BODIES] == []
