# SPDX-License-Identifier: Apache-2.0
"""What an exploration is about: goals, faults, states, moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar


@dataclass(frozen=True)
class ChosenGoal:
    """A goal: who is active, who is lost, in a group of these resources; None: remove it."""

    resources: Mapping[str, Any] | None
    active: str = "a"
    lost: tuple[str, ...] = ()


class RemainingEvents(NamedTuple):
    """How often each thing may still happen.

    ``goals``: those not started yet. ``crashes``: an engine dies at work. ``freezes``: its lease
    ends, and it wakes up later. ``failures``: an operation fails, or took effect and seems to have
    failed. ``blocks``: it waits for a person. ``doubles``, ``losses``: of messages. ``overlaps``:
    something happens between what a transaction reads and what it changes. ``strays``: somebody
    looks at a node that waits. ``lates``: a request is given up, and takes effect later or not.
    """

    goals: int = 0
    crashes: int = 0
    freezes: int = 0
    failures: int = 0
    blocks: int = 0
    doubles: int = 0
    losses: int = 0
    overlaps: int = 0
    strays: int = 0
    lates: int = 0

    def less(self, what: str) -> RemainingEvents:
        """One time less."""
        return self._replace(**{what: getattr(self, what) - 1})


class RunningOperation(NamedTuple):
    """An operation in somebody's hand."""

    operation: int
    effected: bool = False
    frozen: bool = False


class State(NamedTuple):
    """Where everything is; see the module."""

    content: int
    world: int
    messages: tuple[int, ...]
    works: tuple[RunningOperation, ...]
    left: RemainingEvents
    under_way: tuple[int, ...] = ()  # operations that were given up, whose request may take effect


Label = tuple[str, Any]
Move = tuple[Label, State]


class Violation(AssertionError):
    """Something that must never be, with the way that leads there."""


@dataclass(frozen=True)
class Explored:
    """How much there was: ``steps`` are transactions that the core really ran."""

    states: int
    transitions: int
    steps: int
    contents: int
    rests: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.states} states, {self.transitions} transitions, {self.rests} at rest; "
            f"{self.contents} contents, {self.steps} steps of the core; {self.seconds:.1f} s"
        )


T = TypeVar("T")


def without(items: tuple[T, ...], item: T) -> tuple[T, ...]:
    """All items but one of these."""
    place = items.index(item)
    return items[:place] + items[place + 1 :]


def with_one(items: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    """All items and this one, in order."""
    return tuple(sorted((*items, item)))
