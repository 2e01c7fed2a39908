# SPDX-License-Identifier: Apache-2.0
"""Every traversal test runs on each database that is at hand."""

from __future__ import annotations

import pytest

from support.databases import KINDS
from support.simulation import Simulation


@pytest.fixture(params=KINDS)
def simulation(request: pytest.FixtureRequest) -> Simulation:
    """A group in an empty store, and a world."""
    return Simulation(request.param)
