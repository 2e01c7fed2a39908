# SPDX-License-Identifier: Apache-2.0
"""What the orders answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from mistral_failover.model.decisions import Decision
from mistral_failover.runtime.errors import ErrorFacts


class Started(TypedDict):
    """A traversal that was started, now or before. ``goal``: its version, None if its records were
    deleted since. ``workflow``: the one that carries the traversal out, None if nothing is to be
    carried out."""

    group: str
    traversal: str | None
    goal: str | None
    roles: dict[str, str]
    lost: list[str]
    workflow: str | None
    sentence: str


class StartedOrder(Started):
    """An order that was started. ``incident`` is its own, None if there was nothing to do."""

    incident: str | None


class Replacement(TypedDict):
    """A member that is replaced: its ``server`` goes. While there are ``moves``, the roles that it
    gives up first, and if it has another server already, nothing was started."""

    group: str
    member: str | None
    server: str | None
    moves: list[str]
    traversal: str | None
    workflow: str | None
    sentence: str
    incident: str | None
    goal: NotRequired[str | None]
    roles: NotRequired[dict[str, str]]
    lost: NotRequired[list[str]]


class AlarmAnswer(TypedDict):
    """The decision about an alarm, and what it started. ``workflow``: None if there is nothing to
    start. ``error``: why an admitted alarm was not started."""

    decision: Decision
    sentence: str
    incident: str | None
    traversal: str | None
    workflow: str | None
    group: NotRequired[str]
    goal: NotRequired[str | None]
    roles: NotRequired[dict[str, str]]
    lost: NotRequired[list[str]]
    error: NotRequired[ErrorFacts]


class AlarmBatch(TypedDict):
    """What became of admitted alarms. ``started``: those with a traversal to carry out.
    ``refused``: those with an ``error`` and no traversal. ``left``: the incidents that another call
    starts."""

    started: list[AlarmAnswer]
    refused: list[AlarmAnswer]
    left: list[str]


class AlarmBodyAnswer(AlarmBatch):
    """What became of the alarms of one body; ``admissions``: of each decision."""

    admissions: list[AlarmAnswer]


class RefusedAlarm(TypedDict):
    """A held alarm that could not be admitted or started."""

    incident: str
    group: str
    error: ErrorFacts


class PassedOver(TypedDict):
    """A held alarm that may be meant by a selection, and why it is not selected."""

    incident: str
    group: str
    why: str


class SelectionFacts(TypedDict):
    """What a selection left out: ``passed_over``. ``unsure``: why the zones may be old, or
    empty."""

    passed_over: list[PassedOver]
    unsure: str


class AdmittedAlarms(SelectionFacts):
    """What became of held alarms that an operator admitted. ``left``: the number of alarms that
    another call would admit."""

    admitted: list[StartedOrder]
    refused: list[RefusedAlarm]
    left: int


class GroupDefinition(TypedDict):
    """A group file and its types, as they were given."""

    document: Mapping[str, Any]
    types: list[Mapping[str, Any]]


class EndedAlarm(TypedDict):
    """An alarm that was dismissed with its group. ``lost``: None if it names no member."""

    incident: str
    lost: list[str] | None
    sentence: str


class DeletedGroup(TypedDict):
    """A group that was deleted; ``dismissed``: its alarms that were waiting."""

    group: str
    sentence: str
    dismissed: list[EndedAlarm]


class ForgottenResource(TypedDict):
    """A resource whose records were marked as gone. ``forgotten``: their ids; empty if there was
    nothing left of it. ``next``: the command that continues."""

    group: str
    resource: str
    forgotten: list[str]
    sentence: str
    next: str


class MemberInTurn(TypedDict):
    """A member to be replaced, and the server that goes."""

    member: str
    server: str


class RollingOutcome(TypedDict):
    """The end of a rolling replacement, in the form of a traversal's report."""

    status: str
    reason: str
    roles: dict[str, str]


class RollingStep(TypedDict):
    """The next step of a rolling replacement. ``turn``: all members, as fixed at the beginning.
    ``member`` and ``server``: the next one; None if all are done, then ``outcome`` says so.
    ``wait``: the seconds before its turn."""

    group: str
    turn: list[MemberInTurn]
    outcome: RollingOutcome | None
    member: str | None
    server: str | None
    wait: int
    sentence: str
