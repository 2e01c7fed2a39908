# SPDX-License-Identifier: Apache-2.0
"""What a plan says that goes when Heat gives a member another server is what then goes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mistral_failover.cloud import stack_updates
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.heat_replacements import KeptParts, rows_of
from mistral_failover.cloud.stack_members import members
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.resources.restart.deletions import by_heat
from mistral_failover.resources.restart.way import LostServer
from support.emulated import SERVER, cloud, connect, emulated, emulator

__all__ = ["cloud", "connect", "emulated", "emulator"]

DISK = {"type": "OS::Cinder::Volume", "properties": {"size": 1}}
PORT = {"type": "OS::Neutron::Port", "properties": {"network": "net1"}}


def template(resources: dict[str, Any]) -> dict[str, Any]:
    return {"heat_template_version": "2021-04-16", "resources": resources}


@pytest.fixture
def crew(emulator: EmulatorClient) -> str:
    """A stack with an autoscaling group of one, whose member is a stack with a disk and a port."""
    own = {"type": "Own::Node"}
    nodes = {
        "type": "OS::Heat::AutoScalingGroup",
        "properties": {"min_size": 1, "max_size": 1, "desired_capacity": 1, "resource": own},
    }
    inside = {"db": SERVER, "scratch": DISK, "front": PORT}
    emulator.create_stack(
        "crew",
        template({"nodes": nodes, "data": DISK, "back": PORT}),
        files={"node.yaml": template(inside)},
        environment={"resource_registry": {"Own::Node": "node.yaml"}},
    )
    return "crew"


def lost(cloud: Cloud, stack: str, keep: KeptParts | None = None) -> LostServer:
    (one,) = members(cloud, stack, autoscaling_group="nodes")
    return LostServer(cloud, stack, "nodes", one.name, one.server_id, None, keep or KeptParts())


def ids(cloud: Cloud, stack: str) -> dict[str, str]:
    return {
        row.name: row.resource.physical_id
        for row in rows_of(cloud, stack)
        if not row.resource.nested
    }


def replace(cloud: Cloud, crew: str, member: LostServer) -> None:
    """Have Heat give a member another server."""
    stack_updates.replace_member(
        cloud,
        crew,
        member.member,
        autoscaling_group="nodes",
        resource=None,
        server_id=member.server,
        reason="a test",
        limit=60,
    )


def test_the_stack_of_a_member_goes_with_its_server(cloud: Cloud, crew: str) -> None:
    before, one = ids(cloud, crew), lost(cloud, crew)

    told = [each.what for each in by_heat(one, crew)]

    replace(cloud, crew, one)
    after = ids(cloud, crew)
    gone = {name for name in before if before[name] not in after.values()}
    assert gone == {"db", "scratch", "front"}
    assert [name for name in before if any(before[name] in each for each in told)] == [
        name for name in before if name in gone
    ]
    assert len(told) == 3


def test_no_deletion_is_told_of_what_no_update_may_take(cloud: Cloud, crew: str) -> None:
    kept = KeptParts("payments", volumes={ids(cloud, crew)["scratch"]: "scratch"})

    with pytest.raises(CloudError) as refused:
        list(by_heat(lost(cloud, crew, kept), crew))

    assert refused.value.code == "CONFLICT"


def test_nothing_more_goes_of_a_member_that_has_another_server(cloud: Cloud, crew: str) -> None:
    former = lost(cloud, crew)
    replace(cloud, crew, former)

    assert list(by_heat(former, crew)) == []


@pytest.mark.parametrize("part", ["scratch", "front"])
def test_a_part_of_a_member_s_stack_goes_alone(cloud: Cloud, crew: str, part: str) -> None:
    one = dataclasses.replace(lost(cloud, crew), resource=part)

    (told,) = by_heat(one, crew)

    assert told.what.startswith(f"{part} (")
    assert ids(cloud, crew)[part] in told.what
