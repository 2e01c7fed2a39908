# SPDX-License-Identifier: Apache-2.0
"""What is decided about alarms and orders, and by which rule."""

from __future__ import annotations

from enum import StrEnum


class Decision(StrEnum):
    """The decision about an alarm or an order. HELD: it waits for an operator. DISMISSED: an
    operator rejected a held alarm. REFUSED: the order was not possible."""

    ADMITTED = "ADMITTED"
    HELD = "HELD"
    IGNORED = "IGNORED"
    DUPLICATE = "DUPLICATE"
    DISMISSED = "DISMISSED"
    REFUSED = "REFUSED"


class AdmissionRule(StrEnum):
    """The rule that decided on an alarm. NONE: no rule applied, or an operator decided."""

    NONE = ""
    NOT_FIRING = "not_firing"
    NOT_IN_SERVICE = "not_in_service"
    STRANGER = "stranger"
    UNNAMED = "unnamed"
    HEARD_BEFORE = "heard_before"
    KNOWN_FACT = "known_fact"
    RESTORED = "restored"
    """What the store has of the group is older than what happened in the cloud."""
    PAUSED = "paused"
    MAINTENANCE = "maintenance"
    OVER = "over"
    """By its source's word, what it reports has ended."""
    OLD_NEWS = "old_news"
    STILL_FIRING = "still_firing"
    DOUBTED = "doubted"
    """The source is not certain of the failure."""
    COOLDOWN = "cooldown"
    PER_HOUR = "per_hour"
    STORM = "storm"
    UNKNOWN = "unknown"
    """The alarm belongs to no known group."""
    HOST = "host"
    """A host event that was passed on to groups."""
    NOWHERE = "nowhere"
    """A host event that is held because no member is known to be there."""
    RELEASED = "released"
    """The storm guard held the alarm and let it go."""
    TOO_LATE = "too_late"
    """The alarm was admitted, but could not be started for long."""
