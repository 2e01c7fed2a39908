# SPDX-License-Identifier: Apache-2.0
"""Continue after a stop: what a crash left behind, and what waited for an operator.

A sweep carries out no operation of a traversal: it finds traversals and returns the workflows that
carry them out. Any number of sweeps may run at the same time.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from mistral_failover.alarms.storm import Queued, in_order
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_fingerprint
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.cloud.volume_holders import volume_fingerprint
from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.convergence.records import JournalKind, NodeStatus, Ready
from mistral_failover.convergence.traversals import restate
from mistral_failover.convergence.waiting import next_look
from mistral_failover.fault_points import reach
from mistral_failover.groups import agent_epochs
from mistral_failover.groups.snapshot import group_snapshot, group_snapshot_in
from mistral_failover.mistral import event_hooks
from mistral_failover.mistral.api import Mistral, mistral_of
from mistral_failover.mistral.event_hooks import SentEvent
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.goal import REPLACE_TYPE, fence_name
from mistral_failover.model.group import Group
from mistral_failover.orders import alarm_failovers, vacant_roles
from mistral_failover.orders.failover import chain_of, traversal_of
from mistral_failover.recovery import observe, rehearsals, retention, stuck_executions
from mistral_failover.recovery.documents import (
    AdmittedIncidents,
    DueRehearsal,
    EndedExecution,
    JudgedAlarms,
    ObservedGroup,
    Restarted,
    Swept,
    TakenUp,
)
from mistral_failover.recovery.lift_fences import lift_fences
from mistral_failover.recovery.retry_held_alarms import retry_held
from mistral_failover.runtime.errors import explained
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents, stalled_work, suspensions, views
from mistral_failover.store.counters import SWEEPS
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)

STALE = 600.0
"""Seconds after which an incident that could not be started waits for an operator: its facts may no
longer be true."""
BUSY = STALE / 2
"""Seconds for which a sweep leaves many admitted incidents to those who start them."""

LASTS = 20.0
"""Seconds that a sweep spends on held alarms, on the starts of failovers, and on stopped steps,
each; the next sweep continues. A service that hangs takes ten for one answer."""

T = TypeVar("T", stalled_work.Stalled, stalled_work.ChainWait)


def sweep(request: Request, group: str | None) -> Swept:
    """Find and take over what dead processes left behind, in the project or in one of its
    groups."""
    group_id = group_snapshot(request, group).state.id if group else None
    unable: list[str] = []
    ended: list[EndedExecution] = []
    waits = partial(_waiting_for_chain, request, asked_for=group_id is not None)
    waiting = request.store.reading(lambda tx: waits(tx, group_id))
    undriven = [each for each in waiting if each.chain is None]  # Mistral need not be asked
    part = partial(_part, request, unable)
    with part("The request to Mistral failed"):
        mistral, deadline = mistral_of(request), time.monotonic() + stuck_executions.LIMIT
        if mistral is None:
            sentence = "Mistral is not reachable: [failover] mistral_url is not set"
            unable.append(sentence)
        # An operator who names a group wants another try, whatever the number of tries before.
        driven = [each for each in waiting if each.chain is not None]
        undriven += stuck_executions.without_chain(
            driven, mistral, deadline, asked_for=group_id is not None
        )
        if mistral is not None and group_id is None:
            ended += _ended(request, mistral, deadline)
    # First what asks the cloud, which may take long. What is taken up without asking comes last:
    # no other sweep takes it for `sweep_after`, and its chain starts when this returns.
    judged: JudgedAlarms = {"released": [], "dismissed": [], "unable": []}
    with part("held alarms"):
        judged = retry_held(request, group_id, time.monotonic() + LASTS)
        unable += judged["unable"]
    admitted: AdmittedIncidents = {"started": [], "held": [], "refused": []}
    with part("admitted alarms"):
        admitted = _incidents(request, group, unable)
    taken_up: list[TakenUp] = []
    # Before the steps that failed: a standby that is well is better than another try of one that
    # could not be brought back.
    with part("vacant roles"):
        taken_up += _filled(request, group_id)
    with part("rehearsals"):
        taken_up += rehearsals.continued(request, group_id)
    with part("stopped steps"):
        taken_up += retry_stopped(request, group_id, time.monotonic() + LASTS)
    with part("chains"):
        again = partial(_waiting_again, waits)
        taken_up += _taken_up(request, undriven, _undriven_row, again, unable)
    with part("stalled traversals"):
        known = {row["traversal"] for row in taken_up}
        taken_up += _stalled(request, group_id, known, unable)
    with part("confirmed fences"):
        taken_up += _reopened(request, group_id)
    restarted = list(_with_chain(request, taken_up, unable))
    chains: dict[str | None, str | None] = {
        **{row["traversal"]: row["workflow"] for row in admitted["started"]},
        **{row["traversal"]: row["workflow"] for row in restarted},
    }
    observed: list[ObservedGroup] = []
    told: list[SentEvent] = []
    rehearse: list[DueRehearsal] = []
    if not chains:
        with part("observation"):  # of a group that an operator names, at once
            observed = observe.observe(request, group, asked_for=group is not None)
    if not chains and group is None:
        with part("rehearsals that are due"):  # after the look: only what serves is rehearsed
            rehearse = rehearsals.due(request)
    with part("events"):
        told = _told(request, group_id, unable, urgent=bool(chains))
    if group is None and not chains:
        with part("old rows"):
            retention.forget(request)
        with part("fences of hosts"):
            lift_fences(request)
    swept: Swept = {
        **admitted,
        "released": judged["released"],
        "dismissed": judged["dismissed"],
        "restarted": restarted,
        "ended": ended,
        "observed": observed,
        "told": told,
        "chains": [
            {"traversal": traversal, "workflow": workflow} for traversal, workflow in chains.items()
        ],
        "heals": [row["heal"] for row in observed if row["heal"]],
        "rehearsals": rehearse,
        "unable": unable,
    }
    with part("metrics"):
        _count(request, swept)
    reach("sweep.after")
    return swept


@contextmanager
def _part(request: Request, unable: list[str], what: str) -> Iterator[None]:
    """Do one part of a sweep. What fails is reported, and stops no other part."""
    try:
        yield
    except Exception as error:
        unable.append(f"{what}: {request.caught(error, 'sweeping')['message']}")


def _with_chain(
    request: Request, rows: Sequence[TakenUp], unable: list[str]
) -> Iterator[Restarted]:
    """Yield these rows with the chain of each group. A group that cannot be read, because it was
    deleted just now or needs a package that is gone, does not stop the others."""
    for row in rows:
        with _part(request, unable, row["group"]):
            yield {**row, "workflow": chain_of(_working_by(request, row["group"]))}


def _working_by(request: Request, name: str) -> Group:
    """Return the definition of a group's current traversal. Raises UnknownGroup."""

    def read(tx: ProjectTransaction) -> Group:
        state = groups.find(tx, name)
        if state is None:
            raise UnknownGroup(name, groups.names(tx))
        return request.runtime.definitions.group(tx, state)

    return request.store.reading(read)


def _told(
    request: Request, group_id: str | None, unable: list[str], *, urgent: bool
) -> list[SentEvent]:
    """Send the events that dead processes did not send. ``urgent``: nodes wait for a worker, and a
    failover must not wait for a user's workflow."""
    if urgent:
        event_hooks.send_soon(request, group_id)
        return []
    rows = event_hooks.send_all(request, group_id)
    unable += [row["sentence"] for row in rows if row["event"] is None]
    return [row for row in rows if row["event"] is not None]


def _count(request: Request, swept: Swept) -> None:
    """Count the sweep, for the metrics."""
    found = any(rows for what, rows in swept.items() if what != "unable")
    label = "yes" if found else "no"
    request.store.atomically(lambda tx: tx.count(None, SWEEPS, label))


def _waiting_for_chain(
    request: Request, tx: ProjectTransaction, group_id: str | None, *, asked_for: bool
) -> list[stalled_work.ChainWait]:
    quiet = request.runtime.settings.sweep_after
    return stalled_work.chain_waits(tx, group_id, quiet, asked_for=asked_for)


def _waiting_again(
    waits: Callable[[ProjectTransaction, str | None], list[stalled_work.ChainWait]],
    tx: ProjectTransaction,
    found: stalled_work.ChainWait,
) -> list[stalled_work.ChainWait]:
    return [each for each in waits(tx, found.group_id) if each == found]


def _undriven_row(tx: ProjectTransaction, found: stalled_work.ChainWait) -> TakenUp:
    if found.chain is None:
        sentence = "no execution of its chain is running: a sweep starts one"
    else:
        sentence = f"its chain (execution {found.chain}) ended too early: a sweep starts it again"
    tx.journal(found.group_id, sentence, kind=JournalKind.SWEEP, traversal_id=found.traversal_id)
    return {"traversal": found.traversal_id, "group": found.group, "sentence": sentence}


def _ended(request: Request, mistral: Mistral, deadline: float) -> Iterator[EndedExecution]:
    """End the executions that are stuck in Mistral, so that waiting callers see an end."""
    store, after = request.store, request.runtime.settings.hang_after
    for found in stuck_executions.find_stuck(store, mistral, after, deadline, request.execution):
        stuck_executions.end(mistral, found)
        store.atomically(partial(_tell_end, found))
        top = found.top
        yield {"execution": top.id, "workflow": top.workflow, "sentence": found.sentence}


def _tell_end(found: stuck_executions.StuckExecution, tx: ProjectTransaction) -> None:
    """Write to the journals of the groups that a tree of executions belongs to."""
    concerned: set[str | None] = set()
    for execution in found.executions:
        if isinstance(traversal := execution.input.get("traversal"), str):
            concerned.add(stalled_work.group_of(tx, traversal))
        elif isinstance(name := execution.input.get("group"), str):
            state = groups.find(tx, name)
            concerned.add(state.id if state else None)
    for group_id in sorted(each for each in concerned if each):
        tx.journal(group_id, found.sentence, kind=JournalKind.ENDED)


def _unstarted(request: Request, tx: ProjectTransaction) -> list[Queued[incidents.Incident]]:
    """Return the admitted alarms that have no traversal. While others start many of them, batch by
    batch, only those that the storm guard let go, which sweeps start: a sweep would do the same
    work again. An operator saw that an order did not start, and may have chosen another way."""
    now = tx.now()
    found = [each for each in incidents.unstarted(tx) if each.source != incidents.OPERATOR]
    others = [each for each in found if each.rule != AdmissionRule.RELEASED]
    if len(others) > alarm_failovers.BATCH and now - others[0].decided_at < BUSY:
        quiet = request.runtime.settings.sweep_after
        if stalled_work.started_since(tx, now - quiet):
            found = [each for each in found if each.rule == AdmissionRule.RELEASED]
    priorities = groups.priorities(tx) if found else {}
    return [
        Queued(each, priorities.get(each.group_id or "", 0), now - each.first_at) for each in found
    ]


def _incidents(request: Request, group: str | None, unable: list[str]) -> AdmittedIncidents:
    """Start the traversals of admitted incidents that have none, or hold those that are too old.
    Groups with a higher priority come first, those that could not be started before last. After
    `LASTS` seconds the rest is left to the next sweep."""
    end = time.monotonic() + LASTS
    found: AdmittedIncidents = {"started": [], "held": [], "refused": []}
    unstarted = request.store.reading(partial(_unstarted, request))
    for incident in sorted(in_order(unstarted), key=lambda each: bool(each.fact.refusal)):
        if group is not None and incident.fact.group != group:
            continue
        if time.monotonic() > end:
            unable.append(
                "The starts of failovers take long: the next sweep continues with the rest."
            )
            break
        try:
            holds = (_restored, _out_of_service, _too_old)
            if sentence := next(filter(None, (hold(request, incident) for hold in holds)), None):
                found["held"].append({"incident": incident.id, "sentence": sentence})
                continue
            answer = alarm_failovers.start(request, incident)
            sentence = f"the failover for {incident.sentence} was started"
            found["started"].append(
                {
                    "incident": incident.id,
                    "group": answer["group"],
                    "traversal": answer["traversal"],
                    "workflow": answer["workflow"],
                    "sentence": sentence,
                }
            )
        except Exception as error:  # one group's error must not stop the others
            facts = request.caught(error, "starting the failover of an alarm")
            sentence = f"the failover for {incident.sentence} cannot start: {explained(error)}"
            found["refused"].append(
                {
                    "incident": incident.id,
                    "group": incident.fact.group,
                    "error": facts,
                    "sentence": sentence,
                }
            )
    return found


def _reopened(request: Request, group_id: str | None) -> Iterator[TakenUp]:
    """Reopen fences that an operator confirmed if only the confirmation was recorded."""
    database, engine = request.store, request.engine
    found = database.reading(lambda tx: stalled_work.confirmed_fences(tx, group_id))
    for where, name, member in found:
        fence = fence_name(member)
        sentence = (
            f"{fence}: reopened by a sweep, because an operator confirmed that {member} is fenced"
        )
        for node in engine.resume(where):
            database.atomically(partial(_tell_reopened, where, node, sentence))
            yield {"traversal": node.traversal_id, "group": name, "sentence": sentence}


def _filled(request: Request, group_id: str | None) -> Iterator[TakenUp]:
    """Give vacant roles to members that can take them by now, though the new server failed."""
    database = request.store
    for where in database.reading(lambda tx: vacant_roles.waiting(request, tx, group_id)):
        if not vacant_roles.fill(request, where):
            continue
        current = request.engine.current(where)
        state = database.reading(partial(groups.of_traversal, traversal_id=current.id))
        if state is not None:
            yield {"traversal": current.id, "group": state.name, "sentence": current.cause}


def _tell_reopened(group_id: str, node: Ready, sentence: str, tx: ProjectTransaction) -> None:
    tx.journal(
        group_id,
        sentence,
        kind=JournalKind.SWEEP,
        traversal_id=node.traversal_id,
        resource_id=node.node.resource_id,
    )


def _stalled(
    request: Request, group_id: str | None, known: Set[str], unable: list[str]
) -> Iterator[TakenUp]:
    """Take over the traversals that no worker carries out, except those that this sweep has taken
    over already."""

    def look(where: str | None, tx: ProjectTransaction) -> list[stalled_work.Stalled]:
        return stalled(request.runtime, tx, where, asked_for=group_id is not None)

    found = request.store.reading(partial(look, group_id))
    found = [each for each in found if each.traversal_id not in known]
    yield from _taken_up(
        request, found, _stalled_row, lambda tx, each: look(each.group_id, tx), unable
    )


def stalled(
    runtime: Runtime, tx: ProjectTransaction, group_id: str | None, *, asked_for: bool = False
) -> list[stalled_work.Stalled]:
    """Return the traversals that no worker carries out, of the project or of one group.

    Of the project, one whose nodes wait in this process for their turn has a worker: where many
    groups fail over, that can take minutes, and another chain for each would make it take longer.
    An operator who names a group wants another try.
    """
    quiet = runtime.settings.sweep_after
    found = stalled_work.stalled(tx, group_id, quiet, asked_for=asked_for)
    if group_id is not None:
        return found
    busy = runtime.workers.busy
    return [each for each in found if each.dead is not None or not busy(each.group_id)]


def _stalled_row(tx: ProjectTransaction, found: stalled_work.Stalled) -> TakenUp:
    dead = f"the lease of {found.dead} expired" if found.dead else "no worker carries it out"
    sentence = f"{found.resource}: continued by a sweep, because {dead}"
    tx.journal(found.group_id, sentence, kind=JournalKind.SWEEP, traversal_id=found.traversal_id)
    return {"traversal": found.traversal_id, "group": found.group, "sentence": sentence}


def _taken_up(
    request: Request,
    found: Sequence[T],
    row: Callable[[ProjectTransaction, T], TakenUp],
    again: Callable[[ProjectTransaction, T], Sequence[T]],
    unable: list[str],
) -> Iterator[TakenUp]:
    """Record that a sweep takes over traversals. Each transaction locks the group and looks
    ``again`` first, so that only one of two simultaneous sweeps does so."""

    def take(each: T, tx: ProjectTransaction) -> list[TakenUp]:
        tx.lock_group(each.group_id, shared=False)
        return [row(tx, now) for now in again(tx, each)]

    for each in found:
        with _part(request, unable, each.group):
            yield from request.store.atomically(partial(take, each))


def _out_of_service(request: Request, incident: incidents.Incident) -> str | None:
    """Hold an admitted alarm if its group was taken out of service before it could be started. Time
    will not change that; an operator who activates the group again may look at it."""

    def why(tx: ProjectTransaction, found: incidents.Incident) -> str | None:
        state = groups.get(tx, incident.group_id or "")
        if found.order is not None or state is None:
            return None
        snapshot = group_snapshot_in(request, tx, state)
        return None if snapshot.in_service else f"{state.name} has been taken out of service"

    return _held_back(request, incident, why, AdmissionRule.NOT_IN_SERVICE)


def _restored(request: Request, incident: incidents.Incident) -> str | None:
    """Hold an admitted alarm if what the store has of its group is older than the world."""

    def why(tx: ProjectTransaction, found: incidents.Incident) -> str | None:  # noqa: ARG001
        state = groups.get(tx, incident.group_id or "")
        return agent_epochs.older(state.name) if state is not None and state.restored else None

    return _held_back(request, incident, why, AdmissionRule.RESTORED)


def _too_old(request: Request, incident: incidents.Incident) -> str | None:
    """Hold an admitted incident that could not be started for too long. Return the sentence, or
    None.
    The time in which members are being replaced does not count, because there may be no member to
    take over."""

    def why(tx: ProjectTransaction, found: incidents.Incident) -> str | None:
        group_id = incident.group_id or ""
        state = groups.get(tx, group_id)
        if state is not None and group_snapshot_in(request, tx, state).being_replaced:
            return None
        replaced_at = views.last_ended(tx, group_id, REPLACE_TYPE) or 0.0
        if tx.now() - max(found.last_at, found.decided_at, replaced_at) <= STALE:
            return None
        why = f": {found.fact.refusal}" if found.fact.refusal else ""
        return f"it could not be started for {STALE / 60:.0f} minutes{why}"

    return _held_back(request, incident, why, AdmissionRule.TOO_LATE)


def _held_back(
    request: Request,
    incident: incidents.Incident,
    judge: Callable[[ProjectTransaction, incidents.Incident], str | None],
    rule: AdmissionRule,
) -> str | None:
    """Hold an admitted incident if ``judge`` gives a reason. Return the sentence, None if it was
    not held."""
    assert incident.group_id is not None  # every admitted incident has a group
    group_id = incident.group_id

    def hold(tx: ProjectTransaction) -> str | None:
        tx.lock_group(group_id, shared=False)
        # Read it again: another process may have started it, or an operator may have admitted it
        # just now.
        found = incidents.get(tx, incident.id)
        if found is None or found.decision != Decision.ADMITTED or found.traversal_id is not None:
            return None
        if tx.traversal(traversal_of(group_id, incident.id)) is not None:
            return None  # the process that started it died before it recorded that
        why = judge(tx, found)
        if why is None:
            return None
        sentence = f"{found.fact.reported}; {why}"
        incidents.decide(tx, incident.id, Decision.HELD, sentence, rule=rule)
        tx.journal(group_id, f"HELD: {sentence}", kind=JournalKind.HELD, incident_id=incident.id)
        return sentence

    return request.store.atomically(hold)


def retry_stopped(request: Request, group_id: str | None, end: float) -> Iterator[TakenUp]:
    """Reopen the nodes that failed or are blocked, if what stopped them may be over.

    A node that was blocked by a volume or a server has recorded the state that was seen
    (``cloud.volume_holders.volume_fingerprint``, ``cloud.servers.server_fingerprint``): it is
    reopened as soon as that has changed. Only the retry shows if the change was the right one. Of
    everything else nothing shows that it is over, so it is tried from time to time
    (``convergence.waiting.next_look``). Until such a try has helped, the traversal keeps its status
    and its reason.

    Only one of two simultaneous sweeps does so. ``end``: when this must be over, on
    the monotonic clock. Raises CloudError."""
    database, asked_for = request.store, group_id is not None
    find = partial(stalled_work.stopped_steps, group_id=group_id, asked_for=asked_for)
    found = database.reading(find)
    if not found:
        return
    cloud = request.cloud(Unguarded())
    trouble: CloudError | None = None
    random.shuffle(found)  # if the time is not enough for all, each gets its turn
    for stopped in found:
        if time.monotonic() > end:
            break
        try:
            change = _change(cloud, stopped)
        except CloudError as error:
            trouble = error  # raised after the other groups had their turn
            change = None
        if change is None and not stopped.due:
            continue
        if not asked_for and database.atomically(partial(_held_off, request, stopped)):
            continue
        why = f"it has changed: {change}" if change else "what it waits for may be back"
        sentence = f"{stopped.resource}: reopened by a sweep, because {why}"
        if database.atomically(partial(_tried_again, stopped, sentence, change is None)):
            traversal = stopped.ready.traversal_id
            yield {"traversal": traversal, "group": stopped.group, "sentence": sentence}
    if trouble is not None:
        raise trouble


def _change(cloud: Cloud, stopped: stalled_work.StoppedStep) -> str | None:
    """Return the present state of what blocked a node, if it has changed; else None."""
    about = stopped.about
    if about is None:
        return None
    seen = (
        server_fingerprint(cloud, about.server)
        if about.volume is None
        else volume_fingerprint(cloud, about.volume, about.server)
    )
    return None if seen == about.sight else seen


def _held_off(request: Request, stopped: stalled_work.StoppedStep, tx: ProjectTransaction) -> bool:
    """Put off what the group lets no sweep start: what failed has ended, so to try it again is to
    heal the group; and each try to bring a member back makes a server. What is blocked goes on with
    an order that has not ended."""
    if stopped.status != NodeStatus.FAILED:
        return False
    state = groups.get(tx, stopped.group_id)
    if state is None:
        return True
    group = request.runtime.definitions.group(tx, state, state.to_move)
    now, traversal = tx.now(), stopped.ready.traversal_id
    if group.heal == "report" or suspensions.is_suspended(tx, stopped.group_id):
        tx.put_off(traversal, stopped.ready.node, next_look(stopped.since, now))
        return True
    tries = views.brought_back(tx, stopped.group_id, now - observe.HOUR)
    tries = [each for each in tries if each["name"] == stopped.resource]
    most = group.limits.per_hour
    if len(tries) < most:
        return False
    tx.put_off(traversal, stopped.ready.node, tries[-most]["at"] + observe.HOUR)
    sentence = (
        f"{stopped.resource}: not tried again now, since {len(tries)} tries within an hour are the "
        f"limit (per_hour is {most})"
    )
    tx.journal(stopped.group_id, sentence, kind=JournalKind.SWEEP, traversal_id=traversal)
    return True


def _tried_again(
    stopped: stalled_work.StoppedStep, sentence: str, once: bool, tx: ProjectTransaction
) -> bool:
    tx.lock_group(stopped.group_id, shared=False)
    traversal = stopped.ready.traversal_id
    if not tx.reopen_node(traversal, stopped.ready.node, once=once):
        return False
    if not once:
        # The change counts once: a node may stop again without another operation.
        stalled_work.forget_change(tx, stopped)
        restate(tx, traversal)
    tx.journal(
        stopped.group_id,
        sentence,
        kind=JournalKind.SWEEP,
        traversal_id=traversal,
        resource_id=stopped.ready.node.resource_id,
    )
    return True
