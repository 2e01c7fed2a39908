# SPDX-License-Identifier: Apache-2.0
"""An embedded Mistral that continues stalled work of dead processes by itself.

A thread reads the state store, without writing to it, and asks this process's own Mistral about the
executions of long locks and about stuck executions. Only if it finds something does it start the
workflow ``failover.sweep``, which acts. So a healthy Mistral makes no executions. Several servers
on one state store may do this: sweeps do not interfere with each other.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from contextlib import ExitStack
from typing import Self

from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover import settings as configuration
from mistral_failover.alarms import intake
from mistral_failover.embedded.server import EmbeddedMistral
from mistral_failover.mistral import event_hooks
from mistral_failover.mistral.api import Mistral, mistral_for
from mistral_failover.recovery import observe, retention, stuck_executions, sweep
from mistral_failover.recovery.lift_fences import lift_fences
from mistral_failover.runtime import process
from mistral_failover.runtime.errors import caught
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request, own_project
from mistral_failover.store import hooks, stalled_work
from mistral_failover.store.database import ProjectStore
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)
WORKFLOW = "failover.sweep"
_HANGING_LOOKS = 10  # within ``hang_after`` nothing counts as stuck, so the first check can wait
_REST = 9.0  # times what a look took, while failovers are worked on
_JITTER = 0.2  # share of the interval: so servers that started together do not stay in step


class BackgroundSweep:
    """A context manager: a running embedded Mistral sweeps by itself while the block runs.

    The Mistral must be known to actions and have the package's workflows; ``[failover]`` of its
    configuration names the state store and the interval. The first check is at once.
    """

    def __init__(self, mistral: EmbeddedMistral) -> None:
        self._mistral = mistral
        self._stopped = threading.Event()
        self._look_for_hanging_at = 0.0
        self._look_at_stopped_at = 0.0
        self._look_at_alarms_at = 0.0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for loop in (self._run, self._observe):
            thread = threading.Thread(target=loop, name="failover-sweep", daemon=True)
            thread.start()
            self._stack.callback(thread.join, stuck_executions.LIMIT)
        self._stack.callback(self._stopped.set)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def look(self) -> str | None:
        """Return a sentence about the first stalled work found; None if there is none.

        Raises what the state store and Mistral raise.
        """
        state = process.runtime()
        if found := _store(state).reading(lambda tx: _in_the_store(tx, state)):
            return found
        mistral = mistral_for(None, state.settings)
        found = self._in_mistral(state, mistral) if mistral else None
        return found or self._held_up(state) or self._guarded(state)

    def _held_up(self, state: Runtime) -> str | None:
        """Only a try shows whether what stopped a step is over, or a look at what it is about."""
        if time.monotonic() < self._look_at_stopped_at:
            return None
        if stopped := _store(state).reading(lambda tx: stalled_work.stopped_steps(tx, None)):
            self._look_at_stopped_at = time.monotonic() + state.settings.sweep_after
            return f"{stopped[0].resource} of {stopped[0].group} may be able to continue"
        return None

    def _guarded(self, state: Runtime) -> str | None:
        """Only the cloud and the agents know whether the storm guard may let an alarm go."""
        if time.monotonic() < self._look_at_alarms_at:
            return None
        store = _store(state)
        guarded = store.reading(stalled_work.guarded)
        if guarded or store.reading(intake.unsettled):
            self._look_at_alarms_at = time.monotonic() + state.settings.sweep_after
            return "the storm guard holds alarms" if guarded else "a host event is not complete"
        return None

    def _in_mistral(self, state: Runtime, mistral: Mistral) -> str | None:
        deadline = time.monotonic() + stuck_executions.LIMIT
        after, quiet = state.settings.hang_after, state.settings.sweep_after
        store = _store(state)
        held = store.reading(lambda tx: stalled_work.chain_waits(tx, None, quiet))
        for traversal in stuck_executions.without_chain(held, mistral, deadline):
            return f"the next stage of {traversal.group} waits for a chain, and none is running"
        if time.monotonic() < self._look_for_hanging_at:
            return None
        self._look_for_hanging_at = time.monotonic() + after / _HANGING_LOOKS
        for found in stuck_executions.find_stuck(store, mistral, after, deadline):
            return f"{found.top.workflow} is stuck (execution {found.top.id})"
        return None

    def _run(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause * (1 + random.uniform(-_JITTER, _JITTER))):  # noqa: S311
            try:
                pause = configuration.load().sweep_interval
                if why := self.look():
                    LOG.info("Starting %s: %s.", WORKFLOW, why)
                    self._mistral.client.start(WORKFLOW, description=why[:200])
                else:  # a sweep would have done it
                    retention.forget(self._request())
            except Exception as error:  # a service that is down now may be back at the next look
                facts = caught(error, "looking for stalled work")
                LOG.warning("The check for stalled work failed: %s", facts["message"])
                pause = max(pause, 1.0)

    def _request(self) -> Request:
        """A request with the rights of the configuration."""
        return Request(process.runtime(), ActionContext(SecurityContext(), ExecutionContext()))

    def _observe(self) -> None:
        """Look at the groups whose turn it is, and lift what fences left behind: in a thread of its
        own, since a service that is away must not delay a sweep, and without an execution of
        Mistral's, which would be kept."""
        pause = 1.0
        while not self._stopped.wait(pause * (1 + random.uniform(-_JITTER, _JITTER))):  # noqa: S311
            begun = time.monotonic()
            try:
                state = process.runtime()
                pause = min(state.settings.sweep_interval, state.settings.observe_interval)
                lift_fences(self._request())
                if not state.settings.cloud:
                    continue  # no rights of its own to look with; a sweep with a token has them
                request = self._request()
                for row in observe.observe(request, None):
                    LOG.info("%s.", row["sentence"])
                    if heal := row["heal"]:
                        why = f"observed: {row['sentence']}"[:200]
                        self._mistral.client.start(heal["workflow"], heal["input"], description=why)
                event_hooks.after(request)
                pause = pause_after(time.monotonic() - begun, pause, busy=state.workers.loops() > 0)
            except Exception as error:  # what is away now may be back at the next look
                facts = caught(error, "observing the groups")
                LOG.warning("A look at the groups failed: %s", facts["message"])
                pause = max(pause, 1.0)


def pause_after(took: float, interval: float, *, busy: bool) -> float:
    """Return the seconds until the next look at the groups. While failovers are worked on
    (``busy``), looks have a tenth of the time: many groups that fail at once are all looked at, and
    what they need most is this processor."""
    return max(interval, _REST * took) if busy else interval


def _store(state: Runtime) -> ProjectStore:
    """Return the state store of the only project of this process."""
    return state.database.for_project(own_project(state.settings))


def _in_the_store(tx: ProjectTransaction, state: Runtime) -> str | None:
    quiet = state.settings.sweep_after
    if found := sweep.stalled(state, tx, None):
        return f"{found[0].resource} of {found[0].group} is ready, and no worker has it"
    if words := stalled_work.confirmed_fences(tx, None):
        return (
            f"{words[0][2]} of {words[0][1]} was confirmed as fenced, and nothing has acted on it"
        )
    if stalled_work.unstarted(tx, quiet):
        return "an alarm was admitted, and its failover was not started"
    if hooks.waiting(tx, quiet=quiet, stuck=False):
        return "a group's own workflow was not notified of an event"
    return None
