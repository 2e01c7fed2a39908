# SPDX-License-Identifier: Apache-2.0
"""Volumes: find, attach, detach. All look first, so a repeat at any point goes on from there.

Cinder's volume tells where it is attached; Nova's list of a server tells what is on its way there
already. What a process did before it died shows in one of the two.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from openstack.compute.v2.server import Server

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.stacks import VOLUME, stack_map, wrong_type
from mistral_failover.cloud.waits import Look
from mistral_failover.fault_points import reach

_ATTEMPTS = 3  # requests of one call that Nova accepts and then does not carry through
_MOVING = ("reserved", "attaching", "detaching", "creating", "downloading", "restoring-backup")
_ROOT_DEVICES = ("/dev/vda", "/dev/sda", "/dev/xvda", "/dev/hda")


def resolve_volume(cloud: Cloud, stack: str, name: str) -> str:
    """Return the id of a volume: a volume resource of the stack, or an id of the project's.

    Raises `CloudError` NOT_FOUND, or BAD_REQUEST when the stack's resource is no volume.
    """
    resources = stack_map(cloud, stack)
    if name in resources:
        resource = resources[name]
        if resource.type != VOLUME:
            raise wrong_type(stack, name, resource.type, "a volume")
        if resource.physical_id:
            return resource.physical_id
    elif _is_uuid(name):
        return str(_volume(cloud, name).id)
    raise CloudError(
        "NOT_FOUND",
        f"{name} is neither a volume of stack {stack} nor the id of a volume.",
        remedy="Name a volume resource of the stack, or an existing volume's id, in the group "
        "file.",
    )


def attach(cloud: Cloud, volume_id: str, server_id: str, limit: float) -> dict[str, str]:
    """Have the volume attached to the server, and confirm it.

    Attached there already, or on its way there: adopted. ``limit``: seconds over all. Returns
    ``device``, ``server_id`` and ``attachment_id``.

    Raises `CloudError` VOLUME_IN_USE that names the holder (a multiattach volume may have others),
    VOLUME_IS_ROOT for the disk that a server boots from, ATTACH_FAILED when the compute service
    gives up, TIMEOUT with the last state seen, NOT_FOUND.
    """
    steps = _Attach(cloud, volume_id, server_id)
    what = f"volume {volume_id} to be attached to server {server_id}"
    attachment: dict[str, str] = cloud.wait(steps.step, what=what, limit=limit)
    return attachment


def detach(cloud: Cloud, volume_id: str, server_id: str, limit: float) -> None:
    """Have the volume not attached to the server, nor on its way there.

    Nothing to do when it is not; a server that is gone is no error. ``limit``: seconds over all.

    Raises `CloudError` HOST_DOWN when the server's compute service is dead, VOLUME_IS_ROOT for the
    disk that the server boots from, DETACH_FAILED when the guest does not let go, TIMEOUT with the
    last state seen, NOT_FOUND when the volume does not exist.
    """
    steps = _Detach(cloud, volume_id, server_id)
    cloud.wait(steps.step, what=f"volume {volume_id} to be free of server {server_id}", limit=limit)


class _Attach:
    def __init__(self, cloud: Cloud, volume_id: str, server_id: str) -> None:
        self._cloud = cloud
        self._volume_id = volume_id
        self._server_id = server_id
        self._accepted = 0

    def step(self) -> Look:
        volume = _volume(self._cloud, self._volume_id)
        mine = next(_held_by(volume, self._server_id), None)
        state = _state(volume)
        if mine is not None and volume.status == "in-use":
            _refuse_root(volume, mine)
            return Look(state, done=True, result=_attachment(mine))
        if volume.status in _MOVING:
            return Look(state)
        if volume.status == "in-use" and not getattr(volume, "multiattach", False):
            raise _in_use(volume)
        if volume.status not in ("available", "in-use"):
            raise CloudError(
                "CONFLICT",
                f"Could not attach volume {volume.id}: {state}",
                remedy="Repair the volume (openstack volume set --state) after looking why.",
                retryable=False,
            )
        return self._post(state)

    def _post(self, state: str) -> Look:
        if self._accepted and _on_its_way(self._cloud, self._volume_id, self._server_id):
            return Look(f"{state}, but the server lists it")
        if self._accepted >= _ATTEMPTS:
            raise CloudError(
                "ATTACH_FAILED",
                f"Nova accepted to attach volume {self._volume_id} to server {self._server_id} "
                f"{_ATTEMPTS} times and gave up each time.",
                remedy="Look at the log of nova-compute on the server's host.",
                retryable=True,
            )
        try:
            reach("attach.before")
            with translated(f"attach volume {self._volume_id} to server {self._server_id}"):
                self._cloud.compute.create_volume_attachment(
                    self._server_id, volume=self._volume_id
                )
        except CloudError as error:
            # Lost a race, perhaps to our own earlier request: the next look tells.
            if error.code == "VOLUME_IN_USE" and not self._accepted:
                self._accepted += 1
                return Look(f"{state}, and {error.message}")
            if _busy(error):
                return Look(f"{state}, and {error.message}")
            raise
        reach("attach.after")
        self._accepted += 1
        return Look("Nova has just accepted the request")


class _Detach:
    def __init__(self, cloud: Cloud, volume_id: str, server_id: str) -> None:
        self._cloud = cloud
        self._volume_id = volume_id
        self._server_id = server_id
        self._accepted = 0

    def step(self) -> Look:
        volume = _volume(self._cloud, self._volume_id)
        mine = next(_held_by(volume, self._server_id), None)
        state = _state(volume)
        if mine is None:
            # An attach that was accepted earlier would still arrive.
            if volume.status in ("reserved", "attaching") and _on_its_way(
                self._cloud, self._volume_id, self._server_id
            ):
                return Look(f"{state}, on its way to the server")
            return Look(state, done=True)
        _refuse_root(volume, mine)
        if volume.status in _MOVING:
            return Look(state)
        return self._delete(state)

    def _delete(self, state: str) -> Look:
        if self._accepted >= _ATTEMPTS:
            raise CloudError(
                "DETACH_FAILED",
                f"Nova accepted to detach volume {self._volume_id} from server {self._server_id} "
                f"{_ATTEMPTS} times and the guest kept it each time.",
                remedy="Stop what uses the device in the guest, or stop the server.",
                retryable=True,
            )
        try:
            reach("detach.before")
            with translated(f"detach volume {self._volume_id} from server {self._server_id}"):
                # As an object: for a bare id openstacksdk first looks which of the two it is.
                self._cloud.compute.delete_volume_attachment(
                    Server.new(id=self._server_id), self._volume_id, ignore_missing=False
                )
        except CloudError as error:
            if error.code == "NOT_FOUND":  # the server is gone; Cinder follows in a moment
                return Look(f"{state}, though Nova does not know of it")
            # Busy, or somebody else's detach came in between: the next look tells.
            if _busy(error) or "status must be" in error.message:
                return Look(f"{state}, and {error.message}")
            if error.code == "FORBIDDEN" and "root device" in error.message:
                raise _is_root(self._volume_id, self._server_id) from None
            raise
        reach("detach.after")
        self._accepted += 1
        return Look("Nova has just accepted the request")


def _volume(cloud: Cloud, volume_id: str) -> Any:
    with translated(f"read volume {volume_id}"):
        return cloud.volumes.volumes.get(volume_id)


def _held_by(volume: Any, server_id: str) -> Iterator[dict[str, Any]]:
    return (held for held in volume.attachments if held.get("server_id") == server_id)


def _attachment(held: dict[str, Any]) -> dict[str, str]:
    return {
        "device": held.get("device") or "",
        "server_id": held["server_id"],
        "attachment_id": held.get("attachment_id") or held.get("id") or "",
    }


def _state(volume: Any) -> str:
    holders = " and ".join(
        f"server {held.get('server_id')} as {held.get('device') or 'a device'}"
        for held in volume.attachments
    )
    return f"it is {volume.status}" + (f", attached to {holders}" if holders else "")


def _on_its_way(cloud: Cloud, volume_id: str, server_id: str) -> bool:
    """Whether Nova lists the volume on the server; it does so from accepting an attach on."""
    try:
        with translated(f"look for volume {volume_id} on server {server_id}"):
            cloud.compute.get_volume_attachment(server_id, volume_id)
    except CloudError as error:
        if error.code == "NOT_FOUND":
            return False
        raise
    return True


def _busy(error: CloudError) -> bool:
    """Whether Nova refuses only until the server's present task has ended."""
    return error.code == "CONFLICT" and "task_state" in error.message


def _refuse_root(volume: Any, held: dict[str, Any]) -> None:
    if str(getattr(volume, "bootable", "")).lower() == "true" and (
        held.get("device") in _ROOT_DEVICES
    ):
        raise _is_root(volume.id, held["server_id"])


def _is_root(volume_id: str, server_id: str) -> CloudError:
    return CloudError(
        "VOLUME_IS_ROOT",
        f"Volume {volume_id} is the disk that server {server_id} boots from; it cannot move.",
        remedy="Name a data volume in the group file.",
        retryable=False,
    )


def _in_use(volume: Any) -> CloudError:
    return CloudError(
        "VOLUME_IN_USE", f"Could not attach volume {volume.id}: {_state(volume)}", retryable=False
    )


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
