# SPDX-License-Identifier: Apache-2.0
"""How urgent something is. Pages show it as a word and a colour, never as a colour alone."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from mistral_failover.model.observation import Service

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.reports.documents import GroupReport


class Level(StrEnum):
    """From the most urgent to the least."""

    TROUBLE = "trouble"
    ATTENTION = "attention"
    WORKING = "working"
    NEUTRAL = "neutral"
    GOOD = "good"


URGENCY = {level: place for place, level in enumerate(Level)}
"""The place of each level, the most urgent first."""
_OF_STATUS = {
    "BLOCKED": Level.TROUBLE,
    "FAILED": Level.TROUBLE,
    "IN_PROGRESS": Level.WORKING,
    "DEFINED": Level.NEUTRAL,
    "COMPLETE": Level.GOOD,
    "RETURNED": Level.ATTENTION,
    "SUPERSEDED": Level.NEUTRAL,
}
_OF_DECISION = {
    "HELD": Level.ATTENTION,
    "ADMITTED": Level.WORKING,
    "REFUSED": Level.TROUBLE,
}
_OF_SERVICE = {
    Service.SERVING: Level.GOOD,
    Service.OUT_OF_SERVICE: Level.NEUTRAL,
    Service.DOWN: Level.TROUBLE,
    Service.DEGRADED: Level.ATTENTION,
    Service.UNKNOWN: Level.ATTENTION,
}


def of_status(status: str) -> Level:
    """Return the level of a group's or a traversal's status."""
    return _OF_STATUS.get(status, Level.ATTENTION)


def of_decision(decision: str) -> Level:
    """Return the level of the decision on an alarm or an order."""
    return _OF_DECISION.get(decision, Level.NEUTRAL)


def of_service(service: str) -> Level:
    """Return the level of the word that says whether a group serves."""
    return _OF_SERVICE[Service(service)]


def serves(row: GroupReport, service: str) -> str:
    """Return the word of a group's badge: whether it serves."""
    return "never activated" if row["status"] == "DEFINED" else service.replace("_", " ")


def of_group(row: GroupReport, service: str) -> Level:
    """Return the level of a group: of its status, of its service as last seen, and of what waits
    for an operator."""
    level = of_status(row["status"])
    if level is Level.GOOD and not row["roles"] and not row["vacant"]:
        level = Level.NEUTRAL
    found = [level]
    if level is not Level.WORKING:
        found.append(of_service(service))
    if row["held"] or row["lost"] or row["pause"] or row["maintenance"]:
        found.append(Level.ATTENTION)
    return min(found, key=URGENCY.__getitem__)
