# SPDX-License-Identifier: Apache-2.0
"""Many groups of a project that fail at once: the settings are the default ones."""

from __future__ import annotations

from typing import Any

from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, reports, suspensions
from mistral_failover.runtime.process import Request, Runtime
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

    counted = state.database.reading(
        lambda tx: incidents.failing_since(tx, elsewhere.project_id, 0.0, ("storm",))
    )

    assert counted == set()
