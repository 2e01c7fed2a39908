# SPDX-License-Identifier: Apache-2.0
"""The way ``replace``: Heat creates another server for the member."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote

from mistral_failover.resources.restart.way import Attempt, Result, Way


class Replace(Way):
    """Heat makes another server, and removes the former one when that is there.

    Where it fails, it fails for good: Heat leaves the stack as it came to it, so nothing else is
    tried then. Safe to repeat, because it names the server to remove.
    """

    def bring_back(self, attempt: Attempt) -> Result:
        """Have Heat replace it."""
        from mistral_failover.cloud import stack_updates
        from mistral_failover.groups import kept_parts
        from mistral_failover.runtime.errors import says_how_to_continue

        operation, tools = attempt.operation, attempt.tools
        with says_how_to_continue(operation["group"]), _left(operation["group"], attempt.member):
            found = stack_updates.replace_member(
                tools.cloud,
                operation["stack"],
                attempt.member,
                autoscaling_group=attempt.snapshot.group.members.autoscaling_group,
                resource=attempt.wish.get("resource"),
                server_id=attempt.server,
                # Heat shows it, and by it a repeat knows its own mark.
                reason=f"replaced by mistral-failover, operation {operation['key']}",
                limit=float(operation["timeout"]),
                keep=kept_parts.parts_to_keep(
                    tools.request, operation["group_id"], operation["group"]
                ),
            )
        return Result(found.server, f"Heat made server {found.server}")


@contextmanager
def _left(group: str, member: str) -> Iterator[None]:
    """Add how to withdraw the replacement of a member that Heat no longer knows."""
    from mistral_failover.cloud.errors import CloudError
    from mistral_failover.runtime.errors import start_command

    try:
        yield
    except CloudError as error:
        if error.code == "NOT_FOUND":
            error.remedy += (
                f" If the member has left the stack permanently: {start_command(group)} --lost '' "
                f"--recovered {quote(member)}."
            )
        raise
