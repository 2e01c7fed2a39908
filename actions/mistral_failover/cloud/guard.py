# SPDX-License-Identifier: Apache-2.0
"""The guard: who says, before every single HTTP call, whether it may still be made.

An operation holds its resource's lock under a lease. A process that was paused, or that could not
renew its lease in time, must not go on calling the cloud: somebody else may have stolen the lock.
So the HTTP adapter (:mod:`mistral_failover.cloud.session`) asks a guard right before each call.
"""

from __future__ import annotations

from typing import Protocol

from mistral_failover.cloud.errors import CloudError


class LeaseLost(CloudError):
    """The lock is no longer ours, or too little of its lease remains: no call may start."""

    def __init__(self, message: str) -> None:
        super().__init__(
            "LEASE_LOST",
            message,
            remedy="Nothing to do: whoever holds the lock now, or the next sweep, goes on.",
        )


class HandedBack(LeaseLost):
    """The process is stopping: it calls nothing more, and another one takes its work up."""

    def __init__(self) -> None:
        super().__init__("the process is stopping, and has given the operation back")
        self.code = "HANDED_BACK"


class Guard(Protocol):
    """Permission to call the cloud."""

    @property
    def request_id(self) -> str | None:
        """OpenStack's global request id of every call under this lock, ``req-<uuid>``: services
        log it, so that an operation can be followed through their logs. None without a lock."""
        ...

    def permit(self, method: str) -> float:
        """Return how many seconds a call that starts now may last: the lease less a margin.

        ``method`` is the HTTP method, in upper case. Raises :class:`LeaseLost` when the lock is
        gone or too little of the lease remains. Called from several threads.
        """
        ...


class Unguarded:
    """The guard of calls that belong to no operation: reads for people, validation of tokens."""

    def __init__(self, limit: float = 60.0) -> None:
        """``limit``: seconds that any one call may last."""
        self._limit = limit

    @property
    def request_id(self) -> str | None:
        """None: each call is an occasion of its own."""
        return None

    def permit(self, method: str) -> float:  # noqa: ARG002 - the protocol's parameter
        """Return the limit, always."""
        return self._limit
