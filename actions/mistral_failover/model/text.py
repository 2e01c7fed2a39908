# SPDX-License-Identifier: Apache-2.0
"""Words and times from outside, and how people read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

_LONGEST = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def moment(text: Any) -> float | None:
    """A time in ISO 8601 as seconds since the epoch, UTC where it does not say; None for what is
    no time: an alarm is not refused for its clock."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def plain(text: str) -> str:
    """A word from outside as it may stand in a sentence: one line of bearable length."""
    return _CONTROL.sub(" ", text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def clock(at: float) -> str:
    """A time for people."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
