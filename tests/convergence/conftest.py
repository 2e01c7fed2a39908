# SPDX-License-Identifier: Apache-2.0
"""Every traversal test runs on each database that is at hand."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from support.databases import KINDS
from support.simulation import Simulation

settings.register_profile(
    "quick",
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "thorough", settings.get_profile("quick"), max_examples=1000, stateful_step_count=60
)
settings.register_profile(
    "mutants", settings.get_profile("quick"), max_examples=6, derandomize=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(params=KINDS)
def simulation(request: pytest.FixtureRequest) -> Simulation:
    """A group in an empty store, and a world."""
    return Simulation(request.param)
