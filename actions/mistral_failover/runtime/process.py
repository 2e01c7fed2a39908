# SPDX-License-Identifier: Apache-2.0
"""The process: its state store, engine, leases and worker threads, one set per configuration; and
their release when Mistral's executor stops.

An executor that gets SIGTERM calls ``ExecutorServer.stop`` and ends its process at once, whatever
its threads are doing. Mistral has no hook for that (read in Mistral 23 and in cotyledon 2.2), so
this wraps its methods ``start`` and ``stop``.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from mistral_failover import defects
from mistral_failover import settings as configuration
from mistral_failover.cloud.errors import Fate
from mistral_failover.cloud.waits import outlives
from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.engine import Engine
from mistral_failover.errors import CodedError
from mistral_failover.runtime.budgets import Budgets
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.lease_guard import LeaseGuard, WaitRecord
from mistral_failover.runtime.workers import Workers
from mistral_failover.served_certificate import ServedCertificate
from mistral_failover.settings import Settings
from mistral_failover.store import schema
from mistral_failover.store.database import Database
from mistral_failover.store.defects import DefectRecorder
from mistral_failover.store.leases import Lease, LeaseKeeper


class Runtime:
    """The shared state of a process, one per state store.

    ``eager``: whether the process that begins a traversal works on it at once, without waiting for
    the first task of its chain; tests of single actions do without.
    """

    def __init__(self, settings: Settings, *, eager: bool = True) -> None:
        if not settings.database:
            raise ActionError(
                "CONFIG",
                "no state store is configured",
                "Set [failover] database to an SQLAlchemy URL in mistral.conf.",
            )
        if settings.lease_margin > settings.lease / 3:
            raise ActionError(
                "CONFIG",
                f"lease_margin ({settings.lease_margin:g} s) is more than a third of lease "
                f"({settings.lease:g} s)",
                "Set [failover] lease_margin to a third of lease at most.",
            )
        self.settings = settings
        self.eager = eager
        self.certificate: ServedCertificate | None = None
        """With which this process takes alarms; None unless it is a server that has one."""
        self.database = Database(settings.database)
        try:
            schema.upgrade(self.database)
        except CodedError:
            self.database.close()
            raise
        self.defects = DefectRecorder(self.database)
        defects.recorders.add(self.defects)
        self.definitions = Definitions()
        self.engine = Engine(self.database, lease=settings.lease, definitions=self.definitions)
        self.leases = LeaseKeeper(self.database)
        maxima = {
            "Cinder": settings.cinder_operations,
            "Heat": settings.heat_operations,
            "Mistral": settings.mistral_operations,
            "Neutron": settings.neutron_operations,
            "Nova": settings.nova_operations,
        }
        budgets = Budgets(maxima, settings.other_operations)
        self.workers = Workers(settings.parallel_operations, budgets)

    def guard(self, lease: Lease, project_id: str, unsettled: float = 0.0) -> LeaseGuard:
        """Return the guard of the calls that are made under a lease for a project. ``unsettled``:
        the seconds for which a request of an earlier attempt may still take effect."""
        lease.requests.inherit(unsettled)
        return LeaseGuard(
            lease,
            self.settings.lease_margin,
            lambda: self.workers.stopping,
            lambda service, pause: self.workers.overloaded(project_id, service, pause),
            WaitRecord(self.database, lease.lock),
            # It may be sent until its call's time is over.
            lambda asked, fate: (
                outlives(self.settings, fate, asked)
                + (self.settings.http_timeout if fate is Fate.SILENT else 0.0)
            ),
        )


_SERVER = "mistral.executors.executor_server"
STOP_LIMIT = 15.0
"""Seconds that a stop waits for running work: a little longer than one call may take."""
_TOLD = 0.5  # seconds for the results of the actions to reach the engine
_done = False
_runtimes: dict[Settings, Runtime] = {}
_mutex = threading.Lock()
_handed_back = False  # and not reopened since


def runtime() -> Runtime:
    """Return the process's runtime for the present configuration.

    Raises ActionError CONFIG if no state store is configured.
    """
    settings = configuration.load()
    hand_back_with_the_executor(hand_back, reopen)
    with _mutex:
        found = _runtimes.get(settings)
    if found is not None:
        return found
    # Not under the mutex: connecting may take long, and others would wait as often as it fails.
    made = Runtime(settings)
    with _mutex:
        found = _runtimes.setdefault(settings, made)
        ends = _handed_back
    if found is not made:
        made.database.close()
    elif ends:
        made.workers.hand_back(0.0)
    return found


def hand_back(seconds: float) -> bool:
    """Have every pool of this process release its work, and wait for that, at most ``seconds``:
    then another process need not wait for the end of a lease. Return whether there was any."""
    deadline = time.monotonic() + seconds
    worked = False
    for each in _record(handed_back=True):
        worked |= each.workers.hand_back(max(0.0, deadline - time.monotonic()))
    return worked


def reopen() -> None:
    """Accept work again, after :func:`hand_back`."""
    for each in _record(handed_back=False):
        each.workers.reopen()


def _record(*, handed_back: bool) -> list[Runtime]:
    """Record it for a runtime that still connects, and return those that are connected."""
    global _handed_back  # noqa: PLW0603 - of the process, as the runtimes
    with _mutex:
        _handed_back = handed_back
        return list(_runtimes.values())


def hand_back_with_the_executor(
    hand_back: Callable[[float], bool], reopen: Callable[[], None]
) -> None:
    """Make the executor of this process, if it is one, take no more messages when it stops and then
    call ``hand_back`` with a limit in seconds, and call ``reopen`` when it starts again. Call this
    once per process.

    Messages end first: the engine answers what is handed back with the next action, and one that
    this executor still took would be lost with its process.
    """
    global _done
    module = sys.modules.get(_SERVER)
    if _done or module is None:
        return
    with _mutex:
        if _done:
            return
        _done = True
        server: Any = module.ExecutorServer
        start, stop = server.start, server.stop

        @functools.wraps(stop)
        def stopped(self: Any, *args: Any, **options: Any) -> Any:
            try:
                if self._rpc_server:
                    self._rpc_server.stop()
            finally:  # also without a broker: otherwise others wait for the leases
                if hand_back(STOP_LIMIT):
                    time.sleep(_TOLD)
            return stop(self, *args, **options)

        @functools.wraps(start)
        def started(self: Any, *args: Any, **options: Any) -> Any:
            reopen()
            return start(self, *args, **options)

        server.stop, server.start = stopped, started
