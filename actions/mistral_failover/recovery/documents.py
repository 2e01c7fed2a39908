# SPDX-License-Identifier: Apache-2.0
"""What a sweep answers, as documents. Each ``sentence`` tells people what was done, or why not."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from mistral_failover.mistral.event_hooks import SentEvent
from mistral_failover.runtime.errors import ErrorFacts


class TakenUp(TypedDict):
    """A traversal that must be carried out again."""

    traversal: str
    group: str
    sentence: str


class Restarted(TakenUp):
    """A traversal that ``workflow``, the group's chain, carries out again."""

    workflow: str


class JudgedIncident(TypedDict):
    """An incident about which a sweep decided. ``group``: missing if this sweep held it."""

    incident: str
    group: NotRequired[str]
    sentence: str


class JudgedAlarms(TypedDict):
    """Held alarms that were judged again. ``released``: those that the storm guard let go.
    ``dismissed``: those whose cause has cleared, also admitted ones that could not be started.
    ``unable``: sentences about what could not be done."""

    released: list[JudgedIncident]
    dismissed: list[JudgedIncident]
    unable: list[str]


class StartedIncident(TypedDict):
    """An admitted incident whose failover was started."""

    incident: str
    group: str
    traversal: str | None
    workflow: str | None
    sentence: str


class RefusedIncident(TypedDict):
    """An admitted incident whose failover cannot start."""

    incident: str
    group: str | None
    error: ErrorFacts
    sentence: str


class AdmittedIncidents(TypedDict):
    """What became of the admitted incidents that had caused no traversal."""

    started: list[StartedIncident]
    held: list[JudgedIncident]
    refused: list[RefusedIncident]


class EndedExecution(TypedDict):
    """An execution that was stuck in Mistral and was ended."""

    execution: str
    workflow: str
    sentence: str


class AlarmInput(TypedDict):
    """The input of ``failover.on_event``: an alarm of this ``kind``."""

    body: dict[str, str]
    kind: str


class SameGoalInput(TypedDict):
    """The input of ``failover.failover`` for the same goal, unless another traversal came ``after``
    this one. Without ``to`` another target may be chosen."""

    group: str
    lost: list[str]
    because: str
    after: str | None
    to: NotRequired[dict[str, str]]


class RehearsalInput(TypedDict):
    """The input of ``failover.rehearse``."""

    group: str
    because: str


class DueRehearsal(TypedDict):
    """A rehearsal whose time has come: the ``workflow`` to be started with its ``input``. If its
    start is lost, a sweep returns it again an hour later."""

    group: str
    sentence: str
    workflow: str
    input: RehearsalInput


class Heal(TypedDict):
    """A workflow to be started with its ``input``. If its start is lost, a later look returns it
    again."""

    workflow: str
    input: AlarmInput | SameGoalInput


class ObservedGroup(TypedDict):
    """A group that has changed or is to be healed; in a sweep of one group also one with a flaw for
    which nothing is started, and why not. ``service``: a `model.observation.Service`."""

    group: str
    service: str
    sentence: str
    heal: Heal | None


class ChainToStart(TypedDict):
    """A traversal, and the chain that carries it out; None if nothing is to be carried out."""

    traversal: str | None
    workflow: str | None


class Swept(JudgedAlarms, AdmittedIncidents):
    """What a sweep found.

    The failovers of ``released`` are among ``started``. ``ended``: not looked for if one group is
    swept. ``observed``: groups whose service has changed
    according to an observation of servers, volumes and parameters; only if there is nothing to work
    on. ``told``: events that were sent to workflows of groups now; if there is something to work
    on, that comes first, and they are sent in the background. ``chains``, ``heals`` and
    ``rehearsals``: everything that must be started, each traversal once.
    """

    restarted: list[Restarted]
    ended: list[EndedExecution]
    observed: list[ObservedGroup]
    told: list[SentEvent]
    chains: list[ChainToStart]
    heals: list[Heal]
    rehearsals: list[DueRehearsal]
