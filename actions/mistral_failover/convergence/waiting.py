# SPDX-License-Identifier: Apache-2.0
"""Waiting out transient failures: for how long, and for which service. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.convergence.records import NodeState

TARGET_DOWN = "TARGET_DOWN"
"""The code of an operation whose member can take nothing now, but another member may."""
_LONGEST = 10.0  # seconds between two tries
_DOUBLINGS = 4  # after which a pause is the longest
_SHOWN = 200  # characters of a message


@dataclass(frozen=True)
class Wait:
    """A node waits for ``what`` since ``since`` and is tried again at ``next_try``; times in
    seconds of the database's clock."""

    what: str
    since: float
    next_try: float


def backoff(tries: int) -> float:
    """Return the seconds between the ``tries``-th try (from 1) and the next one: 1, 2, 4, 8,
    then 10."""
    return min(_LONGEST, 2.0 ** min(tries - 1, _DOUBLINGS))


def wait_on(state: NodeState, error: Mapping[str, Any], now: float, patience: float) -> Wait | None:
    """Return how a node continues after one more transient failure.

    ``patience``: seconds from the first failure in which it is retried. None: they are over.
    """
    since = now if state.waiting_since is None else state.waiting_since
    if now - since >= patience:
        return None
    return Wait(_named(error), since, now + backoff(state.tries + 1))


def _named(error: Mapping[str, Any]) -> str:
    """Return what an error makes a node wait for, such as ``Cinder: connection refused``."""
    service, detail = error.get("service"), error.get("detail")
    if service:
        return f"{service}: {detail}" if detail else str(service)
    return str(error.get("message", "a service"))[:_SHOWN].rstrip(". ")
