# SPDX-License-Identifier: Apache-2.0
"""Drills of the real Mistral over an emulated cloud, with real agents behind a real broker.

The commands that start and stop the application are increments, so each is counted.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.rig import Node, Rig, read
from faults.drill import Drill, Play
from faults.slot import LEASE, Slot, until
from mistral_failover.lab.drill import examples
from mistral_failover.runtime.request import DEFAULT_PROJECT
from support.injected_faults import Fault
from support.operators import Operator
from testbroker.broker import PrivateBroker

PATIENCE = 60.0  # seconds


@contextlib.contextmanager
def stage(broker: PrivateBroker, folder: Path) -> Iterator[Stage]:
    """A cloud and two Mistral processes on a broker."""
    folder.mkdir(parents=True)
    key = secrets.token_hex(32).encode()
    key_file = folder / "key"
    key_file.write_bytes(key)
    key_file.chmod(0o600)
    options = {"command_channel": broker.url, "agent_key_file": str(key_file)}
    with Slot(folder / "slot", **options) as slot:
        yield Stage(broker, folder, slot, key)


@dataclass(frozen=True)
class Stage:
    """Where drills are played, one after the other."""

    broker: PrivateBroker
    folder: Path
    slot: Slot
    key: bytes

    def play(self, play: Play, *, active: bool = True) -> AgentDrill:
        """A new drill; ``active``: db_a is brought up before its play begins."""
        return AgentDrill(self.slot, play, stage=self, begins_active=active)

    def secrets(self) -> list[Path]:
        """The files of Mistral that hold a secret and should not."""
        hidden = (self.key, self.broker.password.encode())
        return [
            path
            for path in self.slot.folder.rglob("*")
            if path.is_file() and path.name != "mistral.conf"
            if any(secret in path.read_bytes() for secret in hidden)
        ]


@dataclass
class AgentDrill(Drill):
    """A drill of a group whose members have agents.

    A fault of mode ``hold`` has the broker killed, and started again, while the victim stands at
    the point.
    """

    stage: Stage = field(kw_only=True)
    begins_active: bool = field(kw_only=True)
    nodes: dict[str, Node] = field(default_factory=dict)
    _broken: set[int] = field(default_factory=set)

    def perform(self, *faults: Fault, patience: float = LEASE + 1) -> None:
        """See `Drill.perform`; its agents end with it, and no secret lies about."""
        try:
            super().perform(*faults, patience=patience)
            assert self.contradictions() == []
        finally:
            self.rig.close()

    @contextlib.contextmanager
    def staged(self) -> Iterator[None]:
        """The group is defined while the block lasts, and no supervisor restarts Mistral. In the
        end all must be well."""
        self.group = self.slot.new_name()
        self.since = len(self.slot.events(0))
        try:
            self._set_up()
            yield
            found = self.slot.violations(self.group, self.since)
            assert not found, [str(violation) for violation in found]
            assert self.contradictions() == []
        finally:
            self.slot.arm()
            self.rig.close()

    def crash_at(self, point: str, workflow: str, /, **inputs: Any) -> None:
        """Start a workflow; Mistral dies at a point, and is started again."""
        victim = self.slot.victim
        self.slot.arm(Fault(point, "kill"))
        self.start(workflow, **inputs)
        until(lambda: self.slot.fired(0) and victim.dead(), PATIENCE, lambda: f"dead at {point}")
        victim.kill()
        victim.start()

    def again(self, active: str, workflow: str, /, **inputs: Any) -> None:
        """Run a workflow from its beginning, until the group is as wanted; nothing sweeps."""

        def done() -> bool:
            self.run(workflow, **inputs)
            return self.where() == ("COMPLETE", active)

        until(done, PATIENCE, lambda: f"done again ({self.status()})")

    def start_agent(self, member: str) -> Node:
        """The agent of the server that is behind a member's name now; it has no journal."""
        node = self.rig.node(member, server_id=self.server(member))
        node.start()
        self.nodes[member] = node
        return node

    def replace(self, member: str) -> Node:
        """A new server behind a member's name, with an agent; returns the old one's node, whose
        agent runs on, as on an unreachable host."""
        old = self.nodes[member]
        Operator(self.slot.cloud.client).replace_server(self.group, member)
        assert self.server(member) != old.address.server_id
        self.start_agent(member)
        return old

    def contradictions(self) -> list[str]:
        """Where a node's journal and what really happened disagree."""
        return [found for node in self.rig.nodes for found in node.contradictions()]

    def starts(self, member: str) -> list[int]:
        """How often each start command ran on a member's present server."""
        return sorted(read(self.nodes[member].starts).values())

    def stops(self, member: str) -> list[int]:
        """How often each stop command ran on a member's present server."""
        return sorted(read(self.nodes[member].stops).values())

    # -- how it goes

    def _set_up(self) -> None:
        cloud, client = self.slot.cloud.client, self.slot.victim.client
        cloud.create_stack(self.group, examples.stack(self.play.volumes))
        self.rig = Rig(
            self.stage.broker,
            self.stage.folder / self.group,
            project=DEFAULT_PROJECT,
            group=self.group,
            key=self.stage.key,
        )
        for member in ("db_a", "db_b"):
            self.start_agent(member)
        client.run_action("failover.define", {"definition": self.definition(), "name": self.group})
        if self.begins_active:
            self.run("failover.activate_first", group=self.group)
            up = ("COMPLETE", "db_a")
            until(lambda: self.where() == up, PATIENCE, lambda: f"brought up ({self.where()})")
            self.play.prepare(self)

    def _reached(self, number: int) -> bool:
        plan = self.slot.plan
        reached = super()._reached(number)
        if reached and plan.faults[number].mode == "hold" and number not in self._broken:
            self._broken.add(number)
            self.stage.broker.kill()
            self.stage.broker.start()
            plan.go_on(number)
        return reached
