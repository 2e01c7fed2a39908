# SPDX-License-Identifier: Apache-2.0
"""A person's word that a member writes no more is taken of a member that is lost, and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from mistral_failover.actions.orders import Begin, ConfirmFenced
from mistral_failover.store.tables import groups, members
from support.scaled_groups import ScaledGroup, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]


@pytest.mark.parametrize("member", ["the standby", "unknown"])
def test_a_word_for_the_wrong_member_is_told_who_is_lost(
    of: Callable[..., ScaledGroup], member: str
) -> None:
    group = of(2)
    lost = group.active()
    group.done(Begin(group.name, lost=[lost]))
    (standby,) = set(group.members) - {lost}

    answer = group.run(
        ConfirmFenced(group.name, standby if member == "the standby" else member, "I saw it")
    )

    assert answer.error["code"] == "NOT_LOST"
    assert answer.error["message"].endswith(f"is not declared lost in {group.name}, {lost} is")
    assert answer.error["remedy"] == f"Did you mean {lost}?"


def test_a_confirmation_when_no_member_is_lost_is_refused(of: Callable[..., ScaledGroup]) -> None:
    group = of(2)

    answer = group.run(ConfirmFenced(group.name, group.active(), "I saw it"))

    assert answer.error["code"] == "NOT_LOST"
    assert answer.error["message"].endswith(", no member is")


def test_for_a_lost_member_that_was_forgotten_the_command_lists_those_of_its_group(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(2)
    lost = group.active()
    group.done(Begin(group.name, lost=[lost]))
    its_group = sa.select(groups.c.id).where(groups.c.name == group.name).scalar_subquery()
    forgotten = members.delete().where(members.c.name == lost, members.c.group_id == its_group)
    group.state.database.atomically(lambda tx: tx.execute(forgotten))

    answer = group.run(ConfirmFenced(group.name, lost, "I saw it"))

    assert answer.error["code"] == "UNKNOWN_MEMBER"
    assert answer.error["remedy"] == f"List the members: failover member list {group.name}"
