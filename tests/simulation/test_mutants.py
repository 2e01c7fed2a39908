# SPDX-License-Identifier: Apache-2.0
"""Each deliberate fault is still one: the text that it changes is in the product, once."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from simulation.mutants import BY_NAME, PACKAGE


@pytest.mark.parametrize("name", BY_NAME)
def test_the_text_of_a_mutant_is_there_once(name: str) -> None:
    for module, before, after in BY_NAME[name].changes:
        spec = find_spec(f"{PACKAGE}.{module}")
        assert spec is not None
        assert spec.origin is not None
        text = Path(spec.origin).read_text("utf-8")
        assert text.count(before) == 1
        compile(text.replace(before, after), spec.origin, "exec")
