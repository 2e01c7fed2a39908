# SPDX-License-Identifier: Apache-2.0
"""Every problem of a group file at once, beside ``parse_group``, which raises one."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.lab.drill import examples
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.group import parse_group
from mistral_failover.model.problems import group_problems


def changed(**more: Any) -> dict[str, Any]:
    document: dict[str, Any] = {**examples.group(1, "payments"), **more}
    return document


def test_a_file_that_is_accepted_has_none() -> None:
    assert group_problems(changed()) == []


def test_problems_of_grammar_and_of_meaning_are_found_together() -> None:
    resources = examples.group(1, "payments")["resources"]
    document = changed(
        nonsense=1,
        more_nonsense=2,
        fence=["quiesce", "stopp"],
        limits={"cooldown": -1, "per_hour": "many"},
        members={"servers": ["db_a", "db_a"]},
        resources={
            **resources,
            "data": {**resources["data"], "propertis": {}},
            "other": {"type": "stack_parameter"},
            "further": {"type": "stack_parameters", "depends_on": "unknown"},
        },
    )

    paths = [each.path for each in group_problems(document)]

    assert paths == [
        "fence[1]",
        "limits.cooldown",
        "limits.per_hour",
        "members.servers[1]",
        "more_nonsense",
        "nonsense",
        "resources.data.propertis",
        "resources.further.depends_on",
        "resources.further.properties",
        "resources.other.type",
    ]


def test_what_only_misses_a_broken_resource_is_no_problem_of_its_own() -> None:
    resources = examples.group(1, "payments")["resources"]
    document = changed(resources={**resources, "data": {"type": "no_such_type"}})

    assert [each.path for each in group_problems(document)] == ["resources.data.type"]


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "a: [",
        "stack: x",
        changed(stack=7),
        changed(roles=[]),
        changed(members=None),
        changed(members={"servers": ["a"], "autoscaling_group": "b"}),
        changed(resources=[]),
        changed(resources={"a": None}),
        changed(failover_template_version="1999-01-01"),
        {**changed(), 7: 8},
    ],
)
def test_whatever_the_parser_refuses_has_a_problem_at_least(document: Any) -> None:
    with pytest.raises(InvalidDocument):
        parse_group(document)

    assert group_problems(document)


def test_a_name_that_is_none_is_a_problem() -> None:
    assert [each.path for each in group_problems(changed(), name="a/b")] == ["name"]


def test_all_that_is_wrong_in_one_part_is_found() -> None:
    resources = examples.group(1, "payments")["resources"]
    data = resources["data"]
    document = changed(
        fence=["quiese", "stop", "stopp", "confrim"],
        members={"servers": ["db_a", "db_b"], "chose": "db_a", "choose": "db_c"},
        limits={"cooldwn": 1, "per_our": 2},
        resources={
            **resources,
            "data": {
                "type": "volume_attachment",
                "propertis": {},
                "depends_on": ["nowhere"],
                "properties": {**data["properties"], "volum": 1, "devise": 2, "server": "db_a"},
            },
            "wire": {"type": "port", "properties": {"prt": 1, "server": {"get_param": "x"}}},
        },
    )

    assert [each.path for each in group_problems(document)] == [
        "fence[0]",
        "fence[2]",
        "fence[3]",
        "limits.cooldwn",
        "limits.per_our",
        "members.choose",
        "members.chose",
        "resources.data.depends_on",
        "resources.data.properties.devise",
        "resources.data.properties.server",
        "resources.data.properties.volum",
        "resources.data.propertis",
        "resources.wire.properties.prt",
        "resources.wire.properties.server",
    ]


def test_a_name_twice_hides_no_other_mistake_about_members() -> None:
    document = changed(
        members={"servers": ["db_a", "db_a"], "choose": "db_z", "restart": ["startt"]},
        roles={"active": {"prefer": ["db_x"]}},
    )

    assert [each.path for each in group_problems(document)] == [
        "members.choose",
        "members.restart[0]",
        "members.servers[1]",
        "roles.active.prefer[0]",
    ]


def test_what_only_misses_a_broken_name_of_a_member_is_no_problem_of_its_own() -> None:
    document = changed(
        members={"servers": {"db_a": None, "db_b": {"nme": "x"}}, "choose": "db_b"},
        roles={"active": {"prefer": ["db_b", "db_c"]}},
        name="payments",
    )
    del document["stack"], document["resources"]["routing"]

    assert [each.path for each in group_problems(document)] == [
        "members.servers.db_b.nme",
        "roles.active.prefer[1]",
    ]


def test_a_wrong_reference_hides_no_other_property() -> None:
    resources = examples.group(1, "payments")["resources"]
    document = changed(
        resources={
            **resources,
            "data": {
                "type": "volume_attachment",
                "properties": {
                    "volume": 7,
                    "server": {"get_param": "activ"},
                    "when_host_is_down": "maybe",
                },
            },
        }
    )

    assert [each.path for each in group_problems(document)] == [
        "resources.data.properties.server",
        "resources.data.properties.volume",
        "resources.data.properties.when_host_is_down",
    ]


def test_all_keys_that_are_missing_are_named_at_once() -> None:
    (found,) = group_problems({})

    assert all(key in found.message for key in ("failover_template_version", "members"))
    assert found.path == ""
