# SPDX-License-Identifier: Apache-2.0
"""The metrics: names, labels and meanings.

The answer of ``failover.metrics`` has the names in :data:`FAMILIES`; Prometheus sees them with
:data:`PREFIX`, counters with ``_total``. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypedDict

PREFIX = "failover_"


class Sample(TypedDict, total=False):
    """A sample: ``labels`` and ``value`` (None: there is none). A sample of a histogram has
    ``buckets``, not summed up and one more than the bounds, and ``sum`` in place of ``value``."""

    labels: dict[str, str]
    value: float | None
    buckets: list[float]
    sum: float


class Numbers(TypedDict):
    """The answer of ``failover.metrics``. ``now``: seconds since the epoch. ``bounds``: of the
    buckets, in seconds. ``families``: the samples by the metric's name."""

    now: float
    bounds: list[float]
    families: dict[str, list[Sample]]


@dataclass(frozen=True)
class Family:
    """One metric; ``name`` is Prometheus' (of a counter without ``_total``)."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its samples."""
        if self.kind == "counter":
            return (f"{self.name}_total",)
        if self.kind == "histogram":
            return tuple(f"{self.name}_{end}" for end in ("bucket", "sum", "count"))
        return (self.name,)


_GROUP = ("project", "group")

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "incidents": Family(
            "failover_incidents",
            "counter",
            "Decisions on alarms and orders, by decision, by the deciding rule, and by source "
            "(alarm or person). A repeated decision counts again.",
            ("decision", "rule", "source"),
        ),
        "repeats": Family("failover_incident_repeats", "counter", "Repeats of known incidents."),
        "unlisted": Family(
            "failover_alarms_not_listed",
            "counter",
            "Alarms that had to wait for an operator and were not recorded, because too many wait "
            "already, by the rule that holds them.",
            ("rule",),
        ),
        "defects": Family(
            "failover_defects",
            "counter",
            "Errors that no code expects, by what failed and by the exception. The traceback of "
            "each is in the log.",
            ("doing", "error"),
        ),
        "traversals_started": Family(
            "failover_traversals_started", "counter", "Traversals started."
        ),
        "traversals": Family(
            "failover_traversals",
            "counter",
            "Traversals by outcome: COMPLETE, FAILED, SUPERSEDED by a newer goal, RETURNED to the "
            "previous goal after a failure, BLOCKED (each time a traversal began to wait for an "
            "operator; it may continue later).",
            ("outcome",),
        ),
        "traversal_seconds": Family(
            "failover_traversal_seconds",
            "histogram",
            "Seconds from the start of a traversal to its outcome.",
            ("outcome",),
        ),
        "operations": Family(
            "failover_operations",
            "counter",
            "Operations on resources by type, verb (create, update, delete) and outcome: done, "
            "failed, overtaken by a later one.",
            ("type", "verb", "outcome"),
        ),
        "operation_seconds": Family(
            "failover_operation_seconds",
            "histogram",
            "Seconds that completed operations took, by type and verb.",
            ("type", "verb"),
        ),
        "unknowns": Family(
            "failover_unknown_outcomes",
            "counter",
            "Operations whose outcome was unknown, because a process died or came too late.",
            ("type", "verb"),
        ),
        "deferrals": Family(
            "failover_lock_waits",
            "counter",
            "Operations deferred because another worker held the lock of the resource.",
        ),
        "steals": Family(
            "failover_lock_steals", "counter", "Locks of dead owners that were broken."
        ),
        "sweeps": Family(
            "failover_sweeps", "counter", "Sweeps, by whether they found something.", ("found",)
        ),
        "findings": Family(
            "failover_sweep_findings",
            "counter",
            "What sweeps found: triggered (traversals without a worker), ended (stuck executions).",
            ("what",),
        ),
        "certificate_expires": Family(
            "failover_webhook_certificate_expires_timestamp_seconds",
            "gauge",
            "When the certificate of the webhook ends, in seconds since the epoch. Only a failover "
            "server that serves TLS has it.",
        ),
        "handed_back": Family(
            "failover_operations_handed_back",
            "counter",
            "Operations that a stopping process released for another one.",
        ),
        "group_status": Family(
            "failover_group_status",
            "gauge",
            "1 for the status that a group has: DEFINED, IN_PROGRESS, COMPLETE, FAILED, BLOCKED.",
            (*_GROUP, "status"),
        ),
        "group_under_way_seconds": Family(
            "failover_group_under_way_seconds",
            "gauge",
            "Seconds since the start of the running traversal.",
            _GROUP,
        ),
        "group_service": Family(
            "failover_group_service",
            "gauge",
            "1 for whether the group serves: SERVING, DEGRADED, DOWN, UNKNOWN, OUT_OF_SERVICE. "
            "Also while a goal is being reached.",
            (*_GROUP, "service"),
        ),
        "group_blocked_seconds": Family(
            "failover_group_blocked_seconds",
            "gauge",
            "Seconds since a group began to wait for an operator.",
            _GROUP,
        ),
        "last_rehearsal": Family(
            "failover_last_rehearsal_timestamp_seconds",
            "gauge",
            "When the last rehearsal on a member that passed or failed began, in seconds since the "
            "epoch; until the member has another server.",
            (*_GROUP, "member"),
        ),
        "rehearsal_ok": Family(
            "failover_rehearsal_ok",
            "gauge",
            "1 if the last rehearsal on a member passed, 0 if it failed for one of its roles.",
            (*_GROUP, "member"),
        ),
        "group_traversals_last_hour": Family(
            "failover_group_traversals_last_hour",
            "gauge",
            "Traversals that a group started within the last hour.",
            _GROUP,
        ),
        "held_alarms": Family(
            "failover_held_alarms",
            "gauge",
            "Alarms held until an operator admits or dismisses them.",
            _GROUP,
        ),
        "agent_silence_seconds": Family(
            "failover_agent_silence_seconds",
            "gauge",
            "Seconds since an agent's last heartbeat; +Inf if there is none.",
            (*_GROUP, "member"),
        ),
        "last_sweep_seconds": Family(
            "failover_last_sweep_seconds", "gauge", "Seconds since the last sweep.", ("project",)
        ),
        "left_lying": Family(
            "failover_left_lying",
            "gauge",
            "Stalled items that no sweep has continued yet.",
            ("project",),
        ),
    }
)
"""By the name in the answer of ``failover.metrics``."""

UP = Family("failover_up", "gauge", "Whether the last query of the metrics was answered.")
AGE = Family(
    "failover_scrape_age_seconds", "gauge", ("Age of the values in seconds; +Inf before the first.")
)
FAILURES = Family(
    "failover_scrape_failures", "counter", ("Queries of the metrics that were not answered.")
)
OWN = (UP, AGE, FAILURES)
"""The metrics about the export itself."""
