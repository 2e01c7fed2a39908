# SPDX-License-Identifier: Apache-2.0
"""Rehearsals on the real engine with an emulated cloud: they touch nothing that serves, leave
nothing behind, find a standby that cannot take over, and end at once for a real failover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openstack
import pytest
from mistral_lib.actions import Result

from mistral_failover.actions import groups, orders, recovery, rehearsals, reports
from mistral_failover.cli.rehearsals import lines
from mistral_failover.lab.emulator.client import EmulatorClient
from support.activation import done
from support.rehearsed import CONTEXT, latest, rehearsed
from support.volume_group import DATA, DATABASE
from support.waiting import until


@pytest.fixture
def group(rehearsable: Callable[..., Any]) -> Any:
    """A group that is up on db_a, with a check."""
    return rehearsable()


def things(cloud: EmulatorClient) -> dict[str, list[Any]]:
    """What the cloud has: volumes, snapshots, and what is attached and runs where."""
    api = openstack.connect(cloud="emulated")
    return {
        "volumes": sorted((each.id, each.status) for each in api.block_storage.volumes()),
        "snapshots": sorted(each.id for each in api.block_storage.snapshots()),
        "guests": sorted(
            (server, sorted(guest["volumes"]), sorted(guest["applications"]))
            for server, guest in cloud.guests().items()
        ),
    }


def now(cloud: EmulatorClient) -> int:
    """The number of the last event."""
    return max((int(each["seq"]) for each in cloud.audit()), default=0)


def rehearse(group: Any, **more: Any) -> Any:
    return group.run("rehearse", group=group.name, **more)


def nothing_left(group: Any, named: str = "") -> None:
    """Wait until the latest rehearsal is clean; sweeps do what no execution does, those of the
    project or of the group that is ``named``."""

    def swept() -> bool:
        group.run("sweep", group=named)
        return bool(latest(group)["clean"])

    until(swept, "the rehearsal was never cleaned up")


def test_a_rehearsal_passes_and_the_cloud_is_as_before(group: Any) -> None:
    before, serving = things(group.cloud), group.status()["traversal"]["id"]

    run = rehearse(group)

    assert run.state == "SUCCESS", run.output
    outcome = run.output["outcome"]
    assert (outcome["status"], outcome["clean"]) == ("PASSED", True)
    assert outcome["roles"] == {"active": "db_b"}
    assert [each["passed"] for each in outcome["report"]["checks"]] == [True]
    assert outcome["report"]["measured"] > 0
    assert things(group.cloud) == before
    assert group.status()["traversal"]["id"] == serving
    assert group.runs_on() == ["db_a"]


@pytest.mark.parametrize(("how", "status", "ok"), [("", "PASSED", 1), ("denied", "FAILED", 0)])
def test_status_and_metrics_show_the_last_rehearsal(
    group: Any, how: str, status: str, ok: float
) -> None:
    group.cloud.fault("server", group.server("db_b"), how or "repaired")

    rehearse(group)

    shown = group.status()["rehearsal"]
    assert (shown["status"], shown["on"], shown["running"]) == (status, ["db_b"], False)
    assert group.observed()["status"] == ("SERVING" if ok else "DEGRADED")
    rows = done(reports.Metrics().run(CONTEXT))["families"]["rehearsal_ok"]
    assert [row["value"] for row in rows if row["labels"]["group"] == group.name] == [ok]
    group.cloud.fault("server", group.server("db_b"), "repaired")


def test_nothing_of_the_serving_member_was_asked_for(group: Any) -> None:
    since, server = now(group.cloud), group.server("db_a")
    volume = group.volume()

    assert rehearse(group).state == "SUCCESS"

    changes = [
        each["path"]
        for each in group.cloud.audit(since)
        if each["kind"] == "request" and each["method"] != "GET"
    ]
    assert changes
    assert not [path for path in changes if server in path or volume in path]


@pytest.mark.parametrize(
    "how", ["lacks_package", "misconfigured", "data_full", "lacks_mount_point", "denied"]
)
def test_a_standby_that_cannot_start_is_found(group: Any, how: str) -> None:
    before = things(group.cloud)
    group.cloud.fault("server", group.server("db_b"), how)

    run = rehearse(group)

    assert run.state == "ERROR"
    outcome = run.output["outcome"]
    assert (outcome["status"], outcome["clean"]) == ("FAILED", True)
    assert "start on db_b ended with" in outcome["reason"]
    assert things(group.cloud) == before
    group.cloud.fault("server", group.server("db_b"), "repaired")


@pytest.mark.parametrize("how", ["old_agent", "not_isolated"])
def test_an_agent_that_cannot_rehearse_is_refused_before_anything_is_made(
    group: Any, how: str
) -> None:
    group.cloud.fault("server", group.server("db_b"), how)
    since = now(group.cloud)

    def refused() -> bool:
        found = orders.Rehearse(group.name).run(CONTEXT)
        return isinstance(found, Result) and found.error["code"] == "NOT_REHEARSABLE"

    until(refused, "it was never refused")
    made = [each["kind"] for each in group.cloud.audit(since)]
    assert "transition_started" not in made
    group.cloud.fault("server", group.server("db_b"), "repaired")


def test_a_failover_ends_a_rehearsal_and_does_not_wait_for_its_cleanup(group: Any) -> None:
    group.cloud.set_latency(command_start=1.0)
    execution = group.start("rehearse", group=group.name)
    until(lambda: "start" in str(group.cloud.audit()), "the application was never started")
    until(lambda: _rehearsed(group), "nothing was rehearsed")

    run = group.run("failover", group=group.name, lost=["db_a"])

    assert run.state == "SUCCESS", run.output
    assert group.runs_on() == ["db_b"]
    group.cloud.set_latency(command_start=0)
    assert group.ended(execution).state == "ERROR"
    nothing_left(group)
    assert latest(group)["status"] == "ENDED"
    assert group.holders() == ["db_b"]
    assert not things(group.cloud)["snapshots"]


def test_a_rehearsal_that_a_failover_ends_is_off_the_standby_before_the_volumes_come(
    group: Any,
) -> None:
    server = group.server("db_b")
    group.cloud.set_latency(command_check=60, detach=4)
    execution = group.start("rehearse", group=group.name)

    def checks() -> bool:
        events = group.cloud.audit(kind="command_started")
        return any(e["command"] == "newest_row" and e["server"] == server for e in events)

    until(checks, "no check was run")
    since = now(group.cloud)

    assert group.run("failover", group=group.name, lost=["db_a"]).state == "SUCCESS"

    kinds = [e["kind"] for e in group.cloud.audit(since) if e.get("server") == server]
    assert kinds.index("detach_begin") < kinds.index("attach_begin")
    group.cloud.set_latency(command_check=0, detach=0)
    group.ended(execution)
    nothing_left(group)


def _rehearsed(group: Any) -> bool:
    return any(g["volumes"] for s, g in group.cloud.guests().items() if s == group.server("db_b"))


def test_a_rehearsal_whose_execution_dies_is_ended_and_cleaned_by_a_sweep(
    group: Any,
) -> None:
    before = things(group.cloud)
    begun = done(orders.Rehearse(group.name).run(CONTEXT))
    done(recovery.Advance(begun["traversal"], "move_volumes").run(CONTEXT))
    assert things(group.cloud) != before

    nothing_left(group)

    assert latest(group)["status"] == "PASSED"
    assert things(group.cloud) == before


def test_a_sweep_of_the_group_carries_out_a_rehearsal_that_no_execution_does(group: Any) -> None:
    before = things(group.cloud)
    done(orders.Rehearse(group.name).run(CONTEXT))

    nothing_left(group, group.name)

    assert latest(group)["status"] == "PASSED"
    assert things(group.cloud) == before


def test_a_sweep_of_the_group_tries_a_cleanup_that_failed_again(group: Any) -> None:
    before = things(group.cloud)
    group.cloud.api_fault("volume_delete", times=1000, status=400)
    rehearse(group)
    assert not latest(group)["clean"]
    group.cloud.clear_api_faults()

    nothing_left(group, group.name)

    assert things(group.cloud) == before


def test_a_second_rehearsal_is_refused_while_the_first_one_runs(group: Any) -> None:
    done(orders.Rehearse(group.name).run(CONTEXT))

    found = orders.Rehearse(group.name).run(CONTEXT)

    assert isinstance(found, Result)
    assert found.error["code"] == "REHEARSAL_RUNNING"
    nothing_left(group)


def test_a_repeat_of_the_same_execution_starts_no_second_one(group: Any) -> None:
    run = rehearse(group)
    assert run.state == "SUCCESS"
    assert len(rehearsed(group)) == 1


def test_a_group_that_is_rehearsed_cannot_be_deleted(group: Any) -> None:
    done(orders.Rehearse(group.name).run(CONTEXT))
    found = groups.Undefine(group.name, release=True).run(CONTEXT)
    assert isinstance(found, Result)
    assert found.error["code"] == "NOT_AT_REST"
    nothing_left(group)


def test_an_order_without_a_standby_is_refused(protect: Callable[..., Any]) -> None:
    made = protect(servers=("db_a",))
    made.activate()
    found = orders.Rehearse(made.name).run(CONTEXT)
    assert isinstance(found, Result)
    assert found.error["code"] == "NO_STANDBY"


def test_a_plan_says_what_would_be_made_and_makes_nothing(group: Any) -> None:
    since = now(group.cloud)
    planned = done(rehearsals.PreviewRehearsal(group.name).run(CONTEXT))
    assert (planned["lost"], planned["roles"]) == ("db_a", {"active": "db_b"})
    assert [each["resource"] for each in planned["volumes"]] == ["data"]
    assert (planned["gib"], planned["checks"]) == (2, ["newest_row"])
    assert planned["left_out"] == {"routing": "stack_parameters"}
    changed = [
        e for e in group.cloud.audit(since) if e["kind"] == "request" and e["method"] != "GET"
    ]
    assert not [e for e in changed if "volume" in e["path"]]


def test_the_groups_of_rehearsals_are_shown_nowhere(group: Any) -> None:
    done(orders.Rehearse(group.name).run(CONTEXT))
    listed = done(reports.Status().run(CONTEXT))
    assert [name for name in listed["groups"] if "rehearsal" in name] == []
    nothing_left(group)


@pytest.fixture
def two_volumes(protect: Callable[..., Any]) -> Any:
    """A group that is up on db_a, with two volumes."""

    def with_logs(stack: dict[str, Any]) -> dict[str, Any]:
        logs = {"type": "OS::Cinder::Volume", "properties": {"size": 2}}
        return {**stack, "resources": {**stack["resources"], "logs_volume": logs}}

    logs = {**DATA, "properties": {**DATA["properties"], "volume": "logs_volume"}}
    made = protect(
        {"data": DATA, "logs": logs, "database": {**DATABASE, "depends_on": ["data", "logs"]}},
        template=with_logs,
    )
    made.activate()
    return made


def test_copies_are_attached_one_after_the_other_so_that_a_failover_waits_for_one_at_most(
    two_volumes: Any,
) -> None:
    made = two_volumes
    made.cloud.set_latency(attach=0.5)
    since = now(made.cloud)

    assert rehearse(made).output["outcome"]["status"] == "PASSED"

    made.cloud.set_latency(attach=0)
    kinds = [
        event["kind"]
        for event in made.cloud.audit(since)
        if event["kind"] in ("attach_begin", "attached")
    ]
    assert kinds == ["attach_begin", "attached"] * 2


def test_two_volumes_are_copied_and_the_report_says_that_they_are_not_of_one_instant(
    two_volumes: Any,
) -> None:
    made = two_volumes
    planned = done(rehearsals.PreviewRehearsal(made.name).run(CONTEXT))
    assert (planned["gib"], planned["consistent"]) == (6, False)
    outcome = rehearse(made).output["outcome"]
    assert outcome["status"] == "PASSED"
    assert "not consistent across volumes (within" in dict(lines(outcome))["data of"]

    made.cloud.fault("server", made.server("db_b"), "misconfigured")
    failed = rehearse(made).output["outcome"]
    assert (failed["status"], "not of one instant" in failed["reason"]) == ("FAILED", True)
    made.cloud.fault("server", made.server("db_b"), "repaired")
