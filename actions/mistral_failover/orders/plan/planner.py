# SPDX-License-Identifier: Apache-2.0
"""Plans: what a verb would do now, without doing it, kept so that exactly this can be started.

A plan writes only itself. Its id is derived from the group, the request and the state that it
depends on, so the same plan in the same state has the same id. When it is started, it is derived
again and compared. If the state has changed, it is refused; it is never replaced by another plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import join
from typing import Any

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.dry_run import DryRunStep, dry_run_steps
from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.convergence.graph import plan_traversal
from mistral_failover.convergence.records import GroupState
from mistral_failover.convergence.sentences import where
from mistral_failover.groups import refresh_members
from mistral_failover.groups import snapshot as group_snapshots
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot
from mistral_failover.model.canonical import version_of
from mistral_failover.model.goal import Goal, returns
from mistral_failover.model.group import Group
from mistral_failover.model.ids import derived_id
from mistral_failover.model.order import Order
from mistral_failover.model.verbs import FAILOVER
from mistral_failover.orders import failover, operator_order
from mistral_failover.orders.answers import StartedOrder
from mistral_failover.orders.plan import preconditions
from mistral_failover.orders.plan import steps as plan_steps
from mistral_failover.orders.plan.deletions import deletions
from mistral_failover.orders.plan.documents import (
    PlanDocument,
    PlannedOrder,
    PlannedReturn,
    PlanStep,
)
from mistral_failover.orders.plan.preconditions import Preconditions
from mistral_failover.orders.plan.risks import RiskContext, looked, risks
from mistral_failover.orders.plan.ways_back import ways_back
from mistral_failover.orders.verbs import verb_named
from mistral_failover.runtime.errors import DEFECTS, ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.runtime.short_ids import find_by_short_id, unknown
from mistral_failover.store import groups, incidents, plans
from mistral_failover.store.plans import StoredPlan
from mistral_failover.store.transaction import ProjectTransaction

LIFETIME = 3600.0
"""Seconds for which a plan can be started, because not everything that matters can be compared."""


@dataclass(frozen=True)
class _PlanDraft:
    """A plan before it is described."""

    snapshot: GroupSnapshot
    goal: Goal
    found: Preconditions
    world: Mapping[str, Any]


def plan(request: Request, group: str, asked: Order) -> PlanDocument:
    """Return what a verb would do to a group now, and the plan's id.

    Return ``plan`` (null if there is nothing to do), ``verb``, ``group``, ``sentence``, ``inputs``,
    ``goal``, ``roles``, ``lost``, ``steps`` (see ``steps.steps``), ``parallel`` (their numbers,
    wave by wave), ``fences``, ``ways_back``, ``deletes``, ``risks``, ``seconds`` (the expected
    total, or null), ``expires_at``, ``changed`` (empty). Raises what the verb itself raises.
    """
    snapshot = group_snapshot(request, group)
    try:
        drawn = _draw(request, snapshot, asked)
    except operator_order.NothingToDo as nothing:
        return _nothing(snapshot, asked, str(nothing))
    kept = _kept(request, drawn, asked)

    def keep(tx: ProjectTransaction) -> float:
        group_snapshots.locked(request, tx, group)
        return plans.keep(tx, kept, LIFETIME)

    expires = request.store.atomically(keep)
    told = _told(request, drawn, asked)
    return {**told, "plan": kept.id, "expires_at": expires, "changed": []}


def steps_to(request: Request, group: Group) -> list[PlanStep]:
    """Return the steps that converge a group to another definition, which is not stored, or bring
    up a new one; no member is lost by that. Nothing is recorded. Raises what the verb ``failover``
    raises."""
    try:
        snapshot = group_snapshot(request, group.name)
    except UnknownGroup:
        snapshot = group_snapshots.not_yet_defined(request.project_id, group)
    if snapshot.state.restored:  # it begins again
        snapshot = group_snapshots.not_yet_defined(request.project_id, group)
    # Records of before may have types that the new definition does not.
    group = replace(group, types={**snapshot.group.types, **group.types})
    order = Order(FAILOVER, lost=())
    goal = failover.goal_function(request, order, remember=False, group=group)(snapshot)
    drawn = _drawn(request, replace(snapshot, group=group), order, goal)
    return _steps(request, drawn, _waves(drawn))


def plan_again(request: Request, plan_id: str) -> PlanDocument:
    """Return an earlier plan as it would be now: as :func:`plan`, with its old id and expiry.
    ``changed`` says in sentences why it can no longer be started.

    Raises ActionError UNKNOWN_ID, AMBIGUOUS_ID, and what the verb itself raises.
    """
    kept, state = _find(request, plan_id)
    asked = kept.order
    snapshot = group_snapshot(request, state.name)
    try:
        drawn = _draw(request, snapshot, asked)
    except operator_order.NothingToDo as nothing:
        return _nothing(snapshot, asked, str(nothing))
    told = _told(request, drawn, asked)
    changed = _changed(kept, snapshot, drawn.found, drawn.world)
    return {**told, "plan": kept.id, "expires_at": kept.expires_at, "changed": changed}


def start(request: Request, plan_id: str, because: str | None) -> StartedOrder:
    """Start the goal of a plan, once, if the state has not changed since it was made.

    A repeat or a second simultaneous call finds the existing traversal. Return as
    :func:`failover.begin`. Raises ActionError UNKNOWN_ID, AMBIGUOUS_ID, PLAN_EXPIRED, PLAN_STALE
    with what changed; CONTENDED and CloudError.
    """
    kept, state = _find(request, plan_id)
    if not _begun(request, kept, state):
        _refuse_expired(request, kept, state)
        try:
            drawn = _compared(request, kept, state)
        except ActionError as error:
            # This plan may have been started a moment ago: then it has its traversal.
            if error.code != "PLAN_STALE" or not _begun(request, kept, state):
                raise
        else:
            return _started(request, kept, drawn, because)
    return _started(request, kept, None, because, state.name)


def _started(
    request: Request,
    kept: StoredPlan,
    drawn: _PlanDraft | None,
    because: str | None,
    group: str | None = None,
) -> StartedOrder:
    """Start the plan, or find its traversal. ``drawn`` None: only find it."""

    def planned(snapshot: GroupSnapshot) -> Goal:
        current, then = snapshot.state, kept.world
        if drawn is None or current.current_traversal != then["traversal"]:
            raise _stale(kept, current.name, ["the group has received another goal"])
        if failover.definition_of(kept.order, current) != then["definition"]:
            raise _stale(kept, current.name, ["the group's definition was changed"])
        return drawn.goal

    if drawn is not None:
        _remember(request, kept, drawn)
    name = drawn.snapshot.group.name if drawn is not None else str(group)
    cause = because or f"{kept.order.verb} as planned"
    order = replace(kept.order, plan=kept.id)
    return operator_order.start_order(request, name, planned, order, cause, _occasion(kept))


def _remember(request: Request, kept: StoredPlan, drawn: _PlanDraft) -> None:
    """Record the members as the plan has them, which raises the epoch of a replaced one. Raises
    ActionError PLAN_STALE if another server was recorded in the meantime."""
    snapshot, found = drawn.snapshot, drawn.found
    refresh_members.remember_stack(request, request.cloud(Unguarded()), snapshot)
    try:
        replaced = request.store.atomically(
            lambda tx: refresh_members.record(tx, snapshot.state.id, found.seen, found.noticed)
        )
    except groups.StaleObservation as late:
        raise _stale(kept, snapshot.group.name, [str(late)]) from None
    if replaced:
        refresh_members.depose(request, request.cloud(Unguarded()), snapshot, replaced)


def _compared(request: Request, kept: StoredPlan, state: GroupState) -> _PlanDraft:
    """Return the plan as it would be now, if it is the same. Raises ActionError PLAN_STALE,
    CloudError."""
    snapshot = group_snapshot(request, state.name)
    try:
        drawn = _draw(request, snapshot, kept.order)
    except CloudError:
        raise
    except Exception as error:
        if isinstance(error, operator_order.NothingToDo):
            why = str(error)
        elif (facts := request.caught(error, "drawing a plan again"))["code"] in DEFECTS:
            raise
        else:
            why = facts["message"]
        lost = kept.world["lost"]
        found = preconditions.read_preconditions(
            request, snapshot, frozenset(lost), kept.world["volumes"]
        )
        world = preconditions.as_document(snapshot, kept.order, found, kept.goal_version, lost)
        changed = _changed(kept, snapshot, found, world)
        raise _stale(kept, state.name, [*changed, f"it can no longer be planned: {why}"]) from None
    if changed := _changed(kept, snapshot, drawn.found, drawn.world):
        raise _stale(kept, state.name, changed)
    return drawn


def _changed(
    kept: StoredPlan, snapshot: GroupSnapshot, found: Preconditions, world: Mapping[str, Any]
) -> list[str]:
    if version_of(world) == kept.fingerprint:
        return []
    refused = preconditions.unfit(snapshot, found, world["lost"])
    return preconditions.differences(kept.world, world, refused)


def _stale(kept: StoredPlan, group: str, changed: list[str]) -> ActionError:
    return ActionError(
        "PLAN_STALE",
        f"the situation has changed since plan {kept.id} was made: {'; '.join(changed)}",
        f"Nothing was started. To see what would happen now: {_plan_command(group, kept)}",
    )


def _refuse_expired(request: Request, kept: StoredPlan, state: GroupState) -> None:
    late = _late(request, kept)
    if late > 0:
        raise ActionError(
            "PLAN_EXPIRED",
            f"plan {kept.id} of {state.name} expired {late:.0f} s ago",
            "Nothing was started. Plan again (if nothing changed, you get the same plan): "
            f"{_plan_command(state.name, kept)}",
        )


def _late(request: Request, kept: StoredPlan) -> float:
    """Return the seconds since a plan has expired; negative if it has not."""
    now: float = request.store.reading(lambda tx: tx.now())
    return now - kept.expires_at


def _find(request: Request, said: str) -> tuple[StoredPlan, GroupState]:
    """Return the plan with this id, or with an id that begins with it, and its group."""

    def read(tx: ProjectTransaction) -> tuple[StoredPlan, GroupState] | None:
        identity = find_by_short_id(request, tx, said, kind="plan").id
        return plans.find(tx, identity)

    found = request.store.reading(read)
    if found is None:  # it was deleted just now
        raise unknown(said, kind="plan")
    return found


def _begun(request: Request, kept: StoredPlan, state: GroupState) -> bool:
    """Return whether a plan was started before."""
    order = operator_order.order_id(kept.project_id, kept.group_id, _occasion(kept))
    traversal = failover.traversal_of(state.id, order)

    def read(tx: ProjectTransaction) -> bool:
        known = incidents.get(tx, order)
        linked = known is not None and known.traversal_id is not None
        return linked or tx.traversal(traversal) is not None

    return request.store.reading(read)


def _occasion(kept: StoredPlan) -> str:
    return f"plan/{kept.id}"


def _kept(request: Request, drawn: _PlanDraft, asked: Order) -> StoredPlan:
    fingerprint = version_of(drawn.world)
    group_id = drawn.snapshot.state.id
    return StoredPlan(
        id=derived_id("plan", group_id, asked.verb, version_of(asked.inputs), fingerprint),
        project_id=request.project_id,
        group_id=group_id,
        order=asked,
        fingerprint=fingerprint,
        world=drawn.world,
        goal_version=drawn.goal.version,
    )


def _draw(request: Request, snapshot: GroupSnapshot, asked: Order) -> _PlanDraft:
    goal = verb_named(asked.verb, to_plan=True).derive(request, asked, remember=False)(snapshot)
    snapshot = replace(snapshot, group=failover.group_of(request, snapshot, goal))
    return _drawn(request, snapshot, asked, goal)


def _drawn(request: Request, snapshot: GroupSnapshot, asked: Order, goal: Goal) -> _PlanDraft:
    lost = goal.document["lost"]
    found = preconditions.read_preconditions(
        request, snapshot, frozenset(lost), preconditions.volumes_of(goal)
    )
    world = preconditions.as_document(snapshot, asked, found, goal.version, lost)
    return _PlanDraft(snapshot, goal, found, world)


def _told(request: Request, drawn: _PlanDraft, asked: Order) -> PlannedOrder:
    snapshot, goal, found = drawn.snapshot, drawn.goal, drawn.found
    waves = _waves(drawn)
    steps = _steps(request, drawn, waves)
    fences = plan_steps.fences(snapshot.group.name, goal, waves, found.records)
    ways = _ways_back(request, drawn, waves)
    deleted, doubts = looked(
        "what is deleted", lambda: deletions(request, snapshot, found, goal, fences, ways)
    )
    return {
        "verb": asked.verb,
        "group": snapshot.group.name,
        "sentence": _sentence(snapshot, goal, asked),
        "inputs": asked.inputs,
        "goal": goal.version,
        "roles": dict(goal.document["roles"]),
        "lost": list(goal.document["lost"]),
        "steps": steps,
        "parallel": plan_steps.waves_of(waves),
        "fences": fences,
        "ways_back": ways,
        "deletes": deleted,
        "risks": [*risks(RiskContext(request, snapshot, found, goal, steps, fences)), *doubts],
        "seconds": plan_steps.seconds(steps),
    }


def _steps(
    request: Request, drawn: _PlanDraft, waves: Sequence[Sequence[DryRunStep]]
) -> list[PlanStep]:
    snapshot = drawn.snapshot
    lasted = request.store.reading(lambda tx: plans.durations(tx, snapshot.state.id))
    holders = set(snapshot.roles.values())
    return plan_steps.steps(waves, snapshot.group.types, lasted, drawn.goal, holders)


def _ways_back(
    request: Request, drawn: _PlanDraft, waves: Sequence[Sequence[DryRunStep]]
) -> list[PlannedReturn]:
    lasted = request.store.reading(lambda tx: plans.ways_lasted(tx, drawn.snapshot.state.id))
    limits = drawn.snapshot.group.limits
    return ways_back(drawn.goal, waves, drawn.found.records, lasted, limits)


def _waves(drawn: _PlanDraft) -> list[list[DryRunStep]]:
    snapshot, found = drawn.snapshot, drawn.found
    graph = plan_traversal(
        drawn.goal,
        snapshot.group.types,
        found.records,
        found.epochs,
        group_id=snapshot.state.id,
        new_id=lambda resource: derived_id(snapshot.state.id, "plan", resource),
    )
    return dry_run_steps(graph, snapshot.group.types, found.records, found.epochs, found.now)


def _sentence(snapshot: GroupSnapshot, goal: Goal, asked: Order) -> str:
    lost = goal.document["lost"]
    of = f"; {', '.join(lost)} lost" if lost else ""
    back = "; if a step fails, everything is moved back" if returns(goal) else ""
    held = [f"{role} on {member}" for role, member in sorted(snapshot.roles.items())]
    now = "now " if snapshot.reached or not held else "moving to "
    now += " and ".join(held) or "nothing active"
    unsaid = ""
    if asked.verb == FAILOVER and asked.lost is None and snapshot.reached and held:
        taken = " and ".join(sorted(set(snapshot.roles.values())))
        unsaid = f"; {taken} counts as lost, because the request names no lost member"
    return f"{asked.verb} of {snapshot.group.name}: {where(goal)}{of} ({now}){unsaid}{back}"


def _nothing(snapshot: GroupSnapshot, asked: Order, sentence: str) -> PlanDocument:
    return {
        "plan": None,
        "verb": asked.verb,
        "group": snapshot.group.name,
        "sentence": sentence,
        "inputs": asked.inputs,
        "goal": snapshot.state.last_complete_goal,
        "roles": dict(snapshot.roles),
        "lost": sorted(snapshot.lost),
        "steps": [],
        "parallel": [],
        "fences": [],
        "ways_back": [],
        "deletes": [],
        "risks": [],
        "seconds": 0.0,
        "expires_at": None,
        "changed": [],
    }


def _plan_command(group: str, kept: StoredPlan) -> str:
    """Return the command that plans for a group again with the inputs of a kept plan."""
    verb = [] if kept.order.verb == FAILOVER else ["--verb", kept.order.verb]
    options = [word for name, value in kept.order.inputs.items() for word in _options(name, value)]
    return join(["failover", "plan", group, *verb, *options])


def _options(name: str, value: Any) -> Iterator[str]:
    # A mapping of roles to members cannot be typed. An empty list of lost members means none.
    values = [] if isinstance(value, dict) else value if isinstance(value, list) else [value]
    for each in values or ([""] if value == [] else []):
        yield from (f"--{name.replace('_', '-')}", str(each))
