# SPDX-License-Identifier: Apache-2.0
"""Many groups of a project that fail at once: the settings are the default ones."""

from __future__ import annotations

from typing import Any

from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, reports, suspensions
from mistral_failover.alarms import intake
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.recovery.sweep import sweep
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import incidents, tables
from support.alarm_bodies import aodh


def kept(context: ActionContext, group: str = "payments") -> list[dict[str, Any]]:
    """The incidents of a group, newest first."""
    return list(reports.Status(group).run(context)["incidents"])


def names(count: int) -> list[str]:
    return [f"group{n}" for n in range(count)]


def decisions(context: ActionContext, groups_: list[str]) -> list[str]:
    return [kept(context, name)[0]["decision"] for name in groups_]


def fail(context: ActionContext, name: str, message: str = "m") -> None:
    alarms.Admit(aodh(f"{name}-{message}", server=f"{name}-a")).run(context)


def test_so_many_groups_at_once_are_held_and_the_sentence_says_what_to_suspect(
    serve: Any, context: ActionContext
) -> None:
    every = [serve(name) for name in names(6)]

    for name in every:
        fail(context, name)

    assert decisions(context, every) == ["ADMITTED", "ADMITTED", *["HELD"] * 4]
    last = kept(context, every[-1])[0]["sentence"]
    assert "6 of 6 groups of the project failed within 600 s" in last
    assert "control plane" in last
    assert {row["rule"] for row in alarms.Held().run(context)["held"]} == {"storm"}


def test_a_slow_cascade_is_a_storm_as_well_for_what_is_held_counts(
    serve: Any, context: ActionContext, state: Runtime, project: str
) -> None:
    """Every 290 s one more group: never more than three within the window."""
    every = [serve(name) for name in names(6)]
    mine = tables.incidents.c.project_id == project

    for name in every:
        state.database.atomically(
            lambda tx: tx.execute(
                tables.incidents.update()
                .where(mine)
                .values(decided_at=tables.incidents.c.decided_at - 290)
            )
        )
        fail(context, name)

    assert decisions(context, every) == ["ADMITTED", "ADMITTED", *["HELD"] * 4]


def test_after_the_window_alarms_are_admitted_again(
    serve: Any, context: ActionContext, state: Runtime, project: str
) -> None:
    every = [serve(name) for name in names(6)]
    for name in every[:4]:
        fail(context, name)
    state.database.atomically(
        lambda tx: tx.execute(
            tables.incidents.update()
            .where(tables.incidents.c.project_id == project)
            .values(decided_at=1.0)
        )
    )

    fail(context, every[4])

    assert decisions(context, every[4:5]) == ["ADMITTED"]


def test_what_was_expected_makes_no_storm(serve: Any, context: ActionContext) -> None:
    every = [serve(name) for name in names(6)]
    for name in every[:5]:
        suspensions.Maintenance(name, "the switch is replaced", minutes=10).run(context)
        fail(context, name)

    fail(context, every[5])

    assert decisions(context, every) == [*["HELD"] * 5, "ADMITTED"]


def test_the_groups_of_a_storm_are_counted_once_each(serve: Any, context: ActionContext) -> None:
    every = [serve(name, limits={"cooldown": 0}) for name in names(6)]
    for number in range(4):
        fail(context, every[0], f"m{number}")

    fail(context, every[1])

    assert decisions(context, every[1:2]) == ["ADMITTED"]


def test_another_project_s_storm_is_not_ours(
    serve: Any, context: ActionContext, context_of: Any, state: Runtime
) -> None:
    every = [serve(name) for name in names(3)]
    fail(context, every[0])
    fail(context, every[1])
    elsewhere = Request(state, context_of("elsewhere"))

    counted = state.database.for_project(elsewhere.project_id).reading(
        lambda tx: incidents.failing_since(tx, 0.0, ("storm",))
    )

    assert counted == set()


# -- the end of a storm, as far as no cloud answers


def test_while_the_cloud_does_not_answer_the_guard_holds_and_says_so_once(
    serve: Any, context: ActionContext, state: Runtime
) -> None:
    every = [serve(name) for name in names(4)]
    for name in every:
        fail(context, name)
    request = Request(state, context)

    first, second = sweep(request, None), sweep(request, None)

    assert (first["released"], second["released"], first["dismissed"]) == ([], [], [])
    assert decisions(context, every[2:]) == ["HELD", "HELD"]
    told = [row for row in reports.History(every[2]).run(context) if row["kind"] == "guarded"]
    assert len(told) == 1
    assert "the storm guard still holds" in told[0]["sentence"]
    assert {row["evidence"] for row in alarms.Held().run(context)["held"]} == {
        told[0]["sentence"].partition(": ")[2]
    }


def test_what_the_guard_lets_go_is_judged_by_every_other_rule(
    serve: Any, context: ActionContext, state: Runtime, project: str
) -> None:
    every = [serve(name) for name in names(4)]
    for name in every:
        fail(context, name)
    suspensions.Pause(every[2], "we look").run(context)
    request = Request(state, context)

    def judged(name: str) -> Any:
        identity = kept(context, name)[0]["id"]
        return state.database.for_project(project).reading(lambda tx: incidents.get(tx, identity))

    def release(held: Any) -> Any:
        return request.store.atomically(
            lambda tx: intake.release(request, tx, held, "let go, because it died")
        )

    def released(name: str) -> Any:
        return release(judged(name))

    before = judged(every[3])
    state.database.atomically(lambda tx: incidents.report_again(tx, before.id))
    assert release(before) is None, "the evidence is older than the last report"
    paused, free, again = released(every[2]), released(every[3]), released(every[3])

    assert (paused.decision, paused.rule) == ("HELD", "paused")
    assert (free.decision, free.rule) == ("ADMITTED", "released")
    assert "let go, because it died" in kept(context, every[3])[0]["sentence"]
    assert again is None
    since = state.database.for_project(project).reading(
        lambda tx: incidents.decided_since(tx, AdmissionRule.RELEASED, 0.0)
    )
    assert since == 1


def test_incidents_that_wait_start_by_the_priority_of_their_groups(
    serve: Any, context: ActionContext, state: Runtime
) -> None:
    for name, priority in (("low", -2), ("middle", 0), ("high", 4)):
        serve(name, priority=priority, limits={"cooldown": 0})
    suspended = [suspensions.Pause(name, "x").run(context) for name in ("low", "middle", "high")]
    assert len(suspended) == 3
    for name in ("low", "middle", "high"):
        fail(context, name)
    request = Request(state, context)
    for name in ("low", "middle", "high"):
        identity = kept(context, name)[0]["id"]
        request.store.atomically(
            lambda tx, i=identity: incidents.decide(tx, i, Decision.ADMITTED, "a test")
        )

    refused = sweep(request, None)["refused"]

    found = {kept(context, name)[0]["id"]: name for name in ("low", "middle", "high")}
    assert [found[row["incident"]] for row in refused] == ["high", "middle", "low"]
