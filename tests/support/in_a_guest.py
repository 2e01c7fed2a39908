# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest for tests that run where only the agent is installed (``-p
support.in_a_guest``): examples that do not depend on the machine's load."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "guest",
    max_examples=20,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("guest")
