# SPDX-License-Identifier: Apache-2.0
"""What an update of a stack would replace, by what Heat, Nova and Cinder say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.cloud import heat_replacements
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.heat_replacements import KeptParts, ListedResource, refuse_marked
from mistral_failover.cloud.servers import ServerState
from mistral_failover.cloud.stacks import SERVER, VOLUME, StackResource

OTHER = "OS::Heat::TestResource"


def row(
    name: str, type_: str = OTHER, status: str = "CREATE_COMPLETE", stack: str = "s", **more: Any
) -> ListedResource:
    """A resource whose id is its name in capitals, unless said otherwise."""
    identity = more.pop("id", name.upper())
    nested = bool(more.pop("nested", False))
    resource = StackResource(identity, type_, "2026-11-22", status, nested)
    return ListedResource(stack, name, resource, **more)


def cloud_of(
    templates: Mapping[str, Any] | None = None,
    volumes: Mapping[str, str] | None = None,
    stacks: Mapping[str, str] | None = None,
) -> Any:
    """A cloud with these templates of stacks, states of volumes, and states of stacks."""

    def volume(volume_id: str) -> Any:
        if volume_id not in (volumes or {}):
            raise CloudError("NOT_FOUND", "no such volume")
        return SimpleNamespace(status=(volumes or {})[volume_id])

    return SimpleNamespace(
        heat=SimpleNamespace(
            stacks=SimpleNamespace(
                template=lambda stack: (templates or {}).get(stack, {}),
                get=lambda stack, **_: SimpleNamespace(
                    stack_status=(stacks or {})[stack], identifier=stack
                ),
            ),
            http_client=SimpleNamespace(get_endpoint=lambda: "http://heat"),
        ),
        volume=volume,
        volume_ids=lambda: list(volumes or {}),
    )


def names(cloud: Any, rows: list[ListedResource], **more: Any) -> set[str]:
    ids = {each.resource.physical_id for each in rows}
    return set(heat_replacements.predicted_replacements(cloud, rows, ids, **more))


@pytest.fixture
def nova(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Say in which state Nova has every server; "" for gone."""

    def says(status: str) -> None:
        state = ServerState(status or None, None, None, exists=bool(status))
        monkeypatch.setattr(heat_replacements, "server_state", lambda cloud, server: state)

    return says


@pytest.mark.parametrize(
    ("properties", "goes"),
    [
        ({"user_data": {"get_resource": "config"}}, True),
        ({"user_data": {"str_replace": {"params": {"$c": {"get_attr": ["config", "x"]}}}}}, True),
        ({"networks": [{"port": {"get_resource": "config"}}]}, True),
        ({"user_data": "config"}, False),
        ({"user_data": {"get_param": "config"}}, False),
        ({"user_data": {"get_resource": "other"}}, False),
    ],
)
def test_a_server_goes_with_what_its_properties_refer_to(
    properties: dict[str, Any], goes: bool
) -> None:
    resources = {"config": {}, "node": {"properties": properties, "depends_on": "config"}}
    cloud = cloud_of({"s": {"resources": resources}})

    found = names(cloud, [row("config", status="CHECK_FAILED"), row("node", SERVER)])

    assert found == ({"CONFIG", "NODE"} if goes else {"CONFIG"})


@pytest.mark.parametrize("reference", [{"Ref": "config"}, {"Fn::GetAtt": ["config", "x"]}])
def test_a_template_of_cloudformation_is_read_as_well(reference: dict[str, Any]) -> None:
    resources = {"node": {"Properties": {"UserData": {"Fn::Base64": reference}}}}

    found = names(
        cloud_of({"s": {"Resources": resources}}),
        [row("config", status="CHECK_FAILED"), row("node", SERVER)],
    )

    assert found == {"CONFIG", "NODE"}


def test_what_is_behind_a_resource_goes_with_it_through_every_stack() -> None:
    templates = {"s": {"resources": {"member": {"properties": {"c": {"get_resource": "config"}}}}}}
    rows = [
        row("config", status="CHECK_FAILED"),
        row("member", "member.yaml", nested=True),
        row("node", SERVER, stack="MEMBER"),
        row("lonely", SERVER),
    ]

    assert names(cloud_of(templates), rows) == {"CONFIG", "MEMBER", "NODE"}


@pytest.mark.parametrize(
    ("behind", "gone"),
    [
        ("UPDATE_COMPLETE", {"GROUP", "NODE"}),  # somebody marked the group
        ("CHECK_FAILED", set()),  # a check of the stack did: what is in it decides
    ],
)
def test_a_marked_group_goes_as_a_whole_unless_a_check_of_the_stack_marked_it(
    behind: str, gone: set[str]
) -> None:
    rows = [
        row("group", "OS::Heat::AutoScalingGroup", "CHECK_FAILED", nested=True),
        row("node", SERVER, stack="GROUP"),
    ]

    assert names(cloud_of(stacks={"GROUP": behind}), rows) == gone


@pytest.mark.parametrize(
    ("one", "goes"),
    [
        (row("x", status="CHECK_FAILED"), True),
        (row("x", status="UPDATE_FAILED"), True),
        (row("x", status="CREATE_FAILED"), True),
        (row("x", status="UPDATE_IN_PROGRESS"), False),
        (row("x", status="DELETE_FAILED"), False),
        (row("x", "OS::Neutron::Port", "UPDATE_FAILED"), False),
        (row("x", "OS::Neutron::Port", "CHECK_FAILED"), True),
        (row("x", "OS::Neutron::Port", "CREATE_FAILED", id=""), True),
        (row("x", "member.yaml", "UPDATE_FAILED", nested=True), False),
        (row("x", VOLUME, "CHECK_FAILED"), True),
        (row("x", VOLUME, "DELETE_FAILED"), True),
        (row("x", VOLUME, retired=True), True),
        (row("x", SERVER, "CHECK_FAILED"), True),
        (row("x", SERVER, "DELETE_IN_PROGRESS"), False),
    ],
)
def test_what_is_marked_goes_and_mostly_what_failed_otherwise(
    one: ListedResource, goes: bool
) -> None:
    assert bool(names(cloud_of(), [one])) is goes


@pytest.mark.parametrize(
    ("status", "goes"), [("error", True), ("deleting", True), ("in-use", False), (None, True)]
)
def test_a_volume_that_failed_otherwise_goes_by_what_cinder_says(
    status: str | None, goes: bool
) -> None:
    cloud = cloud_of(volumes={"X": status} if status else {})
    assert bool(names(cloud, [row("x", VOLUME, "UPDATE_FAILED")])) is goes


@pytest.mark.parametrize(
    ("status", "goes"), [("ERROR", {"X", "USER"}), ("ACTIVE", set()), ("", {"USER"})]
)
def test_a_server_that_failed_otherwise_goes_by_what_nova_says(
    status: str, goes: set[str], nova: Callable[[str], None]
) -> None:
    nova(status)
    cloud = cloud_of({"s": {"resources": {"user": {"properties": {"of": {"get_resource": "x"}}}}}})
    rows = [row("x", SERVER, "UPDATE_FAILED"), row("user")]
    assert names(cloud, rows) == goes, "of a server that is gone nothing is left to lose"


def test_what_another_one_has_replaced_takes_nothing_along_any_more() -> None:
    cloud = cloud_of(
        {"s": {"resources": {"node": {"properties": {"of": {"get_resource": "config"}}}}}}
    )
    old = row("config", status="CHECK_FAILED", id="OLD", retired=True)
    assert names(cloud, [old, row("config"), row("node", SERVER)]) == {"OLD"}


def refusal(
    monkeypatch: pytest.MonkeyPatch, rows: list[ListedResource], keep: KeptParts, **more: Any
) -> str:
    monkeypatch.setattr(heat_replacements, "rows_of", lambda cloud, stack: rows)
    used = {"node": {"properties": {"of": {"get_resource": "standby"}}}}
    cloud = cloud_of({"s": {"resources": used}}, volumes={"DATA": "error"})
    with pytest.raises(CloudError) as raised:
        refuse_marked(cloud, "name/s", keep, **more)
    assert raised.value.remedy
    return raised.value.code


def test_nothing_is_marked_that_would_take_along_who_carries_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [row("standby", SERVER), row("node", SERVER)]
    keep = KeptParts("payments", {"NODE": "db_a"})

    assert refusal(monkeypatch, rows, keep, marking=("name/s", "standby")) == "CONFLICT"
    refuse_marked(cloud_of(), "name/s", keep)


@pytest.mark.parametrize("status", ["CHECK_FAILED", "UPDATE_FAILED", "DELETE_FAILED"])
def test_a_volume_that_would_be_replaced_stops_the_update(
    status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = KeptParts("payments", volumes={"DATA": "data"})
    assert refusal(monkeypatch, [row("data", VOLUME, status)], keep) == "VOLUME_MARKED"


def test_a_volume_that_heat_does_not_show_any_more_under_its_name_stops_the_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [row("data", VOLUME, id="NEW")]
    monkeypatch.setattr(heat_replacements, "rows_of", lambda cloud, stack: rows)

    assert refusal(monkeypatch, rows, KeptParts("g", volumes={"DATA": "data"})) == "VOLUME_REPLACED"
    refuse_marked(cloud_of(), "s", KeptParts("g", volumes={"DATA": "DATA"}))  # named by its id
    refuse_marked(cloud_of(), "s", KeptParts("g", volumes={"NEW": "data"}))
