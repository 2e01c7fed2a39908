# SPDX-License-Identifier: Apache-2.0
"""Choose the member whose server is replaced next."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.group import Group

POLICIES = ("oldest", "newest")
"""Words that choose a member. A member with such a name must be chosen in another way."""


@dataclass(frozen=True)
class Choice:
    """The chosen member, and the reason in words."""

    member: str
    why: str


def choose_member(
    group: Group, members: Sequence[MemberFact], lost: Set[str], named: str | None
) -> Choice:
    """Choose the member whose server is replaced; the same facts give the same result.

    A member that is ``named`` is taken. Otherwise failed members come first: declared lost, then
    seen to be unhealthy. Among equals ``named`` decides if it is one of :data:`POLICIES`, otherwise
    ``members.choose`` of the group; then the name.

    :param members: every existing member, at least one.
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
    """Return why a member counts as failed, in words. Return None if it is healthy or could not be
    checked."""
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
    """Choose the next member when all of ``waiting`` are replaced one by one; None if none is left.

    Failed members that hold a role come first: a stack update for another member might remove their
    servers. Then come members without a role, so that a role that has to move goes to a new server.
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
        else Choice(choice.member, f"{choice.why}, and the others were replaced before it")
    )
