# SPDX-License-Identifier: Apache-2.0
"""The status of a group as a document: what ``failover.status`` answers, and the commands and the
page show. Times are in seconds by the database's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from mistral_failover.model.decisions import Decision


class MemberOfGroup(TypedDict):
    """A member, and the server behind it."""

    name: str
    server: str | None
    epoch: int


class ResourceOfGroup(TypedDict):
    """The record of a resource. ``status``: its last action and what that came to."""

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


class VolumeHolder(TypedDict):
    """Which member has a volume, according to the records. ``volume``: its resource's name."""

    volume: str
    physical_id: str | None
    member: str | None
    server: str | None
    since: float | None
    status: str


class Confirmation(TypedDict):
    """A blocked fence, and the command that releases it once the member is certainly off.
    ``only_by_confirmation``: no rung of the ladder could prove it."""

    resource: str
    member: str
    reason: str
    command: str
    only_by_confirmation: bool


class FailedStep(TypedDict):
    """The step whose failure is the reason of a traversal's status: ``what`` was done, and the
    error."""

    resource: str
    what: str
    code: str
    message: str
    remedy: str


class ServiceState(TypedDict):
    """Whether a group serves. ``seen_at``: the time of the last look. ``gone``: the members that
    hold a role and whose server did not run then."""

    status: str
    since: float | None
    reasons: list[str]
    seen_at: float | None
    gone: list[str]


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
    """An incident of a group, in short."""

    id: str
    source: str
    decision: Decision
    sentence: str
    duplicates: int
    at: float


class Work(TypedDict):
    """What a group does and waits for: ``under_way`` (operations), ``waiting`` (for a service),
    ``deferred`` (to the owner of a lock) and ``ready`` (for a free worker)."""

    under_way: Sequence[Mapping[str, Any]]
    waiting: Sequence[Mapping[str, Any]]
    deferred: Sequence[Mapping[str, Any]]
    ready: Sequence[Mapping[str, Any]]


class StatusReport(Work):
    """The status of a group. ``status`` is that of its traversal, DEFINED if it has never had a
    goal; ``held``: how many of its alarms wait for an operator; ``agents``: what each member's
    agent last reported, in words."""

    group: str
    stack: str
    status: str
    reason: str
    failure: FailedStep | None
    roles: dict[str, str]
    lost: list[str]
    goal: str | None
    last_complete_goal: str | None
    traversal: Mapping[str, Any] | None
    pause: Mapping[str, Any] | None
    maintenance: Mapping[str, Any] | None
    members: list[MemberOfGroup]
    resources: list[ResourceOfGroup]
    remedies: list[Confirmation]
    since: float | None
    holders: list[VolumeHolder]
    held: int
    chain: ChainState | None
    service: ServiceState
    incidents: list[ReportedIncident]
    agents: dict[str, str]
    definition: NotRequired[Mapping[str, Any]]
    """The group file and its types, if they were asked for."""
    now: float
