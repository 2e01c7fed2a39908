# SPDX-License-Identifier: Apache-2.0
"""A client asks for a service at its floating and at its virtual address, every 20 ms, while the
service moves: ``python -m support.address_drill FOLDER``.

The group is examples/addresses.yaml, in the guests of a drill with agents, whose application keeps
its data on a mounted volume. A member answers at the virtual address if Neutron allows it there
and its agent has set it. Prints a JSON document: see :class:`Seen`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mistral_failover.lab.drill import examples, run
from mistral_failover.lab.drill.guest import ADDRESSES
from mistral_failover.lab.drill.scene import Scene
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.latency import MEASURED
from support.operators import Operator
from support.waiting import until

GROUP = "payments"
MEMBERS = ("db_a", "db_b")
EVERY = 0.02
KINDS = {"floating": "outside", "virtual": "inside"}
"""The group's resource behind each address."""
EXAMPLE = examples.Example("addresses.yaml", "addresses-stack.yaml", {})


@dataclasses.dataclass(frozen=True)
class Sample:
    """The members that answered at each address at one time."""

    at: float
    answers: Mapping[str, list[str]]


@dataclasses.dataclass
class ClientObservations:
    """What the client saw.

    :ivar samples: how many times it asked. :ivar crowded: the samples with two members at one
    address. :ivar gaps: for each move and address, the seconds between the last answer of the old
    member and the first one of the new. :ivar active: the active member after each move.
    :ivar violations: of the cloud's invariants and the drill's.
    """

    samples: int = 0
    crowded: list[Mapping[str, list[str]]] = dataclasses.field(default_factory=list)
    gaps: dict[str, dict[str, float | None]] = dataclasses.field(default_factory=dict)
    active: list[str] = dataclasses.field(default_factory=list)
    violations: list[str] = dataclasses.field(default_factory=list)


class Client:
    """Asks until it is closed."""

    def __init__(self, scene: Scene, addresses: Mapping[str, str]) -> None:
        self.samples: list[Sample] = []
        self._addresses = addresses
        self._cloud = EmulatorClient(scene.cloud.url)  # one for each thread
        self._members = {scene.server(GROUP, member): member for member in MEMBERS}
        self._nodes = scene.state_dir / "guests" / "servers"
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="client", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop asking. Raises AssertionError if the client ended by itself."""
        assert self._thread.is_alive(), "the client's thread failed"
        self._closed.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._closed.wait(EVERY):
            answers = {kind: self._answering(kind) for kind in self._addresses}
            self.samples.append(Sample(time.monotonic(), answers))

    def _answering(self, kind: str) -> list[str]:
        address = self._addresses[kind]
        servers = self._cloud.answering(address)
        if kind == "virtual":
            servers = [s for s in servers if (self._nodes / s / ADDRESSES / address).exists()]
        return [self._members[server] for server in servers]

    def gap(self, kind: str, old: str, new: str, since: int) -> float | None:
        """Return the seconds without an answer in a move, None if the new member never answers."""
        moved = self.samples[since:]
        last = max((s.at for s in moved if s.answers[kind] == [old]), default=moved[0].at)
        first = next((s.at for s in moved if s.answers[kind] == [new]), None)
        return None if first is None else round(first - last, 2)


def adapted(definition: dict[str, Any]) -> dict[str, Any]:
    """Return the group of a drill with agents, with the addresses and the fence of the example."""
    example = examples.load(EXAMPLE.group)
    resources = {
        name: spec for name, spec in definition["resources"].items() if name != "routing"
    } | {name: example["resources"][name] for name in KINDS.values()}
    return definition | {"resources": resources, "fence": example["fence"]}


@contextmanager
def moving(scene: Scene, client: Client, seen: ClientObservations, move: str) -> Iterator[None]:
    """Note the gaps of the move that happens within."""
    (old,) = scene.action("failover.status", group=GROUP)["roles"].values()
    since = len(client.samples)
    yield
    (new,) = scene.action("failover.status", group=GROUP)["roles"].values()
    until(
        lambda: all(client.samples[-1].answers[kind] == [new] for kind in KINDS),
        f"{new} does not answer at each address",
    )
    seen.active.append(new)
    seen.gaps[move] = {kind: client.gap(kind, old, new, since) for kind in KINDS}


def done(scene: Scene, workflow: str, **inputs: Any) -> None:
    """Run a workflow, which must succeed."""
    ended = scene.run(f"failover.{workflow}", group=GROUP, **inputs)
    assert ended["state"] == "SUCCESS", ended


def run_drill(scene: Scene) -> ClientObservations:
    """Bring the group up on db_a, let the guest crash, and move the service back."""
    seen = ClientObservations()
    scene.add_group(GROUP, 1, adapted, EXAMPLE)
    done(scene, "activate_first")
    status = scene.action("failover.status", group=GROUP)
    found = {
        row["name"]: row["attributes"]["address"]
        for row in status["resources"]
        if row["name"] in KINDS.values()
    }
    scene.cloud.set_latency(**MEASURED)
    client = Client(scene, {kind: found[name] for kind, name in KINDS.items()})
    time.sleep(10 * EVERY)
    server = scene.server(GROUP, "db_a")

    with moving(scene, client, seen, "failover"):
        scene.cloud.fault("server", server, "crash")
        done(scene, "failover", lost=["db_a"])
    status = scene.action("failover.status", group=GROUP)
    epoch = next(row["epoch"] for row in status["members"] if row["name"] == "db_a")
    Operator(scene.cloud).start_server(server)
    run.deposed(scene, GROUP, "db_a", server, epoch)
    done(scene, "failover", lost=[], recovered=["db_a"])
    with moving(scene, client, seen, "switchover"):
        done(scene, "switchover")

    client.close()
    seen.samples = len(client.samples)
    seen.crowded = [
        s.answers for s in client.samples if any(len(a) > 1 for a in s.answers.values())
    ]
    seen.violations = [str(each) for each in scene.cloud.violations()]
    seen.violations += [str(each) for each in scene.violations()]
    return seen


if __name__ == "__main__":
    with Scene(Path(sys.argv[1]), latency="zero", agents=True) as stage:
        print(json.dumps(dataclasses.asdict(run_drill(stage))))
