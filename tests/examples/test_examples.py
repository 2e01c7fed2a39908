# SPDX-License-Identifier: Apache-2.0
"""Every example is what it says: accepted, and consistent with its neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mistral_failover.embedded.validate import validate
from mistral_failover.model.goal import render_goal
from mistral_failover.model.group import parse_group
from mistral_failover.model.types import load_type

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = {
    str(path.relative_to(EXAMPLES)): path.read_text(encoding="utf-8")
    for path in sorted(EXAMPLES.glob("**/*.yaml"))
}


def of_kind(key: str) -> dict[str, str]:
    """The files with this key at the top, by path."""
    return {name: text for name, text in FILES.items() if f"\n{key}:" in text}


def test_every_file_is_of_a_known_kind() -> None:
    kinds = (
        "failover_agent_version",
        "failover_template_version",
        "failover_type_version",
        "heat_template_version",
        "version",
        "write_files",  # cloud-init's
    )
    known = [name for kind in kinds for name in of_kind(kind)]

    assert sorted(known) == sorted(FILES)


def test_every_group_can_be_given_a_goal_on_each_of_its_members() -> None:
    types = [load_type(text) for text in of_kind("failover_type_version").values()]
    groups = [
        parse_group(text, types=types) for text in of_kind("failover_template_version").values()
    ]

    assert groups
    for group in groups:
        for member in group.members.servers:
            lost = set(group.members.servers) - {member}
            goal = render_goal(group, dict.fromkeys(group.roles, member), lost)
            assert goal.document["lost"] == sorted(lost)


def test_every_workflow_obeys_the_house_rules() -> None:
    paths = [EXAMPLES / name for name in of_kind("version")]

    assert paths
    assert validate(paths, strict=True) == []


def test_every_workflow_that_a_type_names_is_beside_it() -> None:
    for name, text in of_kind("failover_type_version").items():
        folder = (EXAMPLES / name).parent
        there = {
            w for path in folder.glob("*.yaml") for w in yaml.safe_load(path.read_text("utf-8"))
        }
        named = {spec.workflow for spec in load_type(text).operations.values()}
        assert sorted(named - there) == []


def test_the_stack_has_what_its_group_speaks_of() -> None:
    stack: dict[str, Any] = yaml.safe_load(FILES["postgresql-stack.yaml"])
    group = parse_group(FILES["postgresql.yaml"])
    volumes = [
        spec.properties["volume"]
        for spec in group.resources.values()
        if spec.type == "volume_attachment"
    ]

    assert {*group.members.servers, *volumes} <= set(stack["resources"])
    assert set(group.resources["routing"].properties["parameters"]) <= set(stack["parameters"])
