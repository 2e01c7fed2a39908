# SPDX-License-Identifier: Apache-2.0
"""What an agent says: words about a command, its end, heartbeats."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from mistral_failover.agent import messages, wire
from mistral_failover.agent.identity import Identity
from mistral_failover.agent.messages import Refused, Request
from mistral_failover.agent.outbox import Message, Outbox


class Telling:
    """Makes documents, signs them and puts them into the outbox."""

    def __init__(self, identity: Identity, outbox: Outbox) -> None:
        self._identity = identity
        self._outbox = outbox

    def word(self, request: Request, state: str, seconds: float) -> None:
        """Say that a command was ``accepted``, or is ``running`` for so many seconds. One that the
        broker does not have yet is not said any more once there is a later one."""
        document = messages.result(self._identity, request, state, seconds=seconds)
        self._put(("word", _about(request)), request, document, final=False)

    def end(self, request: Request, document: dict[str, Any], replies: Iterable[str]) -> None:
        """Say what came of a command, to everybody who asked for it."""
        about = _about(request)
        self._outbox.drop(("word", about))
        for reply_to in replies:
            self._put((f"end {about}", reply_to), request, document, final=True, to=reply_to)

    def refused(self, request: Request, error: Refused, replies: Iterable[str]) -> None:
        """Say that a command is not carried out, and why."""
        document = messages.result(
            self._identity, request, "refused", code=error.code, message=error.message
        )
        self.end(request, document, replies)

    def heartbeat(
        self, member: str, epoch: int, running: list[str], deposed: str | None, seconds_up: float
    ) -> None:
        """Say that the agent lives, in which epoch, and what it does."""
        document = {
            "group_id": self._identity.group_id,
            "member": member,
            "server_id": self._identity.server_id,
            "epoch": epoch,
            "running": running[: wire.MAX_RUNNING],
            "deposed": deposed,
            "at": time.time(),
            "seconds_up": seconds_up,
        }
        sealed = wire.seal(
            "heartbeat", document, self._identity.key_for("heartbeat", member, epoch)
        )
        queue = self._identity.address.heartbeats
        self._outbox.put(("heartbeat", ""), Message(wire.HEARTBEATS, queue, sealed, final=False))

    def wake(self) -> None:
        """Something is due before it was expected."""
        self._outbox.wake()

    def _put(
        self,
        key: tuple[str, str],
        request: Request,
        document: dict[str, Any],
        *,
        final: bool,
        to: str | None = None,
    ) -> None:
        signed_with = self._identity.key_for("result", request.member, request.epoch)
        sealed = messages.seal_fitting("result", document, signed_with)
        self._outbox.put(key, Message(wire.RESULTS, to or request.reply_to, sealed, final))


def _about(request: Request) -> str:
    return f"{request.epoch} {request.id}"
