# SPDX-License-Identifier: Apache-2.0
"""Heat replaces a member that is marked unhealthy, and `replace_member` follows it to the end.

Measured on Nova 34, Cinder 29, Heat 27, Keystone 30 and Mistral 23:

replace_member

- A mark names the resource or its physical id. It is a 404 by the id of a deleted one, and 409
  ActionInProgress while the resource is made.
- The next update makes the new server, waits until it is ACTIVE, and deletes the old one: 6 to 11
  s in all.
- The old server's network interfaces are unplugged before. It has none then, even if no new
  server starts. A dead host does not unplug, which by Heat's source ends the update after a
  minute, unless the server is deleted first or is in ERROR.
- The name stays; id and creation time are new, so it is the newest member then.
- A member that is a stack is replaced as a whole. If a resource in it is marked, what refers to
  the resource is updated in place.
- A server that does not start is tried four times (85 s). The old one stays and runs, although
  Heat lists the broken one. The next update tries again.
- Each update resizes an autoscaling group to ``desired_capacity``, else to the number of members
  that have not failed. Failed members are deleted first, then the oldest.
- Members get a changed definition in the update that changes it. If that update fails, they get
  it only when it changes again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from contract.conftest import of
from contract.rig import Made, Rig
from contract.templates import CREW, CREW_MEMBER
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stack_members import Member, members
from mistral_failover.cloud.stack_updates import Replacement, replace_member
from mistral_failover.fault_points import arm, disarm

_numbers = itertools.count(1)


def because() -> str:
    """A reason of its own."""
    return f"it is tested for the {next(_numbers)}. time"


@pytest.fixture(scope="session")
def crew(rig: Rig) -> Iterator[Made]:
    """A stack with groups of servers (``plain``; ``free``, which says no desired capacity), of
    stacks (``deep``) and of numbered servers (``rows``), and a server of its own (``single``)."""
    made = rig.make_stack(of(CREW, rig), {"crew_member.yaml": of(CREW_MEMBER, rig)})
    yield made
    rig.remove_stack(made)


@pytest.fixture
def stack(rig: Rig, crew: Made) -> Made:
    """That stack at rest, and nothing of it broken."""
    rig.settled(crew)
    shown = rig.stack(crew)
    if shown["stack_status"].endswith("FAILED") or shown["parameters"]["broken"] == "True":
        repair(rig, crew)
    return crew


def give(rig: Rig, stack: Made, **parameters: float) -> None:
    """Let the stack have these parameters."""
    shown = rig.stack(stack)["parameters"]
    if any(float(shown[name]) != value for name, value in parameters.items()):
        assert rig.patch(stack, parameters=parameters).ok
        assert rig.settled(stack) == "UPDATE_COMPLETE"


def repair(rig: Rig, stack: Made) -> None:
    """Let nothing be broken any more.

    Heat hands a group's members a changed definition in the update that changes it, and if that
    one fails, in none but the next that changes it again.
    """

    def repaired() -> bool:
        wait = next(_numbers) / 1000
        assert rig.patch(stack, parameters={"broken": False, "wait": wait}).ok
        return rig.settled(stack) == "UPDATE_COMPLETE"

    rig.until(repaired)


@pytest.fixture
def sent() -> Iterator[list[str]]:
    """How often Heat was asked for an update."""
    seen: list[str] = []
    arm(lambda name: seen.append(name) if name == "patch.before" else None)
    yield seen
    disarm()


@pytest.fixture
def replace(cloud: Cloud, stack: Made) -> Callable[..., Replacement]:
    """`replace_member` in that stack."""

    def call(
        member: Member,
        group: str | None = "plain",
        resource: str | None = None,
        reason: str | None = None,
        limit: float = 90,
    ) -> Replacement:
        return replace_member(
            cloud,
            stack.name,
            member.name,
            autoscaling_group=group,
            resource=resource,
            server_id=member.server_id,
            reason=reason or because(),
            limit=limit,
        )

    return call


def rows(rig: Rig, stack: Made) -> dict[str, dict[str, Any]]:
    """All resources of the stack, nested ones included, by their own and their parent's name."""
    answer = rig.api().heat("GET", f"{stack.path}/resources?nested_depth=2")
    return {
        "/".join(filter(None, (row.get("parent_resource"), row["resource_name"]))): row
        for row in answer.json()["resources"]
    }


def inside(rig: Rig, stack: Made, name: str) -> str:
    """Where the stack behind a resource is."""
    nested = rows(rig, stack)[name]["physical_resource_id"]
    found = rig.api().heat("GET", f"/stacks/{nested}").headers["Location"]
    return "/stacks/" + str(found).rpartition("/stacks/")[2]


def mark(rig: Rig, at: str, resource: str, reason: str = "a test") -> Any:
    """The answer to a mark."""
    body = {"mark_unhealthy": True, "resource_status_reason": reason}
    return rig.api().heat("PATCH", f"{at}/resources/{resource}", body)


def marks(rig: Rig, at: str, resource: str, reason: str) -> int:
    """How often a resource was marked for that reason."""
    events = rig.api().heat("GET", f"{at}/resources/{resource}/events").json()["events"]
    return [event["resource_status_reason"] for event in events].count(reason)


def test_a_member_of_a_group_is_replaced_under_its_name_and_becomes_the_newest(
    cloud, rig, demo, stack, replace, sent
):
    old, kept = members(cloud, stack.name, autoscaling_group="plain")
    done = replace(old)
    assert (done.old_server, done.status, done.adopted) == (
        old.server_id,
        "UPDATE_COMPLETE",
        False,
    )
    after = {m.name: m for m in members(cloud, stack.name, autoscaling_group="plain")}
    assert after[kept.name] == kept
    assert after[old.name].server_id == done.server != old.server_id
    assert after[old.name].created_at >= old.created_at
    assert demo.server(done.server)["status"] == "ACTIVE"
    assert demo.server(old.server_id) is None, "the stack is complete when it is gone"

    again = replace(old)
    assert (again.server, again.adopted) == (done.server, True)
    assert sent == ["patch.before"]
    # By its id a mark never strikes a successor.
    answer = mark(rig, inside(rig, stack, "plain"), old.server_id)
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "ResourceNotFound")


def test_a_member_that_is_a_stack_and_was_marked_by_a_process_that_died_goes_as_a_whole(
    cloud, rig, demo, stack, replace, sent
):
    (old,) = members(cloud, stack.name, autoscaling_group="deep")
    before, at, reason = rows(rig, stack), inside(rig, stack, "deep"), because()
    assert mark(rig, at, old.name, reason).status_code == 200
    done = replace(old, "deep", reason=reason)
    after = rows(rig, stack)
    for name in (f"deep/{old.name}", f"{old.name}/node", f"{old.name}/side"):
        assert after[name]["physical_resource_id"] != before[name]["physical_resource_id"]
    assert after[f"{old.name}/node"]["physical_resource_id"] == done.server
    assert demo.server(old.server_id) is None
    assert marks(rig, at, old.name, reason) == 1
    assert sent == ["patch.before"]
    assert not done.adopted


@pytest.mark.parametrize(("resource", "other"), [("node", "side"), ("side", "node")])
def test_only_the_named_resource_of_a_members_stack_is_replaced_and_once(
    resource, other, cloud, rig, stack, replace, sent
):
    (old,) = members(cloud, stack.name, autoscaling_group="deep")
    before, reason = rows(rig, stack), because()
    done = replace(old, "deep", resource, reason)
    after = rows(rig, stack)
    changed = {
        name
        for name in ("node", "side")
        if after[f"{old.name}/{name}"]["physical_resource_id"]
        != before[f"{old.name}/{name}"]["physical_resource_id"]
    }
    assert changed == {resource}
    assert (done.server == old.server_id) is (resource == "side")
    assert not done.adopted

    assert replace(old, "deep", resource, reason).adopted
    assert sent == ["patch.before"]


def test_a_process_that_died_after_the_update_was_sent_is_followed(
    cloud, rig, stack, replace, sent
):
    (old,) = members(cloud, stack.name, autoscaling_group="deep")
    give(rig, stack, wait=rig.long_enough(3))
    at, reason = inside(rig, stack, f"deep/{old.name}"), because()
    assert mark(rig, at, "side", reason).status_code == 200
    assert rig.patch(stack).status_code == 202
    rig.until(
        lambda: rows(rig, stack)[f"{old.name}/side"]["resource_status"] == "CREATE_IN_PROGRESS"
    )
    busy = mark(rig, at, "side", reason)
    assert (busy.status_code, busy.json()["error"]["type"]) == (409, "ActionInProgress")

    done = replace(old, "deep", "side", reason)
    assert (done.server, done.status, done.adopted) == (old.server_id, "UPDATE_COMPLETE", True)
    assert sent == []


def test_members_of_every_kind_are_replaced_at_the_same_time(cloud, rig, demo, stack, replace):
    give(rig, stack, least=2)  # a group without a desired capacity keeps its least size
    single = Member("single", rows(rig, stack)["single"]["physical_resource_id"], "", "")
    groups = {"plain": 2, "free": 1, "rows": 1}
    wanted = [(single, None)] + [
        (one, group)
        for group, count in groups.items()
        for one in members(cloud, stack.name, autoscaling_group=group)[:count]
    ]
    rig.remove_servers([single.server_id])  # one whose server is gone already is replaced as well
    with ThreadPoolExecutor(len(wanted)) as pool:
        done = list(pool.map(lambda one: replace(*one), wanted))

    after = rows(rig, stack)
    for (old, group), new in zip(wanted, done, strict=True):
        row = after["/".join(filter(None, (group, old.name)))]
        assert row["physical_resource_id"] == new.server != old.server_id
        assert demo.server(new.server)["status"] == "ACTIVE"
        rig.until(lambda gone=old.server_id: demo.server(gone) is None)
    assert len(members(cloud, stack.name, autoscaling_group="free")) == 2


def test_a_group_that_would_lose_the_member_is_left_alone(cloud, rig, stack, replace, sent):
    give(rig, stack, least=2)
    give(rig, stack, least=1)
    old, kept = members(cloud, stack.name, autoscaling_group="free")
    with pytest.raises(CloudError) as raised:
        replace(old, "free")
    assert raised.value.code == "GROUP_WOULD_SHRINK"
    assert "1 members of the 2" in raised.value.message
    assert sent == []
    assert members(cloud, stack.name, autoscaling_group="free") == [old, kept]

    # What Heat does: without a desired capacity it counts those that have not failed.
    assert mark(rig, inside(rig, stack, "free"), old.server_id).status_code == 200
    assert rig.patch(stack).status_code == 202
    assert rig.settled(stack) == "UPDATE_COMPLETE"
    assert members(cloud, stack.name, autoscaling_group="free") == [kept]


def test_a_replacement_that_fails_tells_why_and_is_made_once_the_cause_is_gone(
    cloud, rig, demo, stack, replace
):
    (old,) = members(cloud, stack.name, autoscaling_group="deep")
    rig.patch(stack, parameters={"broken": True})
    rig.settled(stack)
    reason = because()
    with pytest.raises(CloudError) as raised:
        replace(old, "deep", reason=reason)
    assert raised.value.code == "STACK_FAILED"
    assert "resources.side: Test Resource failed side" in raised.value.message
    assert demo.server(old.server_id)["status"] == "ACTIVE", "it stays until the new one stands"

    repair(rig, stack)
    done = replace(old, "deep", reason=reason)
    assert done.status == "UPDATE_COMPLETE"
    (new,) = members(cloud, stack.name, autoscaling_group="deep")
    assert new.name == old.name
    assert new.server_id == done.server != old.server_id
    assert demo.server(old.server_id) is None


def test_what_is_not_there_is_said_and_nothing_is_touched(cloud, stack, replace, sent):
    one = members(cloud, stack.name, autoscaling_group="plain")[0]
    unknown = Member("unknown", one.server_id, "", "")
    for member, group, resource, code in (
        (unknown, "plain", None, "NOT_FOUND"),
        (unknown, None, None, "NOT_FOUND"),
        (one, "nothing", None, "NOT_FOUND"),
        (one, "plain", "node", "BAD_REQUEST"),
        (Member("plain", one.server_id, "", ""), None, None, "BAD_REQUEST"),
        (one, "single", None, "BAD_REQUEST"),
    ):
        with pytest.raises(CloudError) as raised:
            replace(member, group, resource)
        assert raised.value.code == code
    (deep,) = members(cloud, stack.name, autoscaling_group="deep")
    with pytest.raises(CloudError) as raised:
        replace(deep, "deep", "nothing")
    assert raised.value.code == "NOT_FOUND"
    assert "node, side" in raised.value.message
    assert sent == []
