# SPDX-License-Identifier: Apache-2.0
"""One drill: a group is brought up, something happens to it, faults happen to those who help."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faults.nurse import Nurse
from faults.slot import LEASE, Fault, Slot, until
from faults.watch import Watch
from mistral_failover.errors import CodedError
from mistral_failover.lab.drill import examples
from mistral_failover.lab.drill.audit import AT_REST

LIMIT = 90.0  # seconds within which a group must have come to rest
SWEEP_EVERY = 1.0  # seconds, at least


@dataclass(frozen=True)
class Play:
    """What happens in a drill.

    ``act`` is what somebody from outside does (an alarm, an order); done again it must be
    harmless. ``prepare`` comes before that, and no fault happens in it. ``preceding`` are faults
    without which the point is not reached; then the victim sweeps as well. ``more``: further keys
    of the group file. ``host_dies``: each member is on a host of its own, and a server on a dead
    one may be deleted for its volumes. ``boots_from_a_volume``: db_a does, from one of the stack,
    which its next server gets, too. ``happened``: whether there is a trace of what ``act`` did,
    where the group's goal is none. ``check``: what must be true at the end besides.
    """

    name: str
    act: Callable[[Drill], None]
    prepare: Callable[[Drill], None] = lambda drill: None
    tidy: Callable[[Drill], None] = lambda drill: None
    happened: Callable[[Drill], bool] = lambda drill: True
    check: Callable[[Drill], None] = lambda drill: None
    volumes: int = 1
    ladder: tuple[Any, ...] = ("stop", "confirm")
    active: str = "db_b"
    preceding: tuple[Fault, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    host_dies: bool = False
    boots_from_a_volume: bool = False


@dataclass
class Drill:
    """One group's drill in a slot.

    ``repeats`` counts how often somebody had to ask again because nothing was left of what they
    had asked for; ``failures`` are the reasons for which it failed before it was started again.
    """

    slot: Slot
    play: Play
    group: str = ""
    since: int = 0
    repeats: int = 0
    failures: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    _swept_at: float = 0.0
    _sweep_id: str = ""

    def perform(self, *faults: Fault, patience: float = LEASE + 1) -> None:
        """Play it with these faults; fails unless the group comes to rest as the play says.

        A victim that freezes is woken up when the others have finished, or after ``patience``
        seconds."""
        slot, play = self.slot, self.play
        self.group = slot.new_name()
        self.since = len(slot.events(0))
        with (
            Watch(slot, self.group, self.since) as self.watch,
            Nurse(slot, patience, finished=self.done, sweep=self._sweep) as self.nurse,
        ):
            try:
                self._set_up()
                slot.arm(*play.preceding, *faults)
                self.undergo(len(faults))
                slot.arm()
                assert self.done(), "the end stands"
                play.check(self)
            finally:
                play.tidy(self)
        self.watch.check()
        found = slot.violations(self.group, self.since)
        assert not found, [str(violation) for violation in found]

    # -- what plays use

    def server(self, member: str) -> str:
        """The id of a member's server."""
        return str(self.slot.cloud.client.resources(self.group)[member]["physical_resource_id"])

    def start(self, workflow: str, /, **inputs: Any) -> str:
        """Start a workflow at the victim. Where that dies before it answers, it is unknown whether
        it has begun."""
        try:
            return str(self.slot.victim.client.start(workflow, inputs)["id"])
        except CodedError as error:
            if error.code not in ("MISTRAL_UNREACHABLE", "NOT_RUNNING"):
                raise
            return ""

    def run(self, workflow: str, /, **inputs: Any) -> dict[str, Any]:
        """Run a workflow at the victim to its end."""
        return self.slot.victim.client.run(workflow, inputs, timeout=LIMIT)

    def status(self) -> dict[str, Any]:
        """The group as people see it."""
        return dict(self.slot.survivor.client.run_action("failover.status", {"group": self.group}))

    def told(self) -> list[dict[str, Any]]:
        """The group's journal."""
        asked = {"group": self.group, "limit": 1000}
        return list(self.slot.survivor.client.run_action("failover.history", asked))

    def has_told(self, sentence: str, times: int = 1) -> bool:
        """Whether the journal has a sentence, at least so many times."""
        return [each["sentence"] for each in self.told()].count(sentence) >= times

    def sweep_until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for a condition; the survivor goes on with what the victim has left after the first
        fault. Before, it would only take the work of which the fault is a part."""

        def look() -> Any:
            if self.slot.fired(0):
                self._sweep()
            return condition()

        self.until(look, what)

    def until(self, condition: Callable[[], Any], what: str, limit: float = LIMIT) -> Any:
        """Wait for a condition; fails at once when the watch has seen something."""

        def look() -> Any:
            self.watch.check()
            assert self.nurse.error is None
            return condition()

        return until(look, limit, lambda: f"{what} ({self.group}: {self.where()})")

    def definition(self) -> dict[str, Any]:
        """The group file."""
        given = {"fence": list(self.play.ladder), **self.play.more}
        document = examples.group(self.play.volumes, self.group) | given
        if self.play.host_dies:
            for spec in document["resources"].values():
                if spec["type"] == "volume_attachment":
                    spec["properties"]["when_host_is_down"] = "delete_server"
        return document

    def _template(self) -> dict[str, Any]:
        """The stack."""
        template = examples.stack(self.play.volumes)
        if self.play.boots_from_a_volume:
            resources = template["resources"]
            resources["system"] = {
                "type": "OS::Cinder::Volume",
                "properties": {"size": 1, "image": "tiny"},
            }
            disk = {"volume_id": {"get_resource": "system"}, "delete_on_termination": False}
            server = dict(resources["db_a"])
            own = {k: v for k, v in server["properties"].items() if k != "image"}
            own["block_device_mapping_v2"] = [{**disk, "boot_index": 0}]
            resources["db_a"] = {**server, "properties": own}
        if self.play.host_dies:
            resources = template["resources"]
            servers = [s for s in resources.values() if s["type"] == "OS::Nova::Server"]
            for spec, host in zip(servers, self.slot.cloud.emulation.state.hosts, strict=False):
                spec["properties"] = {**spec["properties"], "availability_zone": host}
        return template

    # -- how it goes

    def _set_up(self) -> None:
        cloud = self.slot.cloud.client
        cloud.create_stack(self.group, self._template())
        cloud.add_application(
            f"postgresql-{self.group}",
            start="pg-start",
            stop="pg-stop",
            needs_volume=True,
            stack=self.group,
        )
        client = self.slot.victim.client
        client.run_action("failover.define", {"definition": self.definition(), "name": self.group})
        self.run("failover.activate_first", group=self.group)
        self.until(lambda: self.where() == ("COMPLETE", "db_a"), "brought up")
        self.play.prepare(self)

    def undergo(self, faults: int) -> None:
        """Let the play happen, and wait until its faults have happened and all is well."""
        first = len(self.play.preceding)
        self.play.act(self)
        for number in range(first, first + faults):
            self.until(lambda n=number: self._reached(n), f"reached: fault {number}")
        self.until(self._settled, "at rest as expected")

    def _reached(self, number: int) -> bool:
        if self.play.preceding and self.slot.fired(0) and not self.slot.fired(number):
            self._sweep_at_the_victim()
        return self.slot.fired(number)

    def _settled(self) -> bool:
        """Whether all is over; sweeps, and asks again when nothing is left to go on with."""
        status, active = self.where()  # once: it may change at any moment
        if status not in AT_REST and not self.ended(status, active):
            self._sweep()
            return False
        # Idle first and then the standing, lest what has just ended look like what never began.
        if not self._idle() or self.where() != (status, active):
            return False
        if self.ended(status, active):
            return True
        self._sweep_to_the_end()
        if self.where() != (status, active):
            return False  # what was asked for was written down, and is gone on with
        if status == "FAILED":
            self.failures.append(self.status()["reason"])
            self.start("failover.failover", group=self.group)
        else:
            self.repeats += 1
            self.play.act(self)
        return False

    def _sweep_to_the_end(self) -> dict[str, Any]:
        """Sweep, and return what it found."""
        client = self.slot.survivor.client
        swept = client.run("failover.sweep", {"group": self.group}, timeout=LIMIT)
        return dict(swept["output"]["swept"])

    def _idle(self) -> bool:
        """Whether nothing is under way in either Mistral."""
        quiet = all(map(self.slot.quiet, self.slot.mistrals))
        return quiet and not self.slot.duplicates_under_way()

    def _sweep(self) -> None:
        """Sweep as a cron trigger would, one sweep after the other."""
        if time.monotonic() < self._swept_at + SWEEP_EVERY:
            return
        self._swept_at = time.monotonic()
        client = self.slot.survivor.client
        if not self._sweep_id or client.execution(self._sweep_id)["state"] != "RUNNING":
            self._sweep_id = client.start("failover.sweep", {"group": self.group})["id"]

    def _sweep_at_the_victim(self) -> None:
        """The same there, without waiting for its end: it may never answer."""
        if time.monotonic() >= self._swept_at + SWEEP_EVERY:
            self._swept_at = time.monotonic()
            self.start("failover.sweep", group=self.group)

    # -- what is the case

    def ended(self, status: str, active: str) -> bool:
        """Whether this is how the play ends."""
        return (status, active) == ("COMPLETE", self.play.active) and self.play.happened(self)

    def done(self) -> bool:
        """Whether the group is at rest as the play says."""
        return self.ended(*self.where())

    def where(self) -> tuple[str, str]:
        """See ``Slot.standing``."""
        return self.slot.standing(self.group)
