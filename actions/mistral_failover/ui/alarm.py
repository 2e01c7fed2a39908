# SPDX-License-Identifier: Apache-2.0
"""The view of one alarm, or of a host event with the alarm of each of its groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mistral_failover.cli.base import when
from mistral_failover.model.text import counted
from mistral_failover.ui.groups import GroupRow
from mistral_failover.ui.levels import Level, of_decision

if TYPE_CHECKING:
    from mistral_failover.reports.documents import ChildIncident, IncidentDetails


@dataclass(frozen=True)
class ChildAlarm:
    """The alarm of one group of a host event. ``why``: the sentence of the decision; ``guard``:
    why the storm guard still holds it, else empty. ``now``: the group's row, None if the group is
    not known any more. ``turn``: its place when the held ones are admitted, None: it is not
    held."""

    incident: str
    group: str
    lost: tuple[str, ...]
    decision: str
    level: Level
    why: str
    guard: str
    now: GroupRow | None
    turn: int | None


@dataclass(frozen=True)
class AlarmView:
    """An alarm, in words. ``failed``: the name of the host or the zone that failed,
    empty if it is no host event; ``what``: which of the two, ``host`` or ``zone``. ``parent``: the
    host event that it is part of. ``failovers``: those that it started, each with its id and its
    cause. ``admit`` and ``dismiss``: the commands, empty if it waits for no operator."""

    id: str
    failed: str
    what: str
    group: str
    decision: str
    level: Level
    sentence: str
    source: str
    heard: str
    children: tuple[ChildAlarm, ...]
    counts: str
    parent: str
    failovers: tuple[tuple[str, str], ...]
    admit: str
    dismiss: str

    @property
    def title(self) -> str:
        """Return what it is: the failure of a host or a zone, an operator's order, or an alarm."""
        if self.failed:
            return f"{self.what.capitalize()} {self.failed}"
        return "Order" if self.source == "operator" else "Alarm"

    @property
    def held(self) -> tuple[ChildAlarm, ...]:
        """The children that are held, in the order in which their failovers would start."""
        return tuple(sorted((c for c in self.children if c.turn), key=lambda c: c.turn or 0))

    @property
    def waits(self) -> bool:
        """Whether it waits for an operator, itself or a child."""
        return bool(self.dismiss)


def alarm_view(incident: IncidentDetails, groups: Iterable[GroupRow] = ()) -> AlarmView:
    """Return the view of an incident, an answer of failover.show; ``groups``: the rows of the
    project's groups."""
    fact = incident["fact"]
    known = {row.name: row for row in groups}
    children = tuple(_child(row, known.get(row["group"])) for row in incident["children"])
    decided = Counter(child.decision for child in children)
    counts = ", ".join(f"{number} {decision}" for decision, number in sorted(decided.items()))
    return AlarmView(
        id=incident["id"],
        failed=str(fact.get("host") or fact.get("zone") or ""),
        what="host" if fact.get("host") else "zone",
        group=incident["group"] or "",
        decision=incident["decision"],
        level=of_decision(incident["decision"]),
        sentence=incident["sentence"],
        source=incident["source"],
        heard=f"heard {counted(incident['heard'], 'time')}, last {when(incident['last_at'])}",
        children=children,
        counts=f"{counted(len(children), 'group')}: {counts}" if children else "",
        parent=incident["parent"] or "",
        failovers=tuple((row["id"], row["cause"]) for row in incident["traversals"]),
        admit=incident["admit"] or "",
        dismiss=incident["dismiss"] or "",
    )


def _child(row: ChildIncident, now: GroupRow | None) -> ChildAlarm:
    return ChildAlarm(
        incident=row["incident"],
        group=row["group"],
        lost=tuple(row["lost"]),
        decision=row["decision"],
        level=of_decision(row["decision"]),
        why=row["sentence"],
        guard=row["evidence"] or "",
        now=now,
        turn=row["turn"],
    )
