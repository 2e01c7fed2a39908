# SPDX-License-Identifier: Apache-2.0
"""A server that boots from a volume of its stack: Heat makes the next one from it once the deletion
of the former one has released it, and not before.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract.conftest import of
from contract.rig import Made, Rig
from mistral_failover.cloud.boot_disks import (
    disks_in_stack,
    kept_boot_disk,
    release_boot_disk,
    release_of_deleted,
)
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stack_updates import replace_member

TEMPLATE = """
heat_template_version: 2021-04-16
resources:
  pet:
    type: OS::Nova::Server
    properties:
      flavor: FLAVOR
      networks: [{allocate_network: none}]
      block_device_mapping_v2:
        - {volume_id: DISK, boot_index: 0, delete_on_termination: false}
"""
SYSTEM = """
  system: {type: OS::Cinder::Volume, properties: {size: 1, image: tiny}}
"""


@pytest.fixture
def disk(rig: Rig) -> Iterator[str]:
    """A volume from which a server boots."""
    volume = rig.make_volume(bootable=True)
    yield volume
    rig.remove_volume(volume)


@pytest.fixture
def stack(rig: Rig, disk: str) -> Iterator[Made]:
    """A stack of one server that boots from that volume."""
    made = rig.make_stack(of(TEMPLATE, rig).replace("DISK", disk))
    yield made
    rig.remove_stack(made)


def replaced(cloud: Cloud, stack: Made, why: str) -> str:
    """The server that Heat makes in place of the present one."""
    found = replace_member(
        cloud,
        stack.name,
        "pet",
        autoscaling_group=None,
        resource=None,
        server_id=stack.ids["pet"],
        reason=why,
        limit=90,
    )
    return found.server


def off() -> str:
    return "It is only a test."


def test_heat_makes_the_next_server_from_the_boot_disk_that_was_released(
    rig: Rig, cloud: Cloud, stack: Made, disk: str
) -> None:
    former = stack.ids["pet"]
    assert kept_boot_disk(cloud, stack.name, former) == disk
    with pytest.raises(CloudError) as raised:
        replaced(cloud, stack, "too early")
    assert raised.value.code == "STACK_FAILED"
    assert rig.holders(disk) == [former]

    for _ in range(2):
        release_boot_disk(cloud, disk, former, off=off, limit=90)
    now = replaced(cloud, stack, "in time")

    assert now != former
    assert rig.holders(disk) == [now]
    assert kept_boot_disk(cloud, stack.name, former) is None


def test_what_an_interrupted_deletion_leaves_at_cinder_is_freed_once_the_server_is_off(
    rig: Rig, cloud: Cloud, stack: Made, disk: str
) -> None:
    server = stack.ids["pet"]
    release_boot_disk(cloud, disk, server, off=off, limit=90)
    rig.api().claim(disk, server, connected=False)

    for _ in range(2):
        release_of_deleted(cloud, server, off=off, limit=90)

    assert rig.volume_status(disk) == "available"


def test_a_connection_that_cinder_keeps_waits_for_an_operator(
    rig: Rig, cloud: Cloud, stack: Made, disk: str
) -> None:
    server = stack.ids["pet"]
    release_boot_disk(cloud, disk, server, off=off, limit=90)
    left = rig.api().claim(disk, server, connected=True)

    with pytest.raises(CloudError) as raised:
        release_of_deleted(cloud, server, off=off, limit=90)

    assert (raised.value.code, raised.value.blocked) == ("VOLUME_DISPUTED", True)
    assert f"volume attachment delete {left}" in raised.value.remedy
    assert rig.api().cinder("DELETE", f"/attachments/{left}").ok


def test_a_boot_disk_that_nova_would_delete_is_not_released(
    rig: Rig, cloud: Cloud, stack: Made, disk: str
) -> None:
    server = stack.ids["pet"]
    path = f"/servers/{server}/os-volume_attachments/{disk}"

    def delete_with_it(wanted: bool) -> None:
        body = {"volumeAttachment": {"volumeId": disk, "delete_on_termination": wanted}}
        cloud.send("Nova", "PUT", path, body)

    delete_with_it(True)

    for call in (
        lambda: kept_boot_disk(cloud, stack.name, server),
        lambda: release_boot_disk(cloud, disk, server, off=off, limit=90),
    ):
        with pytest.raises(CloudError) as raised:
            call()
        assert raised.value.code == "VOLUME_WOULD_GO"
        assert raised.value.blocked
    assert rig.holders(disk) == [server]
    delete_with_it(False)
    assert kept_boot_disk(cloud, stack.name, server) == disk


def test_a_template_that_lets_it_go_with_the_next_server_is_named(
    rig: Rig, cloud: Cloud, disk: str
) -> None:
    goes = TEMPLATE.replace("termination: false", "termination: true").replace("DISK", disk)
    stack = rig.make_stack(of(goes, rig))
    server = stack.ids["pet"]
    path = f"/servers/{server}/os-volume_attachments/{disk}"
    keep = {"volumeAttachment": {"volumeId": disk, "delete_on_termination": False}}
    cloud.send("Nova", "PUT", path, keep)

    with pytest.raises(CloudError) as raised:
        kept_boot_disk(cloud, stack.name, server)

    assert (raised.value.code, raised.value.blocked) == ("VOLUME_WOULD_GO", True)
    assert "template" in raised.value.message
    rig.remove_stack(stack)


def test_the_disks_of_a_server_are_known_by_the_template_also_after_its_deletion(
    rig: Rig, cloud: Cloud
) -> None:
    template = (TEMPLATE + SYSTEM).replace("DISK", "{get_resource: system}")
    stack = rig.make_stack(of(template, rig))
    server, volume = stack.ids["pet"], stack.ids["system"]

    release_boot_disk(cloud, volume, server, off=off, limit=90)

    assert disks_in_stack(cloud, stack.name, server) == {volume: "system"}
    rig.remove_stack(stack)
