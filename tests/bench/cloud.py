# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.cloud [volumes ...]``: a failover on real services, beside Heat's own ways.

One run on one cloud measures, for each number of volumes:

ours: from Nova's notification that the active server is in error to the application running on the
other one; Ceilometer, Aodh, Heat's signal and Mistral included, and the proof that the old server
is off.

heat: a plain PATCH of a stack whose attachments follow a parameter, to its UPDATE_COMPLETE. No
alarm, no fence, no application.

trust+heat: what Aodh's notifier does for an action of that scheme, from its notification on: mark
the member unhealthy, PATCH the stack; Heat boots another server and attaches the volumes to that.
No fence, no application.

And the same for a server without a standby, which comes back in the ways ``start`` and ``replace``
(ours), or as the one member of a group that trust+heat heals.

The stacks are made beside each other first; then one after the other is measured. Times depend on
the machine and on what else it does; the ratios, of one run, less so. The rows are for the table of
docs/capacity.md.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from testcloud import settings, templates
from testcloud.notifier import Notifier
from testcloud.settings import ROOT, Settings
from testcloud.tenant import ProtectedStack, Tenant, until

ROUNDS = 3
LIMIT = 300
"""Seconds for one round."""
# A server that Nova has in error is powered off, and a living compute service reports it.
LADDER = ["stop", "confirm"]
HEAD = "| servers | volumes | way | there s | done s | there / its done | done / its done |"


@dataclass
class Measured:
    """Seconds, one for each round: until the volumes were there, until all was done."""

    there: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)

    def medians(self) -> tuple[float, float]:
        """The medians of both."""
        return statistics.median(self.there), statistics.median(self.done)


class Way:
    """A way, and the stack that it is measured on. ``servers``: of which one has the volumes."""

    ours = False
    servers = 2
    said = ""

    def __init__(self, where: Settings, volumes: int) -> None:
        self.where = where
        self.volumes = volumes
        self.demo = Tenant(where, "demo")
        self.operator = Tenant(where, "admin")
        self.name = f"bench-{uuid.uuid4().hex[:8]}"

    def create(self) -> None:
        """Make the stack, and wait until it is complete."""
        raise NotImplementedError

    def round(self, number: int, measured: Measured) -> None:
        """Measure once."""
        raise NotImplementedError

    def measure(self, rounds: int) -> Measured:
        """Measure so many rounds."""
        measured = Measured()
        for number in range(rounds):
            self.round(number, measured)
        return measured

    def delete(self) -> None:
        """Delete the stack."""
        self.demo.delete_stack(self.name, limit=600)


class Ours(Way):
    """Failovers by alarm, back and forth."""

    ours = True
    said = "failover"
    members: dict[str, Any] | None = None

    def create(self) -> None:
        template = templates.protected(
            templates.SERVERS, volumes=self.volumes, fence=LADDER, members=self.members
        )
        self.demo.create_stack(self.name, template, limit=600)
        self.stack = ProtectedStack(self.demo, self.name)
        self.stack.wait_until_active()

    def round(self, number: int, measured: Measured) -> None:
        before = self.stack.status()["traversal"]["id"]
        active = str(self.stack.active())
        server = self.stack.servers()[active]
        self.demo.guests.fault("server", server, "crash")
        begun = time.time()
        self.operator.cloud.compute.reset_server_state(server, "error")
        until(lambda: self._serves_again(before), f"{self.name} to serve again", LIMIT)
        history = self.demo.action("failover.history", group=self.name, limit=200)
        last = [row for row in history if row["kind"] == "complete"][-1]
        walk = self.demo.action("failover.show", id=last["traversal_id"])
        # The files are there, the application runs: a user feels the last of the activations.
        activated = max(
            row["ended_at"]
            for row in walk["operations"]
            if (row["type"], row["verb"]) == ("activation", "create")
        )
        measured.there.append(activated - begun)
        measured.done.append(last["at"] - begun)
        self.repair(active, server)

    def _serves_again(self, before: str) -> bool:
        """Whether the goal of another traversal is reached, and a member is active by it."""
        found = self.stack.status()
        reached = found["status"] == "COMPLETE" and "active" in found["roles"]
        return reached and found["traversal"]["id"] != before

    def repair(self, member: str, server: str) -> None:
        """Make the lost member a standby again."""
        compute = self.operator.cloud.compute
        compute.start_server(server)
        until(lambda: compute.get_server(server).status == "ACTIVE", "the server to start", 60)
        self.demo.guests.fault("server", server, "revive")
        ended = self.demo.run(
            "failover.failover",
            group=self.name,
            lost=[],
            recovered=[member],
            because="the bench repaired it",
        )
        if ended["state"] != "SUCCESS":
            raise RuntimeError(str(ended["output"]))


class Started(Ours):
    """A server without a standby: stopped, released, started, and active again."""

    servers = 1
    said = "failover, `start`"
    way = "start"

    def __init__(self, where: Settings, volumes: int) -> None:
        super().__init__(where, volumes)
        self.members = {"servers": ["db_a"], "replace": "lost", "restart": [self.way]}

    def repair(self, member: str, server: str) -> None:
        """Check that it came back in this way: there is nothing to repair."""
        found = [row["found"] for row in self.stack.status()["restarts"]]
        if found[-1:] != [self.way]:
            raise RuntimeError(f"{self.name} came back otherwise: {found}")


class Replaced(Started):
    """A server without a standby: stopped, released, and replaced by Heat."""

    said = "failover, `replace`"
    way = "replace"


class OfHeat(Way):
    """A way of Heat's own, timed by what its stack shows."""

    def timed(self, measured: Measured, act: Callable[[], Any], server: Callable[[], str]) -> None:
        """Time from an act to the end of the stack's update; ``server``: the one that is to have
        the volumes, empty while it is not known."""
        volumes = self.demo.outputs(self.name)["volumes"]
        before = self.demo.stack(self.name).updated_at
        begun = time.time()
        act()
        there = 0.0

        def done() -> bool:
            nonlocal there
            target = server()
            if not there and target and all(self.demo.holders(v) == [target] for v in volumes):
                there = time.time()
            stack = self.demo.stack(self.name)
            if "FAILED" in stack.status:
                raise RuntimeError(stack.status_reason)
            return stack.updated_at != before and "IN_PROGRESS" not in stack.status and there > 0

        until(done, f"{self.name} to be updated", LIMIT)
        measured.there.append(there - begun)
        measured.done.append(time.time() - begun)


class Patched(OfHeat):
    """PATCHes of a parameter, back and forth."""

    said = "Heat PATCH"

    def create(self) -> None:
        self.demo.create_stack(self.name, templates.moved_by_heat(self.volumes), limit=600)
        self.ids = self.demo.outputs(self.name)

    def round(self, number: int, measured: Measured) -> None:
        target = ("db_b", "db_a")[number % 2]
        patch = lambda: self.demo.patch_stack(self.name, active=target)  # noqa: E731
        self.timed(measured, patch, lambda: str(self.ids[target]))


class Healed(OfHeat):
    """Members replaced by Aodh's notifier."""

    said = "Aodh trust+heat"

    def create(self) -> None:
        template = templates.healed_by_heat(self.volumes, self.servers)
        files = {templates.MEMBER: templates.member()}
        self.demo.create_stack(self.name, template, files=files, limit=600)

    def measure(self, rounds: int) -> Measured:
        with Notifier(self.where, self.demo) as self.notifier:
            return super().measure(rounds)

    def round(self, number: int, measured: Measured) -> None:
        outputs = self.demo.outputs(self.name)
        first = outputs["members"][0]
        stack = self.demo.stack(self.name).id
        self.timed(
            measured,
            lambda: self.notifier.unhealthy(stack, outputs["group"], first),
            lambda: self._another(first),
        )

    def _another(self, first: str) -> str:
        """The server that is first now, once it is another one."""
        members = self.demo.outputs(self.name)["members"] or [first]
        return str(members[0]) if members[0] != first else ""


class HealedAlone(Healed):
    """The same with a group of one."""

    servers = 1


WAYS = (Ours, Patched, Healed, Started, Replaced, HealedAlone)


def rows(where: Settings, volumes: int, rounds: int) -> None:
    """Measure each way, and print its row: ours first, and each of Heat's against ours."""
    ways = [way(where, volumes) for way in WAYS]
    with ThreadPoolExecutor(len(ways)) as pool:
        try:
            list(pool.map(lambda way: way.create(), ways))
            ours: dict[int, dict[str, tuple[float, float]]] = {}
            for way in ways:
                there, done = way.measure(rounds).medians()
                of = ours.setdefault(way.servers, {})
                ratios = ["", ""]
                if way.ours:
                    of[way.said] = (there, done)
                else:
                    ratios = [_ratios(of, number, done) for number in (0, 1)]
                cells = [way.servers, volumes, way.said, f"{there:.2f}", f"{done:.2f}", *ratios]
                print("|", " | ".join(map(str, cells)), "|", flush=True)
        finally:
            list(pool.map(lambda way: way.delete(), ways))


def _ratios(ours: dict[str, tuple[float, float]], which: int, done: float) -> str:
    """Our times against Heat's, named where there are two of ours."""
    told = {said.rpartition(", ")[2]: times[which] / done for said, times in ours.items()}
    if len(told) == 1:
        return "".join(f"{ratio:.2f}" for ratio in told.values())
    return ", ".join(f"{said} {ratio:.2f}" for said, ratio in told.items())


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="bench.cloud", description=__doc__.splitlines()[0])
    parser.add_argument("volumes", nargs="*", type=int, default=[1, 10])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is measured")
    chosen = parser.parse_args()
    where = settings.load()
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
    print(f"Medians of {chosen.rounds} ({commit}); there: the volumes, ours: and the application.")
    print(HEAD)
    print("|---" * (HEAD.count("|") - 1) + "|", flush=True)
    for volumes in chosen.volumes:
        rows(where, volumes, chosen.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
