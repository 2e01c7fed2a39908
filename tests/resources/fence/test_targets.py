# SPDX-License-Identifier: Apache-2.0
"""What has to be fenced of a lost member, and what is asked of its agents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.convergence.records import Record
from mistral_failover.model.types import installed_types, load_type
from mistral_failover.resources.fence.ladder import fence_target
from support.fence_attempts import MEMBER, Attempt

MOUNT = {
    "failover_type_version": "2026-11-21",
    "name": "mount",
    "quiesce_covers": True,
    "operations": {"create": {"workflow": "house.mount"}},
}
TYPES = {**installed_types(), "mount": load_type(MOUNT)}


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Attempt:
    return Attempt(monkeypatch)


def record(name: str, type_: str, *, member: str = "db_a", server: str | None = "s-1") -> Record:
    attributes = {"server_id": server} if server else {}
    properties = {"stop": "pg-stop"} if type_ == "activation" else {}
    return Record(
        name, "g", name, type_, member, action="CREATE", properties=properties,
        attributes=attributes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("records", "servers_", "stops", "without_stop_command"),
    [
        ([], ("s-a",), (), ()),
        ([record("elsewhere", "volume_attachment", member="db_b")], ("s-a",), (), ()),
        ([record("data", "volume_attachment")], ("s-1",), (), ("data",)),
        (
            [record("data", "volume_attachment"), record("db", "activation")],
            ("s-1",),
            (("s-1", "pg-stop"),),
            (),
        ),
        (
            # The server behind the name was replaced; the application's stop there says nothing
            # about the volume on the old one.
            [record("data", "volume_attachment"), record("db", "activation", server=None)],
            ("s-1", "s-a"),
            (("s-a", "pg-stop"),),
            ("data",),
        ),
        (
            [record("db", "activation"), record("other", "house_name", server=None)],
            ("s-1", "s-a"),
            (("s-1", "pg-stop"),),
            ("other",),
        ),
        (
            [record("db", "activation"), record("files", "mount")],
            ("s-1",),
            (("s-1", "pg-stop"),),
            (),
        ),
        ([Record("new", "g", "new", "activation", "db_a")], ("s-a",), (), ()),
    ],
    ids=[
        "nothing there",
        "only on others",
        "a volume alone",
        "an application on its volume",
        "an application on another server than its volume",
        "a type of the user's",
        "a type of the user's that a quiesce covers",
        "what never began",
    ],
)
def test_what_has_to_be_fenced_follows_from_what_is_on_the_member(
    records: list[Record], servers_: Any, stops: Any, without_stop_command: Any
) -> None:
    target = fence_target(MEMBER, records, TYPES, lambda: None)

    assert (target.servers, target.stops, target.without_stop_command) == (
        servers_,
        stops,
        without_stop_command,
    )


@pytest.mark.parametrize(
    "type_", ["dns_record", "port", "floating_ip", "load_balancer_member", "virtual_ip", "mount"]
)
def test_a_fence_of_the_volumes_does_not_cover_what_is_beside_them(type_: str) -> None:
    """The guest runs on, and answers at its address."""
    records = [record("data", "volume_attachment"), record("db", "activation")]
    records[0] = replace(records[0], physical_id="v-1")

    assert fence_target(MEMBER, records, TYPES, lambda: None).beside_volumes == ()

    target = fence_target(MEMBER, [*records, record("more", type_)], TYPES, lambda: None)
    assert target.beside_volumes == ("more",)


def test_what_needs_another_is_stopped_before_it() -> None:
    def application(name: str, *requires: str) -> Record:
        return Record(
            name, "g", name, "activation", "db_a", action="CREATE", requires=requires,
            properties={"stop": f"{name}-stop"}, attributes={"server_id": "s-1"},
        )  # fmt: skip

    records = [
        application("a_mount", "data"),
        record("data", "volume_attachment"),
        application("database", "a_mount"),
        application("b_report", "routing"),
        Record("routing", "g", "routing", "stack_parameters", requires=("database",)),
    ]

    for order in (records, records[::-1]):
        stops = [stop for _, stop in fence_target(MEMBER, order, TYPES, lambda: None).stops]
        assert stops == ["b_report-stop", "database-stop", "a_mount-stop"]


def test_everything_that_runs_on_the_member_is_stopped_in_its_epoch(attempt: Attempt) -> None:
    proof = attempt.climb("quiesce", stops=("app-stop", "pg-stop"))

    assert proof["observed"] == "db_a confirmed: app-stop and pg-stop"
    assert [c.name for c in attempt.commands] == ["app-stop", "pg-stop"]
    assert {c.epoch for c in attempt.commands} == {4}
    assert len({c.id for c in attempt.commands}) == 2


def test_a_repeated_climb_sends_the_same_commands(attempt: Attempt) -> None:
    attempt.climb("quiesce")
    attempt.climb("quiesce")

    first, second = attempt.commands
    assert first.id == second.id


def test_where_nothing_of_the_group_ran_quiescing_needs_no_command(attempt: Attempt) -> None:
    assert attempt.climb("quiesce", stops=())["observed"] == "nothing of the group is on db_a"
    assert attempt.commands == []
