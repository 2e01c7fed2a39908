# SPDX-License-Identifier: Apache-2.0
"""What a project has, by one list call for each kind of thing: for those who look at many groups.

Each kind is listed when it is first asked for, and once. A service that cannot be asked raises the
same error each time. A listing may lack what is there (a cell of Nova that is away), so what
is not in a listing is asked for alone before it counts as gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mistral_failover.cloud import dns_records, event_alarms, load_balancers, networks
from mistral_failover.cloud.absence import POOL, unless_absent
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, if_there
from mistral_failover.cloud.event_alarms import WatchingAlarm, only_one, watching_alarms
from mistral_failover.cloud.servers import (
    HOST_ID,
    HOST_NAME,
    ServerHost,
    ServerState,
    server_state,
    state_of,
)
from mistral_failover.cloud.stacks import stack_shown, template_of
from mistral_failover.cloud.volume_holders import HELD_AS, SERVER_ID, volume_if_there

T = TypeVar("T")


@dataclass(frozen=True)
class ListedVolume:
    """A volume as Cinder lists it. ``attachments``: by the id of the server that it is attached to,
    the identity of the attachment."""

    id: str
    status: str
    attachments: Mapping[str, str]

    @property
    def servers(self) -> frozenset[str]:
        """Return the ids of the servers that it is attached to."""
        return frozenset(self.attachments)


@dataclass(frozen=True)
class ListedStack:
    """A stack as Heat lists it. ``version``: another one after every update."""

    id: str
    name: str
    status: str
    version: str


class ProjectListing:
    """The servers, volumes, ports, floating IPs, stacks and alarms of the cloud's project. Not safe
    for several threads."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._kept: dict[str, Any] = {}

    def server(self, server_id: str) -> ServerState:
        """Return the state of a server; one that does not exist is no error. Raises
        `CloudError`."""
        listed = self._once("servers", self._servers)
        if server_id in listed:
            return listed[server_id][0]
        return self._once(f"server {server_id}", lambda: server_state(self._cloud, server_id))

    def hosts(self) -> dict[str, ServerHost]:
        """Return where the listed servers run, by server id; none without a host. Callers must not
        change it. Raises `CloudError`."""

        def read() -> dict[str, ServerHost]:
            listed = self._once("servers", self._servers)
            return {server: host for server, (_, host) in listed.items() if host is not None}

        return self._once("hosts of servers", read)

    def zones(self) -> dict[str, str]:
        """Return the availability zones of the listed servers, by server id; none without a zone.
        Callers must not change it. Raises `CloudError`."""

        def read() -> dict[str, str]:
            listed = self._once("servers", self._servers)
            return {server: state.zone for server, (state, _) in listed.items() if state.zone}

        return self._once("zones of servers", read)

    def volume(self, volume_id: str) -> ListedVolume | None:
        """Return a volume; None where it does not exist. Raises `CloudError`."""
        listed = self._once("volumes", self._volumes)
        if volume_id in listed:
            return listed[volume_id]
        return self._once(f"volume {volume_id}", lambda: self._volume(volume_id))

    def stack(self, stack: str) -> ListedStack | None:
        """Return a stack by its name or id; None where it does not exist. Raises `CloudError`."""
        listed = self._once("stacks", self._stacks)
        if stack in listed:
            return listed[stack]
        return self._once(f"stack {stack}", lambda: self._stack(stack))

    def port(self, port_id: str) -> networks.Port | None:
        """Return a port; None where it does not exist. Raises `CloudError`."""
        found = self._neutron("ports", port_id)
        return None if found is None else networks.read_port(found)

    def floating_ip(self, floating_ip_id: str) -> networks.FloatingIp | None:
        """Return a floating IP; None where it does not exist. Raises `CloudError`."""
        found = self._neutron("floatingips", floating_ip_id)
        return None if found is None else networks.read_floating_ip(found)

    def pool_members(self, pool_id: str) -> Mapping[str, load_balancers.PoolMember]:
        """Return the members of a load balancer's pool by id, by a call of its own; none where the
        pool does not exist. Raises `CloudError`."""

        def read() -> Mapping[str, load_balancers.PoolMember]:
            found = unless_absent(
                self._cloud,
                POOL,
                pool_id,
                lambda: load_balancers.pool_members(self._cloud, pool_id),
            )
            return found or {}

        return self._once(f"members of pool {pool_id}", read)

    def recordset(self, zone_id: str, recordset_id: str) -> dns_records.Recordset | None:
        """Return a recordset of a zone, by a call of its own; None where it does not exist. Raises
        `CloudError`."""
        return self._once(
            f"recordset {recordset_id}",
            lambda: dns_records.recordset(self._cloud, zone_id, recordset_id),
        )

    def _neutron(self, kind: str, identity: str) -> Mapping[str, Any] | None:
        """Return one of the project's rows; None if Neutron neither lists it nor shows it."""

        def read() -> dict[str, Mapping[str, Any]]:
            rows = networks.listed(self._cloud, kind)
            return {str(row["id"]): row for row in rows}

        listed = self._once(kind, read)
        if identity in listed:
            return listed[identity]
        return self._once(
            f"{kind} {identity}", lambda: networks.shown_alone(self._cloud, kind, identity)
        )

    def alarms(self, stack: str | None) -> Sequence[WatchingAlarm]:
        """Return the project's enabled alarms in Aodh that signal a resource of a stack, given by
        its name or id; none of no stack. Raises `CloudError`, also if there is no Aodh."""
        if stack is None:
            return ()

        def read() -> dict[str, list[WatchingAlarm]]:
            found: dict[str, list[WatchingAlarm]] = {}
            for alarm in self._all_alarms():
                for each in alarm.stacks if alarm.enabled else ():
                    found.setdefault(each, []).append(alarm)
            return found

        return self._once("alarms by stack", read).get(stack, ())

    def alarm(self, named: str) -> WatchingAlarm | None:
        """Return an alarm of the project in Aodh, by its id, or by the name that only it has; None
        where it does not exist. Raises `CloudError`, also if several alarms have the name."""

        def read() -> dict[str, list[WatchingAlarm]]:
            found: dict[str, list[WatchingAlarm]] = {}
            for alarm in self._all_alarms():
                for each in {alarm.id, alarm.name}:
                    found.setdefault(each, []).append(alarm)
            return found

        found = self._once("alarms by name", read).get(named, ())
        if found:
            return only_one(named, found)
        return self._once(
            f"alarm {named}", lambda: if_there(lambda: event_alarms.alarm(self._cloud, named))
        )

    def _all_alarms(self) -> Sequence[WatchingAlarm]:
        return self._once("alarms", lambda: watching_alarms(self._cloud))

    def parameters(self, stack: str) -> Mapping[str, Any]:
        """Return the parameters of a stack, by a call of its own. Raises `CloudError` NOT_FOUND."""
        return self._once(
            f"parameters of {stack}", lambda: dict(stack_shown(self._cloud, stack).parameters)
        )

    def template(self, stack: str) -> Mapping[str, Any]:
        """Return the template of a stack, by a call of its own. Raises `CloudError` NOT_FOUND."""
        return self._once(f"template of {stack}", lambda: template_of(self._cloud, stack))

    def _once(self, what: str, read: Callable[[], T]) -> T:
        if what not in self._kept:
            try:
                self._kept[what] = read()
            except CloudError as error:
                self._kept[what] = error
        found = self._kept[what]
        if isinstance(found, CloudError):
            raise found
        return found  # type: ignore[no-any-return]  # by its key it is what read returned

    def _servers(self) -> dict[str, tuple[ServerState, ServerHost | None]]:
        rows = self._cloud.rows("Nova", "servers", "/servers/detail")
        return {str(row["id"]): (state_of(row), _host(row)) for row in rows}

    def _volumes(self) -> dict[str, ListedVolume]:
        return {str(v.id): _listed(v) for v in self._cloud.volumes.volumes.list()}

    def _volume(self, volume_id: str) -> ListedVolume | None:
        found = volume_if_there(self._cloud, volume_id)
        return None if found is None else _listed(found)

    def _stack(self, stack: str) -> ListedStack | None:
        """Return a stack that was not listed, by a call of its own. A deleted one can be read."""
        shown = if_there(lambda: stack_shown(self._cloud, stack))
        return None if shown is None or shown.stack_status.startswith("DELETE") else _row(shown)

    def _stacks(self) -> dict[str, ListedStack]:
        found = [_row(each) for each in self._cloud.heat.stacks.list()]
        return {key: each for each in found for key in (each.name, each.id)}


def _row(stack: Any) -> ListedStack:
    return ListedStack(
        str(stack.id),
        str(stack.stack_name),
        str(stack.stack_status),
        f"{stack.stack_status} {stack.updated_time or stack.creation_time}",
    )


def _host(row: Mapping[str, Any]) -> ServerHost | None:
    if not (host_id := HOST_ID.if_shown(row)):
        return None
    return ServerHost(str(host_id), str(row["tenant_id"]), str(HOST_NAME.if_shown(row) or ""))


def _listed(volume: Any) -> ListedVolume:
    attachments = {
        str(server): str(HELD_AS.of(held))
        for held in volume.attachments
        if (server := SERVER_ID.of(held))
    }
    return ListedVolume(str(volume.id), str(volume.status), attachments)
