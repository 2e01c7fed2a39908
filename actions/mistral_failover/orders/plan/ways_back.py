# SPDX-License-Identifier: Apache-2.0
"""How a plan's members come back: the ways that are tried, and how long each took before. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mistral_failover.convergence.dry_run import DryRunStep
from mistral_failover.convergence.records import Record, Status
from mistral_failover.model.goal import FENCE_TYPE, REPLACE_TYPE, Goal, fence_name
from mistral_failover.model.group import Limits
from mistral_failover.model.installed import installed
from mistral_failover.model.restarts import ANOTHER_SERVER, RESTARTS
from mistral_failover.model.types import Verb
from mistral_failover.orders.plan.documents import PlannedReturn, PlannedWay
from mistral_failover.resources.restart.way import Way


def ways_back(
    goal: Goal,
    waves: Sequence[Sequence[DryRunStep]],
    records: Sequence[Record],
    lasted: Mapping[str, float],
    limits: Limits,
) -> list[PlannedReturn]:
    """Return how each member comes back that does; ``lasted``: how many seconds each way took;
    ``limits``: of the group."""
    found: list[PlannedReturn] = []
    for each in (each for wave in waves for each in wave):
        if (each.record.type, each.verb) != (REPLACE_TYPE, Verb.CREATE):
            continue
        wish = goal.document["resources"][each.record.name]["properties"]
        member = str(wish["member"])
        ladder = _ladder(goal, records, member)
        names = wish.get("restart") or [ANOTHER_SERVER]
        known = [name for name in names if name in installed(RESTARTS)]
        ways = [_planned(name, ladder, lasted, limits) for name in known]
        found.append(
            {
                "member": member,
                "server": str(wish["server_id"]),
                "ways": ways,
                "sentence": f"{member} comes back: {'; otherwise '.join(map(_words, ways))}",
            }
        )
    return found


def _ladder(goal: Goal, records: Sequence[Record], member: str) -> list[str]:
    """Return the kinds of the rungs of which one will have proven the member fenced."""
    name = fence_name(member)
    for record in records:
        if (record.type, record.name, record.status) == (FENCE_TYPE, name, Status.COMPLETE):
            return [str(record.attributes.get("rung", ""))]
    fence = goal.document["resources"].get(name)
    ladder = fence["properties"]["ladder"] if fence else []
    return [str(rung["kind"]) for rung in ladder]


def _planned(
    name: str, ladder: Sequence[str], lasted: Mapping[str, float], limits: Limits
) -> PlannedWay:
    way: Way = installed(RESTARTS)[name](name)
    return {
        "way": name,
        "does": way.does,
        "after": way.proofs(ladder),
        "longest": way.longest(limits),
        "expected": lasted.get(name),
    }


def _words(way: PlannedWay) -> str:
    """Return what a way does, when, and how long that takes."""
    after = way["after"]
    if after is not None and not after:
        return f"{way['way']} (not after this fence)"
    when = f", after {' or '.join(after)}" if after else ""
    before = way["expected"]
    took = "never done before" if before is None else f"took {before:.0f} s before"
    limit = "" if way["longest"] is None else f", {way['longest']:g} s at most"
    return f"{way['way']} ({way['does']}{when}; {took}{limit})"
