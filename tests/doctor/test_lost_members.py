# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of members that are lost: the way home, and only once there is one."""

from __future__ import annotations

from collections.abc import Callable

from mistral_failover.actions.doctor import Doctor
from mistral_failover.actions.orders import Begin
from support.scaled_groups import ScaledGroup, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]


def remedy(group: ScaledGroup, lost: str) -> str:
    """Of the finding that a member is lost."""
    found = group.done(Doctor(group.name))["findings"]
    (row,) = [row for row in found if row["check"] == "goal" and row["sentence"].endswith(lost)]
    return str(row["remedy"])


def test_once_another_member_serves_a_lost_one_can_come_home(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(2)
    lost = group.active()
    group.done(Begin(group.name, lost=[lost]))

    expected = f"Check or replace them, then: failover failback {group.name} --recovered {lost}"
    assert remedy(group, lost) == expected


def test_no_member_returns_before_another_one_serves(of: Callable[..., ScaledGroup]) -> None:
    group = of(2)
    lost = group.active()
    group.run(Begin(group.name, lost=[lost]))  # and no worker carries it out

    assert remedy(group, lost) == f"failover status {group.name}"
