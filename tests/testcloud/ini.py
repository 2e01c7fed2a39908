# SPDX-License-Identifier: Apache-2.0
"""Files for oslo.config."""

from __future__ import annotations

from collections.abc import Mapping

Value = str | int | bool
Section = Mapping[str, Value]
Sections = Mapping[str, Section]


def text(sections: Sections) -> str:
    """The file's text.

    oslo.config takes ``$`` for a reference to another option, so it is doubled. A value of several
    lines would end the section: :raises ValueError:.
    """
    lines = []
    for name, options in sections.items():
        lines.append(f"[{name}]")
        for key, value in options.items():
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            if "\n" in shown:
                raise ValueError(f"[{name}] {key} has more than one line")
            lines.append(f"{key} = {shown.replace('$', '$$')}")
        lines.append("")
    return "\n".join(lines)


def merged(*parts: Sections) -> dict[str, dict[str, Value]]:
    """Sections of several parts in one; what comes later wins."""
    result: dict[str, dict[str, Value]] = {}
    for part in parts:
        for name, options in part.items():
            result.setdefault(name, {}).update(options)
    return result
