# SPDX-License-Identifier: Apache-2.0
"""Noticing who a group's members are by now, also for a process that was frozen in between.

A replacement raises the member's epoch and deposes its former server. Whoever listed the members,
froze, and wakes up when they were replaced has an old server in hand: noticed as the newer one, it
would depose the member that serves. So the store is read before Heat is, and what changed in the
store since is not touched: Heat is asked once more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mistral_failover.actions.candidates import Seen
from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.runtime import Request
from mistral_failover.store import groups
from mistral_failover.store.groups import Replaced, SeenTooLate

_LOOKS = 5


def notice(
    request: Request, group_id: str, look: Callable[[], list[Seen]]
) -> tuple[list[Seen], list[Replaced]]:
    """Look at a group's members and remember them: who they are, and who was replaced since.

    Raises ActionError CONTENDED where others notice replacements all the time, and what ``look``
    raises.
    """
    database = request.runtime.database
    for _ in range(_LOOKS):
        known = database.reading(lambda tx: groups.members_of(tx, group_id))
        seen = look()
        rows = [(each.name, each.server_id, each.created_at) for each in seen]
        try:
            replaced = database.atomically(
                partial(groups.see_members, identity=group_id, seen=rows, before=known)
            )
        except SeenTooLate as late:
            why = str(late)
            continue
        return seen, replaced
    raise ActionError(
        "CONTENDED", why, "See where it stands before it is ordered again: failover status GROUP"
    )
