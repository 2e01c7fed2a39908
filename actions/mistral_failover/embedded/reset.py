# SPDX-License-Identifier: Apache-2.0
"""Reset Mistral's module globals, so that it can start again in one process.

Each service's ``stop`` leaves its global behind, because production ends the process then.
"""

from typing import Any

import sqlalchemy

from mistral_failover.embedded import transport

GRACE = 2.0  # seconds that a stopped service has for its running requests


def stop_service(service: Any) -> None:
    """Stop a Mistral service; wait for its running requests, but not forever.

    An action that takes longer continues in its thread; its result finds no engine.
    """
    service.stop()
    rpc_server = getattr(service, "_rpc_server", None)
    if rpc_server is not None:
        transport.HUB.wait_idle(GRACE)
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
    from mistral.scheduler import base as scheduler
    from mistral.services import actions

    clients.cleanup()
    scheduler.destroy_system_scheduler()
    scheduler._SCHEDULER_IMPL = None
    actions._SYSTEM_PROVIDER = None
    access_control._ENFORCER = None
    transport.HUB.clear()
