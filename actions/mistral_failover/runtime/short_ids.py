# SPDX-License-Identifier: Apache-2.0
"""Find the object for an id that an operator types, usually its first digits."""

from __future__ import annotations

from mistral_failover.model.text import plain
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store.details import SHORTEST, Match, matches
from mistral_failover.store.transaction import ProjectTransaction


def find_by_short_id(
    request: Request,
    tx: ProjectTransaction,
    said: str,
    group: str | None = None,
    kind: str | None = None,
) -> Match:
    """Return the object of the request's project with this id, or the only one whose id begins with
    it. ``group`` and ``kind`` (of ``Match``) restrict the search.

    Raises ActionError UNKNOWN_ID, AMBIGUOUS_ID.
    """
    found = matches(tx, said.strip().lower(), group, kind)
    if not found and said != said.lower():
        found = matches(tx, said, group, kind)
    if not found:
        raise unknown(said, group, kind)
    if len(found) > 1:
        named = "; ".join(
            f"{match.kind} {match.id}" + (f" of {match.group}" if match.group else "")
            for match in found
        )
        raise ActionError(
            "AMBIGUOUS_ID",
            f"{plain(said)} is ambiguous: {named}",
            "Give more digits, or the group.",
        )
    return found[0]


def unknown(said: str, group: str | None = None, kind: str | None = None) -> ActionError:
    """Return the error that no object has the id: none of ``kind``, and none of ``group`` if
    given."""
    where = f"{group} of this project" if group else "this project"
    what = f"no {kind}" if kind else "nothing"
    return ActionError(
        "UNKNOWN_ID",
        f"{what} of {where} has the id {plain(said)}",
        f"Give the whole id or at least its first {SHORTEST} digits; {_SHOWN[kind]}",
    )


_SHOWN = {
    None: "failover status, goals, history, alarms and locks show ids.",
    "incident": "failover alarms and failover status show ids.",
    "plan": "or plan again: failover plan GROUP.",
    "resource": "failover locks and failover status show ids.",
    "traversal": "failover history GROUP -f json shows ids.",
}
