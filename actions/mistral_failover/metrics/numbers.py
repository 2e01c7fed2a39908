# SPDX-License-Identifier: Apache-2.0
"""``failover.metrics``: the numbers of a project, as JSON. What the names mean, and the form:
``metrics.families``. Counters never fall; labels are bounded."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.groups.agent_health import sends_commands
from mistral_failover.groups.service import services
from mistral_failover.metrics.families import Numbers, Sample
from mistral_failover.model.observation import ServiceState
from mistral_failover.model.types import installed_types
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import counters, gauges, groups, stalled_work
from mistral_failover.store.counters import BUCKETS, SEPARATOR, Counts
from mistral_failover.store.database import Database, ProjectStore
from mistral_failover.store.defects import NAME as DEFECTS
from mistral_failover.store.gauges import GroupGauges
from mistral_failover.store.transaction import ProjectTransaction, SqlTransaction

GROUPS = 500
"""Groups that have labels of their own unless the caller says otherwise: the oldest."""
TYPES = 20
"""Maximum user-defined types that have labels of their own: those that were used first."""
OTHER = "other"
"""The label of what is beyond a limit."""
UNKNOWN = "unknown"
"""The group label of a held alarm whose group is unknown."""
_LISTEN = 5.0  # seconds for asking all agents
_LABELS = {
    "incidents": ("decision", "rule", "source"),
    "repeats": (),
    "traversals_started": (),
    "traversals": ("outcome",),
    "deferrals": (),
    "operations": ("type", "verb", "outcome"),
    "unknowns": ("type", "verb"),
    "sweeps": ("found",),
    "unlisted": ("rule",),
    "defects": ("doing", "error"),
}
_SENTENCES: dict[str, tuple[str, dict[str, str]]] = {
    "blocked": ("traversals", {"outcome": "BLOCKED"}),
    "steal": ("steals", {}),
    "sweep": ("findings", {"what": "triggered"}),
    "handed_back": ("handed_back", {}),
    "ended": ("findings", {"what": "ended"}),
}
"""The metric that each kind of journal entry counts for."""
_OUTCOMES = ("COMPLETE", "FAILED", "BLOCKED", "RETURNED", "SUPERSEDED")
_ALARM = {"source": "alarm"}
_ZEROES: list[tuple[str, dict[str, str]]] = [
    *(("traversals", {"outcome": outcome}) for outcome in _OUTCOMES),
    *(("sweeps", {"found": found}) for found in ("yes", "no")),
    *(_SENTENCES[kind] for kind in ("steal", "handed_back", "sweep", "ended")),
    *((name, {}) for name in ("repeats", "traversals_started", "deferrals")),
    # Their labels are not known before: an alert adds up over them.
    ("unlisted", {"rule": ""}),
    ("defects", {"doing": "", "error": ""}),
    ("incidents", {"decision": "ADMITTED", "rule": "", **_ALARM}),
    ("incidents", {"decision": "HELD", "rule": "storm", **_ALARM}),
]
"""Samples that exist from the start, because Prometheus sees no increase in a series that did not
exist before."""
_HISTOGRAMS = {"traversal_seconds": ("outcome",), "operation_seconds": ("type", "verb")}


def of_server(runtime: Runtime, *, all_projects: bool = False) -> Numbers:
    """Return the numbers of the server's own project, or of all projects of its state store. Agents
    are asked with the rights of the configuration."""
    anonymous = ActionContext(SecurityContext(), ExecutionContext())
    return measured(Request(runtime, anonymous), GROUPS, all_projects=all_projects)


def measured(request: Request, limit: int, *, all_projects: bool = False) -> Numbers:
    """Return the numbers of the request's project, or of all projects of the state store, which
    only the server of an operator shows; with labels of their own for ``limit`` groups."""
    database = request.runtime.database
    runtime, quiet = request.runtime, request.runtime.settings.sweep_after

    def read(tx: SqlTransaction) -> _Snapshot:
        now = tx.now()
        return _Snapshot(
            now,
            counters.counters(tx),
            gauges.group_gauges(tx, now),
            services(runtime, tx),
            gauges.held_alarms(tx),
            gauges.last_sweeps(tx),
        )

    store = database if all_projects else request.store
    seen = store.snapshot(read)
    lying = {
        project: database.for_project(project).reading(partial(_lying, quiet))
        for project in sorted({each.project for each in seen.groups})
    }
    table = _Table()
    for family, labels in _ZEROES:
        table.add(family, labels, 0)
    _count(table, seen.counters)
    if not all_projects:
        _count(table, request.store.of_none.reading(_defects))
    _stand(table, seen, limit)
    for project, count in lying.items():
        table.add("left_lying", {"project": project}, count)
    _listen(table, request, store, seen.groups[:limit])
    return {"now": seen.now, "bounds": list(BUCKETS), "families": table.families}


def _defects(tx: ProjectTransaction) -> Counts:
    """Return the defects in what is no single project's work: each project is concerned."""
    return {key: count for key, count in counters.counters(tx).items() if key[0] == DEFECTS}


@dataclass(frozen=True)
class _Snapshot:
    """What the state store has at one moment. ``serves``: by group id; ``held``: alarms that wait,
    by project and group; ``sweeps``: when each project was swept last."""

    now: float
    counters: Counts
    groups: list[GroupGauges]
    serves: dict[str, ServiceState]
    held: dict[tuple[str, str | None], int]
    sweeps: dict[str, float]


@dataclass
class _Table:
    """Samples by family and labels; those of the same labels become one."""

    families: dict[str, list[Sample]] = field(default_factory=dict)
    _known: dict[tuple[str, frozenset[tuple[str, str]]], Sample] = field(default_factory=dict)

    def add(self, family: str, labels: dict[str, str], value: float | None) -> None:
        """Add a value up; None: there is none."""
        self._row(family, labels, {"value": 0})
        row = self._row(family, labels, {})
        row["value"] = None if value is None else (row["value"] or 0) + value

    def highest(self, family: str, labels: dict[str, str], value: float) -> None:
        """Keep the highest value."""
        row = self._row(family, labels, {"value": value})
        known = row["value"]
        row["value"] = value if known is None else max(known, value)

    def observe(self, family: str, labels: dict[str, str], bucket: int, count: float) -> None:
        """Add to a bucket of a histogram."""
        self._histogram(family, labels)["buckets"][bucket] += count

    def took(self, family: str, labels: dict[str, str], seconds: float) -> None:
        """Add to the sum of a histogram."""
        self._histogram(family, labels)["sum"] += seconds

    def _histogram(self, family: str, labels: dict[str, str]) -> Sample:
        return self._row(family, labels, {"buckets": [0] * (len(BUCKETS) + 1), "sum": 0.0})

    def _row(self, family: str, labels: dict[str, str], fresh: Sample) -> Sample:
        key = family, frozenset(labels.items())
        if key not in self._known:
            self._known[key] = {"labels": labels, **fresh}
            self.families.setdefault(family, []).append(self._known[key])
        return self._known[key]


def _count(table: _Table, counters: Counts) -> None:
    known = _types(counters)
    for (name, joined), count in sorted(counters.items()):
        said = joined.split(SEPARATOR) if joined else []
        if name == "journal":
            family, labels = _SENTENCES[joined]
            table.add(family, labels, count.value)
        elif name in _LABELS:
            table.add(name, _labels(_LABELS[name], said, known), count.value)
        elif name in _HISTOGRAMS:
            labels = _labels(_HISTOGRAMS[name], said[:-1], known)
            table.observe(name, labels, int(said[-1]), count.value)
        else:
            family = name.removesuffix("_sum")
            table.took(family, _labels(_HISTOGRAMS[family], said, known), count.value)


def _labels(names: Iterable[str], said: list[str], known: set[str]) -> dict[str, str]:
    found = dict(zip(names, said, strict=False))
    if found.get("type", OTHER) not in known:
        found |= {"type": OTHER} if "type" in found else {}
    return found


def _types(counted: Counts) -> set[str]:
    """Return the types that have labels of their own. A type that has one keeps it, so that no sum
    falls: types are ordered by when they were counted first."""
    known = set(installed_types())
    first: dict[str, float] = {}
    for (name, joined), count in counted.items():
        kind = joined.partition(SEPARATOR)[0]
        if name in ("operations", "unknowns") and kind not in known:
            first[kind] = min(count.first_at, first.get(kind, count.first_at))
    return known | set(sorted(first, key=lambda kind: (first[kind], kind))[:TYPES])


def _stand(table: _Table, seen: _Snapshot, limit: int) -> None:
    now = seen.now
    names: dict[str | None, dict[str, str]] = {}
    for number, each in enumerate(seen.groups):
        label = {"project": each.project, "group": each.name if number < limit else OTHER}
        names[each.id] = label
        table.add("group_status", {**label, "status": each.status}, 1)
        table.add("group_service", {**label, "service": str(seen.serves[each.id].service)}, 1)
        table.highest("group_traversals_last_hour", label, each.lately)
        for member, (at, passed) in each.rehearsed.items():
            table.highest("last_rehearsal", {**label, "member": member}, at)
            table.highest("rehearsal_ok", {**label, "member": member}, float(passed))
        if each.status == TraversalStatus.IN_PROGRESS:
            table.highest("group_under_way_seconds", label, _ago(now, each.since))
        if each.status == TraversalStatus.BLOCKED:
            since = each.blocked_since or each.since
            table.highest("group_blocked_seconds", label, _ago(now, since))
    for (project, group_id), count in seen.held.items():
        unknown = {"project": project, "group": UNKNOWN}
        table.add("held_alarms", names.get(group_id, unknown), count)
    for project, at in seen.sweeps.items():
        table.add("last_sweep_seconds", {"project": project}, _ago(now, at))


def _ago(now: float, at: float | None) -> float:
    return max(0.0, now - (now if at is None else at))


def _lying(quiet: float, tx: ProjectTransaction) -> int:
    return len(stalled_work.stalled(tx, None, quiet)) + stalled_work.unstarted(tx, quiet)


def _listen(
    table: _Table, request: Request, store: Database | ProjectStore, found: list[GroupGauges]
) -> None:
    """Ask the agents of groups that send commands, as many as the time allows; an unreachable
    channel yields no answers."""
    by_id = {each.id: each for each in found}

    def read(tx: SqlTransaction) -> list[tuple[str, str, str]]:
        commanding = [
            state.id
            for state in groups.states(tx)
            if state.id in by_id and sends_commands(request.runtime.definitions.group(tx, state))
        ]
        return gauges.with_servers(tx, commanding)

    addressed = store.reading(read)
    if not addressed:
        return
    deadline = time.monotonic() + _LISTEN
    try:
        guard = Unguarded(min(request.runtime.settings.http_timeout, _LISTEN))
        channel = request.channel(request.cloud(guard), guard)
        for group_id, member, server in addressed:
            if time.monotonic() > deadline:
                return
            group = by_id[group_id]
            beat = channel.heard(Address(group_id, group.name, member, server))
            label = {"project": group.project, "group": group.name, "member": member}
            table.add("agent_silence_seconds", label, beat.ago if beat else None)
    except (ChannelError, CloudError):
        return
