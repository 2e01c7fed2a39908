# SPDX-License-Identifier: Apache-2.0
"""The view of a group's goals: what it was given, and which of them a rollback can return to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.cli import goals
from mistral_failover.cli.base import when
from mistral_failover.ui.levels import Level, of_status


@dataclass(frozen=True)
class GoalRow:
    """A goal, in words. ``short``: the first digits of its version. ``earlier``: whether it was
    reached, and is not the present one."""

    version: str
    short: str
    level: Level
    places: tuple[str, ...]
    status: tuple[str, ...]
    given: str
    reached: str
    cause: str
    current: bool
    earlier: bool

    @property
    def label(self) -> str:
        """Return the goal in one line, to choose from."""
        return f"{self.short}: {', '.join(self.places) or 'out of service'}, reached {self.reached}"


def goal_rows(found: Iterable[Mapping[str, Any]]) -> tuple[GoalRow, ...]:
    """Return the rows of failover.goals, the latest first."""
    return tuple(_row(goal) for goal in found)


def _row(goal: Mapping[str, Any]) -> GoalRow:
    reached = goal["reached_at"]
    return GoalRow(
        version=goal["version"],
        short=goal["version"][: goals.SHOWN_DIGITS],
        level=of_status(goal["status"]),
        places=tuple(goals.places(goal)),
        status=tuple(word.replace("_", " ") for word in goals.status(goal)),
        given=when(goal["given_at"]),
        reached="never" if reached is None else when(reached),
        cause=goal["cause"],
        current=goal["current"],
        earlier=reached is not None and not goal["current"],
    )
