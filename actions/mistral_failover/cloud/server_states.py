# SPDX-License-Identifier: Apache-2.0
"""What each state of a server means for a failover: whether its guest runs, what ends it, whether
it ends by itself.

The only table of Nova's states (``_STATE_MAP`` of ``nova.api.openstack.common`` and
``nova.compute.api`` of Nova 34). The choice of a member, plans, ``doctor``, status and operations
read it. Nova attaches and detaches a volume only if the server has no task and its status is one of
`PLUGS`; it refuses everything else with 409, and nothing is requested. To users without the rights
of an administrator it refuses the same for a locked server, and to stop and delete it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mistral_failover.model.remedies import Need, need

PLUGS = frozenset(
    {"ACTIVE", "PAUSED", "SHUTOFF", "VERIFY_RESIZE", "SOFT_DELETED", "SHELVED", "SHELVED_OFFLOADED"}
)
"""The statuses in which Nova attaches and detaches volumes."""
PLUGS_PORTS = frozenset({"ACTIVE", "PAUSED", "SHUTOFF"})
"""The statuses in which Nova attaches and detaches ports."""
STOPPED = frozenset({"SHUTOFF", "SOFT_DELETED", "SHELVED", "SHELVED_OFFLOADED"})
"""The statuses of a server that need not be stopped, and gives its volumes away."""


@dataclass(frozen=True, slots=True)
class Hindrance:
    """A state of a server in which a failover cannot do something with it.

    ``remedy``: the code of what a person ends it with, "" if it ends otherwise. ``ending``: how it
    ends then, with ``{server}`` for the server's id; "" if that depends on the cause. ``passes``:
    it ends by itself. ``runs``: the guest runs, or does when the state has passed, so the member
    may take a role, though not before another one.
    """

    ending: str = ""
    passes: bool = False
    runs: bool = False
    remedy: str = ""

    def needs(self, server_id: str) -> tuple[Need, ...]:
        """Return what a person does to end the state of this server; empty if nothing does."""
        return (need(self.remedy, server=server_id),) if self.remedy else ()

    def words(self, server_id: str) -> str:
        """Return what ends the state of this server, as a clause; "" if that depends."""
        ways = "; then ".join(each.command("") for each in self.needs(server_id))
        return f"to end that: {ways}" if ways else self.ending.format(server=server_id)

    def sentence(self, server_id: str) -> str:
        """Return :meth:`words` as a sentence."""
        words = self.words(server_id)
        return f"{words[:1].upper()}{words[1:]}." if words else ""


def _until(remedy: str, *, runs: bool = False) -> Hindrance:
    return Hindrance(runs=runs, remedy=remedy)


_PASSES = Hindrance("it ends by itself", passes=True, runs=True)
_ENDS_OFF = Hindrance("it ends by itself, and then the guest does not run", passes=True)
_IMAGE = Hindrance(
    "it ends with the image: openstack image list --status saving", passes=True, runs=True
)
_MIGRATES = Hindrance(
    "it ends with the migration: openstack server migration list --server {server}",
    passes=True,
    runs=True,
)
_CAUSE = Hindrance()

LOCKED = _until("UNLOCK_SERVER", runs=True)
"""What a lock is."""
STATES: Mapping[str, Hindrance] = MappingProxyType(
    {
        "BUILD": Hindrance("it ends by itself", passes=True),
        "DELETED": _CAUSE,
        "ERROR": _CAUSE,
        "HARD_REBOOT": _PASSES,
        "MIGRATING": _MIGRATES,
        "PASSWORD": _PASSES,
        "PAUSED": _until("UNPAUSE_SERVER"),
        "REBOOT": _PASSES,
        "REBUILD": Hindrance("it ends by itself", passes=True),
        "RESCUE": _until("UNRESCUE_SERVER"),
        "RESIZE": _MIGRATES,
        "REVERT_RESIZE": _PASSES,
        "SHELVED": _until("UNSHELVE_SERVER"),
        "SHELVED_OFFLOADED": _until("UNSHELVE_SERVER"),
        "SHUTOFF": _until("START_SERVER"),
        "SOFT_DELETED": _until("RESTORE_SERVER"),
        "SUSPENDED": _until("RESUME_SERVER"),
        "UNKNOWN": _CAUSE,
        "VERIFY_RESIZE": _until("CONFIRM_RESIZE", runs=True),
    }
)
"""By Nova's word for the status; without ACTIVE."""
TASKS: Mapping[str, Hindrance] = MappingProxyType(
    {
        "deleting": _ENDS_OFF,
        "migrating": _MIGRATES,
        "pausing": _ENDS_OFF,
        "powering-off": _ENDS_OFF,
        "rescuing": _ENDS_OFF,
        "soft-deleting": _ENDS_OFF,
        "suspending": _ENDS_OFF,
        **dict.fromkeys(("resize_prep", "resize_migrating", "resize_migrated"), _MIGRATES),
        **dict.fromkeys(
            ("image_snapshot", "image_snapshot_pending", "image_pending_upload", "image_uploading"),
            _IMAGE,
        ),
        "image_backup": _IMAGE,
        **dict.fromkeys(
            (
                *("shelving", "shelving_image_pending_upload", "shelving_image_uploading"),
                "shelving_offloading",
            ),
            _ENDS_OFF,
        ),
    }
)
"""By Nova's word for the task, those that are not like each other one: it ends by itself, and the
guest runs then."""


def hindrance_of(status: str, task_state: str | None, *, locked: bool = False) -> Hindrance | None:
    """Return what a server's state hinders, the worst of it; None if nothing does. A word that Nova
    34 does not have is a state whose end depends on the cause, or a task that ends by itself."""
    state = None if status == "ACTIVE" else STATES.get(status, _CAUSE)
    task = None if task_state is None else TASKS.get(task_state, _PASSES)
    return _worst(state, task, LOCKED if locked else None)


def keeps_volumes(status: str, task_state: str | None, *, locked: bool = False) -> Hindrance | None:
    """Return because of what a server gives no volume away; None if it does. Nova accepts a detach
    from a paused server, whose guest then does not take part."""
    return _hindrance_but_for(PLUGS - {"PAUSED"}, status, task_state, locked=locked)


def keeps_ports(status: str, task_state: str | None, *, locked: bool = False) -> Hindrance | None:
    """Return because of what a server gives no port away; None if it does."""
    return _hindrance_but_for(PLUGS_PORTS, status, task_state, locked=locked)


def _hindrance_but_for(
    gives: frozenset[str], status: str, task_state: str | None, *, locked: bool
) -> Hindrance | None:
    return hindrance_of("ACTIVE" if status in gives else status, task_state, locked=locked)


def _worst(*of: Hindrance | None) -> Hindrance | None:
    found = [each for each in of if each is not None]
    return min(found, key=lambda each: (each.runs, each.passes), default=None)
