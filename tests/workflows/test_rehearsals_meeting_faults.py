# SPDX-License-Identifier: Apache-2.0
"""What else may happen during a rehearsal, on the real engine with an emulated cloud: calls that
are refused, a standby that dies, orders of operators. Nothing is left, and what serves was not
touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import openstack
import pytest

from mistral_failover.actions import groups, suspensions
from mistral_failover.resources import commands, rehearsal
from support.activation import done
from support.rehearsed import CONTEXT, latest, rehearsed
from support.waiting import until

LONG = 300.0
"""Seconds of a check that is under way."""
SILENCE = 3.0


@pytest.fixture
def group(rehearsable: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A group that is up on db_a, with a check and two standbys, whose agents are soon silent."""
    for module in (commands, rehearsal):
        monkeypatch.setattr(module, "SILENCE", SILENCE)
    return rehearsable(servers=("db_a", "db_b", "db_c"))


def things() -> dict[str, list[Any]]:
    """The volumes and snapshots of the cloud."""
    api = openstack.connect(cloud="emulated").block_storage
    return {
        "volumes": sorted(each.id for each in api.volumes()),
        "snapshots": sorted(each.id for each in api.snapshots()),
    }


def nothing_left(group: Any) -> None:
    """Wait until sweeps have cleaned up."""

    def swept() -> bool:
        group.run("sweep", group=group.name)
        return all(row["clean"] for row in rehearsed(group))

    until(swept, "the rehearsal was never cleaned up")


@pytest.fixture
def checking(group: Any) -> Iterator[Any]:
    """The group, while a check of its rehearsal runs on db_b; in the end nothing is left."""
    group.cloud.set_latency(command_check=LONG)
    before, server = things(), group.server("db_b")
    group.start("rehearse", group=group.name)

    def runs() -> bool:
        events = group.cloud.audit(kind="command_started")
        return any(e["command"] == "newest_row" and e["server"] == server for e in events)

    until(runs, "no check was run")
    group.cloud.set_latency(command_check=0)
    yield group
    nothing_left(group)
    assert things() == before


def restart_agent(group: Any) -> None:
    """Its server is booted again."""
    for fault in ("crash", "revive"):
        group.cloud.fault("server", group.server("db_b"), fault)


def has_ended(group: Any) -> bool:
    """Whether the rehearsal came to something, sooner or later."""
    group.run("sweep", group=group.name)
    return bool(latest(group)["status"] != "RUNNING")


@pytest.mark.parametrize(
    ("operation", "fault", "outcome"),
    [
        ("attach", "fail", "FAILED"),
        ("detach", "error", "PASSED"),
        ("volume_delete", "error", "PASSED"),
        ("snapshot_delete", "error", "PASSED"),
    ],
)
def test_a_call_that_is_refused_leaves_nothing(
    group: Any, operation: str, fault: str, outcome: str
) -> None:
    before, serving = things(), group.status()["traversal"]["id"]
    group.cloud.api_fault(operation, fault, status=409, times=1000)

    execution = group.start("rehearse", group=group.name)
    until(lambda: rehearsed(group) and latest(group)["status"] == outcome, "it came to no end")
    group.cloud.clear_api_faults()
    group.ended(execution)

    nothing_left(group)
    assert things() == before
    assert (group.runs_on(), group.status()["traversal"]["id"]) == (["db_a"], serving)


def test_a_standby_whose_server_is_deleted_fails_it_at_once(checking: Any) -> None:
    openstack.connect(cloud="emulated").compute.delete_server(checking.server("db_b"))

    until(lambda: has_ended(checking), "it did not end")

    assert latest(checking)["status"] == "FAILED"
    assert "does not exist any more" in latest(checking)["reason"]


def test_a_standby_that_is_restarted_says_nothing_of_its_failover(checking: Any) -> None:
    restart_agent(checking)

    until(lambda: has_ended(checking), "it did not end")

    assert latest(checking)["status"] == "ENDED"
    assert checking.observed()["status"] == "SERVING"


def test_a_standby_that_is_silent_when_a_failover_needs_it_is_said_as_without_a_rehearsal(
    checking: Any,
) -> None:
    checking.cloud.fault("server", checking.server("db_b"), "crash")

    run = checking.run("on_alarm", **checking.fails("crash", "db_a"))

    assert run.state == "ERROR"
    assert "db_b's agent did not answer" in checking.status()["reason"]
    checking.cloud.fault("server", checking.server("db_b"), "revive")


@pytest.mark.parametrize("to", ["db_b", "db_c"])
def test_a_switchover_ends_it(checking: Any, to: str) -> None:
    run = checking.run("switchover", group=checking.name, to=to)

    assert run.state == "SUCCESS", run.output
    assert latest(checking)["status"] == "ENDED"
    assert (checking.runs_on(), checking.holders()) == ([to], [to])


def test_an_alarm_about_its_standby_ends_it(checking: Any) -> None:
    assert checking.run("on_alarm", **checking.fails("crash", "db_b")).state == "SUCCESS"

    assert latest(checking)["status"] == "ENDED"
    assert checking.runs_on() == ["db_a"]
    checking.cloud.fault("server", checking.server("db_b"), "revive")


def test_a_file_without_its_member_and_a_pause_leave_its_cleanup_alone(checking: Any) -> None:
    document = checking.document()
    document["members"]["servers"] = ["db_a", "db_c"]
    done(groups.Define(document, name=checking.name).run(CONTEXT))
    done(suspensions.Pause(checking.name, because="work").run(CONTEXT))

    restart_agent(checking)
    nothing_left(checking)

    assert checking.runs_on() == ["db_a"]
    done(suspensions.Resume(checking.name, because="done").run(CONTEXT))
