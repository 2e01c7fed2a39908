# SPDX-License-Identifier: Apache-2.0
"""The command channel to the emulator's guests: ``emulator+http://127.0.0.1:PORT``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import requests
from keystoneauth1 import exceptions as keystone

from mistral_failover.agent import wire
from mistral_failover.agent.channel.interface import (
    ChannelContext,
    ChannelError,
    Command,
    CommandResult,
    Heartbeat,
    rehearsal_capability,
)
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.errors import cause
from mistral_failover.cloud.url_paths import url_path

# fraction of the session's timeout, so that the emulator answers before the transport gives up
_SLICE = 0.8
_LONGEST_SLICE = 1.0  # seconds between two questions to the guard
_PAUSE = 0.1  # seconds before the first repeat to a channel that does not answer, then doubling
_LONGEST_PAUSE = 1.0
_REFUSALS = (
    "OLD_EPOCH",
    "REFUSED",
    "UNKNOWN_OUTCOME",
    wire.UNKNOWN_COMMAND,
    wire.NOT_REHEARSABLE,
    wire.REHEARSAL_ENDED,
    wire.REHEARSAL_RUNNING,
)


class EmulatedChannel:
    """Commands as HTTP requests that the emulator holds until the command has ended.

    The remaining lease bounds a session's calls, so a long command is requested in slices: a
    request with the same id waits for the same command. A slice that ends before the command shows
    that the agent is still working.
    """

    def __init__(
        self,
        url: str,
        context: ChannelContext,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises `ChannelError` CONFIG if the URL does not point to this machine."""
        parts = urlsplit(url)
        if parts.hostname != "127.0.0.1":
            raise ChannelError("CONFIG", "The emulator listens on 127.0.0.1 only.")
        self._base = f"http://{parts.netloc}/emulator/guests"
        self._session = context.session
        self._guard = context.guard
        self._clock = clock
        self._sleep = sleep

    def run(self, command: Command) -> CommandResult:
        """See `Channel.run`; errors of the session's guard pass through."""
        began = self._clock()
        heard_at: float | None = None
        pause = _PAUSE
        sent = False
        while True:
            silent_at = (began if heard_at is None else heard_at) + command.limit
            deadline = min(silent_at, began + command.patience)
            left = max(0.0, deadline - self._clock())
            try:
                longest = began + command.patience - self._clock()
                answer = self._post(command, min(left, self._slice), longest)
            except keystone.ConnectTimeout:
                sent = True
                error = self._no_answer(command, began, heard_at)
            except keystone.ClientException as failure:  # also of the request for a token
                sent = sent or cause(failure)[1]
                error = self._nobody(failure, unknown=sent)
            else:
                sent = True
                if (body := _body(answer)) is not None:
                    return _result(body)
                code, message = _said(answer)
                if code == "RUNNING":
                    heard_at = self._clock()
                    silent_at = heard_at + command.limit
                    deadline = min(silent_at, began + command.patience)
                if code not in ("RUNNING", "NO_ANSWER"):
                    raise _error(answer, command.to, code, message)
                error = self._no_answer(command, began, heard_at)
            left = deadline - self._clock()
            if left <= 0:
                raise error from None
            self._guard.permit("GET")
            if error.code == "UNREACHABLE":
                self._sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_PAUSE)

    def depose(self, to: Address, epoch: int) -> None:
        """See `Channel.depose`."""
        self._ask("POST", to, "epoch", json={"epoch": epoch})

    def heard(self, to: Address) -> Heartbeat | None:
        """See `Channel.heard`."""
        said = self._ask("GET", to, "heartbeat")["heartbeat"]
        if said is None:
            return None
        return Heartbeat(
            said["epoch"],
            said["ago"],
            tuple(said["running"]),
            said["deposed"],
            frozenset(said["commands"]),
            said["stopping"],
            said["not_ready"],
            said["boot"],
            tuple(said["in_effect"]),
            rehearsal_capability(said.get("rehearsals")),
            frozenset(said["ended"]),
        )

    @property
    def _slice(self) -> float:
        return min((self._session.timeout or 10.0) * _SLICE, _LONGEST_SLICE)

    def _url(self, to: Address, end: str) -> str:
        return self._base + url_path(to.server_id, end)

    def _post(self, command: Command, seconds: float, longest: float) -> requests.Response:
        return self._session.post(
            self._url(command.to, "commands"),
            json={
                "id": command.id,
                "name": command.name,
                "epoch": command.epoch,
                "args": command.arguments,
                "timeout": seconds,
                "limit": command.limit,
                "longest": longest,
                "rehearsal": command.rehearsal,
            },
            authenticated=True,
            raise_exc=False,
        )

    def _ask(self, method: str, to: Address, end: str, **options: Any) -> dict[str, Any]:
        """One request that is answered at once. Raises `ChannelError` UNREACHABLE."""
        try:
            answer = self._session.request(
                self._url(to, end), method, authenticated=True, raise_exc=False, **options
            )
        except keystone.ClientException as failure:  # also of the request for a token
            raise self._nobody(failure) from None
        if (body := _body(answer)) is not None:
            return body
        raise _not_taken(answer, to, _said(answer)[1])

    def _nobody(self, failure: Exception, *, unknown: bool = False) -> ChannelError:
        said = f"Nothing answers at {self._base}."
        return ChannelError("UNREACHABLE", said, detail=cause(failure)[0], unknown=unknown)

    def _no_answer(self, command: Command, began: float, heard_at: float | None) -> ChannelError:
        who = f"Member {command.to.member} (server {command.to.server_id})"
        if heard_at is None:
            return ChannelError(
                "NO_ANSWER",
                f"{who} did not answer {command.name} within {command.limit:g} s.",
            )
        now = self._clock()
        heard = f"it said {now - heard_at:.0f} s ago that {command.name} runs"
        return ChannelError(
            "NO_ANSWER",
            f"{who} did not complete {command.name} within {now - began:.0f} s.",
            heard=heard,
        )


def _body(answer: requests.Response) -> dict[str, Any] | None:
    """Return what a good answer holds; None for another one, also of a gateway that calls its page
    good."""
    if not answer.ok:
        return None
    try:
        body = answer.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _result(body: dict[str, Any]) -> CommandResult:
    return CommandResult(
        id=body["id"],
        exit_code=body["exit_code"],
        stdout=body["stdout"],
        stderr=body["stderr"],
        replayed=body["replayed"],
        boot=body["boot"],
    )


def _said(answer: requests.Response) -> tuple[str, str]:
    """Return the code and the message of a refusal."""
    try:
        said = answer.json()["error"]
        return str(said["code"]), str(said["message"])
    except (ValueError, KeyError, TypeError):
        return "", f"HTTP {answer.status_code}"


def _error(answer: requests.Response, to: Address, code: str, message: str) -> ChannelError:
    if code in _REFUSALS:
        return ChannelError(code, message)
    if answer.status_code == 401:
        return ChannelError(
            "REFUSED",
            "The channel rejected the request's token.",
            "Continue with a new token: failover sweep",
        )
    return _not_taken(answer, to, message)


def _not_taken(answer: requests.Response, to: Address, message: str) -> ChannelError:
    said = f"Member {to.member}: {message}"
    return ChannelError("UNREACHABLE", said, detail=f"HTTP {answer.status_code}")
