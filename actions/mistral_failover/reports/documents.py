# SPDX-License-Identifier: Apache-2.0
"""The status of a group and of all groups of a project, and everything about one object, as
documents: what ``failover.status`` and ``failover.show`` answer, and the commands and the page
show. Times are in seconds by the database's clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from mistral_failover.convergence.records import OperationStatus
from mistral_failover.groups.failed_step import FailedStep
from mistral_failover.mistral.executions import ExecutionTrees
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.remedies import NeedDocument
from mistral_failover.model.types import Verb
from mistral_failover.orders.answers import GroupDefinition
from mistral_failover.reports.durations import CriticalPath, StageTime
from mistral_failover.store.details import BrokenLock, LockRow, TraversalBrief
from mistral_failover.store.suspensions import Maintenance, Pause
from mistral_failover.store.views import TraversalRow


class MemberOfGroup(TypedDict):
    """A member, and the server behind it. ``condition``: how its server was found by the last look
    (``model.observation.Condition``), None if nothing looked since the engine's last work; ``why``:
    in words, may be empty; ``needs``: what a person does so that it may take a role, in order."""

    name: str
    server: str | None
    epoch: int
    condition: str | None
    why: str
    needs: list[NeedDocument]


class ResourceOfGroup(TypedDict):
    """The record of a resource. ``status``: its last action and what that came to. ``presence``:
    how the last look found it (``model.observation.Presence``), None if nothing looked since the
    engine's last work; ``why``: in words, may be empty."""

    name: str
    type: str
    member: str | None
    status: str
    reason: str
    physical_id: str | None
    attributes: dict[str, Any]
    goal: str
    owner: str | None
    token: int
    lease_left: float | None
    id: str
    presence: str | None
    why: str


class VolumeHolder(TypedDict):
    """Which member has a volume, according to the records. ``volume``: its resource's name."""

    volume: str
    physical_id: str | None
    member: str | None
    server: str | None
    since: float | None
    status: str


class Confirmation(TypedDict):
    """A blocked fence: ``command`` releases it once the member is certainly off.
    ``only_by_confirmation``: no rung of the ladder could prove it."""

    resource: str
    member: str
    reason: str
    command: str
    only_by_confirmation: bool


class ServiceState(TypedDict):
    """Whether a group serves. ``seen_at``: the time of the last look. ``gone``: the members that
    hold a role and whose server did not run then; ``standbys``: those that could take a role then;
    ``cold``: whether a lost member is brought back where there is none.
    ``another_stack``: the group's stack had been deleted and made again then; ``stack_gone``: it
    had been deleted. ``needs``: what a person does about what was found, in order
    (``model.remedies``); ``explained``: whether that is known of everything that was found."""

    status: str
    since: float | None
    reasons: list[str]
    seen_at: float | None
    gone: list[str]
    standbys: list[str]
    cold: bool
    another_stack: bool
    stack_gone: bool
    needs: list[NeedDocument]
    explained: bool


class ChainState(TypedDict):
    """The chain that a traversal waits for. ``state``: how its last execution ended, None if it was
    not asked, or is not known; ``task``: the one that failed; ``remedy``: the command that helps,
    empty while the chain may continue without help."""

    workflow: str
    execution: str | None
    executions: int
    stage: str
    state: str | None
    task: str | None
    sentence: str
    remedy: str


class ReportedIncident(TypedDict):
    """An incident of a group, in short. ``refusal``: why the last attempt to start its failover
    failed, or empty."""

    id: str
    source: str
    decision: Decision
    sentence: str
    refusal: str
    duplicates: int
    at: float


class Restart(TypedDict):
    """An attempt to bring a ``member`` back, which ended ``at``: ``found``, by what way it came
    back, or why it did not."""

    member: str
    at: float
    found: str


class OperationUnderWay(TypedDict):
    """An operation that was started and has not ended. ``seconds`` since its start; ``limit``: the
    seconds that it may take, None for a type that is not defined any more; ``waiting_for``: the
    service that does not answer it, since ``waiting_since``, None while it works."""

    key: str
    resource_id: str
    resource: str
    member: str | None
    verb: Verb
    status: OperationStatus
    attempts: int
    owner: str
    started_at: float
    sentence: str
    seconds: float
    limit: float | None
    waiting_for: str | None
    waiting_since: float | None


class WaitingStep(TypedDict):
    """A step that waits for a service. ``what`` is tried again in ``next_try`` seconds."""

    resource: str
    member: str | None
    verb: Verb
    what: str
    waiting_for: str
    since: float
    next_try: float
    tries: int


class DeferredStep(TypedDict):
    """A step that waits for the owner of a lock."""

    node: str
    resource: str
    deferred_to: str
    deferred_at: float


class ReadyStep(TypedDict):
    """A step that may start. It waits for a free worker, or for room in the budgets of its
    ``services``."""

    node: str
    resource: str
    member: str | None
    services: list[str]


class Work(TypedDict):
    """What a group does and waits for."""

    under_way: list[OperationUnderWay]
    waiting: list[WaitingStep]
    deferred: list[DeferredStep]
    ready: list[ReadyStep]


class GroupReport(Work):
    """What the status of a group, and its row among all groups, both have. ``status`` is that of
    its traversal, DEFINED if it has never had a goal; ``vacant``: the roles that no member can take
    at present (a group without ``roles`` is out of service only if it has none of these either);
    ``roles``: where the goal has them; ``serves_on``: where they serve now, empty unless it is
    known that they do; ``held``: how many of its alarms wait for an operator."""

    stack: str | None
    status: str
    reason: str
    roles: dict[str, str]
    vacant: list[str]
    lost: list[str]
    since: float | None
    pause: Pause | None
    maintenance: Maintenance | None
    held: int
    serves_on: dict[str, str]


class GroupOverview(GroupReport):
    """A row of a group among all groups of a project. ``service``: whether it serves, as
    ``ServiceState.status`` of its own status; ``service_since``: since when, as far as known."""

    name: str
    cause: str
    service: str
    service_since: float | None


class ProjectReport(TypedDict):
    """The groups of a project: the names of all, and the rows of the first ones by name."""

    groups: list[str]
    total: int
    overview: list[GroupOverview]
    now: float


class InForce(TypedDict):
    """How what is defined differs from what is in force: a sentence each in `lines`."""

    differs: bool
    lines: list[str]


class RehearsedMember(TypedDict):
    """The last rehearsal of a role on a member that passed or failed: ``at``, when it began;
    ``to_service``, the seconds that a failover would take by it. ``status`` and ``at`` are None if
    there was none, on the server that the member has now. Where each member is rehearsed in turn,
    ``missed_since``: when its own turn should have come that has not; ``passed_over``: why the
    group's last rehearsal left it out although it was its turn, empty if it did not."""

    member: str
    role: str
    at: float | None
    status: str | None
    reason: str
    to_service: float | None
    missed_since: float | None
    passed_over: str


class RehearsalState(TypedDict):
    """The rehearsals of a group. ``running``: one is under way, or its cleanup is. ``failure``: the
    step at which the cleanup stopped, None if it did not. The others are of the last one that
    passed or failed: ``at``, when it began; ``on``, the members that took roles; ``to_service``,
    the seconds that a failover would take by it. ``members``: the last one of each role on each
    member that does not hold it; those without any only if each member is rehearsed in turn.
    ``schedule``: when they begin by themselves, in words; ``missed_since``: when one should have
    begun that has not."""

    running: bool
    failure: FailedStep | None
    at: float | None
    status: str | None
    reason: str
    on: list[str]
    to_service: float | None
    members: list[RehearsedMember]
    schedule: str | None
    missed_since: float | None


class StatusReport(GroupReport):
    """The status of a group. ``defects``: the unexpected errors of the last day in the work of its
    project, or of no single one, in sentences. ``agents``: what each member's agent last reported,
    in words; ``unstarted``: the alarms that were admitted and whose failover has not started,
    oldest first; ``goes_back``: it is FAILED, and a rollback would change something;
    ``restored``: what the store has of it is older than what happened since; ``restarts``: the
    attempts of the last hour to bring members back."""

    group: str
    failure: FailedStep | None
    goal: str | None
    last_complete_goal: str | None
    goes_back: bool
    in_force: InForce
    restored: bool
    traversal: TraversalRow | None
    members: list[MemberOfGroup]
    resources: list[ResourceOfGroup]
    remedies: list[Confirmation]
    holders: list[VolumeHolder]
    chain: ChainState | None
    service: ServiceState
    incidents: list[ReportedIncident]
    unstarted: list[ReportedIncident]
    restarts: list[Restart]
    rehearsal: RehearsalState
    defects: list[str]
    agents: dict[str, str]
    definition: NotRequired[GroupDefinition]
    """If it was asked for."""
    now: float


class TraversalReport(TypedDict):
    """What a traversal came to: the outcome of a failover's execution. ``status`` UNKNOWN: there is
    no such traversal, and the other fields are missing. ``seconds``: None while it runs."""

    group: str
    traversal: str
    status: str
    reason: str
    failure: NotRequired[FailedStep | None]
    roles: NotRequired[dict[str, str]]
    lost: NotRequired[list[str]]
    seconds: NotRequired[float | None]


class Details(TypedDict):
    """What every answer about one object has. ``kind``: incident, traversal, goal, operation,
    resource or plan. ``group``: its name, None if unknown. ``executions``: the trees in Mistral,
    unless they were not asked for."""

    kind: str
    id: str
    group: str | None
    now: float
    executions: NotRequired[ExecutionTrees]


class ChildIncident(TypedDict):
    """A child of a host event. ``evidence``: why the storm guard still holds it. ``turn``: its
    place among the held ones when several are admitted, from 1 (None: not held)."""

    incident: str
    group: str
    lost: list[str]
    decision: Decision
    rule: AdmissionRule
    sentence: str
    evidence: str | None
    turn: int | None


class IncidentDetails(Details):
    """An incident. ``fact``: ``model.alarm_fact`` as JSON; ``order``: ``model.order`` as JSON, None
    if no operator asked for it. ``heard``: how often it was reported. ``counts_on``: the incident
    on which a duplicate is counted. ``parent``: the host event that it is part of. ``admit`` and
    ``dismiss``: the commands, None if it does not wait for an operator."""

    source: str
    decision: Decision
    rule: AdmissionRule
    sentence: str
    fact: dict[str, Any]
    order: dict[str, Any] | None
    said: dict[str, Any]
    heard: int
    first_at: float
    last_at: float
    decided_at: float
    counts_on: str | None
    parent: str | None
    children: list[ChildIncident]
    traversals: list[TraversalBrief]
    admit: str | None
    dismiss: str | None


class OperationSummary(TypedDict):
    """An operation. ``what`` and ``result``: in words. ``execution``: of its owner, None if the
    owner is no execution. ``seconds``: until its end, or until now."""

    key: str
    what: str
    verb: Verb
    resource: str
    type: str
    member: str | None
    status: OperationStatus
    owner: str
    execution: str | None
    attempts: int
    started_at: float
    ended_at: float | None
    seconds: float
    result: str


class OperationOfTraversal(OperationSummary):
    """An operation of a traversal, and the stage that it belongs to."""

    stage: str
    resource_id: str


class Deferral(TypedDict):
    """An operation that waited for the lock of another owner. ``seconds``: until the next operation
    on the resource began, None if there is none."""

    resource: str
    held_by: str
    at: float
    seconds: float | None


class LockWaits(TypedDict):
    """How often the operations of a traversal waited for a lock, and how long in all."""

    count: int
    seconds: float


class StepAhead(TypedDict):
    """A step of a traversal that has not begun. ``what``: in words; ``certain``: it will run, not
    only if it is needed; ``after``: the keys of the operations and the steps ahead before it that
    are not done; ``waits_for``: these, or what else it waits for, in words; ``expected``: seconds,
    None if it is not known."""

    key: str
    resource_id: str
    what: str
    verb: Verb
    stage: str
    certain: bool
    after: list[str]
    waits_for: list[str]
    expected: float | None


class HistoryEntry(TypedDict):
    """An entry of the journal, in short."""

    at: float
    kind: str
    sentence: str
    resource_id: str | None


class TraversalDetails(Details):
    """A traversal. ``goal``: the version of its goal. ``nodes``: how many it has, by status.
    ``seconds``: until its end, or until now. ``steals``: the locks that were broken. ``ahead``: the
    steps that have not begun, in a possible order. ``last_failover``: how long the group's failover
    before this one took, in seconds; None if this is none, or if it is the first."""

    cause: str
    goal: str
    status: str
    reason: str
    chain: ChainState | None
    incident: str | None
    roles: dict[str, str]
    lost: list[str]
    nodes: dict[str, int]
    started_at: float
    ended_at: float | None
    seconds: float
    superseded_by: str | None
    operations: list[OperationOfTraversal]
    stages: list[StageTime]
    critical_path: CriticalPath
    lock_waits: LockWaits
    deferrals: list[Deferral]
    steals: list[BrokenLock]
    ahead: list[StepAhead]
    last_failover: float | None
    history: list[HistoryEntry]


class GoalDetails(Details):
    """A goal. ``last_complete``: whether it was the last one that was reached."""

    roles: dict[str, str]
    lost: list[str]
    document: dict[str, Any]
    last_complete: bool
    traversals: list[TraversalBrief]


class OperationDetails(Details, OperationSummary):
    """An operation with its place in the ledger. ``goal``: the version of the goal that it is for.
    ``intent``: what was recorded before its call."""

    traversal: str
    resource_id: str
    goal: str
    token: int
    intent: Mapping[str, Any] | None
    error: Mapping[str, Any] | None


class ResourceDetails(Details):
    """A resource's record. ``status``: its last action and how that ended, such as
    CREATE_COMPLETE. ``goal``: the version of the goal that it was made for."""

    name: str
    type: str
    member: str | None
    epoch: int
    status: str
    reason: str
    properties: dict[str, Any] | None
    physical_id: str | None
    attributes: dict[str, Any]
    requires: list[str]
    goal: str
    replaces: str | None
    replaced_by: str | None
    token: int
    lock: LockRow | None
    operations: list[OperationSummary]


class PlanDetails(Details):
    """A plan that was kept. ``steps``: the command that shows its steps."""

    verb: str
    inputs: dict[str, Any]
    goal: str
    expires_at: float
    expired: bool
    steps: str
