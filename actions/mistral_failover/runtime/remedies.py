# SPDX-License-Identifier: Apache-2.0
"""The commands by which an operator continues with a group, as remedies name them.

They name the command, never the workflow ``failover.failover`` without ``lost``: if the goal was
reached, that one declares its role holders lost, and a planned move that returned has reached a
goal. ``failover start GROUP`` declares no member lost, and is refused if the goal was reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote

from mistral_failover.cloud.errors import NO_RIGHTS, CloudError
from mistral_failover.cloud.transport import LeaseLost


def start_command(group: str, lost: str | None = None) -> str:
    """Return the command that continues to a goal that was not reached; or, if a member is
    ``lost``, the one that declares it lost and has it fenced."""
    said = "" if lost is None else f" --lost {quote(lost)}"
    return f"failover start {quote(group)}{said}"


@contextmanager
def says_how_to_continue(group: str) -> Iterator[None]:
    """Append to the remedy of an error of the cloud how the group's operation continues
    afterwards."""
    try:
        yield
    except CloudError as error:
        how = ""
        if error.blocked:
            how = "Then failover sweep continues once it sees the change. To continue at once: "
        elif error.code not in NO_RIGHTS and not isinstance(error, LeaseLost):  # a sweep goes on
            how = "To continue then: "
        if how:
            before = error.remedy.rstrip(". ")
            error.remedy = f"{before + '. ' if before else ''}{how}{start_command(group)}"
        raise


def confirm_command(group: str, member: str) -> str:
    """Return the command by which an operator confirms that a member is fenced."""
    return f"failover confirm-fenced {quote(group)} {quote(member)} --because '...'"
