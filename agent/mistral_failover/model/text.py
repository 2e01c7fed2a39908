# SPDX-License-Identifier: Apache-2.0
"""Words and times from outside, and their form for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

_LONGEST = 200
BIDI = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""For a regular expression: characters that end a line or change the order in which text shows."""
_CONTROL = re.compile(rf"[\x00-\x1f\x7f-\x9f{BIDI}]+")
# Tags are invisible; a single surrogate cannot be written to a terminal at all.
_UNSAFE = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{BIDI}\ud800-\udfff\U000e0000-\U000e007f]")


def counted(number: int, thing: str) -> str:
    """Return a count with its noun: ``1 error``, ``2 errors``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def first_words(text: str, most: int) -> str:
    """Return a text of at most so many words; one that was cut ends with an ellipsis."""
    words = text.split()
    return text if len(words) <= most else f"{' '.join(words[:most])}…"


def parse_time(text: Any) -> float | None:
    """Return a time in ISO 8601 as seconds since the epoch (UTC if it has no zone). Return None if
    it is not a time: an alarm is not refused because of its clock."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
        seconds = (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def plain(text: str) -> str:
    """Return a word from outside so that it fits in a sentence: one line of limited length."""
    return _CONTROL.sub(" ", text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def clean(text: str) -> str:
    """Return a text from outside in a form that changes nothing on a terminal but what it shows.

    Control characters, except line feed and tab, and characters that reorder text become visible
    escapes such as ``\\x1b``. A clean text is returned unchanged.
    """
    return _UNSAFE.sub(_escaped, text.replace("\r\n", "\n"))


def clean_value(value: Any) -> Any:
    """Return a JSON value with every text in it clean, keys too."""
    if isinstance(value, Mapping):
        return {clean_value(key): clean_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_value(item) for item in value]
    return clean(value) if isinstance(value, str) else value


def _escaped(found: re.Match[str]) -> str:
    number = ord(found.group())
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def format_time(at: float) -> str:
    """Return a time in a form for people."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
