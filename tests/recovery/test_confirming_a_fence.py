# SPDX-License-Identifier: Apache-2.0
"""A person's word that a member writes no more is taken of a member that is lost, and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mistral_failover.actions.members import ConfirmFenced
from mistral_failover.actions.orders import Begin
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
