# SPDX-License-Identifier: Apache-2.0
"""Actions on compute hosts and availability zones."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.groups import hosts, zones
from mistral_failover.model.rungs import HostRung
from mistral_failover.orders import fence_host, unfence_host
from mistral_failover.orders.host_orders import HostRequest
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.inputs import Flag, OptionalText, Text
from mistral_failover.runtime.request import Request


def _asked(
    host: str | None, group: str | None, member: str | None, because: str | None, dry_run: bool
) -> HostRequest:
    """Return the order about a compute host, given by its name or by a member. Raises ActionError
    BAD_INPUT unless exactly one of a reason and a dry run is given."""
    if (because is None) != dry_run:
        raise ActionError(
            "BAD_INPUT", "because: give a reason, or dry_run", "Give exactly one of them."
        )
    return HostRequest(host, group, member, because)


class FenceHost(FailoverAction):
    """Switch a compute host off by its fence devices, or have the storage refuse what its guests
    write, and prove it; or show what would be done."""

    def answer(
        self,
        request: Request,
        host: OptionalText = None,
        group: OptionalText = None,
        member: OptionalText = None,
        because: OptionalText = None,
        dry_run: Flag = False,
        even_if_up: Flag = False,
        rung: Text = HostRung.HOST_POWER,
    ) -> Any:
        asked = _asked(host, group, member, because, dry_run)
        return fence_host.fence_host(request, asked, rung=rung, even_if_up=even_if_up)


class UnfenceHost(FailoverAction):
    """Lift what fences left behind on a compute host once that is safe; or show what would be
    lifted."""

    def answer(
        self,
        request: Request,
        host: OptionalText = None,
        group: OptionalText = None,
        member: OptionalText = None,
        because: OptionalText = None,
        dry_run: Flag = False,
        power_cycled: Flag = False,
    ) -> Any:
        asked = _asked(host, group, member, because, dry_run)
        return unfence_host.unfence_host(request, asked, power_cycled=power_cycled)


class MembersOnHost(FailoverAction):
    """List the members of the project's groups that run on a compute host, or in an availability
    zone: those about which its failure would be an alarm."""

    def answer(self, request: Request, host: OptionalText = None, zone: OptionalText = None) -> Any:
        if host is not None and zone is None:
            found = hosts.members_on(request, host)
        elif zone is not None and host is None:
            found = zones.members_in(request, zone)
        else:
            raise ActionError("BAD_INPUT", "host, zone: give exactly one", "Name what failed.")
        rows = [{"group": each.group, "members": list(each.members)} for each in found.groups]
        return {"host": host, "zone": zone, "groups": rows, "unsure": found.unsure}
