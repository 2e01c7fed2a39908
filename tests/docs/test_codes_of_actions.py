# SPDX-License-Identifier: Apache-2.0
"""docs/reference.md, *What an action fails with*: against what each action's code can reach.

Where a code can be reached but the action never ends with it, or ends with one that no source
spells out (a service's answer, an agent's, the status of a traversal), it is said here, and why.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mistral_failover.cloud.errors import REMEDIES
from support import reachable

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text(encoding="utf-8")
SECTION = REFERENCE.split("\n## What an action fails with\n")[1].split("\n## ")[0]
COMMON, KINDS, OWN = re.split(r"^\| (?:codes of|action) .*$", SECTION, flags=re.M)
ACTIONS = reachable.actions()

BASE = "mistral_failover.actions.base.FailoverAction"
GOAL = {"CONTENDED", "NO_ELIGIBLE_MEMBER", "UNKNOWN_MEMBER", "VOLUME_IS_ROOT", "VOLUME_NOT_SHARED"}
NOT_ENDED_WITH = {
    # An incident that could not be started is a row of `refused`.
    "failover.sweep": {*GOAL, "NOT_IN_SERVICE"},
    "failover.admit_event": {*GOAL, "NOT_IN_SERVICE"},
    # Findings.
    "failover.doctor": {"BAD_REQUEST", "NOT_FOUND", "VOLUME_IS_ROOT", "VOLUME_NOT_SHARED"},
    # Risks of the plan.
    "failover.plan": {"VOLUME_ERROR", "VOLUME_IN_USE"},
    # Outcomes of the operations that it carries out.
    "failover.advance": {"ASYNC_ACTION", "NO_WORKFLOW", "UNKNOWN_ACTION"},
    # A rung that proves nothing, and says so in its observation.
    "failover.fence": {"NO_WORKFLOW"},
}
FROM_OUTSIDE = {
    "cloud": set(REMEDIES),
    "agent": {"OLD_EPOCH", "REFUSED", "UNKNOWN_OUTCOME", "UNREACHABLE"},
}
OF_A_TRAVERSAL = {"FAILED", "BLOCKED", "RETURNED", "OVERTAKEN", "RIGHTS_ENDED"}
ANSWERED = {
    "failover.advance": {*OF_A_TRAVERSAL, "UNKNOWN_TRAVERSAL"},
    "failover.report": OF_A_TRAVERSAL,
}


def named(text: str) -> set[str]:
    """The codes in a text."""
    return set(re.findall(r"`([A-Z][A-Z_]+)`", text))


def rows(table: str) -> list[list[str]]:
    """The cells of a table's rows."""
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


KINDS_TOLD = {cells[0]: named(cells[1]) for cells in rows(KINDS)}
TOLD = {
    f"failover.{name}": (re.findall(r"\w+", cells[1]), named(cells[2]))
    for cells in rows(OWN)
    for name in re.findall(r"`failover\.(\w+)`", cells[0])
}


def told(action: str) -> set[str]:
    """All codes that the page says an action may end with."""
    kinds, own = TOLD[action]
    return own.union(named(COMMON), *(KINDS_TOLD[kind] for kind in kinds))


def reached(action: str) -> set[str]:
    """The codes that only this action's own code leads to."""
    return set(reachable.codes(ACTIONS[action]) - reachable.codes(BASE))


def in_the_cloud(name: str) -> set[str]:
    """The functions that speak to the cloud."""
    return {each for each in reachable.reached(name) if ".cloud." in each}


def test_every_action_has_one_row_and_no_other() -> None:
    names = re.findall(r"`(failover\.\w+)`", " ".join(cells[0] for cells in rows(OWN)))

    assert sorted(names) == sorted(ACTIONS)


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_what_an_action_s_code_can_end_with_is_told(action: str) -> None:
    assert sorted(reached(action) - NOT_ENDED_WITH.get(action, set()) - told(action)) == []


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_nothing_is_told_that_an_action_can_not_end_with(action: str) -> None:
    kinds, own = TOLD[action]
    known = set(reachable.codes(ACTIONS[action])).union(*(FROM_OUTSIDE.get(k, ()) for k in kinds))
    known |= ANSWERED.get(action, set())

    assert sorted(own - known) == []
    assert own & NOT_ENDED_WITH.get(action, set()) == set()


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_who_asks_the_cloud_or_an_agent_is_told(action: str) -> None:
    asks = {
        "cloud": bool(in_the_cloud(ACTIONS[action]) - in_the_cloud(BASE)),
        "agent": "NO_ANSWER" in reached(action),
    }
    if action in ("failover.doctor", "failover.advance"):
        # What they meet there is a finding, or the outcome of an operation.
        asks = dict.fromkeys(asks, False)

    kinds, _ = TOLD[action]
    assert {kind: kind in kinds for kind in asks} == asks


def test_the_kinds_have_the_codes_that_come_from_outside() -> None:
    assert set(KINDS_TOLD) == {"cloud", "agent", "goal", "operation"}
    assert KINDS_TOLD["cloud"] <= set(REMEDIES)
    assert KINDS_TOLD["agent"] >= FROM_OUTSIDE["agent"]
    assert named(COMMON) >= {"BAD_INPUT", "CONFIG", "NO_PROJECT", "UNKNOWN_GROUP", "UNEXPECTED"}


def test_every_code_of_the_page_is_explained_on_it() -> None:
    explained = named(REFERENCE.split("\n## Error codes\n")[1])

    assert sorted(named(SECTION) - explained) == []


def test_a_report_of_no_traversal_is_told() -> None:
    (row,) = re.findall(r"^\| `failover\.report` \| `group`.*$", REFERENCE, re.M)

    assert "(UNKNOWN: " in row
