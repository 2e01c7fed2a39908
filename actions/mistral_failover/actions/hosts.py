# SPDX-License-Identifier: Apache-2.0
"""Actions on compute hosts and availability zones."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.groups import hosts, zones
from mistral_failover.model.rungs import HostRung
from mistral_failover.orders.fence_host import fence_host
from mistral_failover.orders.host_orders import HostRequest
from mistral_failover.orders.unfence_host import unfence_host
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.inputs import flag, optional_text, text
from mistral_failover.runtime.request import Request


class _HostOrder(FailoverAction):
    """An order about a compute host, given by its name or by a member; or a dry run of it."""

    def __init__(self, host: Any, group: Any, member: Any, because: Any, dry_run: Any) -> None:
        super().__init__()
        self.host = host
        self.group = group
        self.member = member
        self.because = because
        self.dry_run = dry_run

    def asked(self) -> HostRequest:
        """Return what is asked for. Raises ActionError BAD_INPUT unless exactly one of a reason and
        a dry run is given."""
        because = optional_text("because", self.because)
        if (because is None) != flag("dry_run", self.dry_run):
            raise ActionError(
                "BAD_INPUT", "because: give a reason, or dry_run", "Give exactly one of them."
            )
        return HostRequest(
            optional_text("host", self.host),
            optional_text("group", self.group),
            optional_text("member", self.member),
            because,
        )


class FenceHost(_HostOrder):
    """Switch a compute host off by its fence devices, or have the storage refuse what its guests
    write, and prove it; or show what would be done."""

    def __init__(
        self,
        host: Any = None,
        group: Any = None,
        member: Any = None,
        because: Any = None,
        dry_run: Any = False,
        even_if_up: Any = False,
        rung: Any = HostRung.HOST_POWER,
    ) -> None:
        super().__init__(host, group, member, because, dry_run)
        self.even_if_up = even_if_up
        self.rung = rung

    def answer(self, request: Request) -> Any:
        return fence_host(
            request,
            self.asked(),
            rung=text("rung", self.rung),
            even_if_up=flag("even_if_up", self.even_if_up),
        )


class UnfenceHost(_HostOrder):
    """Lift what fences left behind on a compute host once that is safe; or show what would be
    lifted."""

    def __init__(
        self,
        host: Any = None,
        group: Any = None,
        member: Any = None,
        because: Any = None,
        dry_run: Any = False,
        power_cycled: Any = False,
    ) -> None:
        super().__init__(host, group, member, because, dry_run)
        self.power_cycled = power_cycled

    def answer(self, request: Request) -> Any:
        cycled = flag("power_cycled", self.power_cycled)
        return unfence_host(request, self.asked(), power_cycled=cycled)


class MembersOnHost(FailoverAction):
    """List the members of the project's groups that run on a compute host, or in an availability
    zone: those about which its failure would be an alarm."""

    def __init__(self, host: Any = None, zone: Any = None) -> None:
        super().__init__()
        self.host = host
        self.zone = zone

    def answer(self, request: Request) -> Any:
        if (self.host is None) == (self.zone is None):
            raise ActionError("BAD_INPUT", "host, zone: give exactly one", "Name what failed.")
        if self.host is not None:
            found = hosts.members_on(request, text("host", self.host))
        else:
            found = zones.members_in(request, text("zone", self.zone))
        rows = [{"group": each.group, "members": list(each.members)} for each in found.groups]
        return {"host": self.host, "zone": self.zone, "groups": rows, "unsure": found.unsure}
