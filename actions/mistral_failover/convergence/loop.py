# SPDX-License-Identifier: Apache-2.0
"""Convergence without Mistral: a queue of ready nodes, one check per message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.records import Operation, Outcome, Ready, Step


def run(
    engine: Engine,
    ready: Iterable[Ready],
    operate: Callable[[Operation], Outcome],
    *,
    owner: str,
    take: Callable[[deque[Ready]], Ready] = deque.popleft,
    limit: int = 100_000,
) -> list[Step]:
    """Run a traversal from its ready nodes to its end, one node after the other.

    ``operate`` runs an operation; an exception from it passes through and leaves the operation's
    lock to be broken, as a crash would. ``take`` picks the next message from the queue, which lets
    a simulation reorder, double or drop messages. Returns every step taken.

    Raises RuntimeError after ``limit`` messages: such a traversal does not converge.
    """
    queue = deque(ready)
    steps: list[Step] = []
    for _ in range(limit):
        if not queue:
            return steps
        step = engine.check(take(queue), owner)
        steps.append(step)
        queue.extend(step.ready)
        if step.operation is not None:
            step = engine.conclude(step.operation.ticket, operate(step.operation))
            steps.append(step)
            queue.extend(step.ready)
    raise RuntimeError(f"no end after {limit} messages; the last step: {steps[-1].sentence}")
