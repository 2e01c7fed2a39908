# SPDX-License-Identifier: Apache-2.0
"""Executions that Mistral still shows as running, although no process carries them out.

Mistral keeps the next steps in the threads of its engine, so a killed engine leaves executions
RUNNING forever. They are ended, not resumed: their former locks may belong to another owner now,
and a resumed execution would run the tasks of its operation at the same time. Their work is in the
state store, and the sweep triggers it again.

The same happens to a user's workflow that received an alarm and called ours. It is left alone while
anything of it is left to run. If all of it has ended but Mistral missed that, it is ended too: Heat
deletes no stack whose workflow is running.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from mistral_failover.cloud.errors import CloudError
from mistral_failover.mistral.api import Execution, Mistral
from mistral_failover.mistral.client import ENDED
from mistral_failover.model.group import SHIPPED_CHAIN
from mistral_failover.store import stalled_work
from mistral_failover.store.database import ProjectStore
from mistral_failover.store.stalled_work import ChainWait

OURS = "failover."
_PRIVATE = "failover._"
_INPUTS = ("traversal", "alarm_id")
"""What a group's own chain is given, and what a workflow that receives an alarm of Aodh's is."""
LIMIT = 30.0
"""Seconds that one look at Mistral may take; the rest is left for the next one."""


@dataclass(frozen=True)
class StuckExecution:
    """A tree of executions in which nothing happened for ``seconds``, oldest execution first.
    ``top``: what callers wait for; a group's own chain if a sweep died before it ended the chain.
    ``ends``: the states in which executions are to be ended, by id, in this order. ``complete``:
    nothing of the tree is left to run.
    """

    executions: Sequence[Execution]
    top: Execution
    seconds: float
    ends: Mapping[str, str]
    complete: bool = False

    @property
    def sentence(self) -> str:
        """The reason that is given for its end."""
        if self.complete:
            return (
                f"{self.top.workflow} (execution {self.top.id}) was ended: all its tasks ended "
                f"{self.seconds:.0f} s ago, but Mistral did not notice"
            )
        return (
            f"{self.top.workflow} (execution {self.top.id}) was ended: it did nothing for "
            f"{self.seconds:.0f} s and holds no lock; the sweep continues its work"
        )


CHAINS = 3
"""The maximum number of executions of a group's own chain that drive one traversal, unless an
operator requests more. A task of the chain that always fails must not run forever."""


def without_chain(
    held: Sequence[ChainWait], mistral: Mistral | None, deadline: float, *, asked_for: bool = False
) -> Iterator[ChainWait]:
    """Yield those of the ``held`` traversals that need a new execution of their chain: the last one
    ended without opening the next stage, or there was none.

    An execution that this Mistral does not know proves nothing: it may run in another Mistral that
    uses the same state store. ``asked_for``: an operator wants another try, so an unknown execution
    counts as ended, and :data:`CHAINS` does not limit. ``mistral``: None if it cannot be asked.
    ``deadline``: on the monotonic clock. Raises CloudError.
    """
    for traversal in held:
        if traversal.chain is None:
            yield traversal
            continue
        if mistral is None or (traversal.chains >= CHAINS and not asked_for):
            continue
        if time.monotonic() > deadline:
            return
        state = mistral.state(traversal.chain)
        if state in ENDED or (state is None and asked_for):
            yield traversal


def find_stuck(
    store: ProjectStore, mistral: Mistral, after: float, deadline: float, own: str | None = None
) -> Iterator[StuckExecution]:
    """Yield the trees with executions of ours that are stuck: for ``after`` seconds no execution of
    the tree held a live lock or began or ended an operation, and nothing in it changed.

    ``deadline``: on the monotonic clock. ``own``: the execution that asks; its tree is not stuck,
    however long it takes. Raises CloudError.
    """
    seen: set[str] = set()
    for root in _roots(mistral, after, deadline):
        if time.monotonic() > deadline:
            return
        if root in seen:
            continue
        seen.add(root)
        tree = mistral.tree(root)
        if any(execution.id == own for execution in tree):
            continue
        if not any(map(_ours, tree)) or _lives(tree, mistral, after):
            continue
        seconds = min(_age(mistral, e) for e in tree)
        # Start at the top: a waiting caller must not see the end of what is below it and continue.
        left = sorted((e for e in _to_end(tree, mistral) if not e.ended), key=_rank)
        if left:
            owners = store.reading(lambda tx: stalled_work.active_owners(tx, after))
            working = {owner.partition("/")[0] for owner in owners}
            if working.isdisjoint(e.id for e in tree):
                ends = {e.id: "CANCELLED" if _rank(e) else "ERROR" for e in left}
                yield StuckExecution(tree, left[0], seconds, ends)
        elif not tree[0].ended and (state := _missed_end(tree[0], mistral)):
            yield StuckExecution(tree, tree[0], seconds, {root: state}, complete=True)


def _roots(mistral: Mistral, after: float, deadline: float) -> Iterator[str]:
    """Yield the roots of the trees in which ours, a group's own chain or an alarm's receiver
    changed nothing for ``after`` seconds. Ours come first: a chain runs alone only if a sweep died
    after it ended the execution that had started it."""

    def unchanged(execution: Execution) -> bool:
        return _age(mistral, execution) > after and time.monotonic() <= deadline

    for execution in takewhile(unchanged, mistral.running(OURS)):
        yield execution.root
    for execution in takewhile(unchanged, mistral.running()):
        if any(key in execution.input for key in _INPUTS):
            yield execution.root


def end(mistral: Mistral, found: StuckExecution) -> None:
    """End a tree as far as it is ours: its top in ERROR, so that a waiting caller sees a failure,
    and everything below it CANCELLED, so that none of its tasks runs any more. A complete one is
    ended as its tasks ended. Raises CloudError.
    """
    why = found.sentence if found.complete else f"INTERRUPTED: {found.sentence}"
    for execution_id, state in found.ends.items():
        try:
            mistral.end(execution_id, state, why)
        except CloudError as error:
            if state != "SUCCESS" or error.code != "BAD_REQUEST":
                raise
            # Its output cannot be evaluated. Mistral would have ended it so, too.
            mistral.end(execution_id, "ERROR", why)


def _missed_end(execution: Execution, mistral: Mistral) -> str | None:
    """Return the state in which an execution would have ended if Mistral had not missed it; None if
    something of it is left to run. An error that the workflow handles (``on-error``) is none."""
    tasks = mistral.tasks(execution.id)
    if not tasks or not all(task.processed and task.state in ENDED for task in tasks):
        return None
    if any(task.state == "CANCELLED" for task in tasks):
        return "CANCELLED"
    failed = {task.id for task in tasks if task.state == "ERROR"}
    handled = frozenset[str]().union(*(task.handles for task in tasks))
    return "SUCCESS" if failed <= handled else "ERROR"


def _to_end(tree: Sequence[Execution], mistral: Mistral) -> list[Execution]:
    """Return the executions of a tree that are ours, and those that ours started: a group's own
    chain among them, below which CANCELLED ends everything. What else a user's workflow started
    that called one of ours is the user's."""
    if _ours(tree[0]):
        return list(tree)
    ours = [e for e in tree if _ours(e)]
    started = {task.id for e in ours for task in mistral.tasks(e.id)}
    return [e for e in tree if _ours(e) or e.task in started]


def _lives(tree: Sequence[Execution], mistral: Mistral, after: float) -> bool:
    """Return whether anything in a tree changed within ``after`` seconds."""
    if any(_age(mistral, e) <= after for e in tree):
        return True
    return any(
        (mistral.now - mistral.changed_within(e.id)).total_seconds() <= after
        for e in tree
        if not e.ended
    )


def _age(mistral: Mistral, execution: Execution) -> float:
    return (mistral.now - execution.changed).total_seconds()


def _rank(execution: Execution) -> int:
    """Return 0 for executions that people, alarms and other workflows start and wait for. Return 1
    for what is below: the chain, and everything that a group's own chain starts."""
    if execution.id == execution.root:
        return 0
    inner = execution.workflow.startswith(_PRIVATE) or execution.workflow == SHIPPED_CHAIN
    return 1 if inner or not _ours(execution) else 0


def _ours(execution: Execution) -> bool:
    return execution.workflow.startswith(OURS)
