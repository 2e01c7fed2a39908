# SPDX-License-Identifier: Apache-2.0
"""What each state of a volume means for a failover: a clause, what ends it, whether it ends by
itself.

The only table of Cinder's states (``cinder.objects.fields.VolumeStatus`` of Cinder 29, and
``reverting``). Operations, plans, ``doctor`` and observations read it. Nova detaches a volume only
while it is ``in-use``, and attaches it only while it is ``available``, or ``in-use`` if it is
multi-attach. In every other state it answers 400, and nothing is requested.

A state is never to be set to ``available`` while anything is attached: Cinder then gives the volume
to another server, or deletes it. The advice to set a state is written in one place, :func:`set_to`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mistral_failover.model.remedies import Need, need

USABLE = frozenset({"available", "in-use"})
"""The states in which Nova attaches and detaches."""
TAKEN = frozenset({"reserved", "attaching", "detaching"})
"""The states of an attachment that begins or ends; without an attachment the volume is stuck."""


@dataclass(frozen=True, slots=True)
class VolumeState:
    """A state in which Nova neither attaches nor detaches the volume.

    ``clause``: completes "the volume ..."; ``remedy``: what ends the state, with ``{volume}`` for
    the volume's id; ``passes``: it ends by itself, unless the service that works on it has stopped;
    ``broken``: an earlier operation failed, and an administrator has to set the state.
    """

    clause: str
    remedy: str
    passes: bool = False
    broken: bool = False


_WORKS = "It ends by itself; if it does not, check the log of {service}."
_BACKUPS = (
    "It ends with the backup: openstack volume backup list --volume {volume}. If no cinder-backup "
    "works on it any more, restart cinder-backup, which "
)
_CAUSE = "Find the cause: openstack volume message list, and cinder-volume's log."


def _passing(clause: str, service: str = "cinder-volume") -> VolumeState:
    return VolumeState(clause, _WORKS.format(service=service), passes=True)


def _failed(what: str, check: str = _CAUSE) -> VolumeState:
    return VolumeState(what, check, broken=True)


_MOVING = "It ends by itself; if it does not, the next failover says which attachment is stuck."
STATES: Mapping[str, VolumeState] = MappingProxyType(
    {
        "attaching": VolumeState("is being attached", _MOVING, passes=True),
        "awaiting-transfer": VolumeState(
            "is offered to another project",
            "Withdraw the offer: openstack volume transfer request list, then openstack volume "
            "transfer request delete TRANSFER.",
        ),
        "backing-up": VolumeState(
            "is being backed up", f"{_BACKUPS}sets the volume back.", passes=True
        ),
        "creating": _passing("is being created"),
        "deleting": VolumeState(
            "is being deleted", "Name another volume in the group file.", passes=True
        ),
        "detaching": VolumeState("is being detached", _MOVING, passes=True),
        "downloading": _passing("is being filled from an image"),
        "error": _failed("is in error"),
        "error_backing-up": _failed("could not be backed up"),
        "error_deleting": _failed(
            "could not be deleted",
            "Its deletion has begun: check first whether its data still exists.",
        ),
        "error_extending": _failed("could not be extended"),
        "error_managing": _failed("could not be taken into Cinder"),
        "error_restoring": _failed(
            "could not be restored",
            "Its data is incomplete. Pause the group, and once the state is set restore the backup "
            "again: openstack volume backup restore BACKUP {volume}.",
        ),
        "extending": _passing("is being extended", "cinder-volume and of nova-compute"),
        "maintenance": _passing("is locked by a migration"),
        "managing": _passing("is being taken into Cinder"),
        "reserved": VolumeState("is reserved for a server", _MOVING, passes=True),
        "restoring-backup": VolumeState(
            "is being restored from a backup",
            f"{_BACKUPS}sets the volume to error_restoring.",
            passes=True,
        ),
        "retyping": VolumeState(
            "is being retyped",
            "It ends with the retype or migration: openstack volume show {volume}. It cannot be "
            "cancelled; if it does not end, check the logs of cinder-volume and of nova-compute.",
            passes=True,
        ),
        "reverting": _passing("is being reverted to a snapshot"),
        "uploading": VolumeState(
            "is being copied to an image",
            "It ends with the image: openstack image list --status saving. If it does not, check "
            "cinder-volume's log.",
            passes=True,
        ),
    }
)
"""By Cinder's word; without those of `USABLE`."""


def state_named(status: str) -> VolumeState | None:
    """Return what a volume's state means, None for one of `USABLE`. A word that Cinder 29 does not
    have is an error if it says so, else a state that may pass."""
    if status in USABLE:
        return None
    if status.startswith("error"):
        return STATES.get(status, STATES["error"])
    other = VolumeState("has an unknown state", _WORKS.format(service="cinder-volume"), passes=True)
    return STATES.get(status, other)


def set_to(volume_id: str, *, attached: bool, recorded: bool = True) -> Need:
    """Return the remedy by which an administrator sets a volume's state.

    ``attached``: Cinder or Nova knows an attachment, so the state must not become ``available``.
    ``recorded``: Cinder's mark of the volume (``attach_status``) agrees with that.
    """
    state = "in-use" if attached else "available"
    if recorded:
        return need("SET_VOLUME", state=state, volume=volume_id)
    mark = "--attached" if attached else "--detached"
    return need("MARK_VOLUME", state=state, mark=mark, volume=volume_id)
