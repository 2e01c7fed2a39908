# SPDX-License-Identifier: Apache-2.0
"""Failovers whose volume neither comes free nor arrives: what the package repairs by itself, and
how a failover goes on after an operator has run the command that it asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import groups, orders
from mistral_failover.cloud import volume_holders
from mistral_failover.cloud.volume_states import STATES
from mistral_failover.model.remedies import need
from mistral_failover.reports import advice
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.workers import Workers
from mistral_failover.store.tables import nodes
from support.operators import Operator
from support.waiting import until

pytestmark = pytest.mark.faults

CONFIRMED = "I pulled the plug"
STRANGER = "0b5e9d2c-9a4f-4e0f-9a53-0d5f0c1e7a11"
ACTIVE = {"get_param": "active"}


def resources(**more: str) -> dict[str, Any]:
    """A database on a volume, about which more is said."""
    data = {"volume": "data_volume", "server": ACTIVE, **more}
    database = {
        "member": ACTIVE,
        "start": "start",
        "stop": "stop",
        "device": {"get_attr": ["data", "device"]},
    }
    return {
        "data": {"type": "volume_attachment", "properties": data},
        "database": {"type": "activation", "depends_on": "data", "properties": database},
    }


def volume_of(group: Any) -> str:
    return str(group.cloud.resources(group.name)["data_volume"]["physical_resource_id"])


def confirm(group: Any) -> Any:
    return group.run("confirm_fenced", group=group.name, member="db_a", because=CONFIRMED)


def fence(group: Any) -> dict[str, Any]:
    return next(row for row in group.status()["resources"] if row["type"] == "fence")


def is_on(group: Any, member: str) -> None:
    """The group is well, on this member alone, and nothing wrong was seen on the way."""
    assert group.status()["status"] == "COMPLETE"
    nodes = group.cloud.guests().items()
    running = [server for server, node in nodes if group.name in node["applications"]]
    assert running == [group.server(member)]
    assert group.cloud.writers(volume_of(group)) == running


@pytest.fixture
def make(protect: Callable[..., Any], cloud: Any) -> Callable[..., Any]:
    """An active group; ``more`` is said of its volume."""

    def group(fence: list[Any] | None = None, **more: str) -> Any:
        made = protect(resources(**more), **({"fence": fence} if fence else {}))
        if len({cloud.guests()[made.server(member)]["host"] for member in made.members}) < 2:
            # What was deleted on a dead host leaves the hosts unequally full.
            return group(fence, **more)
        made.activate()
        return made

    return group


def swept(group: Any) -> list[str]:
    """Sweep the project, as a cron trigger does; why this group goes on."""
    run = group.run("sweep").assert_succeeded()
    rows = run.output["swept"]["restarted"]
    return [row["sentence"] for row in rows if row["group"] == group.name]


# -- a dead host


def test_a_volume_on_a_dead_host_waits_for_a_person_who_deletes_its_server(
    make: Callable[..., Any], operator: Operator
) -> None:
    group = make()
    server = group.server("db_a")
    alarmed = group.run("on_alarm", **group.fails("power_off")).assert_failed_with("BLOCKED")
    assert "no operator has confirmed it yet" in alarmed.output["error"]["message"]
    assert "failover.confirm_fenced" in alarmed.output["error"]["message"]
    assert swept(group) == [], "an operator has to confirm it, unless it proves itself later"
    assert group.holders() == ["db_a"]
    assert group.status()["status"] == "BLOCKED"

    run = confirm(group).assert_failed_with("BLOCKED")

    assert "HOST_DOWN" in run.output["error"]["message"]
    assert f"openstack server delete {server}" in run.output["error"]["message"]
    assert f"failover start {group.name} [HOST_DOWN]" in run.output["error"]["message"]
    assert CONFIRMED in fence(group)["attributes"]["observed"]
    assert group.holders() == ["db_a"]
    assert group.status()["status"] == "BLOCKED"

    assert swept(group) == [], "nothing has changed"
    operator.delete_server(server)

    (sentence,) = swept(group)
    assert sentence.startswith("data: reopened by a sweep, because it has changed: ")
    is_on(group, "db_b")


def test_a_member_that_nova_has_in_error_is_stopped_though_it_quiesced(
    make: Callable[..., Any], operator: Operator
) -> None:
    group = make()
    operator.reset_server(group.server("db_a"), "error")

    group.run("failover", group=group.name).assert_succeeded()

    is_on(group, "db_b")
    assert fence(group)["attributes"]["rung"] == "stop"


def test_a_planned_move_stops_no_server_and_waits_for_an_operator(
    make: Callable[..., Any], operator: Operator
) -> None:
    group = make()
    server = group.server("db_a")
    operator.reset_server(server, "error")

    run = group.run("failover", group=group.name, to="db_b", lost=[])

    run.assert_failed_with("BLOCKED")
    assert f"openstack server stop {server}" in run.output["error"]["message"]
    operator.stop_server(server)
    group.run("sweep", group=group.name).assert_succeeded()
    is_on(group, "db_b")


def test_a_compute_service_that_is_out_of_reach_after_it_stopped_the_server_is_waited_for(
    make: Callable[..., Any], cloud: Any
) -> None:
    """While RabbitMQ is away, Nova counts every compute service as down."""
    group = make(["stop"])
    cloud.api_fault("detach", status=409, says="Service is unavailable at this time.", times=2)

    group.run("on_alarm", **group.fails("crash")).assert_succeeded()

    (waited,) = group.told("waiting")
    assert "the compute service on the host of server" in waited
    assert group.told("blocked") == []
    is_on(group, "db_b")


def test_a_compute_service_that_returns_after_that_time_is_found_by_a_sweep(
    make: Callable[..., Any], state: Runtime, cloud: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project does not see whether the host is back: Nova's answer to the detach shows it."""
    monkeypatch.setattr(volume_holders, "HOST_RETURNS", 0.0)
    group = make(["stop"])
    cloud.api_fault("detach", status=409, says="Service is unavailable at this time.", times=1)
    group.run("on_alarm", **group.fails("crash")).assert_failed_with("BLOCKED")
    assert swept(group) == [], "it is too early"

    due = nodes.update().where(nodes.c.again_at.is_not(None)).values(again_at=0.0)
    state.database.atomically(lambda tx: tx.execute(due))
    assert swept(group) == ["data: reopened by a sweep, because what it waits for may be back"]

    is_on(group, "db_b")


def test_without_a_fence_no_server_is_deleted(
    make: Callable[..., Any], operator: Operator, cloud: Any
) -> None:
    """The compute service alone is dead: the guest is alive, and stops its application."""
    group = make(when_host_is_down="delete_server")
    server = group.server("db_a")
    cloud.fault("host", cloud.guests()[server]["host"], "compute_down")

    run = group.run("failover", group=group.name, to="db_b", lost=[])

    run.assert_failed_with("FAILED")
    assert "HOST_DOWN" in run.output["error"]["message"]
    assert f"failover start {group.name} --lost db_a" in run.output["error"]["message"]
    assert operator.server_exists(server)


def test_an_agent_s_word_deletes_no_server(
    make: Callable[..., Any], operator: Operator, cloud: Any
) -> None:
    group = make(
        fence=[{"kind": "quiesce", "limit": 5}, "confirm"], when_host_is_down="delete_server"
    )
    server = group.server("db_a")
    cloud.fault("host", cloud.guests()[server]["host"], "compute_down")

    run = group.run("failover", group=group.name).assert_failed_with("BLOCKED")

    assert fence(group)["attributes"]["rung"] == "quiesce"
    assert f"failover confirm-fenced {group.name} db_a" in run.output["error"]["message"]
    assert operator.server_exists(server)
    confirm(group)
    group.run("failover", group=group.name, lost=[]).assert_succeeded()
    assert not operator.server_exists(server)
    is_on(group, "db_b")


def test_a_host_that_comes_back_lets_the_retry_detach(make: Callable[..., Any], cloud: Any) -> None:
    group = make()
    host = cloud.guests()[group.server("db_a")]["host"]
    group.run("on_alarm", **group.fails("power_off"))
    confirm(group).assert_failed_with("BLOCKED")

    cloud.fault("host", host, "revive")
    group.run("failover", group=group.name, lost=[]).assert_succeeded()

    assert group.holders() == ["db_b"]
    is_on(group, "db_b")


def test_the_server_of_a_dead_host_goes_once_it_is_proven_off_where_the_user_allowed_it(
    make: Callable[..., Any], operator: Operator
) -> None:
    """The host may have died with a detach that it was asked for: that changes nothing."""
    group = make(when_host_is_down="delete_server")
    server, alarm = group.server("db_a"), group.fails("power_off")
    operator.set_volume(volume_of(group), "detaching")
    group.run("on_alarm", **alarm).assert_failed_with("BLOCKED")
    assert operator.server_exists(server), "nothing proves it off yet"

    confirm(group).assert_succeeded()

    assert not operator.server_exists(server)
    is_on(group, "db_b")


def test_the_leave_may_be_given_while_the_volume_hangs_there(
    make: Callable[..., Any], operator: Operator
) -> None:
    group = make()
    before = operator.attachments(volume_of(group))
    changed = {
        "failover_template_version": "2026-11-21",
        "stack": group.name,
        "members": {"servers": list(group.members)},
        "resources": resources(when_host_is_down="delete_server"),
        "fence": [{"kind": "stop", "limit": 1}, "confirm"],
    }
    anonymous = ActionContext(SecurityContext(), ExecutionContext())
    assert not isinstance(groups.Define(changed).run(anonymous), Result)

    group.run("activate_first", group=group.name).assert_succeeded()

    assert operator.attachments(volume_of(group)) == before, "it did not move for that"
    group.run("on_alarm", **group.fails("power_off")).assert_failed_with("BLOCKED")
    confirm(group).assert_succeeded()
    is_on(group, "db_b")


# -- a detach that Nova begins, and of which no compute service is told


def test_a_detach_that_nova_fails_while_its_broker_is_away_is_repeated(
    group: Any, state: Runtime, cloud: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "settings", replace(state.settings, repeat_after=0.2))
    group.activate()
    before = len(cloud.audit(kind="detached"))
    cloud.api_fault("detach", "error", status=503, times=2)
    cloud.api_fault("detach", "unsent", status=500, times=2)

    group.run("on_alarm", **group.fails()).assert_succeeded()

    is_on(group, "db_b")
    assert len(cloud.audit(kind="detached")) == before + 1


# -- a service with too much to do


def test_a_service_that_is_overloaded_is_asked_by_fewer_and_the_failover_goes_on(
    group: Any, cloud: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def overloaded(self: Workers, project_id: str, service: str, pause: float) -> None:
        told.append(service)
        fewer(self, project_id, service, pause)

    fewer = Workers.overloaded
    monkeypatch.setattr(Workers, "overloaded", overloaded)
    group.activate()
    cloud.api_fault("detach", "error", status=503, times=2)

    group.run("on_alarm", **group.fails()).assert_succeeded()

    is_on(group, "db_b")
    assert told == ["Nova", "Nova"]


def test_the_status_says_which_service_does_not_answer_an_operation_that_runs(
    group: Any, cloud: Any
) -> None:
    group.activate()
    cloud.api_fault("detach", "error", status=503, times=10_000)
    execution = group.workflows.start("failover.on_alarm", group.fails())
    (row,) = until(lambda: [row for row in group.status()["under_way"] if row["waiting_for"]])

    assert (row["resource"], row["waiting_for"]) == ("data", "Nova: HTTP 503")
    assert row["started_at"] <= row["waiting_since"]
    cloud.clear_api_faults()
    group.ended(execution)

    is_on(group, "db_b")


# -- what Nova does not know


def test_a_reservation_that_nova_does_not_know_is_given_back(
    make: Callable[..., Any], operator: Operator
) -> None:
    group = make()
    volume = volume_of(group)
    operator.set_volume(volume, "available")
    operator.reserve(volume, STRANGER)
    operator.set_volume(volume, "in-use")

    group.run("on_alarm", **group.fails("crash")).assert_succeeded()

    assert [row["instance"] for row in operator.attachments(volume)] == [group.server("db_b")]
    is_on(group, "db_b")


def test_what_nova_lists_and_cinder_has_lost_waits_for_a_person(
    make: Callable[..., Any], operator: Operator
) -> None:
    group = make()
    volume, server = volume_of(group), group.server("db_a")
    operator.set_volume(volume, "available", "detached")

    run = group.run("on_alarm", **group.fails("crash")).assert_failed_with("BLOCKED")

    assert "VOLUME_DISPUTED" in run.output["error"]["message"]
    assert (
        f"nova-manage volume_attachment refresh {server} {volume}"
        in (run.output["error"]["message"])
    )
    operator.delete_server(server)
    group.run("sweep", group=group.name).assert_succeeded()
    is_on(group, "db_b")


@pytest.mark.parametrize("order", ["switchover", "failover"])
def test_a_compute_service_that_dies_at_the_end_of_a_planned_detach_is_named(
    make: Callable[..., Any], operator: Operator, cloud: Any, order: str
) -> None:
    """Cinder has released the volume, and Nova lists it for ever: also once the service is back."""
    group = make()
    volume, server = volume_of(group), group.server("db_a")
    host = cloud.guests()[server]["host"]
    cloud.api_fault("detach", "torn")
    more = {} if order == "switchover" else {"lost": []}

    run = group.run(order, group=group.name, to="db_b", **more).assert_failed_with("BLOCKED")

    message = run.output["error"]["message"]
    assert "VOLUME_DISPUTED" in message
    assert "compute service" in message
    assert f"nova-manage volume_attachment refresh {server} {volume}" in message
    cloud.fault("host", host, "revive")
    group.run("failover", group=group.name, lost=[])
    assert group.status()["status"] == "BLOCKED", "its return alone changes nothing"
    operator.stop_server(server)
    cloud.refresh_attachment(server, volume)
    if order == "switchover":
        assert f"openstack server start {server}" in message, "it serves again"
        operator.start_server(server)
    group.run("sweep", group=group.name).assert_succeeded()
    is_on(group, "db_a" if order == "switchover" else "db_b")


def test_of_a_lost_member_the_status_names_the_deletion_of_its_server(
    make: Callable[..., Any], operator: Operator, cloud: Any
) -> None:
    """The same behind a fence: what the sentence says is also what status says to type."""
    group = make()
    cloud.api_fault("detach", "torn")

    group.run("on_alarm", **group.fails("crash")).assert_failed_with("BLOCKED")

    first, *_ = advice.needs(group.status())
    assert first == need("DELETE_SERVER", server=group.server("db_a"))
    operator.delete_server(group.server("db_a"))
    group.run("sweep", group=group.name).assert_succeeded()
    is_on(group, "db_b")


# -- what an administrator has to say


def test_a_volume_in_error_waits_for_an_administrator(
    make: Callable[..., Any], operator: Operator
) -> None:
    group = make()
    volume = volume_of(group)
    operator.set_volume(volume, "error")

    run = group.run("on_alarm", **group.fails("crash")).assert_failed_with("BLOCKED")

    assert "VOLUME_ERROR" in run.output["error"]["message"]
    assert f"openstack volume set --state in-use {volume}" in run.output["error"]["message"]
    operator.set_volume(volume, "in-use")
    group.run("sweep").assert_succeeded()
    is_on(group, "db_b")


@pytest.mark.parametrize("status", ["backing-up", "retyping"])
def test_a_volume_with_which_cinder_is_busy_is_waited_for(
    make: Callable[..., Any], operator: Operator, status: str
) -> None:
    group = make()
    volume = volume_of(group)
    operator.set_volume(volume, status)

    run = group.run("on_alarm", **group.fails("crash")).assert_failed_with("BLOCKED")

    assert "VOLUME_BUSY" in run.output["error"]["message"]
    assert STATES[status].remedy.format(volume=volume) in run.output["error"]["message"]
    assert "volume set" not in run.output["error"]["message"]
    group.run("sweep").assert_succeeded()
    assert group.status()["status"] == "BLOCKED", "it has not passed yet"
    operator.set_volume(volume, "in-use")
    group.run("sweep").assert_succeeded()
    is_on(group, "db_b")


# -- what is seen before anything begins


def attached(volume: str, **servers: str) -> dict[str, Any]:
    """Attachments of one volume, by name to the holder of a role."""
    return {
        name: {
            "type": "volume_attachment",
            "properties": {"volume": volume, "server": {"get_param": role}},
        }
        for name, role in servers.items()
    }


def test_a_disk_that_a_server_boots_from_is_refused_before_anything_begins(
    protect: Callable[..., Any], operator: Operator
) -> None:
    disk = operator.make_volume(bootable=True)
    group = protect(attached(disk, data="active"))
    server = operator.boot_from(disk)  # since it was defined: before, it would be refused then

    run = group.run("activate_first", group=group.name).assert_failed_with("VOLUME_IS_ROOT")

    assert server in run.output["error"]["message"]
    assert group.traversals() == []
    anonymous = ActionContext(SecurityContext(), ExecutionContext())
    assert orders.Plan(group.name).run(anonymous).error["code"] == "VOLUME_IS_ROOT"
    operator.delete_server(server)


def test_a_volume_for_one_is_not_promised_to_two(
    protect: Callable[..., Any], operator: Operator
) -> None:
    volume = operator.make_volume()
    group = protect(attached(volume, left="one", right="two"), roles=["one", "two"])

    run = group.run("activate_first", group=group.name).assert_failed_with("VOLUME_NOT_SHARED")

    assert "db_a and db_b at once" in run.output["error"]["message"]
    assert group.traversals() == []


def test_a_shared_volume_leaves_only_the_member_that_loses_it(
    protect: Callable[..., Any], operator: Operator
) -> None:
    volume = operator.make_volume("multiattach")
    group = protect(attached(volume, left="one", right="two"), roles=["one", "two"])

    def holders() -> list[str]:
        rows = operator.attachments(volume)
        by_server = {group.server(member): member for member in group.members}
        return sorted(by_server[row["instance"]] for row in rows)

    group.activate()
    assert holders() == ["db_a", "db_b"]

    def move(role: str, to: str) -> None:
        group.run("failover", group=group.name, to={role: to}, lost=[]).assert_succeeded()

    held = {row["instance"]: row["id"] for row in operator.attachments(volume)}
    move("one", "db_b")
    assert holders() == ["db_b"]
    move("one", "db_a")
    assert holders() == ["db_a", "db_b"]
    now = {row["instance"]: row["id"] for row in operator.attachments(volume)}
    stayed = group.server("db_b")
    assert now[stayed] == held[stayed], "who shared it never lost it"
