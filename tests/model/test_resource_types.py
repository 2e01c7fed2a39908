# SPDX-License-Identifier: Apache-2.0
"""A type file says what a resource may be asked for; the shipped ones are read like a user's."""

import copy
import importlib.resources
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.stages import Stage, rank
from mistral_failover.model.types import (
    Change,
    OperationSpec,
    ResourceType,
    Verb,
    check_properties,
    compare,
    installed_types,
    load_type,
    type_problems,
)

TYPE: dict[str, Any] = {
    "failover_type_version": "2026-11-21",
    "name": "virtual_ip",
    "description": "An address that follows a member",
    "replace": "delete_first",
    "member": "server",
    "properties": {
        "address": {"type": "string", "required": True, "immutable": True},
        "server": {"type": "string", "required": True},
        "mask": {"type": "integer", "minimum": 1, "maximum": 32},
        "kind": {"enum": ["v4", "v6"]},
        "routes": {
            "type": "array",
            "maxItems": 2,
            "items": {
                "type": "object",
                "properties": {"to": {"type": "string"}},
                "required": ["to"],
                "additionalProperties": False,
            },
        },
    },
    "attributes": {"port": {"description": "The id of the port"}, "mac": None},
    "operations": {
        "create": {"workflow": "acme.assign_ip"},
        "update": {
            "function": "assign_ip",
            "timeout": 60,
            "stage": "activate",
        },
        "delete": {},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the type above with one entry changed; DELETE takes it out."""
    document = copy.deepcopy(TYPE)
    *parents, last = path.split("/")
    place = document
    for step in parents:
        place = place[step]
    if value is DELETE:
        del place[last]
    else:
        place[last] = value
    return document


DELETE = object()


def test_a_type_file_is_read_in_full() -> None:
    loaded = load_type(TYPE)
    assert (loaded.name, loaded.replace, loaded.member_property) == (
        "virtual_ip",
        "delete_first",
        "server",
    )
    assert loaded.immutable == {"address"}
    assert loaded.attributes == ("mac", "port")
    assert loaded.operations == {
        "create": OperationSpec("acme.assign_ip", None, 300),
        "update": OperationSpec(None, "assign_ip", 60, Stage.ACTIVATE),
    }
    assert loaded.schema["required"] == ["address", "server"]
    assert loaded.schema["additionalProperties"] is False
    assert loaded.schema["properties"]["address"] == {"type": "string"}


def test_a_type_survives_being_stored() -> None:
    loaded = load_type(TYPE)
    stored = loaded.to_dict()
    assert stored == TYPE
    assert load_type(stored) == loaded
    stored["properties"].clear()
    assert loaded.to_dict() == TYPE


def test_a_small_type_needs_no_more_than_a_way_to_create() -> None:
    loaded = load_type(
        "{failover_type_version: 2026-11-21, name: ping, operations: {create: {workflow: acme.x}}}"
    )
    assert (loaded.replace, loaded.member_property, loaded.attributes) == ("create_first", None, ())
    check_properties(loaded, {})


def test_keys_needed_inside_a_mapping_are_said_with_all_of() -> None:
    loaded = load_type(changed("properties/mask", {"allOf": [{"required": ["bits"]}]}))
    with pytest.raises(InvalidDocument) as caught:
        check_properties(loaded, {"address": "a", "server": "b", "mask": {}})
    assert caught.value.path == "properties.mask"
    assert '"bits" is missing' in caught.value.message


@pytest.mark.parametrize(
    ("path", "value", "where", "fragment", "remedy"),
    [
        ("failover_type_version", DELETE, "", "failover_type_version", "Add"),
        ("failover_type_version", "2020-01-01", "failover_type_version", "allowed", "2026-11-21"),
        ("name", DELETE, "", '"name" is missing', "top level"),
        ("name", "fence:x", "name", "not a valid name", "letter"),
        ("name", "newline\n", "name", "not a valid name", "letter"),
        ("nam", "x", "nam", 'unknown key "nam"', '"name"'),
        ("description", 3, "description", "a number", "text"),
        ("replace", "delete-first", "replace", "allowed", 'mean "delete_first"'),
        ("member", "sever", "member", "not a property", 'mean "server"'),
        ("properties/address", None, "properties.address", "null", "mapping"),
        ("properties/a b", {}, "properties.a b", "not a valid name", "letter"),
        ("properties/mask/typ", "x", "properties.mask.typ", "unknown key", 'mean "type"'),
        ("properties/mask/type", "int", "properties.mask.type", "allowed", "integer"),
        ("properties/mask/type", [], "properties.mask.type", "at least 1", "bound"),
        ("properties/mask/required", ["a"], "properties.mask.required", "list", "true or false"),
        ("properties/mask/immutable", "yes", "properties.mask.immutable", "text", "true or false"),
        ("properties/mask/pattern", "(a+)+$", "properties.mask.pattern", "unknown key", "Known"),
        ("properties/mask/$ref", "http://x/", "properties.mask.$ref", "unknown key", "Known"),
        ("properties/mask/not", {}, "properties.mask.not", "unknown key", "Known"),
        ("properties/routes/items", {"$ref": "x"}, "properties.routes.items.$ref", "key", "Known"),
        ("properties/mask/anyOf", [], "properties.mask.anyOf", "at least 1", "bound"),
        (
            "properties/mask/anyOf",
            [{"items": {"oneOf": [{}]}}],
            "properties.mask.anyOf[0].items.oneOf",
            "unknown key",
            "Known",
        ),
        ("additional_properties", "x", "additional_properties", "text", "true or false"),
        ("additional_properties", {"x": 1}, "additional_properties.x", "unknown key", "Known"),
        ("attributes/port", {"x": 1}, "attributes.port.x", "unknown key", "description"),
        ("operations", DELETE, "", '"operations" is missing', "Add"),
        ("words", {"create": "Assign {nam}"}, "words.create", '"{nam}" is not known', "{name}"),
        ("words", {"create": "Assign {name"}, "words.create", '"{" is not known', "{name}"),
        ("words", {"remove": "x"}, "words.remove", "unknown key", "delete"),
        ("words", {"create": ""}, "words.create", "at least 1", "bound"),
        ("operations/create", DELETE, "operations", "create is missing", "workflow"),
        ("operations/create", {}, "operations", "create is missing", "workflow"),
        ("operations/remove", {}, "operations.remove", "unknown key", "delete"),
        ("operations/create/action", "x", "operations.create.action", "action", "Name a workflow"),
        ("operations/update", DELETE, "operations", "kind, mask, routes, server", "immutable"),
        ("operations/update", {"timeout": 3}, "operations.update", "exactly one", "add"),
        ("operations/update/workflow", "acme.x", "operations.update", "exactly one", "Keep"),
        (
            "operations/update/stage",
            "activation",
            "operations.update.stage",
            "allowed",
            '"activate"',
        ),
        ("operations/update/stage", 3, "operations.update.stage", "allowed", "move_volumes"),
        ("operations/update/timeout", 0, "operations.update.timeout", "at least 1", "bound"),
        ("operations/create/workflow", "a b", "operations.create.workflow", "not a valid", "Use"),
        ("operations/update/function", "$(x)", "operations.update.function", "valid name", "Start"),
    ],
)
def test_a_fault_in_a_type_file_is_named_with_its_place(
    path: str, value: Any, where: str, fragment: str, remedy: str
) -> None:
    with pytest.raises(InvalidDocument) as caught:
        load_type(changed(path, value))
    assert caught.value.path == where
    assert fragment in caught.value.message
    assert remedy in caught.value.remedy
    assert [each.path for each in type_problems(changed(path, value))] == [where]


def test_all_faults_of_a_type_file_are_found_at_once() -> None:
    document = changed("properties/mask/typ", "x")
    document["properties"]["server"]["imutable"] = True
    document["operations"] = {"update": {"timeout": 0, "function": "x", "workflow": "acme.x"}}
    document |= {"replce": "delete_first", "member": "sever", "words": {"create": "Assign {nam}"}}

    assert [each.path for each in type_problems(document)] == [
        "operations",
        "operations.update.timeout",
        "properties.mask.typ",
        "properties.server.imutable",
        "replce",
        "words.create",
    ]
    assert type_problems(TYPE) == []


def test_schemas_may_be_nested_as_deep_as_a_document() -> None:
    schema: dict[str, Any] = {"type": "string"}
    value: Any = 1
    for _ in range(17):
        schema, value = {"properties": {"a": schema}}, {"a": value}
    loaded = load_type(changed("properties/mask", schema))
    with pytest.raises(InvalidDocument) as caught:
        check_properties(loaded, {"address": "a", "server": "b", "mask": value})
    assert caught.value.path == "properties.mask" + ".a" * 17


def test_a_property_may_take_one_of_several_forms() -> None:
    forms = [{"type": "integer"}, {"type": "object", "required": ["bits"]}]
    loaded = load_type(changed("properties/mask", {"oneOf": forms}))
    for value in (24, {"bits": 24}):
        check_properties(loaded, {"address": "a", "server": "b", "mask": value})
    with pytest.raises(InvalidDocument) as caught:
        check_properties(loaded, {"address": "a", "server": "b", "mask": {"bit": 24}})
    assert caught.value.path == "properties.mask"
    assert '"bits" is missing' in caught.value.message
    with pytest.raises(InvalidDocument, match="exactly one of the 2 forms"):
        check_properties(loaded, {"address": "a", "server": "b", "mask": "24"})


PROPERTIES: dict[str, Any] = {"address": "10.0.0.5", "server": "db_a"}


@pytest.mark.parametrize(
    ("given", "where", "fragment"),
    [
        ({"server": "db_a"}, "properties", '"address" is missing'),
        ({**PROPERTIES, "adress": 1}, "properties.adress", "unknown key"),
        ({**PROPERTIES, "adress": {"get_param": "x"}}, "properties.adress", "unknown key"),
        ({**PROPERTIES, "mask": "24"}, "properties.mask", "text"),
        ({**PROPERTIES, "mask": True}, "properties.mask", "true or false"),
        ({**PROPERTIES, "mask": 33}, "properties.mask", "at most 32"),
        ({**PROPERTIES, "kind": "v5"}, "properties.kind", "allowed"),
        ({**PROPERTIES, "routes": [{"to": "x"}, {}]}, "properties.routes[1]", '"to" is missing'),
        ({**PROPERTIES, "routes": [{"to": "x"}] * 3}, "properties.routes", "at most 2"),
    ],
)
def test_properties_are_held_against_the_type(
    given: dict[str, Any], where: str, fragment: str
) -> None:
    with pytest.raises(InvalidDocument) as caught:
        check_properties(load_type(TYPE), given)
    assert caught.value.path == where
    assert fragment in caught.value.message
    assert caught.value.remedy


def test_a_finding_never_shows_a_value() -> None:
    for value in ("hunter2", ["hunter2"], {"hunter": "hunter2"}):
        for key in ("mask", "kind", "routes"):
            with pytest.raises(InvalidDocument) as caught:
                check_properties(load_type(TYPE), {**PROPERTIES, key: value})
            assert "hunter2" not in str(caught.value)


def test_what_still_is_a_reference_is_checked_later() -> None:
    check_properties(
        load_type(TYPE), {"address": {"get_attr": ["a", "b"]}, "server": {"get_param": "active"}}
    )


# The shipped types


def test_each_shipped_file_is_a_type_with_its_name() -> None:
    files = Path(str(importlib.resources.files("mistral_failover.types"))).glob("*.yaml")
    assert {path.stem for path in files} == set(installed_types())


def test_the_table_of_installed_types_belongs_to_the_caller() -> None:
    installed_types().clear()
    assert installed_types()


@pytest.mark.parametrize("name", sorted(installed_types()))
def test_a_shipped_type_is_described(name: str) -> None:
    shipped = installed_types()[name]
    assert shipped.description
    assert all(spec.get("description") for spec in shipped.document["properties"].values())
    assert load_type(shipped.to_dict()) == shipped


def test_attaching_and_activating_are_replaced_delete_first_on_their_member() -> None:
    types = installed_types()
    assert types["volume_attachment"].replace == types["activation"].replace == "delete_first"
    assert types["volume_attachment"].revive
    assert types["activation"].revive
    assert not types["stack_parameters"].revive
    assert types["volume_attachment"].member_property == "server"
    assert types["activation"].member_property == "member"
    assert types["volume_attachment"].immutable == {"volume", "server"}


def test_a_fence_sits_on_no_member_and_leaves_nothing_to_undo() -> None:
    fence = installed_types()["fence"]
    assert fence.member_property is None
    assert set(fence.operations) == {"create"}


DEVICES = {"port", "volume_attachment"}
"""A server gets these as devices, so they are there before the application starts."""
OTHERS = {
    "fence": Stage.FENCE,
    "alarm": Stage.UPDATE_STACK,
    "stack_parameters": Stage.UPDATE_STACK,
    "stack_template": Stage.UPDATE_STACK,
    "group_member": Stage.END,
}


def test_the_shipped_operations_make_the_stages_of_a_failover() -> None:
    for name, shipped in installed_types().items():
        stages = {verb: spec.stage for verb, spec in shipped.operations.items()}
        if name in DEVICES:
            assert set(stages.values()) == {Stage.MOVE_VOLUMES}, name
        elif shipped.provides is not None:
            assert stages.pop(Verb.DELETE) == Stage.QUIESCE, name
            assert set(stages.values()) == {Stage.ACTIVATE}, name
        elif name in OTHERS:
            assert set(stages.values()) == {OTHERS[name]}, name
    assert [rank(stage) for stage in Stage] == list(range(len(Stage)))


def test_further_properties_of_an_activation_are_arguments() -> None:
    activation = installed_types()["activation"]
    plain = {"member": "db_a", "start": "pg-start", "stop": "pg-stop"}
    check_properties(activation, {**plain, "data_device": "/dev/vdb", "port": 5432})
    with pytest.raises(InvalidDocument, match=r"^properties.data_device: it is null"):
        check_properties(activation, {**plain, "data_device": None})


# Changes


@pytest.fixture
def virtual_ip() -> ResourceType:
    return load_type(TYPE)


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ({}, {}, Change("none")),
        ({"mask": 24, "kind": "v4"}, {"kind": "v4", "mask": 24.0}, Change("none")),
        ({"mask": 24}, {"mask": 25}, Change("update", ("mask",))),
        ({"mask": 1}, {"mask": True}, Change("update", ("mask",))),
        ({"mask": None}, {}, Change("update", ("mask",))),
        ({}, {"server": "b", "kind": "v6"}, Change("update", ("kind", "server"))),
        ({"address": "a"}, {"address": "b"}, Change("replace", ("address",))),
        ({"address": "a", "mask": 1}, {"address": "b"}, Change("replace", ("address",))),
        ({"routes": [{"to": "a"}]}, {"routes": [{"to": "a"}]}, Change("none")),
        ({"routes": [1, 2]}, {"routes": [2, 1]}, Change("update", ("routes",))),
    ],
)
def test_a_change_is_told_by_the_properties_that_differ(
    virtual_ip: ResourceType, old: dict[str, Any], new: dict[str, Any], change: Change
) -> None:
    assert compare(virtual_ip, old, new) == change


def test_a_type_without_update_replaces_whatever_differs() -> None:
    fence = installed_types()["fence"]
    assert compare(fence, {"member": "a"}, {"member": "a", "x": 1}) == Change("replace", ("x",))


def test_what_may_be_done_about_a_dead_host_changes_without_the_volume_leaving() -> None:
    attachment = installed_types()["volume_attachment"]
    old = {"volume": "a", "server": "db_a"}
    assert compare(attachment, old, {**old, "when_host_is_down": "delete_server"}) == Change(
        "update", ("when_host_is_down",)
    )


def test_other_arguments_update_an_activation_and_another_member_replaces_it() -> None:
    activation = installed_types()["activation"]
    old = {"member": "db_a", "start": "s", "stop": "t", "device": "/dev/vdb"}
    assert compare(activation, old, {**old, "device": "/dev/vdc"}).action == "update"
    assert compare(activation, old, {**old, "member": "db_b"}) == Change("replace", ("member",))
