# SPDX-License-Identifier: Apache-2.0
"""How an operator goes on with a group, as remedies word it.

They name the command, never the workflow ``failover.failover`` without ``lost``: that one declares
lost whoever holds a role of a goal that was reached, and a planned move that came back has reached
one. ``failover start GROUP`` declares nobody lost, and is refused where a goal was reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import LeaseLost
from mistral_failover.cloud.tokens import NO_RIGHTS


def start_command(group: str, lost: str | None = None) -> str:
    """What a person types to go on to the goal that was not reached; or, where a member is
    ``lost``, to say so and have it fenced."""
    said = "" if lost is None else f" --lost {quote(lost)}"
    return f"failover start {quote(group)}{said}"


@contextmanager
def going_on(group: str) -> Iterator[None]:
    """Add to what a person has to do about the cloud how the group's operation goes on then."""
    try:
        yield
    except CloudError as error:
        how = ""
        if error.blocked:
            how = "Then failover sweep goes on once it sees the change, and at once: "
        elif error.code not in NO_RIGHTS and not isinstance(error, LeaseLost):  # a sweep goes on
            how = "To go on then: "
        if how:
            before = error.remedy.rstrip(". ")
            error.remedy = f"{before + '. ' if before else ''}{how}{start_command(group)}"
        raise


def confirm_command(group: str, member: str) -> str:
    """What a person types to vouch for a member."""
    return f"failover confirm-fenced {quote(group)} {quote(member)} --because '...'"
