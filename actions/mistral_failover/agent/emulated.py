# SPDX-License-Identifier: Apache-2.0
"""The command channel to the emulator's guests: ``emulator+http://127.0.0.1:PORT``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from keystoneauth1 import exceptions as keystone

from mistral_failover.agent.channel import ChannelError, Command, CommandResult, Means

_SLICE = 0.8  # of the session's timeout: the emulator then answers before the transport gives up
_PAUSE = 0.1  # seconds before the first repeat to a channel that does not answer, then doubling
_LONGEST_PAUSE = 1.0
_REFUSALS = ("OLD_EPOCH", "REFUSED")


class EmulatedChannel:
    """Commands as HTTP requests that the emulator holds until the command has ended.

    A session's calls are bounded by the remaining lease, so a long command is asked for in
    slices: the same id again waits for the same command.
    """

    def __init__(
        self,
        url: str,
        means: Means,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises `ChannelError` CONFIG when the URL does not point to this machine."""
        parts = urlsplit(url)
        if parts.hostname != "127.0.0.1":
            raise ChannelError("CONFIG", "The emulator listens on 127.0.0.1 only.")
        self._base = f"http://{parts.netloc}/emulator/nodes"
        self._session = means.session
        self._clock = clock
        self._sleep = sleep

    def run(self, command: Command) -> CommandResult:
        """See `Channel.run`; errors of the session's guard pass through."""
        deadline = self._clock() + command.limit
        pause = _PAUSE
        while True:
            left = max(0.0, deadline - self._clock())
            try:
                answer = self._post(command, min(left, (self._session.timeout or 10.0) * _SLICE))
            except keystone.ConnectTimeout:
                error = _no_answer(command)
            except keystone.ConnectFailure:
                error = ChannelError("UNREACHABLE", f"Nothing answers at {self._base}.")
            else:
                if answer.ok:
                    return _result(answer.json())
                error = _error(answer, command)
                if error.code != "NO_ANSWER":
                    raise error
            left = deadline - self._clock()
            if left <= 0:
                raise error from None
            if error.code == "UNREACHABLE":
                self._sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _post(self, command: Command, seconds: float) -> requests.Response:
        return self._session.post(
            f"{self._base}/{quote(command.to.server_id, safe='')}/commands",
            json={
                "id": command.id,
                "name": command.name,
                "epoch": command.epoch,
                "args": command.arguments,
                "timeout": seconds,
            },
            authenticated=True,
            raise_exc=False,
        )


def _result(body: dict[str, Any]) -> CommandResult:
    return CommandResult(
        id=body["id"],
        exit_code=body["exit_code"],
        stdout=body["stdout"],
        stderr=body["stderr"],
        replayed=body["replayed"],
    )


def _error(answer: requests.Response, command: Command) -> ChannelError:
    try:
        said = answer.json()["error"]
        code, message = str(said["code"]), str(said["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "", f"HTTP {answer.status_code}"
    if code in _REFUSALS:
        return ChannelError(code, message)
    if code == "NO_ANSWER":
        return _no_answer(command)
    if answer.status_code == 401:
        return ChannelError(
            "REFUSED",
            "The channel does not accept the token of the request.",
            "Start it again with a new token.",
        )
    return ChannelError("UNREACHABLE", f"Member {command.to.member}: {message}")


def _no_answer(command: Command) -> ChannelError:
    return ChannelError(
        "NO_ANSWER",
        f"Member {command.to.member} (server {command.to.server_id}) did not answer {command.name} "
        f"within {command.limit:g} s.",
    )
