# SPDX-License-Identifier: Apache-2.0
"""Holds Mistral's engine at the one moment in which its death loses work.

An engine confirms a message to RabbitMQ before it works on it, and what it has not committed is
gone with it. Here the rows of running tasks are locked in Mistral's own database: an engine takes
the results of these tasks in, and waits with them in its hands.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from support.cloud_audit import Tail
from testcloud.settings import Settings

_RUNNING = sa.text(
    "SELECT tasks.id FROM task_executions_v2 AS tasks"
    " JOIN workflow_executions_v2 AS executions ON executions.id = tasks.workflow_execution_id"
    " WHERE tasks.state = 'RUNNING'"
    " AND executions.name = 'failover.converge' AND executions.input LIKE :traversal"
)
_LOCK = sa.text(
    "SELECT id FROM task_executions_v2 WHERE id IN :tasks AND state = 'RUNNING' FOR UPDATE"
).bindparams(sa.bindparam("tasks", expanding=True))
_ACTIONS = sa.text(
    "SELECT id FROM action_executions_v2 WHERE task_execution_id IN :tasks AND state = 'RUNNING'"
).bindparams(sa.bindparam("tasks", expanding=True))
BETWEEN = 20.0
"""Seconds within which the next stage runs, after the end of the one before."""
_RESULT = re.compile(r"Received RPC request 'on_action_complete' ?\[action_ex_id=([0-9a-f-]{36})")


@dataclass(frozen=True)
class PinnedSteps:
    """``steps``: the actions, by id, that were working stages of the traversal off."""

    steps: frozenset[str]
    _log: Tail

    def taken_in(self) -> bool:
        """Whether the engine has the results of all of them in its hands, by its log: it writes
        that after it has confirmed the message."""
        return self.steps <= set(_RESULT.findall(self._log.text()))


def _held(connection: sa.Connection, traversal: str) -> Sequence[str]:
    """Lock the tasks that run now, and return their actions."""
    running = connection.execute(_RUNNING, {"traversal": f"%{traversal}%"}).scalars().all()
    locked = connection.execute(_LOCK, {"tasks": list(running)}).scalars().all()
    return connection.execute(_ACTIONS, {"tasks": list(locked)}).scalars().all()


@contextmanager
def pinned(where: Settings, traversal: str, log: Tail) -> Iterator[PinnedSteps]:
    """Keep the engine from recording how the stages of a traversal end that run now. ``log``: the
    engine's, since before the traversal."""
    engine = sa.create_engine(where.database_url("mistral"), poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        steps = _held(connection, traversal)
        deadline = time.monotonic() + BETWEEN
        while not steps and time.monotonic() < deadline:
            connection.rollback()
            time.sleep(0.05)
            steps = _held(connection, traversal)
        try:
            yield PinnedSteps(frozenset(steps), log)
        finally:
            connection.rollback()
