# SPDX-License-Identifier: Apache-2.0
"""The guard: it decides before every HTTP call whether the call is still allowed.

An operation holds its resource's lock under a lease. A process that was paused, or that could not
renew its lease in time, must not continue to call the cloud: another worker may have broken the
lock. So the HTTP adapter (:mod:`mistral_failover.cloud.session`) asks a guard right before each
call.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from mistral_failover.cloud.errors import CloudError, Fate


class LeaseLost(CloudError):
    """The lock is no longer ours, or too little of its lease remains: no call may start."""

    def __init__(self, message: str) -> None:
        super().__init__(
            "LEASE_LOST",
            message,
            remedy="Nothing to do: the lock's new owner or the next sweep continues.",
        )


class HandedBack(LeaseLost):
    """The process is stopping: it makes no more calls, and another process continues its work."""

    def __init__(self) -> None:
        super().__init__("the process is stopping and has released the operation")
        self.code = "HANDED_BACK"


class NoLongerNeeded(Exception):
    """What an operation waits for has been decided elsewhere: the wait ends at once. It is no
    `CloudError`, so nothing takes it for an answer of a service."""


class Guard(Protocol):
    """Permission to call the cloud."""

    @property
    def request_id(self) -> str | None:
        """OpenStack's global request id of every call under this lock, ``req-<uuid>``. Services log
        it, so an operation can be followed through their logs. None without a lock."""
        ...

    def permit(self, method: str) -> float:
        """Return how many seconds a call that starts now may last: the lease less a margin.

        ``method`` is the HTTP method, in upper case. Raises :class:`LeaseLost` when the lock is
        gone or too little of the lease remains. Waits ask for "GET" before each pause; then a guard
        may raise :class:`NoLongerNeeded`, too. Called from several threads.
        """
        ...


@runtime_checkable
class Listener(Protocol):
    """A guard that hears how services answer."""

    def overloaded(self, service: str, pause: float) -> None:
        """Record that a service (Nova, Cinder, ...) answered that it has too much to do, or did
        not answer in time. ``pause``: the seconds that it asked to wait, else 0. Called from
        several threads."""
        ...

    def waits_for(self, error: CloudError | None) -> None:
        """Record that a wait continues in spite of a transient error, since the service may return;
        None: the wait got an answer. Called at each look, from several threads."""
        ...


@runtime_checkable
class RequestLog(Protocol):
    """A guard that records, before a request that changes something is sent, that it is.

    A request without an answer may take effect long after its sender is gone. So the lock's next
    owner has to know of it.
    """

    def unsettled(self) -> float:
        """Return for how many seconds a request of an earlier attempt may still take effect; 0:
        none can."""
        ...

    def ask(self, asked: str) -> tuple[float, int]:
        """Permit a request, as ``permit`` does, and record it. ``asked``: its method and path.

        Return the seconds that it may last, and a number for `ended`. Raises as ``permit``.
        Called from several threads.
        """
        ...

    def ended(self, number: int, fate: Fate) -> None:
        """Record what a call came to. Never raises."""
        ...


class Unguarded:
    """The guard of calls that belong to no operation: reads for operators, validation of tokens."""

    def __init__(self, limit: float = 60.0) -> None:
        """``limit``: seconds that any one call may last."""
        self._limit = limit

    @property
    def request_id(self) -> str | None:
        """None: each call has its own request id."""
        return None

    def permit(self, method: str) -> float:  # noqa: ARG002 - the protocol's parameter
        """Return the limit, always."""
        return self._limit
