# SPDX-License-Identifier: Apache-2.0
"""A command on its way through the agent."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from mistral_failover.agent.daemon.config import CommandSpec
from mistral_failover.agent.daemon.messages import Request


def elapsed() -> float:
    """Seconds on a clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Delivery(Protocol):
    """A message as a broker delivers it."""

    body: Any
    headers: Any

    def ack(self) -> None:
        """Acknowledge it."""
        ...


@dataclass(eq=False)
class Job:
    """A command that waits for its lane, or has begun.

    ``deadline``: when, by :func:`elapsed`, no sender waits for its start any more. ``asked``: a
    sender asked for it; otherwise the agent only finds out its outcome. ``began``: by
    :func:`elapsed`.
    """

    request: Request
    spec: CommandSpec
    deadline: float
    delivery: Delivery | None
    asked: bool = True
    began: float | None = None
    spoke: float = 0.0
    deposed: bool = False
    replies: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def key(self) -> tuple[int, str]:
        """Its identity: the same id in another epoch is another command."""
        return self.request.epoch, self.request.id
