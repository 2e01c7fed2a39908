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

Times depend on the machine and on what else it does; the ratios, of one run, less so.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testcloud import settings, templates
from testcloud.notifier import Notifier
from testcloud.settings import Settings
from testcloud.tenant import ProtectedStack, Tenant, until

ROUNDS = 3
AIMS = {1: 0.7, 10: 0.4}
# A server that Nova has in error is powered off, and a living compute service reports it.
LADDER = ["stop", "confirm"]


@dataclass
class Measured:
    """Seconds, one for each round: until the volumes were there, until all was done."""

    there: list[float]
    done: list[float]

    def __str__(self) -> str:
        return f"{statistics.median(self.there):7.2f} {statistics.median(self.done):7.2f}"


class Bench:
    """The stacks of one number of volumes."""

    def __init__(self, where: Settings, volumes: int) -> None:
        self.where = where
        self.volumes = volumes
        self.demo = Tenant(where, "demo")
        self.operator = Tenant(where, "admin")
        self.tag = uuid.uuid4().hex[:6]

    def ours(self) -> Measured:
        """Failovers by alarm, back and forth."""
        name = f"bench-ours-{self.tag}"
        template = templates.protected(templates.SERVERS, volumes=self.volumes, fence=LADDER)
        self.demo.create_stack(name, template)
        stack = ProtectedStack(self.demo, name)
        try:
            active = stack.wait_until_active()
            measured = Measured([], [])
            for _ in range(ROUNDS):
                active = self._failover(stack, active, measured)
        finally:
            self.demo.delete_stack(name, limit=600)
        return measured

    def _failover(self, stack: ProtectedStack, active: str, measured: Measured) -> str:
        server = stack.servers()[active]
        self.demo.guests.fault("server", server, "crash")
        begun = time.time()
        self.operator.cloud.compute.reset_server_state(server, "error")
        second = stack.wait_until_active(active, limit=300)
        history = self.demo.action("failover.history", group=stack.name, limit=200)
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
        self._repair(stack, active, server)
        return second

    def _repair(self, stack: ProtectedStack, member: str, server: str) -> None:
        compute = self.operator.cloud.compute
        compute.start_server(server)
        until(lambda: compute.get_server(server).status == "ACTIVE", "the server to start", 60)
        self.demo.guests.fault("server", server, "revive")
        ended = self.demo.run(
            "failover.failover",
            group=stack.name,
            lost=[],
            recovered=[member],
            because="the bench repaired it",
        )
        if ended["state"] != "SUCCESS":
            raise RuntimeError(str(ended["output"]))

    def heat(self) -> Measured:
        """PATCHes of a parameter, back and forth."""
        name = f"bench-heat-{self.tag}"
        self.demo.create_stack(name, templates.moved_by_heat(self.volumes))
        try:
            outputs = self.demo.outputs(name)
            measured = Measured([], [])
            for number in range(ROUNDS):
                self._patch(name, ("db_b", "db_a")[number % 2], outputs, measured)
        finally:
            self.demo.delete_stack(name, limit=600)
        return measured

    def _patch(self, name: str, target: str, outputs: dict[str, Any], measured: Measured) -> None:
        self._timed(
            measured,
            name,
            lambda: self.demo.patch_stack(name, active=target),
            lambda: str(outputs[target]),
        )

    def healed(self) -> Measured:
        """Members replaced by Aodh's notifier."""
        name = f"bench-heal-{self.tag}"
        template = templates.healed_by_heat(self.volumes)
        self.demo.create_stack(name, template, files={templates.MEMBER: templates.member()})
        try:
            measured = Measured([], [])
            with Notifier(self.where, self.demo) as notifier:
                for _ in range(ROUNDS):
                    self._heal(name, notifier, measured)
        finally:
            self.demo.delete_stack(name, limit=600)
        return measured

    def _heal(self, name: str, notifier: Notifier, measured: Measured) -> None:
        outputs = self.demo.outputs(name)
        first = outputs["members"][0]
        stack = self.demo.stack(name).id
        self._timed(
            measured,
            name,
            lambda: notifier.unhealthy(stack, outputs["group"], first),
            lambda: self._another(name, first),
        )

    def _another(self, name: str, first: str) -> str:
        """The server that is first now, once it is another one."""
        members = self.demo.outputs(name)["members"] or [first]
        return str(members[0]) if members[0] != first else ""

    def _timed(
        self, measured: Measured, name: str, act: Callable[[], Any], server: Callable[[], str]
    ) -> None:
        volumes = self.demo.outputs(name)["volumes"]
        before = self.demo.stack(name).updated_at
        begun = time.time()
        act()
        there = 0.0

        def done() -> bool:
            nonlocal there
            target = server()
            if not there and target and all(self.demo.holders(v) == [target] for v in volumes):
                there = time.time()
            stack = self.demo.stack(name)
            if "FAILED" in stack.status:
                raise RuntimeError(stack.status_reason)
            return stack.updated_at != before and "IN_PROGRESS" not in stack.status and there > 0

        until(done, f"{name} to be updated", 300)
        measured.there.append(there - begun)
        measured.done.append(time.time() - begun)


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="bench.cloud", description=__doc__.splitlines()[0])
    parser.add_argument("volumes", nargs="*", type=int, default=[1, 10])
    chosen = parser.parse_args().volumes
    where = settings.load()
    print(
        f"medians of {ROUNDS}, in s; 'there': volumes (ours: and application) on the other server"
    )
    print("volumes  way         there    done   ours against it")
    for volumes in chosen:
        bench = Bench(where, volumes)
        ours = bench.ours()
        print(f"{volumes:7}  ours       {ours}", flush=True)
        active = statistics.median(ours.there)
        for way, measure in (("heat", bench.heat), ("trust+heat", bench.healed)):
            other = measure()
            ratio = active / statistics.median(other.done)
            aim = f" (aim {AIMS[volumes]})" if way == "heat" and volumes in AIMS else ""
            print(f"{volumes:7}  {way:10} {other}   {ratio:.2f}{aim}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
