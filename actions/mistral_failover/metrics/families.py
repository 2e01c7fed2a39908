# SPDX-License-Identifier: Apache-2.0
"""What is measured: the names, labels and meanings of the metrics.

The names in the answer of ``failover.metrics`` are those of :data:`FAMILIES`; Prometheus sees them
with :data:`PREFIX`, counters with ``_total``. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

PREFIX = "failover_"


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
            "Decisions on alarms and orders, by decision, by the rule that spoke, and by whether "
            "an alarm or a person was heard. One that is judged again counts again.",
            ("decision", "rule", "source"),
        ),
        "repeats": Family(
            "failover_incident_repeats", "counter", "Times that a known incident was told again."
        ),
        "traversals_started": Family(
            "failover_traversals_started", "counter", "Walks to a goal that began."
        ),
        "traversals": Family(
            "failover_traversals",
            "counter",
            "Walks to a goal by outcome: COMPLETE, FAILED, SUPERSEDED by a newer goal, RETURNED to "
            "the goal before after a failure, BLOCKED (each time that one came to wait for a "
            "person; it may go on).",
            ("outcome",),
        ),
        "traversal_seconds": Family(
            "failover_traversal_seconds",
            "histogram",
            "Seconds from the start of a walk to its outcome.",
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
            "Seconds that operations took that are done, by type and verb.",
            ("type", "verb"),
        ),
        "unknowns": Family(
            "failover_unknown_outcomes",
            "counter",
            "Times that the outcome of an operation was not known, so that reality had to be "
            "looked at.",
            ("type", "verb"),
        ),
        "deferrals": Family(
            "failover_lock_waits",
            "counter",
            "Times that work was deferred since somebody else held the lock of a resource.",
        ),
        "steals": Family(
            "failover_lock_steals", "counter", "Locks of dead owners that were broken."
        ),
        "sweeps": Family(
            "failover_sweeps", "counter", "Sweeps by whether they found something.", ("found",)
        ),
        "findings": Family(
            "failover_sweep_findings",
            "counter",
            "What sweeps found: triggered (traversals on which nobody worked), ended (executions "
            "that hung).",
            ("what",),
        ),
        "handed_back": Family(
            "failover_operations_handed_back",
            "counter",
            "Operations that a stopping process gave back for another one to take up.",
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
            "Seconds since the walk began that is under way.",
            _GROUP,
        ),
        "group_blocked_seconds": Family(
            "failover_group_blocked_seconds",
            "gauge",
            "Seconds since a group came to wait for a person.",
            _GROUP,
        ),
        "group_traversals_last_hour": Family(
            "failover_group_traversals_last_hour",
            "gauge",
            "Walks that a group began within the last hour.",
            _GROUP,
        ),
        "held_alarms": Family(
            "failover_held_alarms",
            "gauge",
            "Alarms that are held until a person admits or dismisses them.",
            _GROUP,
        ),
        "agent_silence_seconds": Family(
            "failover_agent_silence_seconds",
            "gauge",
            "Seconds since an agent was last heard; +Inf where nothing is known of it.",
            (*_GROUP, "member"),
        ),
        "last_sweep_seconds": Family(
            "failover_last_sweep_seconds", "gauge", "Seconds since the last sweep.", ("project",)
        ),
        "left_lying": Family(
            "failover_left_lying",
            "gauge",
            "Things that a sweep would take up, and none has yet.",
            ("project",),
        ),
    }
)
"""By the name in the answer of ``failover.metrics``."""

UP = Family("failover_up", "gauge", "Whether the last question was answered.")
AGE = Family("failover_scrape_age_seconds", "gauge", "Age of the numbers; +Inf before the first.")
FAILURES = Family("failover_scrape_failures", "counter", "Questions that were not answered.")
OWN = (UP, AGE, FAILURES)
"""What is told besides, of the telling itself."""


def sample_names() -> Iterator[str]:
    """The names of all samples that there can be."""
    for family in (*FAMILIES.values(), *OWN):
        yield from family.names
