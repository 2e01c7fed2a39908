# SPDX-License-Identifier: Apache-2.0
"""Whose server is replaced next."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.group import Group

POLICIES = ("oldest", "newest")
"""Words that stand for a member; a member of such a name can only be meant by another one."""


@dataclass(frozen=True)
class Choice:
    """The member that is chosen, and why, in words."""

    member: str
    why: str


def choose_member(
    group: Group, members: Sequence[MemberFact], lost: Set[str], named: str | None
) -> Choice:
    """Choose whose server is replaced; the same facts give the same answer.

    A member that is ``named`` is taken as it is.  Else those that failed come first: who is
    declared lost, then who is seen not to be well.  Among equals decides ``named`` where it is one
    of :data:`POLICIES`, else ``members.choose`` of the group; then the name.

    :param members: every member that there is, one at least.
    :param named: one of them, one of :data:`POLICIES`, or None.
    """
    if named is not None and named not in POLICIES:
        (fact,) = (each for each in members if each.name == named)
        return Choice(named, failure(fact, lost) or "it was named")
    policy = named or group.members.choose
    sign = -1.0 if policy == "newest" else 1.0

    def key(fact: MemberFact) -> tuple[int, bool, float, str]:
        failed = 2 if failure(fact, lost) is None else 0 if fact.name in lost else 1
        age = math.inf if fact.created_at is None else sign * fact.created_at
        return (failed, fact.name != policy, age, fact.name)

    first = min(members, key=key)
    why = failure(first, lost)
    if why is None:
        named_so = policy not in POLICIES and first.name == policy
        word = policy if policy in POLICIES else "oldest"
        why = "the group's file names it" if named_so else f"it is the {word}"
    return Choice(first.name, why)


def failure(fact: MemberFact, lost: Set[str]) -> str | None:
    """Why a member counts as failed, in words; None where it is well, or nobody could look."""
    if fact.name in lost:
        return "it is declared lost"
    if fact.healthy or fact.unseen:
        return None
    return fact.why_not or "it is not healthy"


def next_in_turn(
    group: Group,
    members: Sequence[MemberFact],
    lost: Set[str],
    roles: Mapping[str, str],
    waiting: Set[str],
) -> Choice | None:
    """Choose who is next when all of ``waiting`` are replaced one by one, None when nobody is left.

    Those that failed and hold a role come first: an update of the stack that is about another one
    might take their servers away. Then those without a role, so that a role that has to move comes
    to a new server.
    """
    there = [fact for fact in members if fact.name in waiting]
    holders = set(roles.values())
    free = [fact for fact in there if fact.name not in holders]
    failed = [fact for fact in there if fact.name in holders and failure(fact, lost)]
    if not there:
        return None
    choice = choose_member(group, failed or free or there, lost, None)
    return (
        choice
        if failed or free
        else Choice(choice.member, f"{choice.why}, and the others were before it")
    )
