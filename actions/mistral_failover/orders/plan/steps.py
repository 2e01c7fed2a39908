# SPDX-License-Identifier: Apache-2.0
"""A plan for people and machines: steps, how members are fenced, how long it takes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mistral_failover.convergence.dry_run import DryRunStep
from mistral_failover.convergence.records import Action, Record, Status
from mistral_failover.convergence.sentences import operation_words_of
from mistral_failover.model.goal import ACTIVATION, FENCE_PREFIX, FENCE_TYPE, Goal, fence_name
from mistral_failover.model.rungs import Rung, rung_kind
from mistral_failover.model.types import Provides, ResourceType, Verb
from mistral_failover.orders.plan.documents import PlannedFence, PlanStep
from mistral_failover.runtime.errors import confirm_command
from mistral_failover.store.plans import Durations


def steps(
    waves: Sequence[Sequence[DryRunStep]],
    types: Mapping[str, ResourceType],
    lasted: Durations,
    goal: Goal,
    holders: Collection[str],
) -> list[PlanStep]:
    """Return the operations in a possible order. ``holders``: the members that hold a role now."""
    ordered = [each for wave in waves for each in wave]
    numbers = {each.node.key: number for number, each in enumerate(ordered, start=1)}
    return [
        {
            "number": numbers[each.node.key],
            "what": _what(each, types[each.record.type]),
            "verb": each.verb,
            "resource": each.record.name,
            "type": each.record.type,
            "member": each.record.member,
            "certain": each.certain,
            "after": sorted(numbers[key] for key in each.after),
            "expected": lasted.get((each.record.type, each.verb)),
            "interrupts": each.record.member in holders
            and _takes(each, types[each.record.type], goal),
        }
        for each in ordered
    ]


def _takes(each: DryRunStep, resource_type: ResourceType, goal: Goal) -> bool:
    """Return whether a step takes a volume, the application or an address away, or restarts the
    application."""
    record = each.record
    made = record.action == Action.UPDATE or (
        record.action == Action.CREATE and record.status == Status.COMPLETE
    )
    if resource_type.provides is None or not made:
        return False
    if each.verb != Verb.UPDATE:
        return each.verb == Verb.DELETE
    if resource_type.provides is not Provides.APPLICATION:
        return False
    entry = goal.document["resources"].get(record.name, {})
    had, wanted = record.properties or {}, entry.get("properties", {})
    # What depends on another resource changes with it, and then that one interrupts.
    known = {k for k in had.keys() | wanted.keys() if not isinstance(wanted.get(k), Mapping)}
    if record.type == ACTIVATION:
        known.discard("stop")  # another stop command alone is only recorded
    return any(had.get(key) != wanted.get(key) for key in known)


def _what(each: DryRunStep, resource_type: ResourceType) -> str:
    what = operation_words_of(each.verb, each.record, resource_type)
    if each.certain:
        return what
    if each.record.owner is None:
        return f"{what} (if needed)"
    return f"{what} (if needed, after {under_way(each.record, resource_type)})"


def under_way(record: Record, resource_type: ResourceType | None) -> str:
    """Return what the worker that has locked a record does to it: its step, in quotation marks, if
    that has begun."""
    if record.status != Status.IN_PROGRESS or record.action == Action.INIT:
        return f"the worker that has locked {record.name}"
    return f'"{operation_words_of(Verb(record.action.lower()), record, resource_type)}"'


def waves_of(waves: Sequence[Sequence[DryRunStep]]) -> list[list[int]]:
    """Return the numbers of the steps, wave by wave. Those of one wave may run in parallel."""
    found, number = [], 0
    for wave in waves:
        found.append(list(range(number + 1, number + 1 + len(wave))))
        number += len(wave)
    return found


def seconds(steps: Sequence[PlanStep]) -> float | None:
    """Return the duration of all certain steps along the longest path through them; None if the
    duration of one is unknown."""
    ends: dict[int, float] = {}
    for step in steps:  # each after those that it waits for
        own = step["expected"] if step["certain"] else 0.0
        if own is None:
            return None
        ends[step["number"]] = own + max((ends[number] for number in step["after"]), default=0.0)
    return max(ends.values(), default=0.0)


def fences(
    group: str, goal: Goal, waves: Sequence[Sequence[DryRunStep]], records: Sequence[Record]
) -> list[PlannedFence]:
    """Return how members are fenced."""
    coming = {each.record.name: each for wave in waves for each in wave}
    standing = {
        r.name: r
        for r in records
        if r.type == FENCE_TYPE and not r.being_deleted and r.status == Status.COMPLETE
    }
    found: list[PlannedFence] = []
    for member in goal.document["lost"]:
        name = fence_name(member)
        ladder = goal.document["resources"][name]["properties"]["ladder"]
        if name in coming or name not in standing:
            limits = [rung_kind(rung["kind"]).longest(rung) for rung in _climbed(ladder)]
            found.append(
                {
                    "member": member,
                    "ladder": ladder,
                    "longest": sum(limits),
                    "state": "climbs",
                    "sentence": f"{member} is fenced: {_words(group, member, ladder)}",
                }
            )
        else:
            proof = standing[name].attributes.get("observed", "")
            found.append(
                {
                    "member": member,
                    "ladder": ladder,
                    "longest": None,
                    "state": "stands",
                    "sentence": f"{member} remains fenced: {proof}",
                }
            )
    lifted = {r.name: r for r in records if r.type == FENCE_TYPE}
    wanted = goal.document["resources"]
    return found + [_lifted(record) for name, record in lifted.items() if name not in wanted]


def _lifted(record: Record) -> PlannedFence:
    member = record.name.removeprefix(FENCE_PREFIX)
    sentence = f"the fence of {member} is lifted, and it may serve again"
    return {
        "member": member,
        "ladder": [],
        "longest": None,
        "state": "lifted",
        "sentence": sentence,
    }


def _climbed(ladder: Sequence[Rung]) -> list[Rung]:
    """Return the rungs that take time. The wait for an operator has no limit and does not count."""
    return [rung for rung in ladder if not rung_kind(rung["kind"]).asks_operator]


def _words(group: str, member: str, ladder: Sequence[Rung]) -> str:
    tried = [rung_kind(rung["kind"]).words(rung) for rung in _climbed(ladder)]
    person = f"an operator confirms it ({confirm_command(group, member)})"
    return "; otherwise ".join([*tried, person])
