# SPDX-License-Identifier: Apache-2.0
"""The specification keeps the promises, and each deliberate mistake in it breaks one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spec import tlc
from spec.models import MISTAKES, SMALL

pytestmark = [
    pytest.mark.spec,
    pytest.mark.skipif(bool(tlc.missing()), reason=tlc.missing() or "-"),
]


@pytest.mark.parametrize("name", SMALL)
def test_the_promises_hold_in_every_state_of(name: str, tmp_path: Path) -> None:
    result = tlc.check(SMALL[name], tmp_path)
    assert result.violated is None, result.moves
    assert result.distinct > 100
    print(f"{name}: {result.distinct} states")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_deliberate_mistake_breaks_a_promise(mistake: str, tmp_path: Path) -> None:
    result = tlc.check(MISTAKES[mistake], tmp_path)
    assert result.violated is not None


def test_each_mistake_of_the_specification_has_its_model() -> None:
    named = set(re.findall(r'(?:Wrong|fences)\("(\w+)"\)', tlc.SPECIFICATION.read_text()))
    assert named == set(MISTAKES)
