# SPDX-License-Identifier: Apache-2.0
"""A server that boots from a volume of its stack, with a port of its stack: the next server gets
both. Nothing releases a boot disk but the deletion of its server, and that needs a proof.

On the real engine with an emulated cloud, whose Heat refuses a boot disk that is in use.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.resources.restart import replace as restart
from support.operators import Operator
from support.storage import simulate
from support.waiting import patiently, until


def boots_from_a_volume(
    stack: dict[str, Any], *, goes: bool = False, new: bool = False
) -> dict[str, Any]:
    """The template, in which db_a boots from the volume ``system`` and has the port ``front``.
    ``goes``: Nova deletes the disk with the server; ``new``: it makes one for each server."""
    given = {"volume_id": {"get_resource": "system"}}
    made = {"image": "tiny", "volume_size": 1}
    disk = {**(made if new else given), "boot_index": 0, "delete_on_termination": goes}
    system = {"type": "OS::Cinder::Volume", "properties": {"size": 1, "image": "tiny"}}
    front = {"type": "OS::Neutron::Port", "properties": {"network": "net1"}}
    server = {
        "type": "OS::Nova::Server",
        "properties": {
            "flavor": "m1.tiny",
            "networks": [{"port": {"get_resource": "front"}}],
            "block_device_mapping_v2": [disk],
        },
    }
    more = {"db_a": server, "system": system, "front": front}
    return {**stack, "resources": {**stack["resources"], **more}}


MEMBERS = {"servers": ["db_a"], "replace": "lost", "restart": ["replace"]}
FENCE = [{"kind": "stop", "limit": 1}, "confirm"]


@pytest.fixture
def pet(protect: Callable[..., Any]) -> Any:
    """A single server, up, whose lost host Heat leaves for another one."""
    group = protect(servers=("db_a",), template=boots_from_a_volume, members=MEMBERS, fence=FENCE)
    group.activate()
    return group


def boot_volume(group: Any) -> str:
    return str(group.cloud.resources(group.name)["system"]["physical_resource_id"])


def boot_disk(group: Any) -> list[Any]:
    """The servers that have the boot disk, by the cloud's own word."""
    volume = group.cloud.resources(group.name)["system"]["physical_resource_id"]
    return [s for s, node in group.cloud.guests().items() if volume in node["volumes"]]


def port(group: Any) -> str:
    return str(group.cloud.resources(group.name)["front"]["physical_resource_id"])


def test_the_next_server_boots_from_the_same_disk_with_the_same_port(pet: Any) -> None:
    former, address = pet.server("db_a"), port(pet)
    assert boot_disk(pet) == [former]

    patiently(pet, "on_alarm", **pet.fails("crash")).assert_succeeded()

    now = pet.server("db_a")
    assert now != former
    assert (boot_disk(pet), port(pet)) == ([now], address)
    assert (pet.holders(), pet.runs_on()) == (["db_a"], ["db_a"])
    assert pet.cloud.violations() == []


def test_the_old_server_is_deleted_after_the_proof_and_before_heat_is_asked(pet: Any) -> None:
    former = pet.server("db_a")
    since = max(each["seq"] for each in pet.cloud.audit())

    patiently(pet, "on_alarm", **pet.fails("crash")).assert_succeeded()

    seen = [e for e in pet.cloud.audit(since) if e.get("server") == former]
    kinds = [e["kind"] for e in seen if e["kind"] in ("server_stopped", "server_deleted")]
    assert kinds == ["server_stopped", "server_deleted"]
    assert pet.cloud.violations() == []


def test_the_plan_says_that_the_old_server_is_deleted_before_and_its_disk_is_not(
    pet: Any,
) -> None:
    former, disk = pet.server("db_a"), boot_volume(pet)

    (row,) = pet.plan(lost=["db_a"])["deletes"]

    before = f"in Nova, before Heat makes the next one, which gets volume {disk}, too"
    assert (row["what"], row["when"]) == (f"server {former}", before)


def test_the_plan_says_that_a_disk_is_in_danger_and_that_nothing_is_deleted(pet: Any) -> None:
    """An operator let Nova delete the disk with the server after the group was defined."""
    Operator(pet.cloud).let_go_along(pet.server("db_a"), boot_volume(pet))

    plan = pet.plan(lost=["db_a"])

    assert plan["deletes"] == []
    assert "VOLUME_WOULD_GO" in {each["code"] for each in plan["risks"]}


def test_a_dead_host_needs_a_person_s_word_before_anything_is_deleted(
    protect: Callable[..., Any],
) -> None:
    on = {"server": {"get_param": "active"}, "when_host_is_down": "delete_server"}
    data = {"type": "volume_attachment", "properties": {"volume": "data_volume", **on}}
    more = {"template": boots_from_a_volume, "members": MEMBERS, "fence": FENCE}
    group = protect({"data": data}, servers=("db_a",), **more)
    group.activate()
    former, address = group.server("db_a"), port(group)
    group.run("on_alarm", **group.fails("power_off")).assert_failed_with("BLOCKED")
    assert boot_disk(group) == [former]

    said = {"group": group.name, "member": "db_a", "because": "its power is off"}
    patiently(group, "confirm_fenced", **said).assert_succeeded()

    now = group.server("db_a")
    assert now != former
    assert now in boot_disk(group)
    assert (group.holders(), port(group)) == (["db_a"], address)
    assert group.cloud.violations() == []


def test_a_disk_that_would_go_with_its_server_is_refused_by_the_definition(
    protect: Callable[..., Any],
) -> None:
    def goes(stack: dict[str, Any]) -> dict[str, Any]:
        return boots_from_a_volume(stack, goes=True)

    with pytest.raises(AssertionError, match="VOLUME_WOULD_GO") as refused:
        protect(servers=("db_a",), template=goes, members=MEMBERS, fence=FENCE)

    assert "delete_on_termination: false in block_device_mapping_v2" in str(refused.value)


def test_it_is_refused_again_right_before_the_deletion(pet: Any) -> None:
    """An operator let Nova delete the disk with the server after the group was defined."""
    former = pet.server("db_a")
    disk = pet.cloud.resources(pet.name)["system"]["physical_resource_id"]
    Operator(pet.cloud).let_go_along(former, disk)
    ((level, remedy),) = [(r["level"], r["remedy"]) for r in pet.examined_all("boot")]
    assert level == "error"
    assert f"--preserve-on-termination {former} {disk}" in remedy

    patiently(pet, "on_alarm", **pet.fails("crash")).assert_failed_with("BLOCKED")

    assert boot_disk(pet) == [former]
    assert "delete_on_termination" in pet.status()["reason"]


def test_no_fence_deletes_it_with_the_server(protect: Callable[..., Any]) -> None:
    fence = [{"kind": "delete", "limit": 2}, "confirm"]
    more = {"template": boots_from_a_volume, "members": MEMBERS, "fence": fence}
    group = protect(servers=("db_a",), **more)
    group.activate()
    former = group.server("db_a")
    disk = group.cloud.resources(group.name)["system"]["physical_resource_id"]
    Operator(group.cloud).let_go_along(former, disk)

    patiently(group, "on_alarm", **group.fails("crash")).assert_failed_with("BLOCKED")

    assert boot_disk(group) == [former]
    assert disk in group.status()["reason"]


def test_nothing_of_a_dead_host_is_deleted_with_its_boot_disk(protect: Callable[..., Any]) -> None:
    on = {"server": {"get_param": "active"}, "when_host_is_down": "delete_server"}
    data = {"type": "volume_attachment", "properties": {"volume": "data_volume", **on}}
    more = {"template": boots_from_a_volume, "members": MEMBERS, "fence": FENCE}
    group = protect({"data": data}, servers=("db_a",), **more)
    group.activate()
    former = group.server("db_a")
    disk = group.cloud.resources(group.name)["system"]["physical_resource_id"]
    group.run("on_alarm", **group.fails("power_off")).assert_failed_with("BLOCKED")
    Operator(group.cloud).let_go_along(former, disk)

    said = {"group": group.name, "member": "db_a", "because": "its power is off"}
    patiently(group, "confirm_fenced", **said).assert_failed_with("BLOCKED")

    assert former in boot_disk(group)
    assert "delete_on_termination" in group.status()["reason"]


def test_heat_is_not_asked_while_it_would_make_an_empty_disk(pet: Any) -> None:
    """An operator, or a check of the stack, has marked the volume: the next update replaces it."""
    disk = pet.cloud.resources(pet.name)["system"]["physical_resource_id"]
    Operator(pet.cloud).mark(pet.name, "system")

    patiently(pet, "on_alarm", **pet.fails("crash")).assert_failed_with("FAILED")

    assert pet.cloud.resources(pet.name)["system"]["physical_resource_id"] == disk
    assert disk in pet.status()["reason"]


def test_a_new_server_that_does_not_come_up_is_deleted_before_the_next_try(pet: Any) -> None:
    former = pet.server("db_a")
    pet.cloud.api_fault("boot", "fail", times=10_000)
    patiently(pet, "on_alarm", **pet.fails("crash")).assert_failed_with("FAILED")
    broken = pet.server("db_a")
    assert broken != former
    pet.cloud.clear_api_faults()

    pet.run("sweep", group=pet.name)

    until(lambda: pet.status()["status"] == "COMPLETE")
    assert pet.server("db_a") not in (former, broken)
    assert boot_disk(pet) == [pet.server("db_a")]
    assert pet.runs_on() == pet.holders() == ["db_a"]
    assert pet.cloud.violations() == []


def test_a_server_that_was_started_again_is_not_deleted(pet: Any) -> None:
    former = pet.server("db_a")
    pet.cloud.api_fault("delete_server", status=503, times=10_000)
    execution = pet.start("on_alarm", **pet.fails("crash"))
    until(lambda: any(line.startswith("Detach data") for line in pet.told("done")))

    Operator(pet.cloud).start_server(former)
    pet.cloud.clear_api_faults()

    failed = pet.workflows.wait(execution, timeout=90)
    assert failed.state == "ERROR"
    assert "started again" in pet.status()["reason"]
    assert boot_disk(pet) == [former]


def test_a_disk_that_nova_makes_for_each_server_needs_no_deletion(
    protect: Callable[..., Any],
) -> None:
    def template(stack: dict[str, Any]) -> dict[str, Any]:
        return boots_from_a_volume(stack, goes=True, new=True)

    group = protect(servers=("db_a",), template=template, members=MEMBERS, fence=FENCE)
    group.activate()
    former = group.server("db_a")

    patiently(group, "on_alarm", **group.fails("crash")).assert_succeeded()

    assert group.server("db_a") != former
    assert group.runs_on() == ["db_a"]


@pytest.mark.parametrize("shown", [True, False])
def test_a_new_server_that_no_host_has_room_for_is_deleted_only_if_nova_shows_all_of_it(
    pet: Any, *, shown: bool
) -> None:
    """Nova cannot stop it. That it never ran is a proof, unless a policy hides a part of it."""
    former = pet.server("db_a")
    pet.cloud.api_fault("boot", "unplaced", times=10_000)
    patiently(pet, "on_alarm", **pet.fails("crash")).assert_failed_with("FAILED")
    broken = pet.server("db_a")
    assert broken != former
    pet.cloud.clear_api_faults()
    pet.cloud.offer("compute", without=() if shown else ("OS-SRV-USG:launched_at",))

    pet.run("sweep", group=pet.name)

    try:
        if shown:
            until(lambda: pet.status()["status"] == "COMPLETE")
            assert pet.server("db_a") not in (former, broken)
            assert boot_disk(pet) == [pet.server("db_a")]
        else:
            until(lambda: pet.status()["status"] == "FAILED")
            assert pet.server("db_a") == broken
    finally:
        pet.cloud.offer("compute")
    assert pet.cloud.violations() == []


@pytest.fixture
def hung(protect: Callable[..., Any]) -> Callable[[float], Any]:
    """Make a single server whose guest crashes, and hangs when it is started again. It may boot for
    so many seconds."""

    def make(boot: float) -> Any:
        members = {"servers": ["db_a"], "replace": "lost"}
        more = {"template": boots_from_a_volume, "members": members, "limits": {"boot": boot}}
        group = protect(servers=("db_a",), fence=FENCE, **more)
        group.activate()
        alarm = group.fails("crash")
        group.cloud.api_fault("start", "hang")
        return group, alarm

    return make


def test_a_guest_that_hangs_at_boot_is_off_before_its_disk_goes_to_the_next_server(
    hung: Callable[[float], Any],
) -> None:
    group, alarm = hung(3.0)
    former = group.server("db_a")

    patiently(group, "on_alarm", **alarm).assert_succeeded()

    assert group.server("db_a") != former
    assert boot_disk(group) == [group.server("db_a")]
    assert group.runs_on() == group.holders() == ["db_a"]
    assert group.cloud.violations() == []


def test_a_person_s_order_does_not_wait_for_a_guest_that_hangs_at_boot(
    hung: Callable[[float], Any],
) -> None:
    group, alarm = hung(300.0)
    former = group.server("db_a")
    execution = group.start("on_alarm", **alarm)
    until(lambda: group.cloud.guests()[former]["condition"] == "booting")

    patiently(group, "replace_member", group=group.name, member="db_a").assert_succeeded()

    assert group.server("db_a") != former
    assert boot_disk(group) == [group.server("db_a")]
    assert group.runs_on() == group.holders() == ["db_a"]
    assert group.cloud.violations() == []
    group.workflows.wait(execution, timeout=90)


def test_of_two_that_are_lost_the_one_comes_back_of_which_nothing_must_be_deleted(
    protect: Callable[..., Any],
) -> None:
    """It would be db_a, the oldest, but that boots from a disk that its next server gets, too."""
    members = {"servers": ["db_a", "db_b"], "when_no_standby": "replace", "restart": ["replace"]}
    group = protect(template=boots_from_a_volume, members=members)
    group.activate()
    former = {member: group.server(member) for member in group.members}
    for member in group.members:
        group.fails("crash", member)

    patiently(group, "failover", group=group.name, lost=["db_a", "db_b"]).assert_succeeded()

    assert group.server("db_a") == former["db_a"]
    assert group.server("db_b") != former["db_b"]
    assert group.runs_on() == group.holders() == ["db_b"]
    assert group.status()["lost"] == ["db_a"]


def test_a_standby_that_is_well_again_serves_while_the_lost_server_may_not_be_deleted(
    protect: Callable[..., Any],
) -> None:
    members = {"servers": ["db_a", "db_b"], "replace": "lost", "restart": ["replace"]}
    group = protect(template=boots_from_a_volume, members=members, fence=FENCE)
    group.activate()
    former, person = group.server("db_a"), Operator(group.cloud)
    disk = group.cloud.resources(group.name)["system"]["physical_resource_id"]
    person.let_go_along(former, disk)
    person.stop_server(group.server("db_b"))
    until(lambda: not group.member_list()["db_b"]["eligible"])
    patiently(group, "on_alarm", **group.fails("crash")).assert_failed_with("BLOCKED")
    assert group.status()["service"]["status"] == "DOWN"

    person.start_server(group.server("db_b"))
    until(lambda: group.member_list()["db_b"]["eligible"])
    group.run("sweep", group=group.name).assert_succeeded()

    until(lambda: group.runs_on())
    assert group.runs_on() == group.holders() == ["db_b"]
    assert boot_disk(group) == [former]
    assert "delete_on_termination" in group.status()["reason"]
    assert group.cloud.violations() == []


STORAGE = [{"kind": "storage", "limit": 10}]
OF_DATA, OF_SYSTEM = "172.31.251.11:0/11", "172.31.251.11:0/22"


@pytest.fixture
def cut_off(protect: Callable[..., Any], ceph: Path) -> Callable[..., Any]:
    """Make a single server, up, that only its storage can cut off. ``system``: whether its boot
    disk is there, too."""

    def make(*, system: bool) -> Any:
        on = {"server": {"get_param": "active"}, "when_host_is_down": "delete_server"}
        data = {"type": "volume_attachment", "properties": {"volume": "data_volume", **on}}
        more = {"template": boots_from_a_volume, "members": MEMBERS, "fence": STORAGE}
        group = protect({"data": data}, servers=("db_a",), **more)
        group.activate()
        of_stack = group.cloud.resources(group.name)
        names = ("data_volume", "system") if system else ("data_volume",)
        ids = [of_stack[name]["physical_resource_id"] for name in names]
        clients = ([OF_DATA], [OF_SYSTEM])
        simulate(ceph, dict(zip((f"volumes/volume-{each}" for each in ids), clients, strict=False)))
        return group

    return make


def test_the_storage_cuts_the_old_guest_off_from_its_boot_disk_too(
    cut_off: Callable[..., Any], ceph: Path
) -> None:
    group = cut_off(system=True)
    former = group.server("db_a")

    patiently(group, "on_alarm", **group.fails("power_off")).assert_succeeded()

    blocked = json.loads((ceph / "ceph.conf").read_text("utf-8"))["blocklist"]
    assert sorted(blocked) == sorted([OF_DATA, OF_SYSTEM])
    assert group.server("db_a") != former
    assert group.server("db_a") in boot_disk(group)
    assert group.cloud.violations() == []


def test_a_boot_disk_that_the_storage_does_not_block_is_not_passed_on(
    cut_off: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a partition the old guest runs on and writes to it, whatever Nova has deleted."""
    monkeypatch.setattr(restart, "STOP_LIMIT", 2.0)
    group = cut_off(system=False)
    former = group.server("db_a")

    patiently(group, "on_alarm", **group.fails("power_off")).assert_failed_with("BLOCKED")

    disk = group.cloud.resources(group.name)["system"]["physical_resource_id"]
    reason = group.status()["reason"]
    assert f"its fence (storage) does not keep its guest from volume {disk}" in reason
    assert f"confirm it: failover confirm-fenced {group.name} db_a" in reason
    assert boot_disk(group) == [former]

    said = {"group": group.name, "member": "db_a", "because": "its power is off"}
    patiently(group, "confirm_fenced", **said).assert_succeeded()

    assert group.server("db_a") != former
    assert group.server("db_a") in boot_disk(group)
    assert group.cloud.violations() == []
