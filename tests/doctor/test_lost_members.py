# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of members that are lost: the way back, and only once there is one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mistral_failover.actions.doctor import Doctor
from mistral_failover.actions.orders import Begin
from support.operators import Operator
from support.scaled_groups import ScaledGroup, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]


def remedies(group: ScaledGroup, lost: str) -> list[str]:
    """Of each finding that tells of the loss."""
    found = group.done(Doctor(group.name))["findings"]
    about = [row for row in found if {"declared", lost} <= set(row["sentence"].split())]
    return [str(row["remedy"]) for row in about if row["check"] in ("goal", "members")]


@pytest.fixture
def failed_over(of: Callable[..., ScaledGroup]) -> tuple[ScaledGroup, str]:
    """A group that another member serves, and the lost one, whose server was stopped."""
    group = of(2)
    lost = group.active()
    group.cloud.fault("server", group.servers()[lost], "crash")
    group.done(Begin(group.name, lost=[lost]))
    return group, lost


def test_a_lost_member_is_recovered_or_else_replaced(failed_over: tuple[ScaledGroup, str]) -> None:
    group, lost = failed_over
    recover, replace = (
        f"failover recover {group.name} {lost}",
        f"failover replace {group.name} {lost}",
    )

    (of_member,) = remedies(group, lost)

    started = f"openstack server start {group.servers()[lost]}; then once {lost} is healthy: "
    assert of_member.startswith(started), "its server was stopped by the fence"
    assert of_member.index(recover) < of_member.index(replace)

    Operator(group.cloud).start_server(group.servers()[lost])
    (of_member,) = remedies(group, lost)
    assert of_member.startswith(f"Once {lost} is healthy: ")
    assert of_member.index(recover) < of_member.index(replace)
    group.done(Begin(group.name, lost=[], recovered=[lost]))
    assert group.status()["lost"] == []


def test_what_lets_a_lost_member_take_over_is_said_where_none_can(
    failed_over: tuple[ScaledGroup, str],
) -> None:
    group, lost = failed_over

    def remedy() -> str:
        found = group.done(Doctor(group.name))["findings"]
        (row,) = [each for each in found if each["sentence"].startswith("no member can take over")]
        return str(row["remedy"])

    server = group.servers()[lost]
    recover = f"once {lost} is healthy: failover recover {group.name} {lost}"
    assert remedy() == f"openstack server start {server}; then {recover}"

    Operator(group.cloud).start_server(server)
    assert remedy() == f"O{recover[1:]}"

    Operator(group.cloud).delete_server(server)
    assert f"failover replace {group.name} {lost}" in remedy()


def test_a_lost_member_without_a_server_can_only_be_replaced(
    failed_over: tuple[ScaledGroup, str],
) -> None:
    group, lost = failed_over
    Operator(group.cloud).delete_server(group.servers()[lost])

    assert remedies(group, lost) == [f"failover replace {group.name} {lost}"]


def test_no_member_returns_before_another_one_serves(of: Callable[..., ScaledGroup]) -> None:
    group = of(2)
    lost = group.active()
    group.run(Begin(group.name, lost=[lost]))  # and no worker carries it out

    assert remedies(group, lost) == [f"failover watch {group.name}"] * 2, "as its status says"


def test_a_member_that_was_evacuated_is_named_before_its_fence_fails(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(2)
    name, server = next(iter(group.servers().items()))
    host = group.cloud.guests()[server]["host"]
    group.cloud.fault("host", host, "compute_down")
    try:
        Operator(group.cloud).evacuate(server, "2.94")
    finally:
        group.cloud.fault("host", host, "revive")

    found = group.done(Doctor(group.name))["findings"]

    (one,) = [row for row in found if "Nova evacuated it" in row["sentence"]]
    assert f"will prove nothing about {name}" in one["sentence"]
    assert f"failover replace {group.name} {name}" in one["remedy"]
