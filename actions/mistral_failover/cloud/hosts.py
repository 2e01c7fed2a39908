# SPDX-License-Identifier: Apache-2.0
"""Compute hosts, as Nova shows them to an operator.

A project sees neither a server's host nor the state of its compute service, so these calls use the
operator's credential.
"""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass

from mistral_failover.cloud.absence import ANY_SERVER, unless_absent
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.fields import Feature, Field
from mistral_failover.cloud.servers import HOST_NAME, STATUS, TASK_STATE, VOLUMES
from mistral_failover.cloud.session import session_for
from mistral_failover.cloud.transport import Guard
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.settings import Settings

COMPUTE_SERVICES = Feature("Nova", "compute services with a UUID", since="2.53")
_FORCED_DOWN = Field("Nova", "forced_down", since="2.11")
_REPORTED_AT = Field("Nova", "updated_at")
_STATE_OF_SERVICE = Field("Nova", "status")
# While one of these is under way, the guest may be on another host than Nova's record.
_MOVING = ("MIGRATING", "RESIZE", "VERIFY_RESIZE", "REVERT_RESIZE", "REBUILD")
_MOVES = ("migrating", "resize", "rebuild", "shelving", "unshelving", "spawning")


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """Where a server is. ``host``: None if it is on none. ``moving``: what Nova does with it that
    may bring it to another host; empty if nothing. ``exists`` is false for a server that is gone.
    """

    host: str | None
    moving: str = ""
    exists: bool = True


@dataclass(frozen=True, slots=True)
class ComputeService:
    """The compute service of a host. ``up``: by its reports; false while it is ``forced_down``,
    whatever it reports. ``seen``: Nova's `updated_at`: of the last report, or of the last change of
    ``forced_down`` or ``disabled`` (Nova's database stamps each change of the row)."""

    id: str
    host: str
    up: bool
    forced_down: bool
    seen: str
    disabled: bool = False

    @property
    def down(self) -> bool:
        """Return whether Nova counts it as dead."""
        return not self.up or self.forced_down

    def marked_as(self, earlier: ComputeService) -> bool:
        """Return whether it has the same marks as at an earlier look. If so, only a report of the
        service itself explains another ``seen``."""
        return (self.forced_down, self.disabled) == (earlier.forced_down, earlier.disabled)


class _NoToken:
    """A request without a token: the configured entry of clouds.yaml counts."""

    auth_token = None


def operator_cloud(entry: str | None, guard: Guard, settings: Settings) -> Cloud:
    """Return the cloud with the operator's credential: an entry of clouds.yaml, or that of
    ``[failover] cloud``.

    Raises `CloudError` CONFIG if there is none.
    """
    chosen = dataclasses.replace(settings, cloud=entry or settings.cloud)
    if not chosen.cloud:
        raise CloudError(
            "CONFIG",
            "No credential of an operator is configured, so the host of a server is unknown.",
            remedy="Set cloud in the file of [failover] fence_devices_file to an entry of "
            "clouds.yaml.",
        )
    return Cloud(session_for(_NoToken(), guard=guard, settings=chosen), settings)


def location_of(cloud: Cloud, server_id: str) -> ServerLocation:
    """Return where a server is.

    Raises `CloudError`; FORBIDDEN also if Nova hides the host from this credential.
    """
    path = url_path("servers", server_id)
    since = COMPUTE_SERVICES.since
    answer = unless_absent(
        cloud, ANY_SERVER, server_id, lambda: cloud.read("Nova", path, microversion=since)
    )
    if answer is None:
        return ServerLocation(None, exists=False)
    found = answer["server"]
    if HOST_NAME.name not in found:
        raise CloudError("FORBIDDEN", "Nova does not show the host of a server to the operator.")
    task, status = str(TASK_STATE.of(found) or ""), str(STATUS.of(found))
    moving = status if status in _MOVING else ""
    if not moving and task.startswith(_MOVES):
        moving = task
    return ServerLocation(HOST_NAME.of(found) or None, moving)


def evacuated_from(cloud: Cloud, server_id: str) -> frozenset[str]:
    """Return the hosts that Nova evacuated a server from, or tried to, and on which its former
    guest may run. Once the compute service there is back and has destroyed it, Nova has the
    evacuation as ``completed``; until then as ``done``.

    Nova API: os-migrations; ``_destroy_evacuated_instances`` in its compute manager.
    Raises `CloudError`; FORBIDDEN if Nova does not show them to this user.
    """
    query = {"instance_uuid": server_id, "migration_type": "evacuation"}
    since = COMPUTE_SERVICES.since
    rows = cloud.read("Nova", "/os-migrations", params=query, microversion=since)
    return frozenset(
        str(row["source_compute"])
        for row in rows["migrations"]
        if row["migration_type"] == "evacuation" and row["status"] != "completed"
    )


def volumes_on(cloud: Cloud, host: str) -> dict[str, str]:
    """Return the volumes of the servers of every project that Nova shows on a host, by volume one
    of its servers. Raises `CloudError`."""
    found: dict[str, str] = {}
    wanted = {"host": host, "all_tenants": "1"}
    since = COMPUTE_SERVICES.since
    for row in cloud.rows("Nova", "servers", "/servers/detail", wanted, microversion=since):
        if HOST_NAME.of(row) == host:  # a user who may not ask for a host gets other servers, too
            found |= {str(volume["id"]): str(row["id"]) for volume in VOLUMES.of(row)}
    return found


def compute_service(cloud: Cloud, host: str) -> ComputeService | None:
    """Return the compute service of a host; None if Nova knows none. Raises `CloudError`."""
    found = [each for each in compute_services(cloud, host) if each.host == host]
    return found[0] if found else None


def compute_services(cloud: Cloud, host: str | None = None) -> list[ComputeService]:
    """Return the compute services of the cloud, or of one host. Raises `CloudError`; FORBIDDEN if
    Nova shows them not to this user."""
    query = {"binary": "nova-compute", **({"host": host} if host else {})}
    since = COMPUTE_SERVICES.since
    rows = cloud.read("Nova", "/os-services", params=query, microversion=since)["services"]
    return [
        ComputeService(
            id=str(row["id"]),
            host=str(row["host"]),
            up=row["state"] == "up",
            forced_down=bool(_FORCED_DOWN.of(row)),
            seen=str(_REPORTED_AT.of(row) or ""),
            disabled=_STATE_OF_SERVICE.of(row) == "disabled",
        )
        for row in rows
        if row["binary"] == "nova-compute"
    ]


def force_down(cloud: Cloud, service: ComputeService, *, down: bool = True) -> None:
    """Tell Nova that a host is fenced, or that it no longer is. While it is, Nova evacuates,
    detaches and deletes what is on it without it. Raises `CloudError`."""
    path, since = url_path("os-services", service.id), COMPUTE_SERVICES.since
    with translated("force a compute service down or up"):
        cloud.send("Nova", "PUT", path, {"forced_down": down}, microversion=since)


def require_right_to_force_down(cloud: Cloud) -> None:
    """Raise `CloudError` FORBIDDEN unless Nova lets this user change compute services. It is asked
    to change one that does not exist: Nova looks at the rights first, and changes nothing."""
    try:
        force_down(cloud, ComputeService(str(uuid.uuid4()), "", False, False, ""))
    except CloudError as error:
        if error.code != "NOT_FOUND":
            raise
