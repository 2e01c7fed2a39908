# SPDX-License-Identifier: Apache-2.0
"""What room the cloud has for a group: its availability zones, what the project's quota still
allows, and whether the flavor and the image of a server are still there.

Nova shows all of it to every user. What a quota allows now may be taken a moment later, so this is
said to an operator, and nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.cloud import boot_disks
from mistral_failover.cloud.absence import IMAGE, IMAGES, unless_absent
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.url_paths import url_path

_ZONES = Field("Nova", "availabilityZoneInfo")
_NAME, _STATE = Field("Nova", "zoneName"), Field("Nova", "zoneState")
_AVAILABLE = Field("Nova", "available")
_LIMITS, _ABSOLUTE = Field("Nova", "limits"), Field("Nova", "absolute")
_FLAVOR = Field("Nova", "flavor")
_SERVER = Field("Nova", "server")
_VCPUS, _RAM = Field("Nova", "vcpus", since="2.47"), Field("Nova", "ram", since="2.47")
_FLAVOR_NAME, _IMAGE = Field("Nova", "original_name", since="2.47"), Field("Nova", "image")
HIDDEN = ("FORBIDDEN", "NOT_OFFERED")
"""The codes of errors that say that the project may not see it."""
_STATUS, _NAME_OF = Field("Nova", "status"), Field("Nova", "name")
_UNLIMITED = -1
_KINDS = (
    ("servers", Field("Nova", "maxTotalInstances"), Field("Nova", "totalInstancesUsed")),
    ("cores", Field("Nova", "maxTotalCores"), Field("Nova", "totalCoresUsed")),
    ("MiB of RAM", Field("Nova", "maxTotalRAMSize"), Field("Nova", "totalRAMUsed")),
)


def zones(cloud: Cloud) -> list[str]:
    """Return the availability zones that take servers, sorted. Raises `CloudError`."""
    found = _ZONES.of(cloud.read_nova("/os-availability-zone"))
    return sorted(str(_NAME.of(each)) for each in found if _AVAILABLE.of(_STATE.of(each)))


def exhausted_by_one_more(cloud: Cloud, server_id: str) -> list[str]:
    """Return in words the quotas of the project that do not allow one more server of the same
    flavor, as in ``servers: 10 of 10 are used, and 1 more is needed``. Raises `CloudError`,
    NOT_OFFERED if Nova does not show what the flavor takes."""
    flavor = _FLAVOR.of(_SERVER.of(cloud.read_nova(url_path("servers", server_id))))
    limits: Mapping[str, Any] = _ABSOLUTE.of(_LIMITS.of(cloud.read_nova("/limits")))
    found = []
    for (kind, most_field, used_field), needed in zip(
        _KINDS, (1, int(_VCPUS.of(flavor)), int(_RAM.of(flavor))), strict=True
    ):
        most, used = int(most_field.of(limits)), int(used_field.of(limits))
        if most != _UNLIMITED and used + needed > most:
            found.append(f"{kind}: {used} of {most} are used, and {needed} more are needed")
    return found


def lacking(cloud: Cloud, stack: str | None, server_id: str) -> list[str]:
    """Return in words why another server of a member could not be made now: a quota, unless the
    present server is deleted before, because the next one boots from its disk; and a flavor or an
    image that is gone. Raises as `exhausted_by_one_more`."""
    first_deleted = boot_disks.must_stay(cloud, stack, server_id)
    found = [] if first_deleted else exhausted_by_one_more(cloud, server_id)
    shown = _SERVER.of(cloud.read_nova(url_path("servers", server_id)))
    flavor = str(_FLAVOR_NAME.of(_FLAVOR.of(shown)))
    if flavor not in {str(_NAME_OF.of(row)) for row in cloud.rows("Nova", "flavors", "/flavors")}:
        found.append(f"the project has no flavor {flavor} any more")
    if image := _IMAGE.of(shown):  # empty if it boots from a volume
        path = url_path("images", str(image["id"]))
        seen = unless_absent(
            cloud, IMAGE, str(image["id"]), lambda: cloud.read("Nova", path, microversion=IMAGES)
        )
        status = "gone" if seen is None else str(_STATUS.of(seen["image"]))
        if status != "ACTIVE":
            found.append(f"image {image['id']} is {status}")
    return found
