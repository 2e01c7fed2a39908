# SPDX-License-Identifier: Apache-2.0
"""Replacing a member when answers get lost, Heat fails, or somebody else updates the stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace as replaced
from typing import Any

import pytest

from mistral_failover.cloud import heat_replacements as marks_module
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.heat_replacements import KeptParts, rows_of
from mistral_failover.cloud.stack_members import Member, members
from mistral_failover.cloud.stack_updates import (
    SENDS,
    Replacement,
    patch_parameters,
    replace_member,
    size_after,
)
from mistral_failover.cloud.stacks import stack_map
from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.fault_points import arm, disarm
from mistral_failover.lab.emulator.client import EmulatorClient
from support.nova import nova_of
from support.operators import Operator
from support.waiting import until


def patches(emulator: EmulatorClient) -> list[dict[str, Any]]:
    return [row for row in emulator.critical() if row["kind"] == "patch"]


def marks(emulator: EmulatorClient) -> list[dict[str, Any]]:
    return [row for row in emulator.critical() if row["kind"] == "mark_unhealthy"]


@pytest.fixture
def old(cloud: Cloud, group: str) -> Member:
    """The member that is to go."""
    return members(cloud, group, autoscaling_group="db_servers")[0]


@pytest.fixture
def replace(cloud: Cloud, group: str, old: Member) -> Callable[..., Replacement]:
    """`replace_member` of that member."""

    def call(with_: Cloud = cloud, limit: float = 10, **more: Any) -> Replacement:
        return replace_member(
            with_,
            group,
            old.name,
            autoscaling_group="db_servers",
            resource=None,
            server_id=old.server_id,
            reason="a test",
            limit=limit,
            **more,
        )

    return call


@pytest.fixture
def before_update() -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Has something done once, right before Heat is asked for an update."""

    def once(do: Callable[[], Any]) -> None:
        def hook(name: str) -> None:
            if name == "patch.before":
                disarm()
                do()

        arm(hook)

    yield once
    disarm()


def in_group(cloud: Cloud, group: str) -> dict[str, str]:
    """The servers of the members."""
    return {m.name: m.server_id for m in members(cloud, group, autoscaling_group="db_servers")}


def nested(cloud: Cloud, group: str) -> str:
    """The group's own stack."""
    return stack_map(cloud, group)["db_servers"].physical_id


@pytest.mark.parametrize("operation", ["mark_unhealthy", "stack_patch"])
@pytest.mark.parametrize("fault", ["lost", "error"])
def test_one_server_goes_and_one_comes_whatever_answer_gets_lost(
    operation, fault, cloud, emulator, group, old, replace
):
    emulator.api_fault(operation, fault)
    done = replace()
    assert in_group(cloud, group)[old.name] == done.server != old.server_id
    assert (len(marks(emulator)), len(patches(emulator))) == (1, 1)
    assert not done.adopted


def test_what_an_earlier_attempt_sent_is_waited_for_and_not_sent_again(
    cloud, emulator, group, old, replace
):
    cloud.heat.resources.mark_unhealthy(nested(cloud, group), old.server_id, True, "a test")
    emulator.set_latency(stack_patch=0.3)
    cloud.heat.stacks.update(group, existing=True)
    done = replace()
    assert (done.status, done.adopted) == ("UPDATE_COMPLETE", True)
    assert (len(marks(emulator)), len(patches(emulator))) == (1, 1)


def test_an_update_that_never_ends_is_superseded_after_half_of_the_time(
    cloud, emulator, group, old, replace
):
    emulator.set_latency(stack_patch=600)
    cloud.heat.stacks.update(group, existing=True)
    emulator.set_latency(stack_patch=0)
    assert replace(limit=2).server != old.server_id
    assert [row["outcome"] for row in patches(emulator)] == ["superseded", "done"]


def test_an_update_that_heat_calls_cancelled_is_sent_again(cloud, emulator, group, old, replace):
    emulator.api_fault("stack_patch", "cancel")
    done = replace()
    assert in_group(cloud, group)[old.name] == done.server != old.server_id
    assert done.status == "UPDATE_COMPLETE"
    assert (len(marks(emulator)), len(patches(emulator))) == (1, 2)


def test_parameters_whose_update_heat_calls_cancelled_are_sent_again(cloud, emulator, pair):
    emulator.api_fault("stack_patch", "cancel", times=SENDS - 1)
    assert patch_parameters(cloud, pair.name, {"active": "db_b"}, 10).status == "UPDATE_COMPLETE"
    assert len(patches(emulator)) == SENDS

    emulator.api_fault("stack_patch", "cancel", times=SENDS)
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, pair.name, {"active": "db_a"}, 10)
    assert raised.value.code == "STACK_FAILED"


def test_a_server_that_does_not_come_up_fails_it_and_the_next_attempt_takes_another(
    cloud, emulator, group, old, replace
):
    emulator.api_fault("boot", "fail")
    with pytest.raises(CloudError) as raised:
        replace()
    assert raised.value.code == "STACK_FAILED"
    assert "Injected failure of the boot" in raised.value.message
    assert "room for one more" in raised.value.remedy
    assert f"openstack server delete {old.server_id}" in raised.value.remedy
    assert nova_of(cloud).get_server(old.server_id).status == "ACTIVE"
    broken = in_group(cloud, group)[old.name]

    done = replace()
    assert done.server not in (old.server_id, broken)
    assert in_group(cloud, group)[old.name] == done.server
    servers = {server.id for server in nova_of(cloud).servers()}
    assert not servers & {old.server_id, broken}
    assert len(marks(emulator)) == 1


def test_a_stack_that_failed_for_something_else_does_not_hide_that_it_was_done(
    cloud, emulator, group, old, replace
):
    done = replace()
    emulator.api_fault("stack_patch", "fail")
    cloud.heat.stacks.update(group, existing=True)
    until(lambda: cloud.heat.stacks.get(group).stack_status == "UPDATE_FAILED")
    again = replace()
    assert (again.server, again.adopted) == (done.server, True)


def test_heat_that_keeps_the_member_is_not_believed(cloud, group, old, replace, before_update):
    owner = nested(cloud, group)
    before_update(lambda: cloud.heat.resources.mark_unhealthy(owner, old.name, False, "it is well"))
    with pytest.raises(CloudError) as raised:
        replace()
    assert raised.value.code == "STACK_FAILED"
    assert f"Heat kept member {old.name} as it was" in raised.value.message
    assert in_group(cloud, group)[old.name] == old.server_id


def test_a_member_that_leaves_the_group_meanwhile_is_said_to(
    cloud, emulator, group, old, replace, before_update
):
    def scaled_down() -> None:
        smaller = cloud.heat.stacks.template(group)
        smaller["resources"]["db_servers"]["properties"].update(min_size=1, desired_capacity=1)
        cloud.heat.stacks.update(group, existing=True, template=smaller)

    before_update(scaled_down)
    with pytest.raises(CloudError) as raised:
        replace()
    assert raised.value.code == "STACK_FAILED"
    assert f"no resource {old.name}" in raised.value.message


def test_no_call_leaves_after_the_lease_has_ended(connect, emulator, replace):
    class Lost:
        request_id = None

        def permit(self, method: str) -> float:
            if method == "GET":
                return 5.0
            raise LeaseLost("it is over")

    with pytest.raises(LeaseLost):
        replace(connect(guard=Lost()))
    assert (marks(emulator), patches(emulator)) == ([], [])


def test_an_end_of_time_tells_what_was_seen(emulator, old, replace):
    emulator.set_latency(stack_patch=600)
    with pytest.raises(CloudError) as raised:
        replace(limit=2)
    assert raised.value.code == "TIMEOUT"
    assert f"member {old.name} of stack shop" in raised.value.message
    assert "UPDATE_IN_PROGRESS" in raised.value.message


def test_nothing_is_marked_or_sent_while_that_would_take_a_server_that_must_stay(
    cloud, emulator, group, old, replace
):
    (other,) = [m for m in members(cloud, group, autoscaling_group="db_servers") if m != old]
    keep = KeptParts("shop", {other.server_id: other.name})
    wrong = {"db_servers": group, other.name: nested(cloud, group)}
    for name, owner in wrong.items():
        cloud.heat.resources.mark_unhealthy(owner, name, True, "somebody's check")

    for name, owner in wrong.items():
        with pytest.raises(CloudError) as raised:
            replace(keep=lambda: keep)
        assert raised.value.code == "MEMBER_MARKED"
        assert f"Heat has {name} of stack" in raised.value.message
        assert raised.value.remedy.endswith(f"{name}.")
        cloud.heat.resources.mark_unhealthy(owner, name, False, "it is well")

    assert patches(emulator) == []
    assert len(marks(emulator)) == 4, "those of this test"
    assert replace(keep=lambda: keep).server != old.server_id
    assert in_group(cloud, group)[other.name] == other.server_id


def test_parameters_are_not_sent_while_that_would_take_a_server_that_must_stay(
    cloud, emulator, pair
):
    keep = KeptParts("payments", {pair.a: "db_a"})
    cloud.heat.resources.mark_unhealthy(pair.name, "db_a", True, "somebody's check")

    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, pair.name, {"active": "db_b"}, 10, lambda: keep)

    assert (raised.value.code, patches(emulator)) == ("MEMBER_MARKED", [])
    patch_parameters(cloud, pair.name, {"active": "db_a"}, 10, lambda: keep)
    assert patches(emulator) == [], "what it carries already needs no update"


def test_who_carries_something_again_is_not_even_marked(cloud, emulator, group, old, replace):
    with pytest.raises(CloudError) as raised:
        replace(keep=lambda: KeptParts("shop", {old.server_id: old.name}))
    assert raised.value.code == "CONFLICT"
    assert (marks(emulator), patches(emulator)) == ([], [])


def test_who_carries_something_again_once_it_was_marked_is_not_replaced(
    cloud, emulator, group, old, replace
):
    asked = iter([KeptParts(), KeptParts("shop", {old.server_id: old.name})])
    with pytest.raises(CloudError) as raised:
        replace(keep=lambda: next(asked))
    assert raised.value.code == "CONFLICT"
    assert (len(marks(emulator)), patches(emulator)) == (1, [])


def test_a_server_in_error_that_heat_failed_to_update_must_stay_as_well(
    cloud, emulator, pair, monkeypatch
):
    keep = KeptParts("payments", {pair.a: "db_a"})
    (link,) = [row for row in rows_of(cloud, pair.name) if row.resource.physical_id == pair.a]
    broken = replaced(link, resource=replaced(link.resource, status="UPDATE_FAILED"))
    monkeypatch.setattr(marks_module, "rows_of", lambda *_: [broken])

    marks_module.refuse_marked(cloud, pair.name, keep)  # Nova has it well, so Heat leaves it alone
    Operator(emulator).reset_server(pair.a, "error")
    with pytest.raises(CloudError) as raised:
        marks_module.refuse_marked(cloud, pair.name, keep)
    assert raised.value.code == "MEMBER_MARKED"
    assert "--reset" not in raised.value.remedy, "that ends a mark alone"


BETWEEN = {"min_size": 1, "max_size": 4}


@pytest.mark.parametrize(
    ("properties", "healthy", "size"),
    [
        (BETWEEN, 2, 2),
        (BETWEEN, 0, 1),
        (BETWEEN | {"desired_capacity": 3}, 1, 3),
        (BETWEEN | {"desired_capacity": "2"}, 3, 2),
        (BETWEEN | {"desired_capacity": 9}, 3, 4),
        (BETWEEN | {"desired_capacity": 0}, 3, 3),
        (BETWEEN | {"desired_capacity": {"get_param": "size"}}, 1, 2),
        (BETWEEN | {"desired_capacity": {"get_param": "unknown"}}, 1, None),
        (BETWEEN | {"desired_capacity": {"get_param": ["map", "size"]}}, 1, None),
        (BETWEEN | {"desired_capacity": {"if": ["large", 3, 2]}}, 1, None),
        ({"min_size": {"get_param": "size"}, "max_size": 3}, 1, 2),
        (BETWEEN | {"desired_capacity": {"Ref": "size"}}, 1, 2),
    ],
)
def test_the_size_of_a_group_after_an_update(properties, healthy, size):
    assert size_after(properties, {"size": "2.0", "map": "{}"}, healthy) == size
