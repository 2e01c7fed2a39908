# SPDX-License-Identifier: Apache-2.0
"""What a user finds in the cloud: an image, a flavor, a network. Running it again is harmless."""

from __future__ import annotations

from typing import Any

from testcloud.access import connect
from testcloud.control_plane import PHYSICAL
from testcloud.instances import backend
from testcloud.machines import image
from testcloud.settings import MANAGEMENT, RACKS, Settings

IMAGE, FLAVOR, NETWORK, VOLUME_TYPE = "tiny", "m1.tiny", "net1", "fake"
PUBLIC = "public"
MULTIATTACH_TYPE = "multiattach"
GUEST, GUEST_FLAVOR = "guest", "m1.guest"
"""Image and flavor of real guests."""
_PUBLIC = {"visibility": "public"}
_MACHINES_SUBNET = {
    "cidr": f"{MANAGEMENT}.0/24",
    "allocation_pools": [{"start": f"{MANAGEMENT}.100", "end": f"{MANAGEMENT}.199"}],
    "gateway_ip": None,
}


def seed(settings: Settings) -> None:
    """Make what is missing: image `tiny`, flavor `m1.tiny`, network `net1`, the network `public`
    with floating IPs, volume types `fake` and `multiattach` (for many servers at once)."""
    cloud = connect(settings)
    if settings.machines:
        _guest(cloud, settings)
        _racks(cloud)
    if cloud.image.find_image(IMAGE) is None:
        cloud.image.create_image(
            IMAGE,
            data=b"x" * 1024,
            disk_format="raw",
            container_format="bare",
            visibility="public",
        )
    if cloud.compute.find_flavor(FLAVOR) is None:
        # Its id is its name, so that Heat finds it with one request instead of three. With a disk:
        # one without is for servers on volumes only, unless an administrator asks.
        cloud.compute.create_flavor(id=FLAVOR, name=FLAVOR, ram=64, vcpus=1, disk=1)
    segment = {"provider_network_type": "flat", "provider_physical_network": PHYSICAL}
    network = cloud.network.find_network(NETWORK) or cloud.network.create_network(
        name=NETWORK, is_shared=True, **(segment if settings.machines else {})
    )
    if not network.subnet_ids:
        cloud.network.create_subnet(
            network_id=network.id,
            name="sub1",
            ip_version=4,
            is_dhcp_enabled=False,
            **(_MACHINES_SUBNET if settings.machines else {"cidr": "10.99.0.0/16"}),
        )
    public = cloud.network.find_network(PUBLIC) or cloud.network.create_network(
        name=PUBLIC, is_router_external=True
    )
    if not public.subnet_ids:
        cloud.network.create_subnet(
            network_id=public.id,
            name="floating",
            cidr="203.0.113.0/24",
            ip_version=4,
            is_dhcp_enabled=False,
        )
    if cloud.block_storage.find_type(VOLUME_TYPE) is None:
        cloud.block_storage.create_type(
            name=VOLUME_TYPE, extra_specs={"volume_backend_name": backend(settings)}
        )
    if cloud.block_storage.find_type(MULTIATTACH_TYPE) is None:
        cloud.block_storage.create_type(
            name=MULTIATTACH_TYPE,
            extra_specs={"volume_backend_name": backend(settings), "multiattach": "<is> True"},
        )


def _racks(cloud: Any) -> None:
    """An availability zone for the hosts of each rack."""
    known = {aggregate.name: aggregate for aggregate in cloud.compute.aggregates()}
    for rack, hosts in RACKS.items():
        aggregate = known.get(rack) or cloud.compute.create_aggregate(
            name=rack, availability_zone=rack
        )
        for host in set(hosts) - set(aggregate.hosts or ()):
            cloud.compute.add_host_to_aggregate(aggregate, host)


def _guest(cloud: Any, settings: Settings) -> None:
    """The image of real guests, its kernel and its ramdisk; an old one is replaced."""
    if cloud.compute.find_flavor(GUEST_FLAVOR) is None:
        cloud.compute.create_flavor(id=GUEST_FLAVOR, name=GUEST_FLAVOR, ram=320, vcpus=1, disk=1)
    version = image.key()
    known = cloud.image.find_image(GUEST)
    if known is not None and known.properties.get("made_of") == version:
        return
    parts = {
        f"{GUEST}-kernel": (image.kernel(settings), "aki"),
        f"{GUEST}-ramdisk": (image.ramdisk(settings), "ari"),
    }
    ids = {}
    for name, (path, kind) in parts.items():
        if (old := cloud.image.find_image(name)) is not None:
            cloud.image.delete_image(old)
        ids[name] = cloud.image.create_image(
            name, data=path.read_bytes(), disk_format=kind, container_format=kind, **_PUBLIC
        ).id
    if known is not None:
        cloud.image.delete_image(known)
    cloud.image.create_image(
        GUEST,
        data=image.root(settings).read_bytes(),
        disk_format="qcow2",
        container_format="bare",
        made_of=version,
        kernel_id=ids[f"{GUEST}-kernel"],
        ramdisk_id=ids[f"{GUEST}-ramdisk"],
        os_command_line="console=ttyS0 quiet",
        # The kernel for clouds is slower with IDE.
        hw_cdrom_bus="scsi",
        hw_scsi_model="virtio-scsi",
        hw_video_model="none",
        hw_rng_model="virtio",
        hw_qemu_guest_agent="yes",
        **_PUBLIC,
    )
