# SPDX-License-Identifier: Apache-2.0
"""How long a server waits between two looks at its groups."""

import pytest

from mistral_failover.embedded.background_sweep import pause_after


@pytest.mark.parametrize(
    ("took", "busy", "pause"),
    [
        (0.05, False, 15.0),
        (60.0, False, 15.0),  # nothing else needs the processor
        (0.05, True, 15.0),  # one failover
        (2.0, True, 18.0),  # fifty at once
    ],
)
def test_looks_make_way_for_many_failovers(took: float, busy: bool, pause: float) -> None:
    assert pause_after(took, 15.0, busy=busy) == pause
