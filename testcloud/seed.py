# SPDX-License-Identifier: Apache-2.0
"""What a user finds in the cloud: an image, a flavor, a network. Running it again is harmless."""

from __future__ import annotations

from testcloud.access import connect
from testcloud.settings import Settings

IMAGE, FLAVOR, NETWORK, VOLUME_TYPE = "tiny", "m1.tiny", "net1", "fake"
PUBLIC = "public"
MULTIATTACH_TYPE = "multiattach"


def seed(settings: Settings) -> None:
    """Make what is missing: image `tiny`, flavor `m1.tiny`, network `net1`, the network `public`
    with floating IPs, volume types `fake` and `multiattach` (for many servers at once)."""
    cloud = connect(settings)
    if cloud.image.find_image(IMAGE) is None:
        cloud.image.create_image(
            IMAGE,
            data=b"x" * 1024,
            disk_format="raw",
            container_format="bare",
            visibility="public",
        )
    if cloud.compute.find_flavor(FLAVOR) is None:
        # With a disk: one without is for servers on volumes only, unless an administrator asks.
        cloud.compute.create_flavor(name=FLAVOR, ram=64, vcpus=1, disk=1)
    network = cloud.network.find_network(NETWORK) or cloud.network.create_network(
        name=NETWORK, is_shared=True
    )
    if not network.subnet_ids:
        cloud.network.create_subnet(
            network_id=network.id,
            name="sub1",
            cidr="10.99.0.0/16",
            ip_version=4,
            is_dhcp_enabled=False,
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
            name=VOLUME_TYPE, extra_specs={"volume_backend_name": VOLUME_TYPE}
        )
    if cloud.block_storage.find_type(MULTIATTACH_TYPE) is None:
        cloud.block_storage.create_type(
            name=MULTIATTACH_TYPE,
            extra_specs={"volume_backend_name": VOLUME_TYPE, "multiattach": "<is> True"},
        )
