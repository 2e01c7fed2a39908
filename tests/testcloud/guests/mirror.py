# SPDX-License-Identifier: Apache-2.0
"""Keeps the guests as the real cloud has their servers.

A guest begins when Nova calls its server ACTIVE, and ends when a living compute service ended it.
When only the compute service died, the guest runs on and writes, though Nova may have deleted the
server and Cinder given the volume away: a deletion without the host is no fence. It ends when the
host's compute service is back. A paused or suspended one goes on where it was, and one that is
migrated while it runs takes all along.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from mistral_failover.lab.emulator import guests
from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.state import Guest, Host, Server, Stack, Volume
from testcloud.guests.cloud_reader import CloudReader, SeenServer, Unreachable

INTERVAL = 1.0
"""Seconds between two looks at all servers while an application runs somewhere."""
_OFF = ("SHUTOFF", "RESCUE", "SHELVED", "SHELVED_OFFLOADED", "DELETED")
_FROZEN = ("PAUSED", "SUSPENDED")

T = TypeVar("T")


class Mirror:
    """Brings what `reader` sees into the emulation; on its event loop."""

    def __init__(self, emulation: Emulation, reader: CloudReader) -> None:
        self._emulation = emulation
        self._reader = reader
        self._lost: set[tuple[str, str]] = set()
        self._frozen: set[str] = set()

    async def refresh(self, server_id: str) -> None:
        """Look at one server, and at all that is attached to it at this moment.

        :raises Unreachable: the cloud does not answer.
        """
        seen = await self._ask(self._reader.server, server_id)
        if seen is None:
            await self._gone(server_id)
        else:
            await self._go_along(seen)
            self._take(seen)

    async def _go_along(self, seen: SeenServer) -> None:
        """A server that runs, from a host that lives to another one: its guest never stopped."""
        guest = self._emulation.state.guests.get(seen.id)
        if guest is None or seen.status != "ACTIVE" or seen.host in ("", guest.host):
            return
        if guest.host in await self._ask(self._reader.hosts_up):
            guest.host = seen.host

    async def place(self, server_id: str, token: str) -> None:
        """Find out once which stack a server belongs to: two stacks are two installations."""
        server = self._emulation.state.servers.get(server_id)
        if server is None or server.owner is not None:
            return
        found = await self._ask(self._reader.stack_of, server_id, token, server.project_id)
        if found is not None:
            id_, name = found
            stack = Stack(id_, server.project_id, name, time.time(), template={})
            self._emulation.state.stacks.setdefault(id_, stack)
            server.owner = [id_, server.name]
            self._emulation.changed()

    async def watch(self) -> None:
        """Look at all servers for ever, at intervals, while there is something to lose."""
        while True:
            await asyncio.sleep(INTERVAL)
            if any(guest.applications for guest in self._emulation.state.guests.values()):
                try:
                    await self._look_around()
                except Unreachable as error:
                    self._emulation.audit.record("cloud_unreachable", cause=str(error))

    async def _look_around(self) -> None:
        servers = await self._ask(self._reader.servers)
        for guest in list(self._emulation.state.guests.values()):
            seen = servers.get(guest.server_id)
            if seen is None:
                await self._gone(guest.server_id)
            elif set(seen.volumes) != set(guest.volumes) or self._differs(guest, seen):
                await self.refresh(guest.server_id)

    async def _gone(self, server_id: str) -> None:
        self._emulation.state.servers.pop(server_id, None)
        guest = self._emulation.state.guests.get(server_id)
        if guest is not None and guest.host in await self._ask(self._reader.hosts_up):
            guests.destroy(self._emulation, server_id, "its server was deleted")

    def _take(self, seen: SeenServer) -> None:
        state = self._emulation.state
        server = state.servers.get(seen.id)
        if server is None:
            now = time.time()
            server = Server(seen.id, seen.project_id, seen.name, seen.host, now, now)
            state.servers[seen.id] = server
        server.status, server.host = seen.status, seen.host
        state.hosts.setdefault(seen.host, Host(seen.host))
        guest = state.guests.get(seen.id)
        if guest is not None and guest.host != seen.host and seen.host:
            guests.power_off(self._emulation, seen.id, "moved to another host")
        if seen.status == "ACTIVE" and (guest is None or not guest.powered):
            guests.boot(self._emulation, server)
        elif seen.status in _OFF and guest is not None and guest.powered:
            guests.power_off(self._emulation, seen.id, seen.status.lower())
        if seen.status in _FROZEN and seen.id not in self._frozen:
            self._frozen.add(seen.id)
            guests.freeze(self._emulation, seen.id)
        elif seen.status not in _FROZEN and seen.id in self._frozen:
            self._frozen.remove(seen.id)
            guests.thaw(self._emulation, seen.id)
        self._plug(seen)
        self._emulation.changed()

    def _plug(self, seen: SeenServer) -> None:
        guest = self._emulation.state.guests.get(seen.id)
        if guest is None:
            return
        there = {a.volume_id for a in seen.attached if not a.lost}
        listed = {a.volume_id for a in seen.attached}
        for attached in seen.attached:
            id_ = attached.volume_id
            if attached.lost:
                if id_ in guest.volumes and (seen.id, id_) not in self._lost:
                    self._lost.add((seen.id, id_))
                    guests.lose_sight(self._emulation, seen.id, id_)
                continue
            self._lost.discard((seen.id, id_))
            now = time.time()
            volume = Volume(id_, seen.project_id, "", 0, now, now)
            volume.multiattach = attached.multiattach
            self._emulation.state.volumes[id_] = volume
            if id_ not in guest.volumes:
                guests.plug(self._emulation, seen.id, id_, attached.device)
        for id_ in set(guest.volumes) - there - listed:
            guests.unplug(self._emulation, seen.id, id_)

    def _differs(self, guest: Guest, seen: SeenServer) -> bool:
        runs = seen.status in ("ACTIVE", *_FROZEN)
        frozen = (seen.id in self._frozen) != (seen.status in _FROZEN)
        return guest.host != seen.host or guest.powered != runs or frozen

    async def _ask(self, question: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.to_thread(question, *arguments)
