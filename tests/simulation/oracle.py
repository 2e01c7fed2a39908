# SPDX-License-Identifier: Apache-2.0
"""What must hold, from the promises of docs/safety.md, read from the cloud's and the guests' own
ledgers. Of the engine it reads only what it tells a person: status.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mistral_failover import defects
from mistral_failover.lab.emulator import guests
from mistral_failover.model.observation import fresh_for
from simulation.scheduler import BEGIN
from simulation.world import GROUP, SWEEP_EVERY, World

TWO_LOOKS = fresh_for(60.0) + SWEEP_EVERY
"""Seconds for which status may say SERVING of what does not serve: two looks at a group at rest,
which sweeps make."""


@dataclass(eq=False)
class Oracle:
    """Reads the ledgers of one world, and remembers what was broken."""

    world: World
    broken: list[str] = field(default_factory=list)
    forgiven: set[str] = field(default_factory=set)
    """Rules that a person broke by hand, such as one who deletes a server that writes."""
    _read: int = 0
    _holds: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _writes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _down_since: float | None = None
    _ran: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        defects.recorders.add(self)

    def record(self, found: defects.Defect) -> None:
        """Note an error of the product's own, which no promise allows."""
        self.breaks(f"a defect: {found.error} at {found.place} while {found.doing}")

    def look(self) -> None:
        """Read what is new in the ledgers."""
        events = self.world.emulation.audit.since(self._read)
        self._read += len(events)
        for event in events:
            for rule in self._broken_by(event):
                if rule.partition(":")[0] not in self.forgiven:
                    self.breaks(f"{event['t'] - BEGIN:.1f}: {rule}")
        serving = self.serving()
        if len(serving) == 1:
            self._down_since = None
        elif self._down_since is None:
            self._down_since = self.world.scheduler.now

    def breaks(self, what: str) -> None:
        """Note a promise that is broken."""
        self.world.tell(f"BROKEN {what}")
        self.broken.append(what)

    def _broken_by(self, event: Mapping[str, Any]) -> Iterator[str]:
        kind = event["kind"]
        if kind == "violation":
            yield f"{event['rule']}: the cloud saw it"
        elif kind == "attached":
            held = self._holds[event["volume"]]
            held.add(event["server"])
            if len(held) > 1:
                yield "two holders: a volume is attached twice"
        elif kind == "detached":
            self._holds[event["volume"]].discard(event["server"])
        elif kind == "application_started":
            running = self._writes[event["application"]]
            running.add(event["server"])
            if len(running) > 1:
                yield "two writers: an application runs on two servers"
        elif kind in ("application_stopped", "application_ended"):
            self._writes[event["application"]].discard(event["server"])
        elif kind == "command_started":
            self._ran[event["id"]] += 1
            if self._ran[event["id"]] > 1:
                yield "twice: a command ran again"
        elif kind == "command_died":
            self._ran[event["id"]] -= 1

    def serving(self) -> list[str]:
        """Return the members that serve: their guests run the application with the volume."""
        emulation = self.world.emulation
        found = []
        for member, server in self.world.servers.items():
            guest = emulation.state.guests.get(server)
            if guest is None or not guests.runs(emulation, guest) or guest.condition == "hung":
                continue
            if GROUP in guest.applications and self.world.volume in guest.volumes:
                found.append(member)
        return found

    def said(self, status: Mapping[str, Any]) -> None:
        """Compare what status told a person with the truth."""
        if status["service"]["status"] != "SERVING" or self._down_since is None:
            return
        down = self.world.scheduler.now - self._down_since
        if down > TWO_LOOKS:
            self.breaks(f"SERVING was said although nothing had served for {down:.0f} s")

    def left(self) -> str | None:
        """Return what a rehearsal has left behind; None if nothing is there."""
        state = self.world.emulation.state
        copies = [each for each in state.volumes if each != self.world.volume]
        running = [each.server_id for each in state.guests.values() if each.rehearsed]
        if copies or state.snapshots or running:
            things = f"{len(copies)} volumes, {len(state.snapshots)} snapshots"
            return f"a rehearsal left {things}, and runs on {len(running)} servers"
        return None

    def at_rest(self, status: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a group that says it reached its goal; None if nothing is."""
        (active,) = status["roles"].values() if status["roles"] else (None,)
        serving = self.serving()
        if serving != [active]:
            return f"COMPLETE on {active}, but {serving or 'no member'} serves"
        for stack in self.world.emulation.state.stacks.values():
            if stack.name == GROUP and stack.parameters.get("active") != active:
                return f"COMPLETE on {active}, but the stack has {stack.parameters.get('active')}"
        return None
