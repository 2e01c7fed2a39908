# SPDX-License-Identifier: Apache-2.0
"""What a guest finds when it comes back after its member was failed over."""

from __future__ import annotations

import time
import uuid

from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.agent.channel.interface import Channel, ChannelError, Command, Heartbeat
from mistral_failover.agent.wire import UNKNOWN_COMMAND, Address
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.lab.drill.scene import Scene, SceneError
from mistral_failover.model.ids import group_id
from mistral_failover.runtime.process import runtime
from mistral_failover.runtime.request import Request

_PAUSE = 0.1
_LIMIT = 60.0
_WAIT = 3.0
REFUSALS = ("OLD_EPOCH", "REFUSED", UNKNOWN_COMMAND)
"""The codes with which an agent reports that a command has not run."""


def deposed(scene: Scene, group: str, member: str, server: str, epoch: int) -> Heartbeat:
    """Wait until a guest that came back reports the result of being deposed, in ``epoch``.

    Raises SceneError if it does not within a minute.
    """
    to = _address(scene, group, member, server)
    deadline = time.monotonic() + _LIMIT
    while time.monotonic() < deadline:
        said = _channel().heard(to)
        if said is not None and said.epoch >= epoch and _is_quiet(said):
            return said
        time.sleep(_PAUSE)
    raise SceneError(f"{member} did not report within {_LIMIT:.0f} s that it was deposed")


def _is_quiet(said: Heartbeat) -> bool:
    """Return whether nothing runs, and nothing is still being stopped."""
    return bool(said.deposed) and not said.running and said.stopping is False


def late_command(scene: Scene, group: str, member: str, server: str, epoch: int, name: str) -> str:
    """Send a command of an ``epoch`` that has ended, like an executor that slept through the
    failover. Return the code with which it was refused, or ``DONE``."""
    command = Command(
        id=str(uuid.uuid4()),
        to=_address(scene, group, member, server),
        epoch=epoch,
        name=name,
        limit=_WAIT,
    )
    try:
        _channel().run(command)
    except ChannelError as error:
        return error.code
    return "DONE"


def _address(scene: Scene, group: str, member: str, server: str) -> Address:
    return Address(group_id(scene.project, group), group, member, server)


def _channel() -> Channel:
    """Return the channel as the actions of this process use it."""
    request = Request(runtime(), ActionContext(SecurityContext(), ExecutionContext()))
    return request.channel(request.cloud(Unguarded()), Unguarded())
