# SPDX-License-Identifier: Apache-2.0
"""Every example is what it says: accepted, and consistent with its neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover.cloud.stack_updates import size_after
from mistral_failover.embedded.validate import validate
from mistral_failover.model.assignment import MemberFact, assign_roles
from mistral_failover.model.goal import render_goal
from mistral_failover.model.group import parse_group
from mistral_failover.model.stages import Stage
from mistral_failover.model.types import load_type

EXAMPLES = Path(__file__).parents[2] / "examples"
WORKFLOWS = EXAMPLES.parent / "workflows"
FILES = {
    str(path.relative_to(EXAMPLES)): path.read_text(encoding="utf-8")
    for path in sorted(EXAMPLES.glob("**/*.yaml"))
}


def of_kind(key: str) -> dict[str, str]:
    """The files with this key at the top, by path."""
    return {name: text for name, text in FILES.items() if f"\n{key}:" in text}


def test_every_file_is_of_a_known_kind() -> None:
    kinds = (
        "apiVersion",  # Kubernetes'
        "failover_agent_version",
        "failover_member",  # a policy for Mistral
        "failover_template_version",
        "failover_type_version",
        "groups",  # Prometheus' alert rules
        "heat_template_version",
        "route",  # Alertmanager's own file
        "rule_files",  # Prometheus' own file
        "version",
        "write_files",  # cloud-init's
        "zabbix_export",
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


def test_the_chain_calls_each_stage_held_and_again_as_the_shipped_one_does() -> None:
    (chain,) = bodies(FILES["own_chain/payments_failover.yaml"])
    (shipped,) = bodies((WORKFLOWS / "converge.yaml").read_text(encoding="utf-8"))
    calls = [t["input"] for t in chain["tasks"].values() if t["action"] == "failover.advance"]

    assert [(call["through"], call["hold"]) for call in calls] == [(each, True) for each in Stage]
    assert chain["task-defaults"] == shipped["task-defaults"]
    assert parse_group(FILES["own_chain/group.yaml"]).workflow == "payments.failover"


def bodies(text: str) -> list[dict[str, Any]]:
    """The workflows of a file."""
    return [body for name, body in yaml.safe_load(text).items() if name != "version"]


@pytest.mark.parametrize(
    "name",
    ["postgresql", "autoscaling-group", "active-active", "single-server", "boots-from-a-volume"],
)
def test_the_stack_has_what_its_group_speaks_of(name: str) -> None:
    stack: dict[str, Any] = yaml.safe_load(FILES[f"{name}-stack.yaml"])
    group = parse_group(FILES[f"{name}.yaml"])
    volumes = [
        spec.properties["volume"]
        for spec in group.resources.values()
        if spec.type == "volume_attachment"
    ]

    members = {*group.members.servers, group.members.autoscaling_group} - {None}
    assert {*members, *volumes} <= set(stack["resources"])
    routing = group.resources.get("routing")
    if routing is not None:
        assert set(routing.properties["parameters"]) <= set(stack["parameters"])


def test_an_autoscaling_group_of_ours_keeps_its_size_when_its_stack_is_updated() -> None:
    for name, text in of_kind("heat_template_version").items():
        stack = yaml.safe_load(text)
        defaults = {key: spec.get("default") for key, spec in stack["parameters"].items()}
        for resource in stack["resources"].values():
            if resource["type"] == "OS::Heat::AutoScalingGroup":
                sizes = {size_after(resource["properties"], defaults, n) for n in range(4)}
                assert len(sizes) == 1, name


def test_each_role_of_active_active_has_a_home_of_its_own_and_everything_moves_with_it() -> None:
    group = parse_group(FILES["active-active.yaml"])
    members = [MemberFact(name, float(age)) for age, name in enumerate(group.members.servers)]
    homes = assign_roles(group, members, {}, set())

    assert homes == {"orders": "db_a", "reports": "db_b"}
    assert assign_roles(group, members, homes, {"db_a"}) == {"orders": "db_b", "reports": "db_b"}
    for role in group.roles:
        sits = [
            n for n, r in group.resources.items() if {"get_param": role} in r.properties.values()
        ]
        assert sits == [f"{role}_data", f"{role}_database"]
