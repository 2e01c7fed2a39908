# SPDX-License-Identifier: Apache-2.0
"""Heat replaces a volume that is marked as unhealthy by a new, empty one at any update; so none is
sent that would take the group's data, and no application is started on another volume unasked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions.groups import Define
from mistral_failover.actions.orders import Begin, Switchover
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.stacks import stack_map
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.records import Record
from mistral_failover.groups.kept_parts import volumes_of
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store.views import AttachedVolume
from support.scaled_groups import (
    ACTIVE,
    DATABASE,
    ROUTING,
    SERVER,
    ScaledGroup,
    definition,
    emulated,
    shared,
    state,
)
from support.waiting import until

__all__ = ["emulated", "shared", "state"]

_numbers = itertools.count(1)


class Pair(ScaledGroup):
    """A group of two with a data volume, on ``db_a``."""

    def define(self, volume: str = "data_volume") -> None:
        data = {
            "type": "volume_attachment",
            "properties": {"volume": volume, "server": ACTIVE},
        }
        database = {**DATABASE, "depends_on": "data"}
        resources = {"data": data, "database": database, "routing": ROUTING}
        members = {"servers": ["db_a", "db_b"]}
        self.done(Define(definition(self.name, members=members, resources=resources)))


@pytest.fixture
def cloud(state: Runtime) -> Cloud:
    """The cloud, as somebody beside the group uses it."""
    return Request(state, ActionContext(SecurityContext(), ExecutionContext())).cloud(Unguarded())


@pytest.fixture
def pair(state: Runtime, emulated: EmulatedCloud) -> Pair:
    group = Pair(f"pair{next(_numbers)}", emulated.client, state)
    volume = {"type": "OS::Cinder::Volume", "properties": {"size": 1}}
    template = {
        "heat_template_version": "2021-04-16",
        "parameters": {"active": {"type": "string", "default": "none"}},
        "resources": {"db_a": SERVER, "db_b": SERVER, "data_volume": volume},
    }
    emulated.client.create_stack(group.name, template)
    emulated.client.add_application(group.name, start="start", stop="stop", stack=group.name)
    group.define()
    group.done(Begin(group.name, lost=[]))
    return group


@pytest.fixture
def data(pair: Pair, cloud: Cloud) -> str:
    """The volume with the data."""
    return stack_map(cloud, pair.name)["data_volume"].physical_id


@pytest.fixture
def mark(pair: Pair, cloud: Cloud, data: str) -> Callable[[bool], None]:
    """Have Heat take the data volume for unhealthy, or not any more."""

    def call(unhealthy: bool = True) -> None:
        cloud.heat.resources.mark_unhealthy(pair.name, "data_volume", unhealthy, "a check")

    return call


@pytest.fixture
def replaced(pair: Pair, cloud: Cloud, data: str, mark: Callable[..., None]) -> str:
    """The new, empty volume, after somebody else has updated the stack."""
    mark()
    cloud.heat.stacks.update(pair.name, existing=True)
    until(lambda: cloud.heat.stacks.get(pair.name).stack_status == "UPDATE_FAILED")
    assert "Volume in use" in cloud.heat.stacks.get(pair.name).stack_status_reason
    now = stack_map(cloud, pair.name)["data_volume"].physical_id
    assert now != data
    return now


def holders(cloud: Cloud, volume: str) -> list[str]:
    return [held["server_id"] for held in cloud.volumes.volumes.get(volume).attachments]


def refused(answer: Any, code: str) -> dict[str, Any]:
    assert isinstance(answer, Result), answer
    assert answer.error["code"] == code
    return dict(answer.error)


def test_nothing_is_moved_by_plan_while_the_data_volume_is_marked(
    pair: Pair, cloud: Cloud, data: str, mark: Callable[..., None]
) -> None:
    mark()

    error = refused(pair.run(Switchover(pair.name)), "VOLUME_MARKED")

    assert data in error["message"]
    assert "mark unhealthy --reset" in error["remedy"]
    assert pair.active() == "db_a"
    assert holders(cloud, data) == [pair.servers()["db_a"]]
    mark(False)
    pair.done(Switchover(pair.name))
    assert (pair.status()["status"], pair.active()) == ("COMPLETE", "db_b")


def test_a_mark_that_comes_while_a_move_is_under_way_costs_the_update_and_not_the_data(
    pair: Pair, cloud: Cloud, data: str, mark: Callable[..., None]
) -> None:
    begun = pair.run(Switchover(pair.name))
    mark()

    pair.carry(begun)

    assert "VOLUME_MARKED" in "\n".join(pair.told())
    assert stack_map(cloud, pair.name)["data_volume"].physical_id == data
    assert holders(cloud, data) == [pair.servers()[pair.active()]]


def test_a_failover_hangs_the_marked_volume_elsewhere_and_sends_no_update(
    pair: Pair, cloud: Cloud, data: str, mark: Callable[..., None]
) -> None:
    mark()

    pair.done(pair.alarm("db_a"))

    assert pair.status()["status"] == "FAILED"
    assert holders(cloud, data) == [pair.servers()["db_b"]]
    mark(False)
    pair.done(Begin(pair.name, lost=[]))
    assert (pair.status()["status"], pair.active()) == ("COMPLETE", "db_b")
    assert holders(cloud, data) == [pair.servers()["db_b"]]


def test_nothing_is_moved_by_plan_once_heat_has_replaced_the_data_volume(
    pair: Pair, cloud: Cloud, data: str, replaced: str
) -> None:
    error = refused(pair.run(Switchover(pair.name)), "VOLUME_REPLACED")

    assert replaced in error["message"]
    assert f"--source {data}" in error["remedy"]
    assert holders(cloud, data) == [pair.servers()["db_a"]]


def test_no_application_starts_on_a_volume_that_took_the_data_volume_s_name_until_it_is_named(
    pair: Pair, cloud: Cloud, data: str, replaced: str
) -> None:
    for lost in (["db_a"], []):  # and a second attempt changes nothing
        pair.done(Begin(pair.name, lost=lost))
        assert pair.status()["status"] == "FAILED"
        assert "VOLUME_REPLACED" in str(pair.status())
        assert (holders(cloud, data), holders(cloud, replaced)) == ([], [])
        assert not any("database on db_b: done" in told for told in pair.told())

    pair.define(replaced)
    pair.done(Begin(pair.name, lost=[], definition="defined"))

    assert (pair.status()["status"], pair.active()) == ("COMPLETE", "db_b")
    assert holders(cloud, replaced) == [pair.servers()["db_b"]]


def test_the_former_volume_can_be_named_and_serves_though_heat_tries_to_delete_it(
    pair: Pair, cloud: Cloud, data: str, replaced: str
) -> None:
    pair.define(data)

    pair.done(Begin(pair.name, lost=["db_a"], definition="defined"))

    assert pair.status()["status"] == "FAILED"
    assert "Volume in use" in str(pair.status())
    assert holders(cloud, data) == [pair.servers()["db_b"]]


def _record(member: str, **more: Any) -> Record:
    return Record(member, "g", "data", "volume_attachment", member, 1, **more)


NAMED = {"properties": {"volume": "data_volume"}}


@pytest.mark.parametrize(
    ("records", "kept"),
    [
        ([], {}),
        ([_record("db_a", physical_id="v", **NAMED)], {"v": "data_volume"}),
        ([_record("db_a")], {"before": "data_volume"}),
        ([_record("db_a", **NAMED)], {"before": "data_volume"}),
        (
            [_record("db_a", physical_id="v", **NAMED), _record("db_b")],
            {"v": "data_volume", "before": "data_volume"},
        ),
        ([Record("r", "g", "data", "activation", "db_a", 1, physical_id="v")], {}),
    ],
)
def test_a_volume_is_known_also_while_it_hangs_nowhere(
    records: list[Record], kept: dict[str, str]
) -> None:
    assert volumes_of(records, {"data": AttachedVolume("data_volume", "before")}) == kept
