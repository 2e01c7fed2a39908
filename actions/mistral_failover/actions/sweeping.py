# SPDX-License-Identifier: Apache-2.0
"""Going on after a stop: what a crash left lying, and what waited for a person.

Nothing is carried out here: nodes are found and handed to the workflow that works them off. Any
number of sweeps may run at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mistral_failover.actions import admitting, hanging, hooks
from mistral_failover.actions.documents import ready_document
from mistral_failover.actions.errors import ActionError, describe
from mistral_failover.actions.loosening import loosened
from mistral_failover.actions.runtime import Request
from mistral_failover.actions.standing import standing, standing_of
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.mistral_api import Mistral
from mistral_failover.convergence.records import Ready
from mistral_failover.fault_points import reach
from mistral_failover.model.goal import REPLACE_TYPE, fence_name
from mistral_failover.store import groups, incidents, lying, totals, views
from mistral_failover.store.lying import SWEPT

STALE = 600.0
"""Seconds after which an incident that could not be started waits for a person: what it said may
not be true any more."""

Row = dict[str, Any]


def sweep(request: Request, group: str | None) -> dict[str, list[Any]]:
    """Find and take up what dead processes left lying in the project, or in one of its groups.

    Returns lists, each row with a ``sentence``:

    - ``ready``: nodes that are to be worked on, ``traversal``, ``node``, ``group``;
    - ``started``, ``held``, ``refused``: admitted incidents that had caused no traversal, with
      ``incident``, and ``traversal`` or ``error``;
    - ``shortened``: locks of operations whose execution has ended, ``resource``, ``group``;
    - ``ended``: executions of the project that hung in Mistral, ``execution``, ``workflow``; not
      looked for when ``group`` is given;
    - ``told``: events that workflows of groups were told now, ``group``, ``event``; where there is
      something to work on that comes first, and they are told behind the sweep's back;
    - ``unable``: sentences about what could not be looked at, or told.
    """
    group_id = standing(request, group).state.id if group else None
    swept: dict[str, list[Any]] = {"shortened": [], "ended": [], "unable": []}
    try:
        mistral = request.mistral()
        if mistral is None:
            sentence = "Mistral can not be asked: [failover] mistral_url is not set"
            swept["unable"].append(sentence)
        else:
            deadline = time.monotonic() + hanging.LIMIT
            swept["shortened"] += _shortened(request, mistral, group_id, deadline)
            if group_id is None:
                swept["ended"] += _ended(request, mistral, deadline)
    except CloudError as error:
        swept["unable"].append(f"Mistral could not be asked: {describe(error)['message']}")
    swept |= _incidents(request, group)
    swept["ready"] = [*_ready(request, group_id), *_reopened(request, group_id)]
    try:
        swept["ready"] += loosened(request, group_id)
    except CloudError as error:
        swept["unable"].append(f"blocked volumes: {describe(error)['message']}")
    urgent = bool(swept["ready"] or swept["started"])
    swept["told"] = _told(request, group_id, swept["unable"], urgent=urgent)
    _count(request, swept)
    reach("sweep.after")
    return swept


def _told(request: Request, group_id: str | None, unable: list[str], *, urgent: bool) -> list[Row]:
    """Tell what dead processes left untold. ``urgent``: nodes wait to be worked on, and no failover
    waits for a workflow of the user's."""
    try:
        if urgent:
            hooks.tell_soon(request, group_id)
            return []
        rows = hooks.tell_all(request, group_id)
    except Exception as error:  # noqa: BLE001 - a workflow of the user's must not stop a sweep
        unable.append(f"events: {describe(error)['message']}")
        return []
    unable += [row["sentence"] for row in rows if row["event"] is None]
    return [row for row in rows if row["event"] is not None]


def _count(request: Request, swept: dict[str, list[Any]]) -> None:
    """Count the sweep, for the metrics."""
    found = any(rows for what, rows in swept.items() if what != "unable")
    project = request.project_id
    request.runtime.database.atomically(lambda tx: totals.swept(tx, project, found=found))


def _shortened(
    request: Request, mistral: Mistral, group_id: str | None, deadline: float
) -> Iterator[Row]:
    """Let the locks of workflows that ended without a conclusion end soon. They are not broken at
    once: an action of the workflow may still be at work, and renews before its next call."""
    lease, database = request.runtime.settings.lease, request.runtime.database
    locks = database.reading(lambda tx: lying.long_locks(tx, request.project_id, group_id, lease))
    for lock, why in hanging.orphaned(locks, mistral, deadline):
        sentence = f"{lock.resource}: the lock ends in {lease:.0f} s, for {why}"
        if database.atomically(partial(_shorten, lock, lease, sentence)):
            yield {"resource": lock.resource, "group": lock.group, "sentence": sentence}


def _shorten(lock: lying.LongLock, lease: float, sentence: str, tx: Any) -> bool:
    if not tx.shorten(lock.resource_id, lock.owner, lock.token, lease):
        return False
    tx.journal(lock.group_id, sentence, kind="shortened", resource_id=lock.resource_id)
    return True


def _ended(request: Request, mistral: Mistral, deadline: float) -> Iterator[Row]:
    """End the executions that hang in Mistral, so that whoever waits for them sees an end."""
    database, after = request.runtime.database, request.runtime.settings.hang_after
    for found in hanging.hung(database, request.project_id, mistral, after, deadline):
        hanging.end(mistral, found)
        database.atomically(partial(_tell_end, request.project_id, found))
        top = found.top
        yield {"execution": top.id, "workflow": top.workflow, "sentence": found.sentence}


def _tell_end(project_id: str, found: hanging.Hung, tx: Any) -> None:
    """Tell the groups that a tree of executions was about."""
    concerned: set[str | None] = set()
    for execution in found.executions:
        if isinstance(traversal := execution.input.get("traversal"), str):
            concerned.add(lying.group_of(tx, project_id, traversal))
        elif isinstance(name := execution.input.get("group"), str):
            state = groups.find(tx, project_id, name)
            concerned.add(state.id if state else None)
    for group_id in sorted(each for each in concerned if each):
        tx.journal(group_id, found.sentence, kind="ended")


def _incidents(request: Request, group: str | None) -> dict[str, list[Any]]:
    """Start the traversals of admitted incidents that have none, or hold those that are too old."""
    found: dict[str, list[Any]] = {"started": [], "held": [], "refused": []}
    unstarted = request.runtime.database.reading(
        lambda tx: incidents.unstarted(tx, request.project_id)
    )
    for incident in unstarted:
        if group is not None and incident.fact.get("group") != group:
            continue
        if incident.source == incidents.OPERATOR:
            continue  # whoever asked sees that the execution failed, and may have gone elsewhere
        row: Row = {"incident": incident.id}
        try:
            if sentence := _out_of_service(request, incident) or _too_old(request, incident):
                found["held"].append(row | {"sentence": sentence})
                continue
            answer = admitting.start(request, incident)
            sentence = f"the failover for {incident.sentence} was started"
            found["started"].append(row | {"traversal": answer["traversal"], "sentence": sentence})
        except Exception as error:  # noqa: BLE001 - one group's trouble must not stop the others
            facts = describe(error)
            sentence = f"the failover for {incident.sentence} can not start: {facts['message']}"
            found["refused"].append(row | {"error": facts, "sentence": sentence})
    return found


def _reopened(request: Request, group_id: str | None) -> Iterator[Row]:
    """Let fences be tried again for which a person's word was written down, and no more."""
    database, engine = request.runtime.database, request.runtime.engine
    found = database.reading(lambda tx: lying.vouched(tx, request.project_id, group_id))
    for where, name, member in found:
        fence = fence_name(member)
        sentence = f"{fence}: reopened by a sweep, for {member} was confirmed as fenced by a person"
        for node in engine.resume(where):
            database.atomically(partial(_tell_reopened, where, node, sentence))
            yield {**ready_document(node), "group": name, "sentence": sentence}


def _tell_reopened(group_id: str, node: Ready, sentence: str, tx: Any) -> None:
    tx.journal(
        group_id,
        sentence,
        kind=SWEPT,
        traversal_id=node.traversal_id,
        resource_id=node.node.resource_id,
    )


def _ready(request: Request, group_id: str | None) -> list[Row]:
    """The nodes that are to be triggered; that they are is told in the same transaction, so that
    two sweeps at once do not both trigger them."""
    database, quiet = request.runtime.database, request.runtime.settings.sweep_after

    def lie(where: str | None, tx: Any) -> list[lying.Loose]:
        return lying.loose(tx, request.project_id, where, quiet)

    def take(where: str, tx: Any) -> list[Row]:
        tx.lock_group(where, shared=False)
        return [_taken(tx, node) for node in lie(where, tx)]

    concerned = {node.group_id for node in database.reading(partial(lie, group_id))}
    rows: list[Row] = []
    for where in sorted(concerned):
        rows += database.atomically(partial(take, where))
    return rows


def _taken(tx: Any, node: lying.Loose) -> Row:
    dead = f"the lease of {node.dead} is over" if node.dead else "nobody works on it"
    sentence = f"{node.resource}: triggered by a sweep, for {dead}"
    tx.journal(
        node.group_id,
        sentence,
        kind=SWEPT,
        traversal_id=node.ready.traversal_id,
        resource_id=node.ready.node.resource_id,
    )
    return {**ready_document(node.ready), "group": node.group, "sentence": sentence}


def _out_of_service(request: Request, incident: incidents.Incident) -> str | None:
    """Hold an admitted alarm back whose group was taken out of service before it could be started:
    no time will change that, and a person who brings the group up again may look at it."""

    def why(tx: Any, found: incidents.Incident) -> str | None:
        state = groups.get(tx, incident.group_id or "")
        if "asked_for" in found.fact or state is None:
            return None
        stands = standing_of(request, tx, state)
        return None if stands.roles else f"{state.name} was taken out of service since"

    return _held_back(request, incident, why, "not_in_service")


def _too_old(request: Request, incident: incidents.Incident) -> str | None:
    """Hold an admitted incident back that could not be started for too long; why, if so. While the
    pack itself replaces members, nobody may be left to take over: that time does not count."""

    def why(tx: Any, found: incidents.Incident) -> str | None:
        group_id = incident.group_id or ""
        state = groups.get(tx, group_id)
        if state is not None and standing_of(request, tx, state).striking:
            return None
        replaced_at = views.last_ended(tx, group_id, REPLACE_TYPE) or 0.0
        late = tx.now() - max(found.last_at, found.decided_at, replaced_at) > STALE
        return f"it could not be started for {STALE / 60:.0f} minutes" if late else None

    return _held_back(request, incident, why, "too_late")


def _held_back(
    request: Request,
    incident: incidents.Incident,
    judge: Callable[[Any, incidents.Incident], str | None],
    rule: str,
) -> str | None:
    def hold(tx: Any) -> str | None:
        tx.lock_group(incident.group_id, shared=False)
        # As it is by now: somebody may have started it, or a person admitted it a moment ago.
        found = incidents.get(tx, request.project_id, incident.id)
        if found is None or found.decision != "ADMITTED" or found.traversal_id is not None:
            return None
        why = judge(tx, found)
        if why is None:
            return None
        sentence = f"{incident.sentence}; {why}"
        incidents.decide(tx, incident.id, "HELD", sentence, rule=rule)
        tx.journal(incident.group_id, f"HELD: {sentence}", kind="held", incident_id=incident.id)
        return sentence

    return request.runtime.database.atomically(hold)


def confirm_fenced(request: Request, group: str, member: str, because: str) -> dict[str, Any]:
    """Record a person's word that a member writes no more, and reopen what waited for it."""
    stands = standing(request, group)

    def record(tx: Any) -> bool:
        known = groups.confirm_fenced(tx, stands.state.id, member, because)
        sentence = f"{member} was confirmed as fenced by a person: {because}"
        if known:
            tx.journal(
                stands.state.id,
                sentence,
                kind="confirmed",
                traversal_id=stands.state.current_traversal,
            )
        return known

    if member not in stands.lost:
        lost = " and ".join(sorted(stands.lost))
        raise ActionError(
            "NOT_LOST",
            f"{member} is not declared lost in {group}, {lost or 'nobody'} is",
            f"Is {lost} meant?" if lost else "No failover of it waits for such a word.",
        )
    reach("confirm.before")
    if not request.runtime.database.atomically(record):
        raise ActionError(
            "UNKNOWN_MEMBER", f"{member} is not a member of {group}", "See failover member list."
        )
    reach("confirm.recorded")
    ready = request.runtime.engine.resume(stands.state.id)
    reach("confirm.after")
    return {
        "group": group,
        "traversal": stands.state.current_traversal,
        "ready": [ready_document(node) for node in ready],
    }
