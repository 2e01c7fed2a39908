# SPDX-License-Identifier: Apache-2.0
"""The loop of ``failover.advance``: carries out a traversal, stage by stage.

``failover.advance`` is a loop over the state store. In each turn it lists the ready nodes and puts
them into the process's pool of workers. It ends when every node of the stages up to the requested
one is done, or another goal has superseded the traversal. It reads the current state and remembers
nothing. So any number of loops, in any number of processes, may advance one traversal: the locks
let one worker through. Nodes that a worker makes ready go into its own pool at once. If that gets
lost, the next turn of a loop lists them; if there is no loop, a sweep starts one.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import NotRequired, TypedDict

from mistral_lib.actions import Result
from sqlalchemy.exc import SQLAlchemyError

from mistral_failover.convergence.engine import latest
from mistral_failover.convergence.errors import UnknownTraversal
from mistral_failover.convergence.records import (
    GroupState,
    Node,
    NodeProgress,
    NodeStatus,
    Ready,
    Traversal,
    TraversalStatus,
)
from mistral_failover.fault_points import reach
from mistral_failover.groups import agent_epochs
from mistral_failover.model.rehearsals import RehearsalOutcome
from mistral_failover.model.stages import Stage, rank
from mistral_failover.orders import vacant_roles
from mistral_failover.orders.other_target import choose_other_target
from mistral_failover.reports import status
from mistral_failover.reports.documents import TraversalReport
from mistral_failover.resources import ownership
from mistral_failover.resources.worker import NodeWorker
from mistral_failover.runtime import rights
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, rehearsals, views
from mistral_failover.store.database import is_away
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)

POLL_FIRST, POLL_GROWTH, POLL_LONGEST = 0.1, 1.5, 2.0
"""Seconds between two looks at a traversal that another process works on."""
SETTLED = 0.1
"""Seconds that a loop waits after a worker's end for the others of its group."""
PATIENT = 5.0
"""Seconds that a loop waits while its own process has nothing to do. Then it gives its thread back,
and Mistral calls it again. So groups that wait for a service do not use up an executor."""
IN_TURN = 20.0
"""The same while nodes of its group only wait in the pool: for a budget, a thread, or the end of a
workflow. It is longer, because each call costs Mistral a task, and many groups may wait at once."""
STORE_PATIENT = 900.0
"""The same while the state store does not answer. It is longer, because Mistral usually keeps its
own state in the same database. After some 80 s an engine forgets the results that it received in
the meantime, and the chain would end."""
CROWDED = 4
"""The number of other traversals that the process works on from which a call continues to the end
of its own. Then a task of Mistral costs more than the chain's progress is worth, and what the
stages do is as fast: workers never wait for a call."""
SAID = 50
"""The maximum number of sentences that one call returns."""


@dataclass(frozen=True)
class TraversalView:
    """A traversal as one turn of the loop sees it."""

    traversal: Traversal
    rows: Sequence[NodeProgress]

    @property
    def now(self) -> float:
        """When it was read, by the database's clock."""
        return self.rows[0].at if self.rows else 0.0

    @property
    def superseded(self) -> bool:
        """Whether another goal was given in the meantime."""
        return self.traversal.status == TraversalStatus.SUPERSEDED or not self.rows

    def left(self, stage: Stage) -> list[NodeProgress]:
        """Return the nodes of the stages up to ``stage`` that can be worked on, now or later."""
        return [row for row in self.rows if _ready(row) and row.stage <= rank(stage)]

    @property
    def made_room(self) -> bool:
        """Whether everything is done, but no member serves yet (``orders.vacant_roles``)."""
        done = all(row.status == NodeStatus.DONE for row in self.rows)
        return bool(self.rows) and done and self.traversal.status == TraversalStatus.IN_PROGRESS

    def settled(self, stage: Stage) -> bool:
        """Return whether nothing of the stages up to ``stage`` can be worked on, now or later."""
        return self.superseded or not (self.left(stage) or self.made_room)

    def waiting(self) -> list[NodeProgress]:
        """Return the nodes that wait for their next try."""
        return [row for row in self.rows if _ready(row) and (row.next_try or 0.0) > self.now]

    def due(self) -> list[NodeProgress]:
        """Return the nodes to be worked on now: no live worker holds them, and it is not
        too early."""
        gate = self.traversal.through
        return [
            row
            for row in self.rows
            if _ready(row)
            and (gate is None or row.stage <= gate)
            and (row.next_try is None or row.next_try <= self.now)
            and not (row.owner is not None and (row.lease_until or 0.0) > self.now)
        ]

    def stuck(self, stage: Stage) -> bool:
        """Return whether a node of the stages up to ``stage`` failed, or waits for an operator."""
        return any(
            row.status in (NodeStatus.FAILED, NodeStatus.BLOCKED) and row.stage <= rank(stage)
            for row in self.rows
        )

    def next_try(self, stage: Stage) -> float:
        """Return the seconds until the next retry of a node of these stages."""
        times = [row.next_try for row in self.left(stage) if row.next_try is not None]
        return max(0.0, min(times, default=self.now + POLL_LONGEST) - self.now)


def _ready(row: NodeProgress) -> bool:
    return row.status == NodeStatus.WAITING and not row.remaining


class Advanced(TypedDict):
    """What a call came to. ``traversal``: the last one that was carried out. ``state``: its status.
    ``said``: what happened in the meantime, in sentences. ``again``: this call gave its thread back
    before the end and must be repeated. ``outcome``: the traversal's report, if the last stage was
    asked for, or if all of them are done; None with ``again``."""

    traversal: str
    state: str
    said: list[str]
    again: bool
    outcome: NotRequired[TraversalReport | None]


def advance(
    request: Request, traversal_id: str, through: Stage, *, hold: bool
) -> Advanced | Result:
    """Carry out a traversal, up to the end of the stage ``through``.

    With ``hold`` later stages wait for a call of their own. Without it their nodes are also carried
    out as soon as the graph allows; and if the process works on many traversals, the call waits for
    them too, so that later stages need no task of Mistral. If the engine has superseded the
    traversal itself (by a replacement, or the way back), the new one is carried out instead.

    Fails with the status and the reason if something of these stages failed (FAILED) or waits for
    an operator (BLOCKED); with RIGHTS_ENDED. Raises UnknownTraversal, also if the traversal is
    forgotten in the meantime.
    """
    again: Advanced = {
        "traversal": traversal_id,
        "state": "IN_PROGRESS",
        "said": [],
        "again": True,
        "outcome": None,
    }
    deadline = None
    while True:
        try:
            return _advanced(request, traversal_id, through, hold=hold) or again
        except SQLAlchemyError as error:
            if not is_away(error):
                raise
            LOG.warning("The state store is unreachable", exc_info=True)
        deadline = deadline or time.monotonic() + STORE_PATIENT
        if not _store_is_back(request, deadline):
            return again


def _goes_on(
    request: Request, view: TraversalView, through: Stage, worker: NodeWorker, *, hold: bool
) -> bool:
    """Return whether a call whose stage is done continues to the end of the traversal."""
    if hold or worker.ended or view.stuck(through) or view.settled(Stage.END):
        return False
    return request.runtime.workers.others(worker.group_id) >= CROWDED


def _store_is_back(request: Request, deadline: float) -> bool:
    """Wait until the state store answers. Return False if the process stops, or the time is
    over."""
    workers = request.runtime.workers
    while not workers.stopping and time.monotonic() < deadline:
        workers.pause(POLL_LONGEST)
        try:
            request.store.reading(lambda tx: tx.now())
        except SQLAlchemyError as error:
            if not is_away(error):
                raise
            continue
        return True
    return False


def _advanced(
    request: Request, traversal_id: str, through: Stage, *, hold: bool
) -> Advanced | Result | None:
    """Return the result of :func:`advance`; None if the call gives its thread back before
    the end."""
    count = request.runtime.workers.ended()
    entered = request.store.reading(lambda tx: _entered(request, tx, traversal_id))
    if entered is None:
        raise UnknownTraversal(traversal_id)
    state, after, view = entered
    agent_epochs.refuse_restored(state)
    reach("advance.before")
    worker = NodeWorker(request, state.id)
    left = _Cleanups(request, state.id, state.rehearses is None)
    if through is Stage.FENCE:  # also if all of it is done by now
        left.go_on()
    gated = _open(request, view.traversal, through, hold=hold)
    said: list[str] = []
    if not view.settled(through):  # mostly the workers are faster than Mistral
        if through is Stage.END:
            # An earlier stage has just been refused: do not count another attempt.
            worker.ended = rights.still_ended(request, state.id)
        # Where stages were opened only now, the view is out of date.
        first = [] if gated else [_Look(view, count, worker.ended is not None)]
        with request.runtime.workers.loop():
            last = _Loop(worker, traversal_id, through, after, left).run(first)
        if last is None:
            return None
        view, said = last.view, list(last.said)
    if _goes_on(request, view, through, worker, hold=hold):
        with request.runtime.workers.loop():
            last = _Loop(worker, traversal_id, Stage.END, after, left).run(())
        if last is not None:
            view, said = last.view, list(last.said)
    reach("advance.after")
    facts: Advanced = {
        "traversal": view.traversal.id,
        "state": view.traversal.status,
        "said": said,
        "again": False,
    }
    if through is Stage.END:
        return _reported(request, state.name, traversal_id, facts)
    if worker.ended:
        return _failure("RIGHTS_ENDED", worker.ended[0], facts)
    if view.traversal.status == TraversalStatus.COMPLETE and not hold:
        found = report(request, state.name, traversal_id)
        # The last stage says what else there is to say.
        return facts if isinstance(found, Result) else {**facts, "outcome": found}
    if view.stuck(through) and view.traversal.status in (
        TraversalStatus.FAILED,
        TraversalStatus.BLOCKED,
    ):
        return _failure(view.traversal.status, view.traversal.reason, facts)
    return facts


@dataclass
class _Cleanups:
    """The cleanups of the group's rehearsals that a failover has ended; ``left``: whether there may
    be any. Their own executions may look later, or have died, and the standby is needed soon."""

    request: Request
    group_id: str
    left: bool

    def go_on(self) -> None:
        """Work on what can be done of them now, in this process and without waiting for it. What a
        dead owner holds can be once its lease is over, so ask again."""
        if not self.left:
            return

        def read(tx: ProjectTransaction) -> dict[str, TraversalView]:
            found = {}
            for row in rehearsals.unfinished(tx, self.group_id):
                own = groups.get(tx, row["id"])
                if row["outcome"] != RehearsalOutcome.RUNNING and own and own.current_traversal:
                    found[own.id] = _view(tx, own.current_traversal)
            return found

        found = self.request.store.reading(read)
        self.left = bool(found)
        for rehearsal_id, view in found.items():
            worker = NodeWorker(self.request, rehearsal_id)
            for row in view.due():
                worker.submit(Ready(view.traversal.id, row.node))


@dataclass(frozen=True)
class _Look:
    """One look at a traversal. ``count``: how many nodes the process had worked on before it.
    ``last``: whether the loop ends with it; then ``said`` has what the journal says about the
    call. ``makes_room``: whether its goal leaves roles without a member."""

    view: TraversalView
    count: int
    last: bool
    said: Sequence[str] = ()
    makes_room: bool = False


@dataclass(frozen=True)
class _Loop:
    """The loop of one call. ``after``: the id of the journal's last row before it. ``left``: of the
    group's rehearsals. ``rooms``: by traversal, whether its goal leaves roles without a member,
    which does not change."""

    worker: NodeWorker
    traversal_id: str
    through: Stage
    after: int
    left: _Cleanups
    rooms: dict[str, bool] = field(default_factory=dict)

    def run(self, first: Iterable[_Look]) -> _Look | None:
        """Loop until nothing of the stages is left to do; return the last look. Return None if the
        thread is given back earlier. ``first``: the first look, if there was one already."""
        worker, through = self.worker, self.through
        workers, group_id = worker.request.runtime.workers, worker.group_id
        pause, idle_since = POLL_FIRST, time.monotonic()
        tried: set[tuple[Node, float | None]] = set()
        for look in itertools.chain(first, iter(self._look, None)):
            view = look.view
            if workers.stopping:
                return None
            if look.last:
                return look
            if look.makes_room:
                if vacant_roles.fill(worker.request, view.traversal.id):
                    continue
                pause = POLL_LONGEST  # each look asks the cloud
            failures = {(row.node, row.next_try) for row in view.waiting()} - tried
            tried |= failures
            if failures and choose_other_target(worker.request, view.traversal.id):
                continue
            self.left.go_on()
            began = [worker.submit(Ready(view.traversal.id, row.node)) for row in view.due()]
            if any(began):
                pause, idle_since = POLL_FIRST, time.monotonic()
            if workers.active(group_id):
                # Workers wake this loop; the timeout is for what other processes do. Wait a moment,
                # so that workers that end together cause only one look.
                workers.wait(group_id, look.count, POLL_LONGEST)
                workers.settle(group_id, SETTLED)
                idle_since = time.monotonic()
            else:
                patience = IN_TURN if workers.busy(group_id) else PATIENT
                if time.monotonic() - idle_since > patience:
                    return None
                workers.wait(group_id, look.count, min(pause, view.next_try(through) + 0.01))
                pause = min(pause * POLL_GROWTH, POLL_LONGEST)
        raise AssertionError("unreachable: there is always another look")

    def _look(self) -> _Look:
        count = self.worker.request.runtime.workers.ended()

        def read(tx: ProjectTransaction) -> _Look:
            view = _view(tx, self.traversal_id)
            last = self.worker.ended is not None or view.settled(self.through)
            current = view.traversal
            if current.id not in self.rooms:
                self.rooms[current.id] = vacant_roles.makes_room(tx, current)
            said = self._said(tx) if last else ()
            return _Look(view, count, last, said, self.rooms[current.id])

        return self.worker.request.store.reading(read)

    def _said(self, tx: ProjectTransaction) -> list[str]:
        """Return the group's journal entries since the call began."""
        rows = views.history(tx, self.worker.group_id, after=self.after, limit=SAID)
        return [row["sentence"] for row in rows]


def _view(tx: ProjectTransaction, traversal_id: str) -> TraversalView:
    found = latest(tx, traversal_id)
    return TraversalView(found, tx.progress(found.id))


def _entered(
    request: Request, tx: ProjectTransaction, traversal_id: str
) -> tuple[GroupState, int, TraversalView] | None:
    """Return the group of a traversal, the id of the journal's last row, and the traversal; None if
    the request's project has none with that id."""
    state = ownership.group_of(request, tx, traversal_id)
    if state is None:
        return None
    return state, views.last_entry(tx, state.id), _view(tx, traversal_id)


def _open(request: Request, current: Traversal, through: Stage, *, hold: bool) -> bool:
    """Open the stages up to ``through``, and record which execution drives the traversal. Return
    whether some may have been closed until now."""
    chain = request.execution
    gated = current.through is not None
    if gated:
        request.engine.open_through(current.id, through if hold else None)
    if chain is not None and chain != current.chain:
        request.store.atomically(lambda tx: tx.driven_by(current.id, chain))
    return gated


# -- the result of a call


def _reported(
    request: Request, group: str, traversal_id: str, facts: Advanced
) -> Advanced | Result:
    found = report(request, group, traversal_id)
    return found if isinstance(found, Result) else {**facts, "outcome": found}


def report(request: Request, group: str, traversal_id: str) -> TraversalReport | Result:
    """Return how a traversal ended. It is an error if it did not reach its goal or waits for
    rights, and if a planned move returned or was superseded by another goal."""
    reach("report.before")
    found = status.report(request, group, traversal_id)
    reach("report.after")
    if found["status"] in (TraversalStatus.FAILED, TraversalStatus.BLOCKED):
        remedy = f"Next: failover status {quote(group)}"
        error = {"code": found["status"], "remedy": remedy}
    elif found["status"] == "RETURNED":
        remedy = (
            "The roles are back where they were. Repair what failed, then start the same move "
            "again."
        )
        error = {"code": "RETURNED", "remedy": remedy}
    elif found["status"] == "OVERTAKEN":
        remedy = "Run failover status to see the group's present goal."
        error = {"code": "OVERTAKEN", "remedy": remedy}
    elif found["status"] == TraversalStatus.IN_PROGRESS and found["reason"]:
        remedy = "Run failover sweep with your own token, unless a cron trigger does so."
        error = {"code": "RIGHTS_ENDED", "remedy": remedy}
    else:
        return found
    return Result(error={**error, "message": found["reason"], "report": found})


def _failure(code: str, message: str, facts: Advanced) -> Result:
    remedy = "Run failover status: it shows the next step."
    return Result(error={"code": code, "message": message, "remedy": remedy, **facts})
