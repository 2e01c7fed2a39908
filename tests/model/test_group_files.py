# SPDX-License-Identifier: Apache-2.0
"""A group file is read in full, and every fault that needs no cloud is found here."""

import copy
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.goal import render_goal
from mistral_failover.model.group import Limits, MembersSpec, ResourceSpec, parse_group
from mistral_failover.model.types import load_type

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgresql.yaml"

SMALL: dict[str, Any] = {
    "failover_template_version": "2026-11-21",
    "stack": "payments",
    "members": {"servers": ["db_a", "db_b"]},
    "resources": {
        "data": {
            "type": "volume_attachment",
            "properties": {"volume": "data_volume", "server": {"get_param": "active"}},
        },
        "database": {
            "type": "activation",
            "depends_on": "data",
            "properties": {
                "member": {"get_param": "active"},
                "start": "pg-start",
                "stop": "pg-stop",
                "data_device": {"get_attr": ["data", "device"]},
            },
        },
    },
}
USER_TYPE: dict[str, Any] = {
    "failover_type_version": "2026-11-21",
    "name": "house_ip",
    "properties": {"address": {"type": "string", "required": True, "immutable": True}},
    "operations": {"create": {"workflow": "acme.assign_ip"}},
}
DELETE = object()


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the small file with entries changed, each named by its path; DELETE takes one out."""
    document = copy.deepcopy(SMALL)
    for path, value in changes.items():
        *parents, last = path.split("/")
        place = document
        for step in parents:
            place = place[step]
        if value is DELETE:
            del place[last]
        else:
            place[last] = value
    return document


def refusal(document: Any, **options: Any) -> InvalidDocument:
    with pytest.raises(InvalidDocument) as caught:
        parse_group(document, **options)
    assert caught.value.message
    assert caught.value.remedy
    return caught.value


def test_the_example_is_read_in_full() -> None:
    text = EXAMPLE.read_text()
    group = parse_group(text)
    assert (group.name, group.stack) == ("payments", "payments")
    assert group.description == "PostgreSQL on one shared volume"
    assert group.members == MembersSpec(("db_a", "db_b"), None, "oldest")
    assert group.roles == ("active",)
    assert group.fence == (
        {"kind": "quiesce", "limit": 3.0, "longest": 300.0},
        {"kind": "stop", "limit": 120.0},
        {"kind": "confirm", "limit": 3600.0},
    )
    assert group.limits == Limits(60.0, 3, 3600.0, 300.0)
    assert group.on_failure == "stop"
    assert list(group.resources) == ["data", "database", "routing"]
    assert group.resources["database"] == ResourceSpec(
        "database",
        "activation",
        {
            "member": {"get_param": "active"},
            "start": "pg-start",
            "stop": "pg-stop",
            "data_device": {"get_attr": ["data", "device"]},
        },
        ("data",),
    )


def test_a_group_can_be_stored_and_read_again() -> None:
    group = parse_group(EXAMPLE.read_bytes(), name="prod-payments", types=[USER_TYPE])
    types = [group.types["house_ip"].to_dict()]
    assert parse_group(group.definition, name=group.name, types=types) == group


def test_what_is_not_said_has_a_default() -> None:
    group = parse_group(SMALL)
    assert group.name == "payments"
    assert group.description == ""
    assert group.members.choose == "oldest"
    assert group.roles == ("active",)
    assert [rung["kind"] for rung in group.fence] == ["quiesce", "stop", "confirm"]
    assert group.limits == Limits(cooldown=60.0, per_hour=3)
    assert group.on_failure == "stop"


def test_an_autoscaling_group_names_no_servers() -> None:
    members = {"autoscaling_group": "db_servers", "choose": "db_server_7"}
    group = parse_group(changed({"members": members}))
    assert group.members == MembersSpec((), "db_servers", "db_server_7")


def test_depends_on_takes_a_name_or_a_list_and_forgets_repetitions() -> None:
    group = parse_group(changed({"resources/database/depends_on": ["data", "data"]}))
    assert group.resources["database"].depends_on == ("data",)


def test_a_resource_needs_no_properties_when_its_type_asks_for_none() -> None:
    free = {**USER_TYPE, "properties": {}}
    group = parse_group(changed({"resources/x": {"type": "house_ip"}}), types=[free])
    assert group.resources["x"] == ResourceSpec("x", "house_ip", {}, ())


@pytest.mark.parametrize(
    "given", [USER_TYPE, load_type(USER_TYPE), str(USER_TYPE)], ids=["mapping", "type", "text"]
)
def test_types_of_the_users_own_stand_beside_the_shipped_ones(given: Any) -> None:
    document = changed(
        {"resources/ip": {"type": "house_ip", "properties": {"address": "10.0.0.5"}}}
    )
    assert "unknown type" in refusal(document).message
    group = parse_group(document, types=[given])
    assert set(group.types) >= {"house_ip", "volume_attachment", "fence"}


DATA = "resources/data/properties"
DATABASE = "resources/database/properties"
FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    # the top level
    ({"stack": DELETE}, "name", "without a stack", "With a Heat stack, name the stack"),
    ({"failover_template_version": DELETE}, "", "failover_template_version", "Add"),
    ({"failover_template_version": "2015-04-30"}, "failover_template_version", "", "2026-11-21"),
    ({"resource": {}}, "resource", 'unknown key "resource"', 'mean "resources"'),
    ({"stack": 5}, "stack", "a number", "text"),
    ({"stack": "a/b"}, "stack", "not a valid name", '"/"'),
    ({"stack": ""}, "stack", "at least 1", "bound"),
    ({"description": ["x"]}, "description", "a list", "text"),
    ({"on_failure": "roll_back"}, "on_failure", "", 'mean "rollback"'),
    ({"priority": "high"}, "priority", "", ""),
    ({"priority": 1.5}, "priority", "", ""),
    # members and roles
    ({"members": {}}, "members", "either servers or", "Name"),
    ({"members/autoscaling_group": "g"}, "members", "either servers or", "Name"),
    ({"members/servers": []}, "members.servers", "at least 1", "bound"),
    ({"members/servers": ["a", ""]}, "members.servers[1]", "at least 1", "bound"),
    ({"members/servers": ["a", "a\n"]}, "members.servers[1]", "not a valid name", "control"),
    ({"members/servers": ["a", "b", "a"]}, "members.servers[2]", "twice", "Keep one"),
    ({"members/server": ["a"]}, "members.server", "unknown key", 'mean "servers"'),
    ({"members/choose": "db_c"}, "members.choose", '"db_c" is not a member', "db_a, db_b"),
    ({"roles": []}, "roles", "at least 1", "bound"),
    ({"roles": ["active", "active"]}, "roles[1]", "twice", "Keep one"),
    ({"roles": ["a b"]}, "roles[0]", "not a valid name", "letter"),
    # resources
    ({"resources/fence:db_a": {"type": "x"}}, "resources.fence:db_a", "not a valid", "letter"),
    ({"resources/x": {}}, "resources.x", '"type" is missing', "Add"),
    ({"resources/x": None}, "resources.x", "null", "mapping"),
    ({"resources/data/typ": "x"}, "resources.data.typ", "unknown key", 'mean "type"'),
    (
        {"resources/data/type": "volume_atachment"},
        "resources.data.type",
        'unknown type "volume_atachment"',
        'mean "volume_attachment"',
    ),
    (
        {"resources/x": {"type": "fence", "properties": {"member": "a"}}},
        "resources.x.type",
        "unknown type",
        "Known",
    ),
    (
        {"resources/database/depends_on": "dat"},
        "resources.database.depends_on",
        'unknown resource "dat"',
        'mean "data"',
    ),
    ({"resources/database/depends_on": 3}, "resources.database.depends_on", "number", "text"),
    (
        {"resources/database/depends_on": "database"},
        "resources.database",
        "database -> database",
        "Remove",
    ),
    (
        {"resources/data/depends_on": ["database"]},
        "resources.data",
        "data -> database -> data",
        "Remove",
    ),
    # properties
    ({DATA: None}, "resources.data.properties", "null", "mapping"),
    ({f"{DATA}/volume": DELETE}, "resources.data.properties", '"volume" is missing', "Add"),
    ({f"{DATA}/volum": "x"}, "resources.data.properties.volum", "unknown", 'mean "volume"'),
    ({f"{DATA}/volume": 7}, "resources.data.properties.volume", "a number", "text"),
    (
        {f"{DATA}/server": "db_c"},
        "resources.data.properties.server",
        "must follow a role",
        "{get_param: active}",
    ),
    # references
    (
        {f"{DATA}/server": {"get_param": "activ"}},
        "resources.data.properties.server",
        'unknown parameter "activ"',
        'mean "active"',
    ),
    (
        {f"{DATABASE}/data_device": {"get_attr": ["dta", "device"]}},
        "resources.database.properties.data_device",
        'unknown resource "dta"',
        'mean "data"',
    ),
    (
        {f"{DATABASE}/data_device": {"get_attr": ["data", "devise"]}},
        "resources.database.properties.data_device",
        'a volume_attachment has no attribute "devise"',
        'mean "device"',
    ),
    (
        {f"{DATABASE}/args": [{"get_resource": "nothing"}]},
        "resources.database.properties.args[0]",
        'unknown resource "nothing"',
        "Known",
    ),
    (
        {f"{DATABASE}/args": {"a": [{"get_attr": "data"}]}},
        "resources.database.properties.args.a[0]",
        "takes a list",
        "get_attr: [data, device]",
    ),
    (
        {f"{DATABASE}/args": {"get_param": "active", "x": 1}},
        "resources.database.properties.args",
        "the only key",
        "mapping",
    ),
    (
        {f"{DATABASE}/member": {"get_attr": ["data", "server_id"]}},
        "resources.database.properties.member",
        '"member" cannot use get_attr',
        "get_param",
    ),
    (
        {f"{DATABASE}/start": {"get_resource": "data"}},
        "resources.database.properties.start",
        '"start" cannot use get_resource',
        "get_param",
    ),
    # the fence and the limits
    ({"fence": []}, "fence", "at least 1", "bound"),
    ({"fence": ["stonith"]}, "fence[0]", "allowed", "Known: confirm"),
    ({"fence": ["stop", {"kind": "sto"}]}, "fence[1].kind", "allowed", 'mean "stop"'),
    ({"fence": [{"limit": 3}]}, "fence[0]", '"kind" is missing', "Add"),
    ({"fence": [{"kind": "stop", "limit": 0}]}, "fence[0].limit", "more than 0", "bound"),
    ({"fence": [{"kind": "stop", "wait": 1}]}, "fence[0].wait", "unknown key", "limit"),
    ({"fence": ["stop", {"kind": "stop"}]}, "fence[1]", "twice", "Keep one"),
    ({"fence": [{"kind": "confirm", "limit": 86400}, "stop"]}, "fence", "add up", "Lower"),
    ({"fence": "stop"}, "fence", "text", "list"),
    ({"fence": ["workflow"]}, "fence[0]", "allowed", "Known: confirm"),
    ({"fence": [{"kind": "workflow"}]}, "fence[0]", '"workflow" is missing', "Add"),
    ({"fence": [{"workflow": "a b"}]}, "fence[0].workflow", "not a valid name", ""),
    ({"fence": [{"workflow": 5}]}, "fence[0].workflow", "a number", "text"),
    ({"fence": [{"workflow": "failover._work"}]}, "fence[0].workflow", "private", "your own"),
    (
        {"fence": [{"workflow": "a", "kind": "stop"}]},
        "fence[0].workflow",
        "unknown key",
        "Known: kind, limit",
    ),
    ({"fence": [{"workflow": "a"}, {"workflow": "a"}]}, "fence[1]", "a occurs twice", "Keep one"),
    ({"fence": [{"workflow": "a", "longest": 9}]}, "fence[0].longest", "unknown key", "limit"),
    ({"fence": [{"kind": "stop", "longest": 9}]}, "fence[0].longest", "unknown key", "limit"),
    (
        {"fence": [{"kind": "quiesce", "limit": 9, "longest": 8}]},
        "fence[0].longest",
        "shorter than the limit",
        "Raise it",
    ),
    ({"limits": {"cooldwn": 1}}, "limits.cooldwn", "unknown key", 'mean "cooldown"'),
    ({"limits": {"cooldown": -1}}, "limits.cooldown", "at least 0", "bound"),
    ({"limits": {"boot": 0}}, "limits.boot", "at least 1", "bound"),
    ({"limits": {"patience": -1}}, "limits.patience", "at least 0", "bound"),
    ({"limits": {"patience": 86_401}}, "limits.patience", "at most 86400", "bound"),
    ({"limits": {"per_hour": 0}}, "limits.per_hour", "at least 1", "bound"),
    ({"limits": {"per_hour": 1.5}}, "limits.per_hour", "a number", "a whole number"),
]


@pytest.mark.parametrize(("changes", "path", "fragment", "remedy"), FAULTS)
def test_a_fault_in_a_group_file_is_named_with_its_place(
    changes: dict[str, Any], path: str, fragment: str, remedy: str
) -> None:
    error = refusal(changed(changes))
    assert error.path == path
    assert fragment in error.message
    assert remedy in error.remedy
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("rung", "longest"),
    [
        ("quiesce", 300.0),
        ({"kind": "quiesce", "limit": 3}, 300.0),
        ({"kind": "quiesce", "limit": 60}, 600.0),
        ({"kind": "quiesce", "limit": 60, "longest": 60}, 60.0),
        ({"kind": "quiesce", "limit": 80000}, 86400.0),
    ],
)
def test_one_that_is_at_work_is_waited_for_longer_than_one_that_is_silent(
    rung: Any, longest: float
) -> None:
    (found,) = parse_group(changed({"fence": [rung]})).fence
    assert found["longest"] == longest


def test_workflows_are_rungs_several_of_them() -> None:
    ladder = [
        {"workflow": "house.power_off", "limit": 20},
        "confirm",
        {"workflow": "house.isolate"},
    ]
    group = parse_group(changed({"fence": ladder}))

    goal = render_goal(group, dict.fromkeys(group.roles, "db_b"), ["db_a"])
    assert goal.document["resources"]["fence:db_a"]["properties"]["ladder"] == [
        {"kind": "workflow", "limit": 20.0, "workflow": "house.power_off"},
        {"kind": "confirm", "limit": 3600.0},
        {"kind": "workflow", "limit": 300.0, "workflow": "house.isolate"},
    ]


def test_a_fault_in_the_text_itself_tells_line_and_column() -> None:
    error = refusal("stack: a\nstack: b\n")
    assert error.path == "stack"
    assert "line 2, column 1" in error.message


@pytest.mark.parametrize(("name", "fragment"), [("", "at least 1"), ("a/b", "not a valid name")])
def test_a_group_has_a_proper_name(name: str, fragment: str) -> None:
    error = refusal(SMALL, name=name)
    assert error.path == "name"
    assert fragment in error.message


@pytest.mark.parametrize(
    "types", [[USER_TYPE, USER_TYPE], [{**USER_TYPE, "name": "fence"}]], ids=["two", "shipped"]
)
def test_a_type_cannot_take_the_place_of_another(types: list[Any]) -> None:
    error = refusal(SMALL, types=types)
    assert "already" in error.message


def test_a_create_first_type_may_take_immutable_properties_from_attributes() -> None:
    ip = {"type": "house_ip", "properties": {"address": {"get_attr": ["data", "device"]}}}
    assert parse_group(changed({"resources/ip": ip}), types=[USER_TYPE])


def test_a_circle_is_told_in_order_through_every_kind_of_dependency() -> None:
    def link(reference: Any, depends_on: list[str]) -> dict[str, Any]:
        return {
            "type": "stack_parameters",
            "properties": {"parameters": {"p": reference}},
            "depends_on": depends_on,
        }

    document = changed(
        {
            "resources/c": link("x", ["a"]),
            "resources/a": link({"get_resource": "b"}, []),
            "resources/b": link("x", ["c", "data"]),
        }
    )
    error = refusal(document)
    assert "a -> b -> c -> a" in error.message


def chain(length: int) -> dict[str, Any]:
    resources = {
        f"r{i}": {
            "type": "stack_parameters",
            "depends_on": [f"r{i - 1}"] if i else [],
            "properties": {"parameters": {"p": i}},
        }
        for i in range(length)
    }
    return changed({"resources": resources})


def test_a_thousand_resources_are_read_and_one_more_is_refused() -> None:
    assert len(parse_group(chain(1000)).resources) == 1000
    error = refusal(chain(1001))
    assert (error.path, error.message) == ("resources", "at most 1000 keys are allowed")


def test_a_fault_never_shows_the_value_of_a_property() -> None:
    error = refusal(changed({f"{DATABASE}/password": ["hunter2"]}))
    assert error.path == "resources.database.properties.password"
    assert "hunter2" not in str(error)


def test_a_group_names_the_chain_that_works_its_failovers_off() -> None:
    assert parse_group({**SMALL, "workflow": "payments.failover"}).workflow == "payments.failover"
    assert parse_group({**SMALL, "workflow": "failover.converge"}).workflow is None


@pytest.mark.parametrize("name", ["failover.failover", "failover._chain", "failover.nowhere"])
def test_a_workflow_of_this_package_is_no_chain(name: str) -> None:
    error = refusal({**SMALL, "workflow": name})

    assert error.path == "workflow"
    assert f'"{name}"' in error.message
    assert "failover.converge" in error.remedy
