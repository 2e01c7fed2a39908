# SPDX-License-Identifier: Apache-2.0
"""A plan as a document: what ``failover.plan`` answers, and the commands and the page show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from mistral_failover.model.rungs import Rung
from mistral_failover.model.types import Verb


class PlanStep(TypedDict):
    """One operation. ``what`` is, if it is certain, the words that the journal will use when it
    starts. ``after``: the numbers of the steps that must end before. ``expected``: seconds, None if
    no such operation was carried out yet. ``interrupts``: it takes something away from a member
    that holds a role now, or restarts the application there."""

    number: int
    what: str
    verb: Verb
    resource: str
    type: str
    member: str | None
    certain: bool
    after: list[int]
    expected: float | None
    interrupts: bool


class PlannedFence(TypedDict):
    """How a member is fenced: it ``climbs`` the ladder, its fence ``stands`` already, or is
    ``lifted``. ``ladder``: the rungs as in the group file. ``longest``: the maximum number of
    seconds until it waits for an operator; None unless it climbs."""

    member: str
    ladder: Sequence[Rung]
    longest: float | None
    state: Literal["climbs", "stands", "lifted"]
    sentence: str


class PlannedWay(TypedDict):
    """A way to bring a member back. ``does``: what it does, as a clause. ``after``: the rungs after
    whose proof it is tried; None: after each. ``longest``: seconds after which the next way is
    tried, None if only the operation's limit ends it. ``expected``: seconds, None if no member came
    back so yet."""

    way: str
    does: str
    after: list[str] | None
    longest: float | None
    expected: float | None


class PlannedReturn(TypedDict):
    """How a member comes back: the ways that are tried, in their order. ``server``: the one that
    it has now."""

    member: str
    server: str
    ways: list[PlannedWay]
    sentence: str


class PlannedDeletion(TypedDict):
    """What is deleted in the case that ``when`` tells. ``what``: with its id, and with the disks
    that go with it; both are clauses. ``member``: the one whose it is."""

    member: str
    what: str
    when: str
    sentence: str


class Risk(TypedDict):
    """What could go wrong: a stable code, a sentence, and what helps."""

    code: str
    sentence: str
    remedy: str


class PlannedOrder(TypedDict):
    """What an order would do now; see :class:`PlanDocument`."""

    verb: str
    group: str
    sentence: str
    inputs: Mapping[str, Any]
    goal: str | None
    roles: dict[str, str]
    lost: list[str]
    steps: list[PlanStep]
    parallel: list[list[int]]
    fences: list[PlannedFence]
    ways_back: list[PlannedReturn]
    deletes: list[PlannedDeletion]
    risks: list[Risk]
    seconds: float | None


class PlanDocument(PlannedOrder):
    """A plan. ``plan`` is its id, None if there is nothing to do. ``inputs``: the order's own.
    ``goal``: the version. ``parallel``: the numbers of the steps, wave by wave. ``seconds``: the
    expected total, None if it is not known. ``changed``: why it can no longer be started."""

    plan: str | None
    expires_at: float | None
    changed: list[str]
