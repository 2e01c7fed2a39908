# SPDX-License-Identifier: Apache-2.0
"""Retries after failures: for how long, when, and for which service. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.convergence.records import NodeState

TARGET_DOWN = "TARGET_DOWN"
"""The code of an operation whose member can take nothing now, but another member may."""
_LONGEST = 10.0  # seconds between two tries
_DOUBLINGS = 4  # after which a pause is the longest
_WORKED = 60.0
"""Seconds without a failure after which a try counts as one that worked for a while."""
_SHOWN = 200  # characters of a message
_SOONEST, _LATEST = 60.0, 3600.0
_SHARE = 0.5


@dataclass(frozen=True)
class Wait:
    """A node waits for ``what`` since ``since`` and is tried again at ``next_try``; times in
    seconds of the database's clock. ``own_since``: since when each try has failed with an error
    that has a patience of its own; None: the last one had none."""

    what: str
    since: float
    next_try: float
    own_since: float | None = None


def backoff(tries: int) -> float:
    """Return the seconds between the ``tries``-th try (from 1) and the next one: 1, 2, 4, 8,
    then 10."""
    return min(_LONGEST, 2.0 ** min(tries - 1, _DOUBLINGS))


def next_wait(
    state: NodeState,
    error: Mapping[str, Any],
    now: float,
    patience: float,
    *,
    own: float | None = None,
    failing: float | None = None,
    blocked: bool = False,
) -> Wait | None:
    """Return how a node continues after one more transient failure. None: it waited long enough.

    ``patience``: the seconds of failures, whatever their kinds, after which it is not retried.
    ``own``: the error's own patience, for an unbroken series of errors that have one. ``failing``:
    since when this try was failing, if it waited for the service itself. ``blocked``: an operator
    is needed when the patience ends, and learns it only then.

    The time in which a try worked does not count, unless it is ``blocked``. The pauses always
    count, so even failures of changing kinds, with work between them, come to an end.
    """
    began = now if failing is None else failing
    worked = began - (began if state.next_try is None else state.next_try)
    if blocked or worked < _WORKED:
        worked = 0.0
    first = state.waiting_since is None or not state.tries  # it waited for no failure to pass
    since = began if first else (state.waiting_since or began) + worked
    own_since = None
    if own is not None:
        own_since = began if state.own_since is None else state.own_since + worked
    if now - since >= patience or (
        own is not None and own_since is not None and now - own_since >= own
    ):
        return None
    return Wait(named(error), since, now + backoff(state.tries + 1), own_since)


def next_look(since: float, now: float) -> float:
    """Return when a node that stopped ``since`` is tried again, because what stopped it may be
    over: after half of the time that it has not gone on, at least a minute, at most an hour."""
    return now + min(_LATEST, max(_SOONEST, (now - since) * _SHARE))


def named(error: Mapping[str, Any]) -> str:
    """Return what an error makes a node wait for, such as ``Cinder: connection refused``."""
    service, detail = error.get("service"), error.get("detail")
    if service:
        return f"{service}: {detail}" if detail else str(service)
    return str(error.get("message", "a service"))[:_SHOWN].rstrip(". ")
