# SPDX-License-Identifier: Apache-2.0
"""What a group's status says when reality was changed behind the engine's back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext
from oslo_config import cfg

from mistral_failover.actions import (
    alarms,
    doctor,
    groups,
    orders,
    recovery,
    reports,
    suspensions,
)
from mistral_failover.cloud.errors import CloudError
from mistral_failover.groups.service import services
from mistral_failover.model.ids import group_id
from mistral_failover.recovery import observe as observe_module
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import observations
from support.looks import healed, observe, service, volume_of
from support.operators import Operator
from support.unreadable import unreadable
from support.waiting import until

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())


@pytest.fixture
def serving(group: Any) -> Any:
    """A group that serves on db_a, and was seen to."""
    group.activate()
    observe(group)
    assert service(group) == ("SERVING", [])
    return group


def detach(group: Any, operator: Operator) -> None:
    """An operator stops the application and detaches its volume."""
    server = group.server("db_a")
    (epoch,) = (row["epoch"] for row in group.status()["members"] if row["name"] == "db_a")
    said = {"command_id": f"by-hand-{group.name}", "epoch": epoch}
    group.cloud.run_command(server, "stop", **said)
    operator.detach(volume_of(group), server)


def test_a_group_that_cannot_be_read_any_more_does_not_hide_the_others(
    serving: Any, protect: Callable[..., Any], operator: Operator
) -> None:
    other = protect()
    other.activate()
    detach(serving, operator)
    before = cfg.CONF.failover.observe_interval
    cfg.CONF.set_override("observe_interval", 1.0, group="failover")
    time.sleep(1.1)
    try:
        with unreadable(other.state.database, DEFAULT_PROJECT, other.name):
            rows = recovery.Observe().run(ActionContext(SecurityContext(), ExecutionContext()))
    finally:
        cfg.CONF.set_override("observe_interval", before, group="failover")

    assert isinstance(rows, list), rows
    assert serving.name in [row["group"] for row in rows]


def test_a_defect_that_concerns_one_group_does_not_hide_the_others(
    serving: Any,
    protect: Callable[..., Any],
    operator: Operator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = protect()
    other.activate()
    detach(serving, operator)
    real = observe_module._look

    def look(view: Any, facts: Any, *more: Any) -> Any:
        if facts.group.name == other.name:
            raise TypeError("unsupported operand")
        return real(view, facts, *more)

    def due(*_: Any) -> list[str]:
        return [group_id(DEFAULT_PROJECT, each.name) for each in (other, serving)]

    monkeypatch.setattr(observe_module, "_look", look)
    monkeypatch.setattr(observations, "due", due)

    rows = recovery.Observe().run(ActionContext(SecurityContext(), ExecutionContext()))

    assert serving.name in [row["group"] for row in rows]


def test_what_was_seen_is_kept_though_a_later_group_of_the_round_cannot_be_looked_at(
    serving: Any, protect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = protect()
    other.activate()
    before = serving.status()["service"]["seen_at"]
    real = observe_module._look

    def look(view: Any, facts: Any, *more: Any) -> Any:
        if facts.group.name == other.name:
            raise CloudError("UNREACHABLE", "Nova does not answer.")
        return real(view, facts, *more)

    def due(*_: Any) -> list[str]:
        return [group_id(DEFAULT_PROJECT, each.name) for each in (serving, other)]

    monkeypatch.setattr(observe_module, "_look", look)
    monkeypatch.setattr(observations, "due", due)

    failed = recovery.Observe().run(CONTEXT)

    assert failed.error["code"] == "UNREACHABLE"
    assert serving.status()["service"]["seen_at"] > before


def test_a_group_that_cannot_be_read_any_more_is_unknown_and_the_others_are_told(
    serving: Any, protect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = protect()
    other.activate()  # nothing has looked at it since
    with unreadable(other.state.database, DEFAULT_PROJECT, other.name):
        found = serving.state.database.for_project(DEFAULT_PROJECT).reading(
            lambda tx: services(serving.state, tx)
        )

    assert found[group_id(DEFAULT_PROJECT, other.name)].service == "UNKNOWN"
    assert found[group_id(DEFAULT_PROJECT, serving.name)].service == "SERVING"


# -- while a move has begun, and has released nothing


@pytest.fixture
def moving(serving: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A move from db_a to db_b has begun, of which nothing is carried out yet."""
    monkeypatch.setattr(serving.state, "eager", False)
    answer = orders.Begin(serving.name, lost=[], to="db_b").run(CONTEXT)
    assert answer["roles"] == {"active": "db_b"}, answer
    return serving


def test_it_serves_where_it_did(moving: Any) -> None:
    before = moving.status()["service"]
    observe(moving)

    found = moving.status()["service"]
    assert (before["status"], found["status"]) == ("SERVING", "SERVING")
    assert found["seen_at"] > before["seen_at"]
    assert moving.told("down") == []


def test_what_happens_to_the_server_on_which_it_serves_counts(
    moving: Any, operator: Operator
) -> None:
    operator.stop_server(moving.server("db_b"))
    observe(moving)
    assert service(moving)[0] == "DEGRADED", "only the standby is off"

    operator.stop_server(moving.server("db_a"))
    observe(moving)
    word, reasons = service(moving)
    assert word == "DOWN"
    assert "active is on db_a" in reasons[0]


def test_an_alarm_about_the_member_on_which_it_serves_counts(moving: Any) -> None:
    suspensions.Pause(moving.name, because="work").run(CONTEXT)
    raised = {"previous": "ok", "current": "alarm", "alarm_id": f"lost-{moving.name}"}
    alarms.Admit(raised, group=moving.name, member="db_a").run(CONTEXT)

    word, reasons = service(moving)
    assert word == "UNKNOWN"
    assert "db_a is lost" in reasons[0]

    observe(moving)
    assert service(moving)[0] == "DEGRADED"


# -- alarms that would not notice a failure


def test_alarms_that_watch_every_member_are_nothing_to_tell_of_nor_are_those_of_others(
    serving: Any, operator: Operator
) -> None:
    def seen() -> tuple[str, list[str]]:
        observe(serving)
        return service(serving)

    operator.make_alarm("web_lost", "web", serving.server("db_b"))
    assert seen() == ("SERVING", [])
    for member in serving.members:
        operator.make_alarm(f"{member}_lost", serving.name, serving.server(member))
    assert seen() == ("SERVING", [])
    serving.cloud.api_fault("alarm_list", status=403, times=100)
    assert seen() == ("SERVING", []), "an Aodh that cannot be asked has not lost them"


def test_an_alarm_that_watches_a_server_of_the_past_is_seen(
    serving: Any, operator: Operator
) -> None:
    gone = "0b5e9d2c-9a4f-4e0f-9a53-0d5f0c1e7a12"
    operator.make_alarm("db_a_lost", serving.name, gone)
    operator.make_alarm("db_b_lost", serving.name, serving.server("db_b"))

    (row,) = observe(serving)

    assert row["heal"] is None
    assert service(serving) == (
        "DEGRADED",
        [
            f"alarm db_a_lost watches server {gone}, which does not exist",
            "no alarm watches the server of db_a (change it where it is defined, or name it in "
            "the group file as a resource of type alarm)",
        ],
    )


def test_alarms_that_vanished_are_missed_until_the_group_is_updated(
    serving: Any, operator: Operator
) -> None:
    alarm = operator.make_alarm("db_a_lost", serving.name, serving.server("db_a"))
    observe(serving)
    operator.delete_alarm(alarm)

    observe(serving)

    assert service(serving) == (
        "DEGRADED",
        [
            f"no alarm in Aodh signals stack {serving.name} any more (if it is to have none: "
            "failover group update FILE)"
        ],
    )
    observe(serving)
    assert service(serving)[0] == "DEGRADED", "it is remembered"
    context = ActionContext(SecurityContext(), ExecutionContext())
    definition = reports.Status(serving.name, definition=True).run(context)["definition"]
    groups.Define(definition["document"], name=serving.name).run(context)
    observe(serving)
    assert service(serving) == ("SERVING", [])


def test_an_alarm_that_names_no_server_watches_all_of_them(
    serving: Any, operator: Operator
) -> None:
    operator.make_alarm("db_b_lost", serving.name, serving.server("db_b"))
    operator.make_alarm("any_lost", serving.name, None)

    observe(serving)

    assert service(serving) == ("SERVING", [])


def test_a_group_that_was_brought_up_serves(serving: Any) -> None:
    assert serving.status()["service"]["seen_at"] is not None
    assert serving.told("degraded") == serving.told("down") == []


def test_a_group_without_a_goal_is_out_of_service(group: Any) -> None:
    assert service(group) == ("OUT_OF_SERVICE", [])
    assert observe(group) == []


@pytest.mark.parametrize("fault", ["power_off", "delete"])
def test_the_loss_of_the_active_server_is_seen_without_an_alarm(
    serving: Any, operator: Operator, fault: str
) -> None:
    if fault == "delete":
        operator.delete_server(serving.server("db_a"))
    else:
        operator.stop_server(serving.server("db_a"))

    rows = observe(serving)

    assert [row["service"] for row in rows] == ["DOWN"]
    word, reasons = service(serving)
    assert word == "DOWN"
    assert "active is on db_a" in reasons[0]
    assert len(serving.told("down")) == 1
    assert observe(serving) == [], "it is told once"


def test_a_look_that_ends_late_does_not_replace_a_later_one(
    serving: Any, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process was frozen after it saw the server off. Another one has seen it on since."""
    database = serving.state.database.for_project(DEFAULT_PROJECT)
    here = group_id(DEFAULT_PROJECT, serving.name)
    seen: list[Any] = []

    def frozen(*args: Any) -> Any:
        seen.append(look(*args))
        kept = database.reading(lambda tx: observations.of_group(tx, here))
        known = [(here, kept.at)]
        database.atomically(lambda tx: observations.seen_again(tx, known, tx.now() + 60))
        return seen[-1]

    look = observe_module._look
    monkeypatch.setattr(observe_module, "_look", frozen)
    operator.stop_server(serving.server("db_a"))

    assert observe(serving) == []
    assert [each.service for each in seen] == ["DOWN"]
    assert service(serving) == ("SERVING", [])


def test_a_group_is_down_since_its_agent_was_last_heard_not_since_the_look(
    serving: Any, operator: Operator
) -> None:
    observe(serving)
    operator.stop_server(serving.server("db_a"))
    time.sleep(2.5)

    observe(serving)

    status = serving.status()
    seen = status["service"]
    assert seen["status"] == "DOWN"
    assert seen["since"] <= seen["seen_at"] - 2


def test_a_server_that_is_being_rebuilt_does_not_serve(serving: Any, operator: Operator) -> None:
    boot = serving.cloud.set_latency()["boot"]
    serving.cloud.set_latency(boot=60)
    try:
        operator.rebuild_server(serving.server("db_a"))
        observe(serving)
    finally:
        serving.cloud.set_latency(boot=boot)

    word, reasons = service(serving)
    assert word == "DOWN"
    assert reasons[0] == "active is on db_a, but its server is REBUILD (rebuilding)"


def test_a_lost_standby_degrades_a_group_that_serves(serving: Any, operator: Operator) -> None:
    operator.delete_server(serving.server("db_b"))

    observe(serving)

    word, reasons = service(serving)
    assert word == "DEGRADED"
    assert "no member can take over" in reasons[0]
    assert "db_b" in reasons[0]


def test_a_volume_that_was_detached_by_hand_and_deleted_is_seen(
    serving: Any, operator: Operator
) -> None:
    detach(serving, operator)
    observe(serving)
    detached = service(serving)
    operator.delete_volume(volume_of(serving))
    observe(serving)
    deleted = service(serving)

    assert (detached[0], deleted[0]) == ("DOWN", "DOWN")
    assert detached[1] == ["data on db_a: the volume is available and attached to no server"]
    assert deleted[1] == ["data on db_a: the volume no longer exists"]


def test_what_was_attached_to_another_member_is_said_by_the_names_of_both(
    serving: Any, operator: Operator
) -> None:
    detach(serving, operator)
    operator.attach(volume_of(serving), serving.server("db_b"))
    observe(serving)

    assert service(serving) == (
        "DOWN",
        ["data on db_a: the volume is in-use and attached to db_b, not to db_a"],
    )


@pytest.mark.parametrize("status", ["backing-up", "error_extending"])
def test_a_volume_that_its_guest_uses_but_that_could_not_move_is_a_flaw(
    serving: Any, operator: Operator, status: str
) -> None:
    operator.set_volume(volume_of(serving), status)

    observe(serving)

    word, reasons = service(serving)
    assert word == "DEGRADED"
    assert status in reasons[0]
    assert "could not move now" in reasons[0]
    answer = doctor.Doctor(serving.name).run(ActionContext(SecurityContext(), ExecutionContext()))
    (found,) = (row for row in answer["findings"] if row["check"] == "volumes")
    assert found["level"] == ("error" if status.startswith("error") else "warn")
    assert "--state available" not in found["remedy"]


def test_what_comes_back_is_told_as_well(serving: Any, operator: Operator) -> None:
    operator.stop_server(serving.server("db_a"))
    observe(serving)
    operator.start_server(serving.server("db_a"))
    assert healed(serving).state == "SUCCESS"

    rows = observe(serving)

    assert [row["service"] for row in rows] == ["SERVING"]
    assert len(serving.told("well")) == 1


def test_a_service_that_can_not_be_asked_leaves_it_unknown(serving: Any) -> None:
    serving.cloud.api_fault("server_list", status=503, times=100)

    observe(serving)

    assert service(serving)[0] == "UNKNOWN"
    serving.cloud.clear_api_faults()
    assert observe(serving) == [], "it was well before, and is"
    assert serving.told("well") == []


def test_during_a_failover_the_group_is_down_until_the_application_runs(serving: Any) -> None:
    body = serving.fails()
    serving.run("on_alarm", **body)

    found = serving.status()["service"]

    assert found["status"] == "DEGRADED"
    assert found["reasons"] == ["no member can take over (db_a: it was declared lost)"]
    assert found["seen_at"] is None, "what was seen before the failover says nothing of it"
    ended = serving.status()["traversal"]["ended_at"]
    assert found["since"] == ended
    observe(serving)
    assert service(serving) == ("DEGRADED", found["reasons"]), "a look finds the same"


def test_after_a_move_the_group_serves_since_its_end(serving: Any) -> None:
    serving.run("switchover", group=serving.name).assert_succeeded()

    observe(serving)

    found = serving.status()
    assert found["service"]["status"] == "SERVING"
    assert found["service"]["since"] == found["traversal"]["ended_at"]


def test_the_first_look_after_work_leaves_since_when_it_serves(
    group: Any, operator: Operator
) -> None:
    def since(word: str) -> float:
        found = group.status()["service"]
        assert found["status"] == word
        return float(found["since"])

    group.activate()
    said = since("SERVING")
    time.sleep(0.1)
    observe(group)
    assert since("SERVING") == said

    operator.stop_server(group.server("db_a"))
    observe(group)
    assert since("DOWN") > said
    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()
    said = since("DEGRADED")
    time.sleep(0.1)
    observe(group)
    assert since("DEGRADED") == said


def test_a_start_that_changes_nothing_ends_no_outage(serving: Any, operator: Operator) -> None:
    detach(serving, operator)
    observe(serving)
    down = serving.status()["service"]
    before = serving.status()["traversal"]

    serving.run("failover", group=serving.name, lost=[]).assert_succeeded()
    observe(serving)

    found = serving.status()
    assert found["traversal"]["id"] != before["id"]
    assert (found["service"]["status"], found["service"]["since"]) == ("DOWN", down["since"])


def test_after_a_move_during_a_maintenance_the_group_is_not_protected(serving: Any) -> None:
    context = ActionContext(SecurityContext(), ExecutionContext())
    done = suspensions.Maintenance(serving.name, members=["db_a"], minutes=5, because="work").run(
        context
    )
    assert not isinstance(done, Result), done.error
    serving.run("switchover", group=serving.name).assert_succeeded()

    before = serving.status()["service"]
    observe(serving)
    after = serving.status()["service"]

    assert (before["status"], before["seen_at"]) == ("DEGRADED", None)
    assert (before["status"], before["reasons"]) == (after["status"], after["reasons"])


def test_a_stack_is_read_again_only_after_an_update(serving: Any, operator: Operator) -> None:
    observe(serving)
    serving.cloud.api_fault("stack_show", status=503, times=1)

    observe(serving)
    assert service(serving)[0] == "SERVING", "it was listed, and not read"


def test_the_doctor_looks_as_well_and_keeps_nothing(serving: Any, operator: Operator) -> None:
    operator.update_stack(serving.name, active="none")

    found = doctor.Doctor(serving.name).run(ActionContext(SecurityContext(), ExecutionContext()))

    (row,) = (row for row in found["findings"] if row["check"] == "service")
    assert row["level"] == "warn"
    assert "parameter active is none instead of db_a" in row["sentence"]
    assert service(serving) == ("SERVING", []), "status says what the last round saw"


# -- what follows from it


def parameter(group: Any, operator: Operator) -> str:
    return str(operator.stack(group.name)["parameters"]["active"])


def test_a_drifted_parameter_is_repaired_and_asked_for_again_after_a_while_if_no_repair_began(
    serving: Any, operator: Operator
) -> None:
    operator.update_stack(serving.name, active="none")
    (first,) = observe(serving)
    assert first["heal"]["workflow"] == "failover.failover"
    drifted = f"routing: stack {serving.name}: parameter active is none instead of db_a"
    assert service(serving) == ("DEGRADED", [drifted])
    assert observe(serving) == []

    observe_later(serving)

    assert healed(serving).state == "SUCCESS"
    assert parameter(serving, operator) == "db_a"
    assert serving.runs_on() == ["db_a"], "nothing moved"
    assert observe(serving)[0]["service"] == "SERVING"
    assert service(serving) == ("SERVING", [])


def observe_later(group: Any) -> None:
    """As if the pause after the last repair were over."""

    def forget(tx: Any) -> None:
        kept = observations.of_group(tx, group_id(DEFAULT_PROJECT, group.name))
        memory = replace(kept.memory, repair_after=0.0)
        observations.save(tx, group_id(DEFAULT_PROJECT, group.name), kept.seen, memory, kept.at)

    group.state.database.atomically(forget)


def test_nothing_is_repaired_where_the_group_only_reports(
    protect: Callable[..., Any], operator: Operator
) -> None:
    group = protect(heal="report")
    group.activate()
    operator.update_stack(group.name, active="none")

    (row,) = observe(group)

    assert (row["service"], row["heal"]) == ("DEGRADED", None)


def test_a_pause_holds_healing_back(serving: Any, operator: Operator) -> None:
    serving.run("pause", group=serving.name, because="we work on it")
    operator.update_stack(serving.name, active="none")

    (row,) = observe(serving)

    assert row["heal"] is None


def test_a_repair_moves_nothing_so_the_moves_of_the_hour_do_not_hold_it_back(
    protect: Callable[..., Any], operator: Operator
) -> None:
    group = protect(limits={"per_hour": 1, "cooldown": 0})
    group.activate()
    for _ in range(2):
        operator.update_stack(group.name, active="none")
        assert healed(group).state == "SUCCESS"
        assert parameter(group, operator) == "db_a"
        observe_later(group)


def test_the_loss_of_the_active_server_is_a_failover_where_the_group_says_so(
    protect: Callable[..., Any], operator: Operator
) -> None:
    group = protect(heal="failover")
    group.activate()
    operator.delete_server(group.server("db_a"))

    assert healed(group).state == "SUCCESS"

    assert group.status()["roles"] == {"active": "db_b"}
    applications = group.cloud.guests()[group.server("db_b")]["applications"]
    assert group.name in applications
    assert len(group.told("admitted")) == 1


def test_a_loss_that_two_looks_see_is_one_alarm(
    protect: Callable[..., Any], operator: Operator
) -> None:
    group = protect(heal="failover")
    group.activate()
    operator.stop_server(group.server("db_a"))
    rows = [observe(group), observe(group)]

    runs = [
        group.workflows.run(row["heal"]["workflow"], row["heal"]["input"], timeout=60)
        for ((row,),) in zip(rows, strict=True)
    ]

    decisions = [run.output["admissions"][0]["decision"] for run in runs]
    assert decisions == ["ADMITTED", "DUPLICATE"]
    assert len(group.traversals()) == 2, "the first activation, and one failover"


def test_a_lost_server_is_only_reported_unless_the_group_says_otherwise(
    serving: Any, operator: Operator
) -> None:
    operator.delete_server(serving.server("db_a"))
    assert [row["heal"] for row in observe(serving)] == [None]


def test_a_sweep_looks_too_and_says_what_is_to_be_started(serving: Any, operator: Operator) -> None:
    operator.update_stack(serving.name, active="none")

    swept = serving.run("sweep", group=serving.name).output["swept"]

    assert [row["service"] for row in swept["observed"]] == ["DEGRADED"]
    assert [row["workflow"] for row in swept["heals"]] == ["failover.failover"]


def sweep(group: Any) -> dict[str, Any]:
    """An operator sweeps the group; what was found."""
    found: dict[str, Any] = group.run("sweep", group=group.name).output["swept"]
    return found


def test_an_operator_who_sweeps_repairs_what_another_look_saw_first(
    serving: Any, operator: Operator
) -> None:
    """Within the five minutes after a repair, in which no look asks for another one."""
    operator.update_stack(serving.name, active="none")
    assert healed(serving).state == "SUCCESS"
    assert observe(serving)[0]["service"] == "SERVING"
    operator.update_stack(serving.name, active="none")
    assert [row["heal"] for row in observe(serving)] == [None]
    assert observe(serving) == []

    (row,) = sweep(serving)["observed"]

    assert row["heal"]["workflow"] == "failover.failover"
    until(lambda: parameter(serving, operator) == "db_a", limit=180)


def left(group: Any) -> str:
    """What a sweep says of a flaw for which it starts nothing."""
    swept = sweep(group)
    assert swept["heals"] == []
    (row,) = swept["observed"]
    return str(row["sentence"])


def test_an_operator_who_sweeps_repairs_a_group_that_only_reports(
    protect: Callable[..., Any], operator: Operator
) -> None:
    group = protect(heal="report")
    group.activate()
    assert sweep(group)["observed"] == [], "there is no flaw"
    operator.update_stack(group.name, active="none")
    assert [row["heal"] for row in observe(group)] == [None]

    (row,) = sweep(group)["observed"]

    assert "active is none instead of db_a" in row["sentence"]
    until(lambda: parameter(group, operator) == "db_a", limit=180)


def test_a_sweep_says_that_a_pause_or_the_kind_of_flaw_holds_healing_back(
    serving: Any, operator: Operator
) -> None:
    serving.run("pause", group=serving.name, because="we work on it")
    operator.update_stack(serving.name, active="none")
    assert f"failover resume {serving.name}" in left(serving)
    serving.run("resume", group=serving.name, because="done").assert_succeeded()
    operator.update_stack(serving.name, active="db_a")
    serving.cloud.api_fault("server_list", status=503, times=100)
    assert "UNKNOWN" in left(serving)
    serving.cloud.clear_api_faults()
    operator.delete_server(serving.server("db_b"))
    assert "no member can take over" in left(serving)
    operator.delete_server(serving.server("db_a"))
    assert "heal: repair" in left(serving)


def test_a_group_that_is_activated_again_does_not_say_that_it_is_the_first_time(
    serving: Any,
) -> None:
    serving.run("activate_first", group=serving.name).assert_succeeded()

    assert serving.status()["traversal"]["cause"] == "it is brought up as it is defined"
