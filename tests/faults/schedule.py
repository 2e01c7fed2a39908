# SPDX-License-Identifier: Apache-2.0
"""A drill made up by a seed: several faults, and others who want something in the middle."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

from faults.drill import Drill
from faults.plays import APPLICATION, CRASH, DELETED, MODES, MOVED, WIDE
from faults.slot import LEASE, Child, Fault, Slot
from mistral_failover.errors import CodedError
from mistral_failover.fault_points import POINTS
from mistral_failover.lab.emulator.client import EmulatorError

SPAN = 4.0  # seconds in which everybody speaks
# A start command without an answer is waited for as long as the type activation says (300 s).
PATIENCE = 330.0
ASKING = 2  # times that a person starts a failed group again, then it may stay FAILED


class Schedule(Drill):
    """What happens follows from the seed; when it meets what is under way does not."""

    def __init__(self, slot: Slot, seed: str) -> None:
        self._random = random.Random(seed)
        pick = self._random
        super().__init__(slot, pick.choice([CRASH, WIDE, APPLICATION, DELETED, MOVED]))
        self.faults = tuple(
            Fault(pick.choice(sorted(POINTS)), pick.choice(MODES), pick.randint(1, 3))
            for _ in range(pick.randint(2, 5))
        )
        self.refused = False
        self.crashed: list[str] = []
        names = ("again", "application", "order", "loss", "sweep_now", "removal")
        self.events = sorted(
            (round(pick.uniform(0, SPAN), 2), pick.choice(names)) for _ in range(pick.randint(0, 4))
        )

    def __str__(self) -> str:
        events = ", ".join(f"{name} after {at} s" for at, name in self.events)
        return f"{self.play.name}: {', '.join(map(str, self.faults))}; {events or 'nothing else'}"

    def play_it(self) -> None:
        """Fails when an invariant is broken, or the group does not come to rest."""
        self.perform(*self.faults, patience=LEASE + 1)

    def definition(self) -> dict[str, Any]:
        return super().definition() | {"limits": {"cooldown": 0, "per_hour": 100}}

    def undergo(self, faults: int) -> None:
        began = time.monotonic()
        self.play.act(self)
        for at, name in self.events:
            self.until(lambda at=at: time.monotonic() >= began + at, "the time has come")
            getattr(self, f"_{name}")()
        self._again()  # a process that died before it was recorded has not received it
        for server in {*self.crashed, self.facts.get("struck")} - {None}:
            with contextlib.suppress(EmulatorError):  # its fence has deleted it
                self.slot.cloud.client.fault("server", server, "revive")
        self.until(self._settled, "at rest", limit=PATIENCE)

    def ended(self, status: str, active: str) -> bool:
        """Whether the group is at rest, and a person has tried what they can."""
        return (
            status in ("COMPLETE", "BLOCKED")
            or (status == "FAILED" and len(self.failures) >= ASKING)
            or (status == "UNSTARTED" and self.refused)
        )

    def _settled(self) -> bool:
        if self.where()[0] == "UNSTARTED" and self._idle():
            # No member is left: the alarm is tried again for ten minutes, and then held.
            codes = {row["error"]["code"] for row in self._sweep_to_the_end()["refused"]}
            self.refused = codes == {"NO_ELIGIBLE_MEMBER"}
        return super()._settled()

    # -- what others do in the middle

    def _tell(self, workflow: str, **inputs: Any) -> None:
        """Start a workflow somewhere; somebody who gets no answer goes elsewhere."""
        processes: list[Child] = [self.slot.victim, self.slot.survivor]
        self._random.shuffle(processes)
        for process in processes:
            if process.frozen():
                continue
            try:
                process.client.start(workflow, inputs)
            except CodedError:
                continue
            return

    def _again(self) -> None:
        """Aodh delivers once more."""
        if body := self.facts.get("alarm"):
            self._tell("failover.on_alarm", **body)

    def _strike(self, member: str, fault: str) -> None:
        server = self.server(member)
        try:
            self.slot.cloud.client.fault("server", server, fault)
        except EmulatorError as error:
            if error.code != "NOT_FOUND":
                raise
            return  # its fence has deleted it
        self._tell("failover.on_alarm", **self.slot.cloud.client.alarm_body(server))

    def _application(self) -> None:
        """The application dies on the member that is to take over, or has."""
        self._strike("db_b", "app")

    def _loss(self) -> None:
        """That member dies altogether; who is dead is booted when all is said."""
        self._strike("db_b", "crash")
        self.crashed.append(self.server("db_b"))

    def _order(self) -> None:
        """A person wants it elsewhere."""
        member = self._random.choice(["db_a", "db_b"])
        self._tell("failover.failover", group=self.group, to=member, lost=[])

    def _removal(self) -> None:
        """A person takes the group out of service."""
        self._tell("failover.remove", group=self.group)

    def _sweep_now(self) -> None:
        """A cron trigger fires."""
        self._tell("failover.sweep", group=self.group)
