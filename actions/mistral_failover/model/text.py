# SPDX-License-Identifier: Apache-2.0
"""Words and times from outside, and their form for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

_LONGEST = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def moment(text: Any) -> float | None:
    """Return a time in ISO 8601 as seconds since the epoch (UTC if it has no zone). Return None if
    it is not a time: an alarm is not refused because of its clock."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def plain(text: str) -> str:
    """Return a word from outside so that it fits in a sentence: one line of limited length."""
    return _CONTROL.sub(" ", text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def clock(at: float) -> str:
    """Return a time in a form for people."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
