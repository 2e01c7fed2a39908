# SPDX-License-Identifier: Apache-2.0
"""The guests of a drill with real agents: they carry out what the emulated cloud reports of its
guests.

They follow the cloud's audit event by event, in order: a guest that boots is a process that starts
an agent, a crash or a loss of power kills everything in a guest, a hang freezes its agent, and a
volume is reachable only in the guest that it is attached to. The order keeps this sound even if it
is followed late: a guest's end is carried out before the volume reaches another guest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import requests

from mistral_failover.lab.drill import agent_files, audit
from mistral_failover.lab.drill.agent_files import Installation
from mistral_failover.lab.drill.application import SLOW
from mistral_failover.lab.drill.audit import Violation
from mistral_failover.lab.drill.guest import DrillError, Guest, Volumes
from mistral_failover.lab.drill.processes import Process
from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError
from mistral_failover.lab.emulator.guests import BREAKAGES
from mistral_failover.model.documents import load_json
from mistral_failover.model.ids import group_id

_PAUSE = 0.03
_LIMIT = 30.0


class Guests:
    """The guests of the servers of some stacks; a context manager, which ends them all.

    If the process that follows the cloud is killed, the guests continue; the next one on the same
    folder finds them, and continues where the other stopped.
    """

    def __init__(self, folder: Path, cloud_folder: Path, installation: Installation) -> None:
        """``cloud_folder``: where the emulated cloud stores its address."""
        self._folder = folder
        self._installation = installation
        said = load_json((cloud_folder / "emulator.json").read_bytes(), "emulator.json")
        cloud = Process.of(said["pid"])
        if cloud is None:
            raise DrillError("the emulated cloud has ended")
        self._cloud = cloud
        self._client = EmulatorClient(said["url"])
        self._volumes = Volumes(folder / "volumes")
        self._groups: dict[str, bool] = {}
        self._guests: dict[str, Guest] = {}
        self._hosts: dict[str, str] = {}
        self._seen = 0
        self._ended = threading.Event()
        self._trouble: Exception | None = None
        self._follower: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        if self._follower is not None:
            self._follower.join()
        for guest in self._guests.values():
            guest.kill()

    def serve(self, group: str, *, own_disk: bool = False) -> None:
        """Follow the cloud from now on for the servers of this stack too; return once everything
        that has happened so far is carried out. The stack exists already. ``own_disk``: the
        application writes on the disk of its guest and not on a volume."""
        self._groups[group] = own_disk
        self._find_members()
        if self._follower is None:
            self._follower = threading.Thread(target=self._follow, name="guests", daemon=True)
            self._follower.start()
        self.catch_up()

    def catch_up(self) -> None:
        """Return once everything that the cloud has reported so far is carried out. Raises
        DrillError."""
        wanted = len(self._client.audit())
        deadline = time.monotonic() + _LIMIT
        while self._seen < wanted:
            if self._trouble is not None:
                raise DrillError("the guests are not as the cloud has them") from self._trouble
            if time.monotonic() > deadline:
                raise DrillError(f"the guests are {wanted - self._seen} events behind the cloud")
            time.sleep(_PAUSE)

    def violations(self) -> list[Violation]:
        """Return what the guests saw that must not happen."""
        self.catch_up()
        return list(audit.guest_violations(self._disks(), self._volumes, self._torn()))

    def slow_down(self, seconds: float) -> None:
        """Make every stop of an application take this much longer from now on."""
        for disk in self._disks():
            (disk / SLOW).write_text(f"{seconds}", encoding="ascii")

    # -- following

    def _follow(self) -> None:
        client = EmulatorClient(self._client.url)  # one for each thread
        while not self._ended.wait(_PAUSE):
            try:
                events = client.audit(self._seen)
            except requests.RequestException:
                continue  # a cloud that ended takes its guests with it
            try:
                for event in events:
                    self._come_true(event)
                    self._seen = event["seq"]
            except (DrillError, EmulatorError, OSError) as error:
                self._trouble = error
                return

    def _come_true(self, event: Mapping[str, Any]) -> None:
        kind = event["kind"]
        if kind == "guest_started":
            self._hosts[event["server"]] = event["host"]
        if kind == "fault":
            self._strike(event)
            return
        if kind in ("transition_started", "transition_finished"):
            self._copy(event)
            return
        guest = self._guest(event.get("server"))
        if guest is None:
            return
        done = self._done(guest)
        if event["seq"] <= done:
            return
        if kind == "guest_started":
            guest.boot(self._cloud, event["seq"])
        elif kind == "server_stopped":
            guest.kill()
        elif kind == "guest_destroyed":
            guest.destroy()
        elif kind == "attached":
            guest.plug(event["volume"], self._volumes.content(event["volume"]))
        elif kind == "detached":
            self._detach(guest, event)
        else:
            return
        self._mark(guest, event)

    def _copy(self, event: Mapping[str, Any]) -> None:
        """Take a snapshot of a volume, or make a volume from one."""
        what = (event["kind"], event["name"])
        if what == ("transition_finished", "snapshot_create") and event["outcome"] == "done":
            self._volumes.snapshot(event["volume"], event["snapshot"])
        elif what == ("transition_started", "volume_create") and "snapshot" in event:
            self._volumes.make_from(event["snapshot"], event["volume"])

    def _strike(self, event: Mapping[str, Any]) -> None:
        for guest in self._struck(event):
            if event["seq"] <= self._done(guest):
                continue
            match event["fault"]:
                case "crash" | "power_off":
                    guest.kill()
                case "hang":
                    guest.hang()
                case "thaw":
                    guest.thaw()
                case "app":
                    guest.end_application()
                case "repaired":
                    guest.break_it("")
                case how if how in BREAKAGES:
                    guest.break_it(how)
            self._mark(guest, event)

    def _struck(self, event: Mapping[str, Any]) -> Iterator[Guest]:
        if event["target"] == "server":
            servers = [event["id"]]
        elif event["target"] == "host":
            servers = [server for server, host in self._hosts.items() if host == event["id"]]
        else:
            servers = []
        for server in servers:
            guest = self._guest(server)
            if guest is not None:
                yield guest

    def _detach(self, guest: Guest, event: Mapping[str, Any]) -> None:
        volume = event["volume"]
        guest.unplug(volume)
        for process in self._volumes.tear(volume):
            told = (
                f"process {process.pid} of {guest.server} was using volume {volume} when it was "
                "detached"
            )
            with (self._folder / "torn").open("a", encoding="utf-8") as file:
                file.write(f"{told}\n")

    # -- what is on disk

    def _guest(self, server: str | None) -> Guest | None:
        if server is None:
            return None
        if server not in self._guests and server in self._hosts:
            self._find_members()
        return self._guests.get(server)

    def _find_members(self) -> None:
        for group, own_disk in self._groups.items():
            identity = group_id(self._installation.project, group)
            for name, row in self._client.resources(group).items():
                server = row["physical_resource_id"]
                if row["resource_type"] != "OS::Nova::Server" or server in self._guests:
                    continue
                guest = Guest(self._folder / "servers" / server)
                guest.prepare()
                member = agent_files.Member(identity, group, name.rpartition("/")[2])
                agent_files.write(guest.folder, self._installation, member, own_disk=own_disk)
                self._guests[server] = guest

    @staticmethod
    def _done(guest: Guest) -> int:
        """The last event that was carried out on it, also by an earlier process."""
        try:
            return int((guest.folder / "done").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    @staticmethod
    def _mark(guest: Guest, event: Mapping[str, Any]) -> None:
        aside = guest.folder / "done.new"
        aside.write_text(str(event["seq"]), encoding="ascii")
        aside.rename(guest.folder / "done")

    def _disks(self) -> list[Path]:
        return [guest.folder for guest in self._guests.values()]

    def _torn(self) -> list[str]:
        try:
            return (self._folder / "torn").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
