# SPDX-License-Identifier: Apache-2.0
"""The values of the convergence core, without behaviour beyond questions about themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from mistral_failover.model.types import Verb

Kind = Literal["update", "cleanup"]


class Action(StrEnum):
    """What was last tried on a record; INIT: nothing."""

    INIT = "INIT"
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class Status(StrEnum):
    """What a record's last action came to."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"


class TraversalStatus(StrEnum):
    """What a traversal came to. BLOCKED: it waits for an operator."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    BLOCKED = "BLOCKED"
    SUPERSEDED = "SUPERSEDED"


class NodeStatus(StrEnum):
    """The status of a node. WAITING: it is not done yet; BLOCKED: it waits for an operator."""

    WAITING = "WAITING"
    DONE = "DONE"
    FAILED = "FAILED"
    BLOCKED = "BLOCKED"


class OperationStatus(StrEnum):
    """What an operation came to. UNKNOWN: it may have taken effect; OVERTAKEN: that as well, but a
    later one on its record is done."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    OVERTAKEN = "overtaken"


class JournalKind(StrEnum):
    """The kind of a journal entry: what it is about."""

    # An alarm or an order: the decision in lower case (``model.decisions.Decision``).
    ADMITTED = "admitted"
    HELD = "held"
    IGNORED = "ignored"
    DUPLICATE = "duplicate"
    DISMISSED = "dismissed"
    REFUSED = "refused"
    # The admission of alarms.
    PAUSE = "pause"
    MAINTENANCE = "maintenance"
    RESUMED = "resumed"
    GUARDED = "guarded"
    # A traversal: it begins, and what it came to.
    TRAVERSAL = "traversal"
    COMPLETE = "complete"
    RETURNED = "returned"
    NOT_REACHED = "not_reached"
    BLOCKED = "blocked"
    ROOM_MADE = "room_made"
    # A step of a traversal.
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    WAITING = "waiting"
    LATE = "late"
    GIVEN_UP = "given_up"
    HANDED_BACK = "handed_back"
    STEAL = "steal"
    # What an operator or a sweep did.
    BROKEN = "broken"
    CONFIRMED = "confirmed"
    FORGOTTEN = "forgotten"
    ADOPTED = "adopted"
    REHEARSAL = "rehearsal"
    REHEARSAL_PASSED = "rehearsal_passed"
    REHEARSAL_FAILED = "rehearsal_failed"
    REHEARSAL_ENDED = "rehearsal_ended"
    RESTORED = "restored"
    ROLLING = "rolling"
    SWEEP = "sweep"
    ENDED = "ended"
    NO_OTHER_TARGET = "no_other_target"
    UNTOLD = "untold"
    # What was seen of the service.
    WELL = "well"
    DEGRADED = "degraded"
    DOWN = "down"


ACTION_OF: Mapping[Verb, Action] = {
    Verb.CREATE: Action.CREATE,
    Verb.UPDATE: Action.UPDATE,
    Verb.DELETE: Action.DELETE,
}


VERB_OF: Mapping[Action, Verb] = {action: verb for verb, action in ACTION_OF.items()}


@dataclass(frozen=True, order=True)
class Node:
    """One node of a traversal's graph: bring a resource to the goal, or clean it up."""

    kind: Kind
    resource_id: str

    @property
    def key(self) -> str:
        """Return the node as one string, as the graph, the sync points and Mistral use it."""
        return f"{self.kind}:{self.resource_id}"

    @classmethod
    def parse(cls, key: str) -> Node:
        """Parse a :attr:`key`. Raises ValueError if it is not one."""
        kind, separator, resource_id = key.partition(":")
        if not separator or not resource_id or kind not in ("update", "cleanup"):
            raise ValueError(
                f"{key!r} is not a node: expected update:<resource> or cleanup:<resource>"
            )
        return cls("update" if kind == "update" else "cleanup", resource_id)


# The traversal's own sync point: it becomes ready when every root of the graph has reported.
END = "end"


@dataclass(frozen=True)
class Record:
    """One versioned record of a resource that a goal asked for.

    ``properties`` are those last applied or, while an operation runs or after it failed, those that
    it should apply; None before the first try. ``applied`` are those of the last create or update
    that succeeded; None before that. ``condemned_for`` is the version of the goal whose traversals
    make another record in its place: it turned out late that this one cannot become what that goal
    wants. ``lease_until`` is in seconds of the database's clock. ``given_up`` is the code for which
    its last operation was given up, to be taken up again; None where it was not. ``asked`` is a
    request of its last operation that has no answer and may still take effect, until
    ``settles_at``, in seconds of the database's clock; None where there is none. ``atomic_key``
    grows with every change of the row, ``token`` with every change of the lock's owner,
    ``generation`` with every operation whose outcome is known and with every one that takes the
    place of one whose outcome is not.
    """

    id: str
    group_id: str
    name: str
    type: str
    member: str | None = None
    epoch: int = 0
    action: Action = Action.INIT
    status: Status = Status.COMPLETE
    reason: str = ""
    properties: Mapping[str, Any] | None = None
    applied: Mapping[str, Any] | None = None
    physical_id: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    goal_version: str = ""
    replaces: str | None = None
    replaced_by: str | None = None
    condemned_for: str | None = None
    given_up: str | None = None
    owner: str | None = None
    token: int = 0
    lease_until: float | None = None
    atomic_key: int = 0
    generation: int = 0
    asked: str | None = None
    settles_at: float | None = None

    @property
    def gone(self) -> bool:
        """Nothing of it remains."""
        return self.action == Action.DELETE and self.status == Status.COMPLETE

    @property
    def being_deleted(self) -> bool:
        """Its deletion has begun: unless its type revives it, it cannot be kept."""
        return self.action == Action.DELETE

    def held_at(self, now: float) -> bool:
        """Return whether a live owner holds its lock at ``now``, by the database's clock."""
        return self.owner is not None and (self.lease_until or 0.0) > now


@dataclass(frozen=True)
class Wanted:
    """The wanted resource of a traversal; ``properties`` may still hold get_attr and
    get_resource."""

    name: str
    type: str
    properties: Mapping[str, Any]
    requires: tuple[str, ...]


@dataclass(frozen=True)
class GroupState:
    """A group as the core sees it, with the versions of three definitions.

    ``definition_version`` is that of the current traversal, by which the engine works; before the
    first traversal it is ``defined``. ``defined`` is what the user gave last. ``in_force`` is that
    of the last traversal that reached its goal; None if there is none, or it took the group out of
    service. ``stack_id`` is the id of the stack ``stack_name`` from which the group has its
    members; both are None until then. ``restored``: the store is older than what happened since, so
    what it has of the group, apart from its file, is not true. ``rehearses`` is the id of the group
    whose failover is rehearsed in this one; None: it is a group of a user.
    """

    id: str
    project_id: str
    name: str
    definition_version: str
    current_traversal: str | None
    last_complete_goal: str | None
    defined: str
    in_force: str | None
    stack_name: str | None = None
    stack_id: str | None = None
    restored: bool = False
    rehearses: str | None = None

    @property
    def to_move(self) -> str:
        """The definition that a failover moves: what is in force, or what is defined if nothing
        is."""
        return self.in_force or self.defined


@dataclass(frozen=True)
class Traversal:
    """One execution of the graph to one goal. ``back``: it undoes one that failed.

    ``through`` is the rank of the last stage that may run; None: all may. ``follows`` is the id of
    the traversal that it replaced by the engine's own decision. ``chain`` is the id of the Mistral
    execution that drives it, None if there was none. ``definition_version`` is that of the
    definition that its goal is derived from; two definitions may have the same goal.
    """

    id: str
    group_id: str
    goal_version: str
    status: TraversalStatus
    reason: str = ""
    cause: str = ""
    incident_id: str | None = None
    back: bool = False
    through: int | None = None
    follows: str | None = None
    chain: str | None = None
    definition_version: str = ""


@dataclass(frozen=True)
class NodeState:
    """A node's sync point: how many predecessors have not reported yet, and the node's outcome.

    ``stage`` is a rank (``model.stages``). While the node is retried after transient failures,
    ``waiting_for`` names what it waits for, ``waiting_since`` and ``own_since`` are as in
    ``waiting.Wait``, ``tries`` counts the failures (0 while it waits
    for something else), and ``next_try`` is when the next try may
    begin, in seconds of the database's clock. ``stopped_since``: when it first failed or was
    blocked; None if it never was.
    """

    node: Node
    status: NodeStatus
    remaining: int
    wanted: Wanted | None
    stage: int = 0
    waiting_for: str | None = None
    waiting_since: float | None = None
    next_try: float | None = None
    tries: int = 0
    own_since: float | None = None
    stopped_since: float | None = None


@dataclass(frozen=True)
class StoppedNode:
    """A node that failed, or is blocked (``status``): why, and since when, in seconds of the
    database's clock."""

    node: Node
    status: NodeStatus
    reason: str
    since: float


@dataclass(frozen=True)
class NodeView:
    """A node with its traversal and its record, read at once. ``state``: None if a newer traversal
    has replaced the traversal. ``record``: None if it was forgotten. ``epoch``: the current one of
    the record's member, 0 without a member."""

    traversal: Traversal
    state: NodeState | None
    record: Record | None
    epoch: int


@dataclass(frozen=True)
class Reported:
    """What a node's report leaves: the nodes that wait for nothing more among those that waited for
    it, and whether it was the last root of the graph to report."""

    ready: tuple[Node, ...]
    finished: bool


@dataclass(frozen=True)
class NodeProgress:
    """The progress of a node, and the owner of its record, read ``at`` this time; times are seconds
    of the database's clock."""

    node: Node
    stage: int
    status: NodeStatus
    remaining: int
    next_try: float | None
    owner: str | None
    lease_until: float | None
    at: float


@dataclass(frozen=True)
class Lock:
    """The right to carry out one operation: valid while the row names this owner and token."""

    resource_id: str
    owner: str
    token: int
    lease: float


@dataclass(frozen=True)
class Unsettled:
    """A request without an answer: what was ``asked``, under which record, and until when it may
    still take effect, in seconds of the database's clock."""

    record_id: str
    name: str
    member: str | None
    asked: str
    settles_at: float


@dataclass(frozen=True)
class Ticket:
    """What is needed to conclude an operation; small and plain, so that Mistral can carry it.

    ``key`` is the same whenever the same operation has to be repeated: it is the id under which
    agents journal their commands.
    """

    key: str
    verb: Verb
    traversal_id: str
    node: Node
    lock: Lock
    goal_version: str


@dataclass(frozen=True)
class Operation:
    """One create, update or delete, handed to a worker together with its lock.

    ``unknown`` says that an earlier attempt's outcome is not known: look at reality before acting.
    ``unsettled`` are the seconds for which a request of an earlier attempt at the same thing may
    still take effect: look, but change nothing until then.
    ``inputs`` holds, by resource name, the id and attributes of what this resource waited for.
    ``previous`` are the properties last applied successfully, None where none were. Where
    ``unknown``, those of an attempt since may be in effect instead.
    """

    ticket: Ticket
    record: Record
    properties: Mapping[str, Any]
    previous: Mapping[str, Any] | None
    inputs: Mapping[str, Mapping[str, Any]]
    unknown: bool = False
    unsettled: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """An operation's outcome. ``error`` has code, message and remedy; ``blocked``: it waits for an
    operator; ``unknown``: it failed, but may have taken effect; ``transient``: the failure is
    expected to pass, so it is retried, for ``patience`` seconds at most (None: as long as the group
    allows). Then it counts as ``blocked`` says."""

    physical_id: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    blocked: bool = False
    unknown: bool = False
    transient: bool = False
    patience: float | None = None

    @property
    def ok(self) -> bool:
        """It took effect."""
        return self.error is None


@dataclass(frozen=True)
class Ready:
    """A node that a worker should check now."""

    traversal_id: str
    node: Node


@dataclass(frozen=True)
class Step:
    """The answer of a check or a conclusion: one sentence, what to carry out, what became ready.

    ``unchanged``: the check found nothing to carry out, so the node is done. ``held``: the node's
    stage is not open yet. ``retry_at``: the node is retried then, in seconds of the database's
    clock. ``superseded_by``: the current traversal, if it is another one than requested.
    """

    sentence: str
    operation: Operation | None = None
    ready: tuple[Ready, ...] = ()
    unchanged: bool = False
    held: bool = False
    retry_at: float | None = None
    superseded_by: str | None = None


@dataclass(frozen=True)
class Started:
    """The answer of starting a traversal. ``won`` is False if a newer one is current."""

    traversal_id: str
    won: bool
    created: bool
    ready: tuple[Ready, ...] = ()
