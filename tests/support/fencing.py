# SPDX-License-Identifier: Apache-2.0
"""Machines with simulated management boards, fence agents, and the rungs over them.

What runs is real: boards and agents are processes, Nova is the emulated cloud, the proof goes
through a state store.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from mistral_failover.actions import base
from mistral_failover.agent.channel.interface import ChannelContext, channel_for
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.hosts import operator_cloud
from mistral_failover.cloud.servers import Evidence
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.records import Traversal, TraversalStatus
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.emulator.web import utc
from mistral_failover.resources.fence import host_power, lifting, power
from mistral_failover.resources.fence.devices import load
from mistral_failover.resources.fence.rung import FenceAttempt, FenceTarget
from mistral_failover.resources.operation_context import OperationContext
from mistral_failover.runtime.process import Runtime
from mistral_failover.settings import Settings
from mistral_failover.store import groups, host_fences
from mistral_failover.store.database import Database
from mistral_failover.store.groups import MemberRow
from mistral_failover.store.session import Session
from support.databases import new_store
from support.pages import ROOT
from support.samples import no_nodes

SIMULATORS = ROOT / "tests" / "resources" / "fence" / "simulators"
AGENT = str(SIMULATORS / "fence_simulated")
PASSWORD = "s3cret-of-the-board"
LIMIT = 30.0
PROJECT = "the-project"


class Machines:
    """Machines, one file with the true power of each, and the boards that switch them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "machines"
        self._folder.mkdir()
        self._boards: list[subprocess.Popen[str]] = []
        self.certificate: Path | None = None

    def add(self, host: str, power: str = "on") -> None:
        """Add a machine."""
        (self._folder / host).write_text(power, "utf-8")

    def file(self, host: str) -> Path:
        """Return the file with the true power of a machine."""
        return self._folder / host

    def power(self, host: str) -> str:
        """Return the true power of a machine."""
        return self.file(host).read_text("utf-8")

    def board(self, mode: str = "works", *, certificate: Path | None = None) -> int:
        """Start a board; return its port."""
        more = [str(certificate)] if certificate else []
        command = [sys.executable, str(SIMULATORS / "bmc.py"), str(self._folder), mode, *more]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._boards.append(process)
        assert process.stdout is not None
        return int(process.stdout.readline())

    def stop(self) -> None:
        """End all boards."""
        for process in self._boards:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@dataclass
class Fencing:
    """A member ``db_a`` on a host, an operator's file, and the rung over them."""

    emulated: EmulatedCloud
    cloud: Cloud
    runtime: Runtime
    server: str
    host: str
    folder: Path
    machines: Machines
    seconds: float = 0.0
    began: float = 0.0
    calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def file(self) -> Path:
        """The operator's file."""
        return Path(str(self.runtime.settings.fence_devices_file))

    @property
    def log(self) -> Path:
        """Where the agents write down their calls."""
        return self.folder / "calls"

    def secret(self, text: str = PASSWORD, name: str = "password") -> str:
        """Write a file with a secret; return its path."""
        return str(private(self.folder / name, f"{text}\n"))

    def device(self, port: int, **options: Any) -> dict[str, Any]:
        """Return a device that speaks to the board at a port."""
        more: dict[str, Any] = {
            key: options.pop(key) for key in ("agent", "limit", "ca_file") if key in options
        }
        secret = options.pop("secret", None) or self.secret()
        given = {"ipport": port, "username": "fence", "plug": self.host, "log": str(self.log)}
        return {
            "agent": AGENT,
            "limit": 10,
            "options": {**given, **options},
            "secrets": {"password": secret},
            **more,
        }

    def configure(self, *levels: list[dict[str, Any]], **more: Any) -> None:
        """Write the operator's file, with these levels of devices for the host."""
        hosts = {self.host: list(levels)} if levels else {}
        document = {"projects": [PROJECT], "cloud": "operator", "listen": 0, "hosts": hosts}
        private(self.file, json.dumps({**document, **more}))

    def dies(self) -> None:
        """The host loses its power, and Nova notices it; its board does not."""
        self.emulated.client.fault("host", self.host, "power_off")

    def compute_dies(self) -> None:
        """The compute service dies; the guest runs on."""
        self.emulated.client.fault("host", self.host, "compute_down")

    def is_switched_on(self) -> None:
        """An operator switches the host on; it boots, and its compute service does not run yet."""
        self.machines.add(self.host, "on")

    def reports(self) -> None:
        """The compute service of the host reports again, and a sweep sees it; the one before was a
        minute ago."""
        self.emulated.client.fault("host", self.host, "revive")
        database, before = self.runtime.database, utc(time.time() - 60)
        database.atomically(lambda tx: host_fences.record_nova_report(tx, self.host, "", before))
        nova = operator_cloud("operator", Unguarded(), self.runtime.settings)
        assert lifting.tell_nova_back(database, nova, self.host)

    def attempt(self, **more: Any) -> FenceAttempt:
        """Return an attempt to fence the member."""
        guard = Unguarded()
        channel = channel_for(
            f"emulator+{self.emulated.url}", ChannelContext(self.cloud.session, guard, None)
        )
        request: Any = SimpleNamespace(
            runtime=self.runtime, project_id=more.pop("project", PROJECT)
        )
        context = OperationContext(request, self.cloud, channel, lambda: None)
        member = MemberRow("db_a", self.server, 1.0, 1, None)
        facts = {"servers": (self.server,), "stops": (), "without_stop_command": (), **more}
        operation: Any = {
            "key": "k",
            "group": "payments",
            "group_id": "g-1",
            "ticket": {"traversal_id": "t-1", "lock": {"token": 1}},
        }
        target = FenceTarget(member=member, confirmed=lambda: None, **facts)
        return FenceAttempt(context, operation, target)

    def prove(self, limit: float = LIMIT, **more: Any) -> Evidence:
        """Climb the rung host_power once."""
        rung = host_power.HostPower("host_power")
        self.began = time.monotonic()
        try:
            return rung.prove(self.attempt(**more), {"kind": "host_power", "limit": limit})
        finally:
            self.seconds = time.monotonic() - self.began

    def by_hand(self, limit: float = LIMIT) -> str:
        """Switch the host off as an operator does, for no group; return the proof."""
        guard, settings = Unguarded(), self.runtime.settings
        switch = power.Switch(
            devices=load(settings),
            nova=operator_cloud("operator", guard, settings),
            store=self.runtime.database,
            guard=guard,
            deadline=time.monotonic() + limit,
            owner="an operator",
            lease=settings.lease,
            again=True,
        )
        return power.switch_off(switch, self.host, self.now())

    def begin(self, clock_ahead: float = 0.0) -> None:
        """Begin the failover of the attempts, by a clock that is so many seconds ahead of the
        present one."""
        url = self.runtime.database.url.render_as_string(hide_password=False)
        then = Database(url, clock=lambda: time.time() + clock_ahead)
        group = then.for_project(PROJECT).atomically(
            lambda tx: groups.define(tx, "payments", {"document": {}, "types": []})
        )
        begun = Traversal("t-1", group, "v", TraversalStatus.IN_PROGRESS)
        then.atomically(lambda tx: tx.open_traversal(begun, no_nodes()))
        then.close()

    def now(self) -> float:
        """Return the time by the clock of the state store."""
        return self.runtime.database.reading(lambda tx: tx.now())

    def actions(self) -> list[str]:
        """Return what the agents were asked for, in order."""
        return [call["action"] for call in self.logged()]

    def logged(self) -> list[dict[str, Any]]:
        """Return the calls of the agents."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]

    def forced_down(self) -> bool:
        """Return whether Nova was told that the host is fenced."""
        return self.emulated.emulation.state.hosts[self.host].forced_down

    @contextmanager
    def power_of_the_machine_counts(self) -> Iterator[None]:
        """Meanwhile the emulated host loses its power when its machine does."""
        done = threading.Event()

        def follow() -> None:
            while not done.wait(0.02):
                if self.machines.power(self.host) == "off":
                    self.dies()
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def shown_up(tx: Session, host: str) -> None:
    """Record of a host that was repaired what a sweep does minutes later."""
    if (seen := host_fences.of_host(tx, host).nova_seen) is not None:
        host_fences.record_nova_report(tx, host, seen, None)


def private(file: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file with a mode."""
    file.touch(mode=0o600)
    file.write_text(text, "utf-8")
    file.chmod(mode)
    return file


def clouds_of_an_operator(emulated: EmulatedCloud, folder: Path, user: str = "admin") -> Path:
    """Write a clouds.yaml whose entry ``operator`` is a user of the emulated cloud. The entries
    that the file has stay."""
    auth = {
        "auth_url": emulated.auth_url,
        "username": user,
        "password": user,
        "project_name": user,
        "user_domain_id": "default",
        "project_domain_id": "default",
    }
    file = folder / "clouds.yaml"
    entries = yaml.safe_load(file.read_text("utf-8"))["clouds"] if file.exists() else {}
    entries["operator"] = {"auth": auth, "region_name": "RegionOne"}
    return private(file, yaml.safe_dump({"clouds": entries}))


def runtime_for(folder: Path, **more: Any) -> Runtime:
    """Return a runtime with a state store and an operator's file."""
    settings = Settings(
        database=new_store(folder / "state.sqlite"),
        fence_devices_file=str(folder / "fence-devices.yaml"),
        http_timeout=5,
        poll_first=0.005,
        poll_ceiling=0.05,
        **more,
    )
    return Runtime(settings, eager=False)


@contextmanager
def since(moment: float) -> Iterator[None]:
    """Meanwhile the incident began at a moment, by the clock of the state store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_fences, "proofs_valid_from", lambda tx, traversal: moment)
        yield


Make = Callable[..., Fencing]


@contextmanager
def fencing_actions(
    emulated: EmulatedCloud, cloud: Cloud, server: str, folder: Path, patch: pytest.MonkeyPatch
) -> Iterator[Fencing]:
    """The host of a server has fence devices; the actions of this process have its state store."""
    patch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds_of_an_operator(emulated, folder)))
    machines = Machines(folder)
    host = emulated.emulation.state.servers[server].host
    machines.add(host)
    runtime = runtime_for(folder)
    patch.setattr(base, "runtime", lambda: runtime)
    yield Fencing(emulated, cloud, runtime, server, host, folder, machines)
    machines.stop()
