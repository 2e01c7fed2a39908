# SPDX-License-Identifier: Apache-2.0
"""What could go wrong with a plan, as far as can be seen now: each risk with a code, a sentence and
a remedy. These checks change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import TypeVar

from mistral_failover.alarms.admission import HOUR
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.stacks import stack_shown
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.records import Record, TraversalStatus
from mistral_failover.groups import agent_health
from mistral_failover.groups.agent_health import sends_commands
from mistral_failover.groups.candidates import asks_nova
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model import remedies
from mistral_failover.model.assignment import ZONES, doubts
from mistral_failover.model.decisions import Decision
from mistral_failover.model.goal import ACTIVATION, REPLACE_TYPE, Goal, goal_resources
from mistral_failover.model.heartbeats import SILENT
from mistral_failover.model.rungs import Rung, rung_kind
from mistral_failover.model.text import format_time
from mistral_failover.orders import suspensions
from mistral_failover.orders.plan.documents import PlannedFence, PlanStep, Risk
from mistral_failover.orders.plan.preconditions import Preconditions, unfit
from mistral_failover.orders.plan.volumes import volumes
from mistral_failover.runtime import rights
from mistral_failover.runtime.errors import confirm_command
from mistral_failover.runtime.request import Request
from mistral_failover.store import incidents

_T = TypeVar("_T")


@dataclass(frozen=True)
class RiskContext:
    """A plan whose risks are examined."""

    request: Request
    snapshot: GroupSnapshot
    found: Preconditions
    goal: Goal
    steps: Sequence[PlanStep]
    fences: Sequence[PlannedFence]

    @property
    def name(self) -> str:
        """The group's name."""
        return self.snapshot.group.name


def risks(case: RiskContext) -> list[Risk]:
    """Return all risks of a plan now. A failed check is a risk itself."""
    cloud = case.request.cloud(Unguarded())
    found = [*_traversal(case), *_locks(case), *_rights(case), *_members(case)]
    found += _looked("the servers", lambda: _givers(case, cloud))
    found += _fences(case)
    found += [*_alarms(case), *_holds(case), *_limits(case)]
    found += _looked("the agents", lambda: _agents(case))
    found += _looked("the stack", lambda: _stack(case, cloud))
    found += _looked("the volumes", lambda: _volumes(case, cloud))
    return found


def risk(code: str, sentence: str, remedy: str) -> Risk:
    """Return one risk; the sentence has no full stop."""
    return {"code": code, "sentence": sentence.rstrip("."), "remedy": remedy}


def looked(what: str, look: Callable[[], Iterator[_T]]) -> tuple[list[_T], list[Risk]]:
    """Return what a look found until it failed, if it did, and the risk that this is."""
    found: list[_T] = []
    try:
        found.extend(look())
    except CloudError as error:
        words = f"the check of {what} failed: {error.message}"
        return found, [risk(error.code, words, error.remedy)]
    return found, []


def _looked(what: str, look: Callable[[], Iterator[Risk]]) -> list[Risk]:
    found, failed = looked(what, look)
    return found or failed


def _traversal(case: RiskContext) -> Iterator[Risk]:
    current = case.found.traversal
    if current is None or current.status in (TraversalStatus.COMPLETE, TraversalStatus.SUPERSEDED):
        return
    if current.status == TraversalStatus.IN_PROGRESS:
        yield risk(
            "TRAVERSAL_UNDER_WAY",
            f"{case.name} is moving to another goal ({current.cause}), which this one replaces",
            "No operation is interrupted: each one ends first. Or wait until it has reached its "
            "goal.",
        )
        return
    yield risk(
        f"TRAVERSAL_{current.status}",
        f"{case.name} did not reach its present goal: {current.reason or current.cause}",
        "The same step may fail again. Repair its cause first; failover status shows it.",
    )


def _locks(case: RiskContext) -> Iterator[Risk]:
    for record in case.found.records:
        if record.owner is None:
            continue
        left = (record.lease_until or case.found.now) - case.found.now
        if record.held_at(case.found.now):
            yield risk(
                "LOCK_HELD",
                f"{record.owner} is working on {_on(record)} (its lease lasts {left:.0f} s more, "
                "and is renewed while it lives)",
                "The failover waits for it. If it died, its lease expires, and a sweep continues.",
            )
        else:
            yield risk(
                "LOCK_DEAD",
                f"{record.owner} died {-left:.0f} s ago while it worked on {_on(record)}; how far "
                "it got is unknown",
                "Do nothing: the next worker breaks the lock and checks the cloud.",
            )


def _rights(case: RiskContext) -> Iterator[Risk]:
    if waiting := rights.waiting(case.found.records):
        yield risk("RIGHTS_ENDED", waiting, "Start it with your own token.")
    if (refused := case.request.refusal()) is not None:
        yield risk(refused.code, refused.message, refused.remedy)


def _members(case: RiskContext) -> Iterator[Risk]:
    lost = frozenset(case.goal.document["lost"])
    holders = case.goal.document["roles"]
    # A zone is a risk of its own, with another remedy.
    doubted = doubts([replace(fact, apart={}) for fact in case.found.facts], lost)
    facts = {fact.name: fact for fact in case.found.facts}
    for role, member in sorted(holders.items()):
        fact = facts.get(member)
        if fact is not None and role in fact.apart:
            yield risk("ANOTHER_ZONE", f"{member} will get {role}, but {fact.apart[role]}", ZONES)
        if fact is None:
            why = "it is no longer a member of the stack"
        elif not fact.healthy:
            why = fact.why_not or "it is not healthy"
        elif fact.maintenance:
            why = fact.maintenance
        elif not (why := doubted.get(member, "")):
            continue
        yield risk(
            "TARGET_UNWELL",
            f"{member} will get {role}, but {why}",
            "Repair it first, or name another member with to; failover member list shows all "
            "members.",
        )
    for member, why in case.goal.passed_over.items():
        yield risk(
            "PASSED_OVER",
            f"{member} is passed over: {why}",
            f"Repair it first, if the roles should go to {member}; or name it with to.",
        )
    refused = unfit(case.snapshot, case.found, lost)
    back = {
        str(each.properties["member"])
        for each in goal_resources(case.goal)
        if each.type == REPLACE_TYPE
    }
    spare = ((facts.keys() - refused.keys()) | back) - set(holders.values())
    if holders and not spare:
        why = "; ".join(f"{name}: {refused[name]}" for name in sorted(refused))
        yield risk(
            "NO_STANDBY",
            "after this, no member could take over from "
            f"{' or '.join(sorted(set(holders.values())))}" + (f" ({why})" if why else ""),
            "Repair or replace the lost members, then name them with --recovered MEMBER.",
        )


def _givers(case: RiskContext, cloud: Cloud) -> Iterator[Risk]:
    """Yield members that give up a role, and whose servers Nova neither stops nor takes from."""
    before, after = case.snapshot.roles, case.goal.document["roles"]
    givers = {member for role, member in before.items() if after.get(role) != member}
    servers = {fact.name: fact.server_id for fact in case.found.facts}
    for member in sorted(givers) if asks_nova(case.snapshot.group) else ():
        server = servers.get(member)
        state = server_state(cloud, server) if server else None
        if state is not None and state.freeing:
            yield risk(
                "SERVER_BUSY",
                f"{member} gives up a role, and Nova neither stops its server nor takes anything "
                f"from it while it is {state}",
                f"{remedies.sentence(state.freeing, case.name)}. Until then it waits.",
            )


def _fences(case: RiskContext) -> Iterator[Risk]:
    """Yield members whose fence may fail without an operator."""
    facts = {fact.name: fact for fact in case.found.facts}
    for fence in case.fences:
        member = fence["member"]
        fact = facts.get(member)
        if fence["state"] != "climbs" or fact is None or not fact.host_down:
            continue
        known = f"the host of {member} is down: Nova cannot prove that the member no longer writes"
        if able := _for_dead_host(fence["ladder"]):
            yield risk(
                "FENCE_DOUBTFUL",
                f"{known}, so the fence depends on {' and '.join(able)}",
                f"Check that it can work: failover doctor {case.name}.",
            )
        else:
            yield risk(
                "FENCE_DOUBTFUL",
                f"{known}, so an operator must confirm the fence",
                f"Make sure that it is off, then run {confirm_command(case.name, member)}.",
            )


def _for_dead_host(ladder: Sequence[Rung]) -> list[str]:
    """Return the names of the rungs that may prove something about a dead host without an
    operator."""
    kinds = ((rung_kind(rung["kind"]), rung) for rung in ladder)
    return [k.name(rung) for k, rung in kinds if k.for_dead_host and not k.asks_operator]


def _alarms(case: RiskContext) -> Iterator[Risk]:
    """Yield alarms that were not acted on: the goal does not include them."""
    for alarm in case.found.alarms:
        who = " and ".join(alarm.lost) or "a member"
        if alarm.decision == Decision.ADMITTED:
            yield risk(
                "ALARM_NOT_BEGUN",
                f"an alarm that reports {who} as lost was admitted, but its failover has not "
                f"started: {alarm.sentence}",
                "Wait for it; if nothing happens, run failover sweep, and plan again.",
            )
        else:
            yield risk(
                "ALARM_HELD",
                f"an alarm that reports {who} as lost is held: {alarm.sentence}",
                f"To start its failover: failover admit {alarm.id} --because '...'; to dismiss "
                f"it: failover dismiss {alarm.id} --because '...'",
            )


def _holds(case: RiskContext) -> Iterator[Risk]:
    held = case.request.store.reading(
        lambda tx: suspensions.current_suspensions(tx, case.snapshot.state.id)
    )
    if pause := held["pause"]:
        yield risk(
            "PAUSED",
            f"{case.name} is paused by {pause['by']}, {pause['because']}: its alarms are held, "
            "but operators' orders are not",
            f"To end the pause: failover resume {quote(case.name)}.",
        )
    if work := held["maintenance"]:
        of = f" of {', '.join(work['members'])}" if work["members"] else ""
        yield risk(
            "MAINTENANCE",
            f"maintenance{of} by {work['by']} until {format_time(work['until'])}, "
            f"{work['because']}: alarms are held, but operators' orders are not",
            f"To end it: failover maintenance off {quote(case.name)}.",
        )


def _limits(case: RiskContext) -> Iterator[Risk]:
    """Yield limits that hold further alarms, but not operators: the next failure may not start a
    failover by itself."""
    limits, now = case.snapshot.group.limits, case.found.now
    since = now - max(HOUR, limits.cooldown)
    admitted = case.request.store.reading(
        lambda tx: incidents.admitted_alarms_since(tx, case.snapshot.state.id, since)
    )
    remedy = "An operator can still start a failover, or admit a held alarm."
    if admitted and now - admitted[-1] < limits.cooldown:
        yield risk(
            "COOLDOWN",
            f"an alarm was admitted {now - admitted[-1]:.0f} s ago: further alarms are held for "
            f"{limits.cooldown:g} s after it",
            remedy,
        )
    count = sum(1 for at in admitted if at > now - HOUR)
    if count >= limits.per_hour:
        yield risk(
            "PER_HOUR",
            f"{count} alarms were admitted within an hour: further alarms are held (the limit is "
            f"{limits.per_hour})",
            remedy,
        )


def _agents(case: RiskContext) -> Iterator[Risk]:
    """Yield members that must receive a command and whose agents are silent or do not know it."""
    fenced = {fence["member"] for fence in case.fences}
    asked = {
        step["member"]
        for step in case.steps
        if step["type"] == ACTIVATION and step["member"] not in fenced
    }
    if not asked or not sends_commands(case.snapshot.group):
        return
    before, after = case.snapshot.roles, case.goal.document["roles"]
    needed = {
        member: agent_health.commands_of(
            case.snapshot.group,
            [r for r in case.snapshot.group.roles if member in (before.get(r), after.get(r))],
        )
        for member in asked
    }
    for row in agent_health.agents(case.request, case.name):
        agent, member = row["agent"], row["member"]
        if member in asked and agent is not None and agent["commands"] is not None:
            missing = sorted(needed[member] - set(agent["commands"]))
            if missing:
                yield risk(
                    "COMMAND_UNKNOWN",
                    f"the agent on {member} does not know {' and '.join(missing)}",
                    f"Add it to the allow-list on {member}, or correct the name in the group file.",
                )
        if member not in asked:
            continue
        if agent is not None and agent["ago"] <= SILENT:
            if agent["not_ready"] is not None:
                yield risk(
                    "AGENT_NOT_READY",
                    f"{member} will be sent a command, but its agent is not ready: "
                    f"{agent['not_ready']}",
                    f"Run failover-agent check on {member}; the agent refuses commands until then.",
                )
            continue
        said = f"it has sent no heartbeat for {agent['ago']:.0f} s" if agent else row["sentence"]
        yield risk(
            "AGENT_SILENT" if agent else "NO_AGENT",
            f"{member} will be sent a command, but its agent may not answer: {said}",
            f"Check failover-agent on {member}; without it the command fails at its time limit.",
        )


def _stack(case: RiskContext, cloud: Cloud) -> Iterator[Risk]:
    name = case.snapshot.group.stack
    if name is None:
        return
    stack = stack_shown(cloud, name)
    action, _, status = stack.stack_status.partition("_")
    if status == TraversalStatus.IN_PROGRESS:
        yield risk(
            "STACK_BUSY",
            f"Heat is updating stack {name} ({stack.stack_status})",
            "Wait until it has finished: openstack stack show. Steps that change the stack wait "
            "for it too.",
        )
    elif status == TraversalStatus.FAILED:
        yield risk(
            "STACK_FAILED",
            f"stack {name} is {action}_FAILED: {stack.stack_status_reason}",
            "Its next update retries what failed; see openstack stack failures list.",
        )


def _volumes(case: RiskContext, cloud: Cloud) -> Iterator[Risk]:
    for code, sentence, remedy in volumes(case.snapshot, case.found, case.goal, case.steps, cloud):
        yield risk(code, sentence, remedy)


def _on(record: Record) -> str:
    return f"{record.name} on {record.member}" if record.member else record.name
