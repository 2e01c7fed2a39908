# SPDX-License-Identifier: Apache-2.0
"""A cloud of which only the folder exists."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testcloud.settings import Settings


@pytest.fixture
def settings() -> Iterator[Settings]:
    # Not pytest's own folder, whose path is too long for a socket's name.
    with tempfile.TemporaryDirectory(prefix="tc-") as folder:
        yield Settings(Path(folder), first_port=26500)
