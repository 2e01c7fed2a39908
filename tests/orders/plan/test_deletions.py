# SPDX-License-Identifier: Apache-2.0
"""A plan tells what it deletes, in which case, and what goes with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions import orders
from mistral_failover.cli.plan import _readable
from support.operators import Operator
from support.planned_groups import resources

SINGLE = {"servers": ["db_a"], "replace": "lost"}
STOP = [{"kind": "stop", "limit": 30}, "confirm"]


@pytest.fixture
def single(protect: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group of one server, up."""

    def make(restart: list[str], fence: list[Any] = STOP, **more: Any) -> Any:
        members = {**SINGLE, "restart": restart}
        group = protect(("db_a",), members=members, fence=fence, **more)
        group.order(orders.Begin(group.name, lost=[]))
        return group

    return make


def deleted(group: Any) -> list[tuple[str, str]]:
    """What a plan for the loss of db_a deletes, and when."""
    plan = group.plan(lost=["db_a"])
    assert {row["member"] for row in plan["deletes"]} <= {"db_a"}
    return [(row["what"], row["when"]) for row in plan["deletes"]]


def with_its_disk(group: Any) -> str:
    return f"server {group.server('db_a')}, with the disk of its system, which is on no volume"


def test_the_way_that_gives_it_another_server_deletes_the_former_one(
    single: Callable[..., Any],
) -> None:
    group = single(["start", "replace"])

    assert deleted(group) == [
        (
            with_its_disk(group),
            "by Heat, as soon as the next one is there, if it comes back by replace",
        )
    ]
    assert with_its_disk(group) in _readable(group.plan(lost=["db_a"]))["deleted"]


def test_the_way_that_starts_its_server_deletes_nothing(single: Callable[..., Any]) -> None:
    group = single(["start"])

    assert deleted(group) == []
    assert "deleted" not in _readable(group.plan(lost=["db_a"]))


def test_a_volume_that_nova_deletes_with_the_server_is_named(single: Callable[..., Any]) -> None:
    group = single(["replace"])
    person = Operator(group.cloud)
    own = person.make_volume()
    person.attach(own, group.server("db_a"))
    person.let_go_along(group.server("db_a"), own)

    ((what, _),) = deleted(group)
    assert f"with volume {own} and the disk of its system" in what


def test_an_evacuation_may_make_the_disk_of_the_system_again(single: Callable[..., Any]) -> None:
    group = single(["evacuate"], ["confirm"])

    assert deleted(group) == [
        (
            "the disk of its system",
            "unless the hosts share its storage: Nova makes it again from the image",
        )
    ]


def test_a_fence_may_delete_the_server(single: Callable[..., Any]) -> None:
    group = single(["start"], ["stop", "delete"])

    assert deleted(group) == [
        (
            with_its_disk(group),
            "in Nova, by its fence, if the rungs before delete prove nothing",
        )
    ]


def test_a_server_on_a_dead_host_is_deleted_for_its_volume(single: Callable[..., Any]) -> None:
    data = resources(1, ["active"])
    data["data_0"]["properties"]["when_host_is_down"] = "delete_server"
    group = single(["start"], resources=data)

    assert deleted(group) == [
        (
            with_its_disk(group),
            "in Nova, if its host is down, after its fence, so that data_0 is free",
        )
    ]


def test_a_move_between_healthy_members_deletes_nothing(group: Any) -> None:
    assert group.plan(verb="switchover", to="db_b")["deletes"] == []
