# SPDX-License-Identifier: Apache-2.0
"""Deliberate faults of the product, each of which the simulation has to find: ``python -m
simulation.mutants``. One that it does not find names a move or an oracle that is missing.

A mutant is a change of a module's text when it is imported. The text must be there exactly once, so
that a change of the product does not make a mutant do nothing.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

PACKAGE = "mistral_failover"
PLAYS = 300
"""The plays in which the oracle has to find a mutant, unless another number is given."""


@dataclass(frozen=True)
class Mutant:
    """A fault. ``changes``: module, text, and what takes its place."""

    name: str
    what: str
    changes: tuple[tuple[str, str, str], ...]


def _one(name: str, what: str, module: str, before: str, after: str) -> Mutant:
    return Mutant(name, what, ((module, before, after),))


MUTANTS = (
    Mutant(
        "lease-for-ever",
        "a lease counts as kept, whatever the store and the clock say",
        (
            (
                "store.leases",
                "        return 0.0 if self.lost else max(0.0, self._until - self._clock())",
                "        return self.lock.lease",
            ),
            ("store.leases", "        else:\n            self.lost = True\n", ""),
        ),
    ),
    _one(
        "permit-for-ever",
        "a call may start although the lease has ended",
        "runtime.lease_guard",
        "        left = self.lease.remaining() - self.margin\n",
        "        left = 60.0\n",
    ),
    Mutant(
        "lock-of-the-living",
        "the lock of a live owner is broken",
        (
            (
                "convergence.check",
                "        if record.held_at(tx.now()):\n            return _d",
                "        if False:\n            return _d",
            ),
            ("store.records", "resources.c.lease_until <= self.clock())", "sa.true())"),
        ),
    ),
    Mutant(
        "old-token",
        "a result under an old token counts",
        (
            (
                "store.records",
                'resources.c.owner == sa.bindparam("this_owner"),\n    resources.c.token ==',
                'sa.bindparam("this_owner") != "",\n    0 <',
            ),
        ),
    ),
    Mutant(
        "superseded-goes-on",
        "the nodes of an older goal are worked on",
        (
            (
                "convergence.check",
                "    if group.current_traversal != traversal.id:\n        return Step(",
                "    if False:\n        return Step(",
            ),
            (
                "convergence.conclude",
                "    current = group.current_traversal == traversal.id\n",
                "    current = True\n",
            ),
            (
                "convergence.traversals",
                "    if expected is not None:\n        tx.supersede(",
                "    if False:\n        tx.supersede(",
            ),
        ),
    ),
    _one(
        "never-woken",
        "who waited for a lock is not triggered when its owner concludes, nor found later",
        "store.stalled_work",
        "    return list(found.values())\n\n\ndef _here",
        "    return []\n\n\ndef _here",
    ),
    _one(
        "move-before-proof",
        "what comes to a member does not wait for the fence",
        "convergence.graph",
        "        graph.add_edges_from(product(fences.values(), made + templates))",
        "        product(fences.values(), made + templates)",
    ),
    _one(
        "release-before-proof",
        "what a lost member holds is released without waiting for the fence",
        "convergence.graph",
        "                graph.add_edge(fences[record.member], cleanups[record.id])",
        "                pass",
    ),
    _one(
        "early-proof",
        "a server counts as off as soon as its stop was asked for",
        "cloud.servers",
        '            reach("stop.after")\n',
        '            return ProbeResult("", done=True, result=Evidence(True, "stop", "asked"))\n',
    ),
    _one(
        "epoch-stays",
        "a lost member keeps its epoch",
        "store.transaction",
        "            .values(epoch=members.c.epoch + 1)",
        "            .values(epoch=members.c.epoch)",
    ),
    _one(
        "silence-is-no",
        "a request without an answer counts as one that had no effect",
        "cloud.errors",
        "    return Fate.SILENT if isinstance(exc, _TIMEOUT) else Fate.FAILED",
        "    return Fate.SETTLED",
    ),
    _one(
        "no-patience-for-the-dead",
        "the outstanding requests of a dead owner are not waited for",
        "convergence.check",
        "        each for each in tx.unsettled(record.group_id) if _concerns(",
        "        each for each in tx.unsettled(record.group_id) if False and _concerns(",
    ),
    _one(
        "anyone-answers",
        "an answer counts also if another service gives it",
        "cloud.answers",
        '    return "" if _is_marked(answer) else _OTHERS\n',
        '    return ""\n',
    ),
    _one(
        "detached-unseen",
        "a volume counts as free as soon as its detach was asked for",
        "cloud.volumes",
        "        if mine is None:\n            # If Cinder's attachment went",
        "        if self.accepted:\n            return ProbeResult(state, done=True)\n"
        "        if mine is None:\n            # If Cinder's attachment went",
    ),
    Mutant(
        "parameters-unseen",
        "the stack counts as updated while the update is running",
        (
            (
                "cloud.stack_updates",
                "        if status not in _RUNNING:\n            return None\n        self._b",
                "        return None\n        self._b",
            ),
            (
                "cloud.stack_updates",
                '        if status == "IN_PROGRESS":\n            if self._before is None and not',
                '        if status == "IN_PROGRESS" and not carries:\n'
                "            if self._before is None and not",
            ),
            (
                "cloud.stack_updates",
                '        if carries and status == "COMPLETE":\n            return',
                "        if carries:\n            return",
            ),
        ),
    ),
    _one(
        "late-result-counts",
        "an outcome is reported although another owner has the lock",
        "convergence.conclude",
        'ticket.lock, **changes):\n        sentence = f"{what}: a late',
        'ticket.lock, **changes) and False:\n        sentence = f"{what}: a late',
    ),
    _one(
        "serves-unseen",
        "a group serves although nothing looked at it",
        "model.observation",
        "    if unseen:\n        last",
        "    if False:\n        last",
    ),
    _one(
        "down-unsaid",
        "what a look found down is not said",
        "model.observation",
        "    known, seen_at = _known(engine, look)\n    if known",
        "    known, seen_at = Observation(Service.SERVING, ()), look and look.at\n    if known",
    ),
    _one(
        "command-anew",
        "each attempt of an operation sends a command of its own",
        "resources.commands",
        'id=derived_id(operation["key"], name, *filter',
        'id=derived_id(operation["key"], name, str(time.monotonic()), *filter',
    ),
    _one(
        "stop-left-out",
        "an application is not stopped before its volume goes",
        "convergence.graph",
        "        self._order_fences(graph, updates, cleanups)",
        "        left = set(cleanups.values())\n"
        "        graph.remove_edges_from([e for e in graph.edges if left.issuperset(e)])\n"
        "        self._order_fences(graph, updates, cleanups)",
    ),
    _one(
        "first-predecessor",
        "a node is worked on when the first of those that it waits for is done",
        "store.sync_points",
        "    .values(remaining=nodes.c.remaining - 1)",
        "    .values(remaining=sa.case((nodes.c.node == END, nodes.c.remaining - 1), else_=0))",
    ),
    _one(
        "old-points-stay",
        "the sync points of a superseded traversal are left in the store",
        "store.transaction",
        "        self.drop_sync_points(traversal_id)\n",
        "",
    ),
    _one(
        "gone-is-proof",
        "a server that Nova does not know any more counts as off, whatever its host recorded",
        "cloud.servers",
        'the guest may be running."\n    )\n    return Evidence(False, rung, words)',
        'the guest may be running."\n    )\n    return Evidence(True, rung, words)',
    ),
    _one(
        "confirmed-for-ever",
        "an operator's confirmation also proves the next fence of a member",
        "store.groups",
        "because if confirmed_epoch == epoch else None",
        "because",
    ),
    _one(
        "rollback-forgets",
        "a rollback forgets who is lost",
        "model.goal",
        'lost = sorted(set(present.document["lost"]).difference(recovered))',
        "lost: list[str] = []",
    ),
    _one(
        "dismissed-unheard",
        "a sweep dismisses a held alarm without evidence",
        "alarms.storm",
        " is ServerCondition.RUNNING and known.heard_since(age - SETTLED)",
        " is not None",
    ),
    Mutant(
        "end-fences",
        "the end of an alarm counts as an alarm",
        (
            (
                "alarms.aodh",
                'firing=current == "alarm" and (bool(alarm_id) or not repeat),',
                "firing=True,",
            ),
            ("alarms.aodh", 'over=current == "ok" and not repeat,', "over=False,"),
        ),
    ),
    _one(
        "starting-is-off",
        "a server that is about to start counts as off",
        "cloud.servers",
        '("SHUTOFF", "SHELVED_OFFLOADED")\n            and self.task_state is None\n',
        '("SHUTOFF", "SHELVED_OFFLOADED")\n',
    ),
    _one(
        "cinder-alone",
        "Cinder alone is believed of a detach",
        "cloud.volumes",
        "            if self._seen and not self.is_listed():",
        "            if self._seen:",
    ),
    _one(
        "rehearsed-for-real",
        "a rehearsal's command is sent as a real one",
        "resources.rehearsal",
        'context.channel.run(replace(asked, rehearsal=given["rehearsal"]))',
        "context.channel.run(asked)",
    ),
    _one(
        "silence-unseen",
        "a look does not mind that an agent is silent",
        "recovery.observe",
        "condition = Condition.HUNG if silent(beat) or forgotten else condition",
        "condition = Condition.HUNG if forgotten else condition",
    ),
    _one(
        "result-reused",
        "the outcome of an earlier start counts as that of the next one",
        "convergence.conclude",
        "generation = record.generation if outcome.unknown else record.generation + 1",
        "generation = record.generation",
    ),
    _one(
        "pause-unheard",
        "a pause and a maintenance hold no alarm",
        "alarms.admission",
        "        ended = self.until is not None and now >= self.until\n",
        "        ended = True\n",
    ),
    Mutant(
        "restart-unseen",
        "a proof counts after its server was started again, and for a member that is lost again",
        (
            (
                "convergence.graph",
                "return any(fence_name(r.member) == record.name for r in self.live if r.member)",
                "return False",
            ),
            (
                "resources.operation_context",
                '    if servers.server_state(context.cloud, server_id).status == "ACTIVE":',
                "    if False:",
            ),
        ),
    ),
    _one(
        "failed-stays",
        "what a failed attempt made is not taken back",
        "convergence.decide",
        '    if record.action == Action.INIT:\n        return NodeDecision("none", "it was never',
        "    if record.action == Action.INIT or record.status == Status.FAILED:\n"
        '        return NodeDecision("none", "it was never',
    ),
)
BY_NAME = {each.name: each for each in MUTANTS}


class _Changing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules of a mutant from their changed text."""

    def __init__(self, mutant: Mutant) -> None:
        self._changes: dict[str, list[tuple[str, str]]] = {}
        for module, before, after in mutant.changes:
            self._changes.setdefault(f"{PACKAGE}.{module}", []).append((before, after))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See importlib."""
        if fullname not in self._changes:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None:
            return None
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """See importlib."""

    def exec_module(self, module: ModuleType) -> None:
        """See importlib. Raises ValueError if the module has another text."""
        text = Path(str(module.__file__)).read_text("utf-8")
        for before, after in self._changes[module.__name__]:
            if text.count(before) != 1:
                raise ValueError(f"{module.__name__} has this {text.count(before)} times: {before}")
            text = text.replace(before, after)
        exec(compile(text, str(module.__file__), "exec"), module.__dict__)  # noqa: S102


def install(name: str) -> None:
    """Let the product have a fault; before anything of it is imported."""
    sys.meta_path.insert(0, _Changing(BY_NAME[name]))


def main() -> int:
    """Play with each mutant until it is found; exit code 1 if one is not."""
    parser = argparse.ArgumentParser(prog="simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--plays", type=int, default=PLAYS, help="at most, with each")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    missed = 0
    print("| mutant | found by | plays |\n|---|---|---|", flush=True)
    for name in chosen.names or BY_NAME:
        plays, found = _play(name, chosen.seed, chosen.plays)
        missed += not found
        print(f"| {name}: {BY_NAME[name].what} | {found or 'NOT FOUND'} | {plays} |", flush=True)
    return 1 if missed else 0


def _play(name: str, seed: int, plays: int) -> tuple[int, str]:
    """Return how many plays there were until the oracle found a mutant, and what it said."""
    command = [sys.executable, "-m", "simulation", "--mutant", name, "--until-broken", "--quick"]
    command += ["--seed", str(seed), "--count", str(plays)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = ended.stdout.splitlines()
    found = next((line for line in lines if line.startswith("seed ")), "")
    count = next((int(line.split()[0]) for line in lines if " plays, " in line), 0)
    if not count:
        print(ended.stderr, file=sys.stderr)
    return count, found.partition(": ")[2][:100]


if __name__ == "__main__":
    sys.exit(main())
