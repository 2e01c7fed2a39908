# SPDX-License-Identifier: Apache-2.0
"""Mistral's services in this process, which can start again in it after a stop.

Each service's own ``stop`` leaves module globals behind, because production ends the process then.
"""

import threading
import time
from typing import Any

import sqlalchemy

from mistral_failover.embedded import boot
from mistral_failover.runtime.errors import caught

boot.init()  # importing Mistral settles on a backend of oslo.service

from mistral.scheduler import base as scheduler  # noqa: E402
from mistral.scheduler.default_scheduler import LOG, DefaultScheduler  # noqa: E402

from mistral_failover.embedded import transport  # noqa: E402

_GRACE = 2.0  # seconds that a stopped service has for its running requests


class EmbeddedScheduler(DefaultScheduler):  # type: ignore[misc]
    """Mistral's default scheduler, one for the process, able to stop at once and to skip waits.

    Jobs scheduled in this process run from memory, on time; the job store is looked through only
    for what a former process left behind. The stock checker sleeps between two looks and so
    outlives its own stop, when there is no database any more.

    :cvar hastened: functions (dotted names) that are run without their delay.
    """

    hastened: frozenset[str] = frozenset()

    def __init__(self, conf: Any) -> None:
        super().__init__(conf)
        self._ending = threading.Event()

    def schedule(self, job: scheduler.SchedulerJob) -> None:
        """Run ``job`` after its delay, or at once when its function is among the hastened."""
        if job.func_name in self.hastened:
            job.run_after = 0
        super().schedule(job)

    def stop(self, graceful: bool = False) -> None:
        """Stop, and wait for the scheduler's own threads, and some seconds for jobs that run: soon
        there is no database any more. Other jobs stay in the store, for the next start."""
        self._ending.set()
        super().stop(graceful)
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._dispatcher_thread.join()
        self._job_store_checker_thread.join()
        until = time.monotonic() + _GRACE
        for worker in list(self._executor._threads):
            worker.join(max(0.0, until - time.monotonic()))

    def _job_store_checker(self) -> None:
        while not self._ending.wait(self._fixed_delay):
            try:
                self._process_store_jobs()
            except Exception as error:
                # As in the base class: one failed look must not end all later ones.
                facts = caught(error, "reading Mistral's job store")
                LOG.warning("Reading the job store failed: %s", facts["message"])


def install_scheduler() -> None:
    """Make this the scheduler of Mistral services that start from now on."""
    scheduler._SCHEDULER_IMPL = EmbeddedScheduler


def make_shared_objects() -> None:
    """Make what Mistral makes at its first use and lets other threads use before it is complete:
    the rules of its API, and the functions of its expressions. Without them a request or a task
    fails.

    Call it within a security context of Mistral, before anything runs that other threads share.
    """
    from mistral import context
    from mistral.api import access_control
    from mistral.expressions import yaql_expression

    access_control.enforce("workflows:list", context.ctx(), do_raise=False)
    yaql_expression.get_yaql_context({})


def stop_service(service: Any) -> None:
    """Stop a Mistral service; wait for its running requests, but not forever.

    An action that takes longer continues in its thread; its result finds no engine.
    """
    service.stop()
    rpc_server = getattr(service, "_rpc_server", None)
    if rpc_server is not None:
        transport.HUB.wait_idle(_GRACE)
        # Without "wait": the pool's idle threads notice within a second that they are done.
        rpc_server.oslo_server._work_executor.shutdown(wait=False)


def database_engine() -> sqlalchemy.Engine:
    """Mistral's SQLAlchemy engine, made from the configuration at the first call."""
    from mistral.db.sqlalchemy import base

    engine: sqlalchemy.Engine = base.get_engine()
    return engine


def forget_database() -> None:
    """Close the connections and let the next use read the configuration again."""
    from mistral.db.sqlalchemy import base, sqlite_lock
    from mistral.db.v2.sqlalchemy import api
    from mistral.lang import parser

    if base._facade is not None:
        base._facade.get_engine().dispose()
        base._facade = None
    api._initialized = False
    sqlite_lock.cleanup()
    parser.clear_caches()


def forget_services() -> None:
    """Reset RPC clients, scheduler, action providers and policies."""
    from mistral.api import access_control
    from mistral.rpc import clients
    from mistral.services import actions

    clients.cleanup()
    scheduler.destroy_system_scheduler()
    scheduler._SCHEDULER_IMPL = None
    actions._SYSTEM_PROVIDER = None
    access_control._ENFORCER = None
    transport.HUB.clear()
