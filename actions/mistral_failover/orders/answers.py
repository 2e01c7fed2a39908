# SPDX-License-Identifier: Apache-2.0
"""What the orders answer."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from mistral_failover.model.decisions import Decision
from mistral_failover.runtime.errors import ErrorFacts


class Started(TypedDict):
    """A traversal that was started, now or before. ``goal``: its version, None if its records were
    deleted since. ``workflow``: the one that carries the traversal out, None if nothing is to be
    carried out."""

    group: str
    traversal: str | None
    goal: str | None
    roles: dict[str, str]
    lost: list[str]
    workflow: str | None
    sentence: str


class StartedOrder(Started):
    """An order that was started. ``incident`` is its own, None if there was nothing to do."""

    incident: str | None


class Replacement(TypedDict):
    """A member that is replaced: its ``server`` goes. While there are ``moves``, the roles that it
    gives up first, and if it has another server already, nothing was started."""

    group: str
    member: str | None
    server: str | None
    moves: list[str]
    traversal: str | None
    workflow: str | None
    sentence: str
    incident: str | None
    goal: NotRequired[str | None]
    roles: NotRequired[dict[str, str]]
    lost: NotRequired[list[str]]


class AlarmAnswer(TypedDict):
    """The decision about an alarm, and what it started. ``workflow``: None if there is nothing to
    start. ``error``: why an admitted alarm was not started."""

    decision: Decision
    sentence: str
    incident: str | None
    traversal: str | None
    workflow: str | None
    group: NotRequired[str]
    goal: NotRequired[str | None]
    roles: NotRequired[dict[str, str]]
    lost: NotRequired[list[str]]
    error: NotRequired[ErrorFacts]
