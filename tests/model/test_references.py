# SPDX-License-Identifier: Apache-2.0
"""Intrinsic functions name parameters and resources, and are replaced by their values."""

from typing import Any

import pytest

from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.references import (
    Reference,
    UnresolvedReference,
    find_references,
    holds_reference,
    resolve_attributes,
    resolve_params,
)

TREE: dict[str, Any] = {
    "server": {"get_param": "active"},
    "nodes": [{"get_resource": "data"}, "text", {"deep": {"get_attr": ["data", "disks", 0, "id"]}}],
    "plain": {"a": 1},
}
DATA: dict[str, dict[str, Any]] = {
    "data": {"id": "v-1", "attributes": {"disks": [{"id": "d-0"}], "device": "/dev/vdb", "7": 1}},
    "bare": {"id": None, "attributes": None},
}


def test_references_are_found_wherever_they_stand() -> None:
    assert find_references(TREE) == [
        Reference("get_param", "active", (), "server"),
        Reference("get_resource", "data", (), "nodes[0]"),
        Reference("get_attr", "data", ("disks", 0, "id"), "nodes[2].deep"),
    ]
    assert holds_reference(TREE)
    assert not holds_reference(TREE["plain"])


def test_parameters_are_resolved_and_the_rest_stays() -> None:
    resolved = resolve_params(TREE, {"active": "db_a"})
    assert resolved == {**TREE, "server": "db_a"}
    assert TREE["server"] == {"get_param": "active"}
    resolved["nodes"][0]["get_resource"] = "other"
    assert TREE["nodes"][0] == {"get_resource": "data"}


def test_attributes_and_ids_are_resolved() -> None:
    tree = resolve_params(TREE, {"active": "db_a"})
    assert resolve_attributes(tree, DATA) == {
        "server": "db_a",
        "nodes": ["v-1", "text", {"deep": "d-0"}],
        "plain": {"a": 1},
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["disks"], [{"id": "d-0"}]),
        (["disks", "0", "id"], "d-0"),
        (["device"], "/dev/vdb"),
        ([7], 1),
    ],
)
def test_a_path_goes_into_mappings_by_key_and_lists_by_index(path: list[Any], value: Any) -> None:
    assert resolve_attributes({"get_attr": ["data", *path]}, DATA) == value


def test_a_value_that_looks_like_a_function_is_data() -> None:
    trap = {"get_resource": "data"}
    data = {"evil": {"id": "e", "attributes": {"a": trap}}, **DATA}
    assert resolve_attributes({"x": {"get_attr": ["evil", "a"]}}, data) == {"x": trap}


def test_a_resolved_value_is_a_copy() -> None:
    disks = resolve_attributes({"get_attr": ["data", "disks"]}, DATA)
    disks.clear()
    assert DATA["data"]["attributes"]["disks"]


@pytest.mark.parametrize(
    ("tree", "path", "fragment", "remedy"),
    [
        ({"a": {"get_attr": ["gone", "x"]}}, "a", 'resource "gone"', "bare, data"),
        ({"a": [{"get_attr": ["data", "x"]}]}, "a[0]", '"data.x"', "device"),
        ({"get_attr": ["data", "disks", 1]}, "", '"data.disks.1"', "list of 1"),
        ({"get_attr": ["data", "disks", -1]}, "", '"data.disks.-1"', "list of 1"),
        ({"get_attr": ["data", "disks", "x"]}, "", '"data.disks.x"', "list of 1"),
        ({"get_attr": ["data", "device", "x"]}, "", '"data.device.x"', "shorten"),
        ({"get_attr": ["bare", "x"]}, "", '"bare.x"', "none"),
        ({"a": {"get_resource": "gone"}}, "a", 'resource "gone"', "bare, data"),
        ({"a": {"get_resource": "bare"}}, "a", "no physical id", "get_attr"),
        ({"a": {"get_param": "active"}}, "a", "not resolved", "parameters first"),
    ],
)
def test_what_is_not_there_is_named_with_its_place(
    tree: Any, path: str, fragment: str, remedy: str
) -> None:
    with pytest.raises(UnresolvedReference) as caught:
        resolve_attributes(tree, DATA)
    error = caught.value
    assert (error.code, error.path) == ("UNRESOLVED_REFERENCE", path)
    assert fragment in error.message
    assert remedy in error.remedy
    assert str(error).startswith(f"{path}: " if path else error.message)


def test_an_unknown_parameter_is_named_with_those_that_are_known() -> None:
    with pytest.raises(UnresolvedReference, match=r'^a: the parameter "x" has no value. .*active'):
        resolve_params({"a": {"get_param": "x"}}, {"active": "db_a"})


@pytest.mark.parametrize(
    ("node", "fragment"),
    [
        ({"get_param": ["a"]}, "one name"),
        ({"get_param": ""}, "one name"),
        ({"get_resource": {"get_param": "active"}}, "one name"),
        ({"get_attr": "data"}, "takes a list"),
        ({"get_attr": ["data"]}, "takes a list"),
        ({"get_attr": ["data", 1.5]}, "takes a list"),
        ({"get_attr": ["data", True]}, "takes a list"),
        ({"get_attr": ["data", {"get_param": "active"}]}, "takes a list"),
        ({"get_param": "active", "default": "x"}, "the only key"),
        ({"get_param": "active", "get_attr": ["a", "b"]}, "the only key"),
    ],
)
def test_a_malformed_function_is_refused(node: Any, fragment: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        find_references({"a": [node]})
    assert caught.value.path == "a[0]"
    assert fragment in caught.value.message
    assert caught.value.remedy
