# SPDX-License-Identifier: Apache-2.0
"""Agents that are in a later epoch than the state store has for their member.

The store records an epoch before any agent is told of it. So an agent that knows a later one shows
that the store is older than the world: it was lost, or a backup of it was loaded. What was made on
such a member in an earlier epoch is not there any more, because the agent was deposed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

from mistral_failover.agent.channel.interface import Heartbeat
from mistral_failover.convergence.records import Action, GroupState, JournalKind
from mistral_failover.model.group import INTERNAL_TYPES
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.groups import MemberRow
from mistral_failover.store.transaction import ProjectTransaction


def older(group: str) -> str:
    """Return the clause that says why nothing is done with a restored group."""
    return f"what the state store has of {group} is older than what happened since"


def refuse_restored(state: GroupState) -> None:
    """Refuse an order for a group of which the store has only what is older than the world. Raises
    ActionError RESTORED."""
    if state.restored:
        raise ActionError(
            "RESTORED",
            f"{older(state.name)}. Nothing was moved.",
            f"Look where it serves, then let it begin from there: failover group create FILE. What "
            f"its file was: failover group show {quote(state.name)} -f value -c definition",
        )


def settle(
    request: Request,
    group_id: str,
    heard: Mapping[str, Heartbeat],
    known: Mapping[str, MemberRow] | None = None,
) -> bool:
    """Take over the later epochs that these agents know, by member. If one of them was deposed
    since something was made there by the store's word, mark the group as restored instead. Return
    whether it is. ``known``: the members, if they were read already."""
    if known is None:
        known = request.store.reading(lambda tx: groups.members_of(tx, group_id))
    if not any(name in known and beat.epoch > known[name].epoch for name, beat in heard.items()):
        return False

    def compare(tx: ProjectTransaction) -> bool:
        state = tx.lock_group(group_id, shared=False)
        if state is None or state.restored:
            return state is not None
        rows = groups.members_of(tx, group_id)  # they may have got a later epoch since
        later = {
            name: beat.epoch
            for name, beat in heard.items()
            if name in rows and beat.epoch > rows[name].epoch
        }
        void = {
            each.member
            for each in tx.records(group_id)
            if each.member in later
            and each.epoch < later[each.member]
            and each.type not in INTERNAL_TYPES
            and each.action != Action.INIT
        }
        if not void:
            groups.raise_to(tx, group_id, later)
            return False
        said = ", ".join(
            f"{name} has epoch {rows[name].epoch} there, and its agent knows {later[name]}"
            for name in sorted(void)
        )
        groups.mark_restored(tx, group_id)
        sentence = f"the state store is older than what happened since: {said}"
        tx.journal(group_id, sentence, kind=JournalKind.RESTORED)
        return True

    return request.store.atomically(compare)
