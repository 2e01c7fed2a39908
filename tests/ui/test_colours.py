# SPDX-License-Identifier: Apache-2.0
"""The contrast of the colours, by WCAG 2.2 AA: 4.5 to 1 for text, 3 to 1 for lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mistral_failover import ui

CSS = (Path(str(ui.__file__)).parent / "static" / "ui.css").read_text("utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
    for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
)
TEXT = ["ink", "faint", "link", "good", "working", "attention", "trouble", "neutral"]
FILLED = ["good", "working", "attention", "trouble", "neutral"]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_lines_are_readable(colours: dict[str, str]) -> None:
    for ground in ("ground", "raised"):
        for name in TEXT:
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        assert contrast(colours["line"], colours[ground]) >= 3
    for name in FILLED:
        assert contrast(colours["on"], colours[name]) >= 4.5, name


def test_both_schemes_have_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert re.findall(r"#[0-9a-f]{3,8}", CSS.split("}", 3)[3]) == []
