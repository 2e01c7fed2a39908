# SPDX-License-Identifier: Apache-2.0
"""An embedded Mistral starts a sweep for what a volume has blocked, now and then: only the cloud
knows whether somebody has freed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.convergence.records import Ready
from mistral_failover.embedded import background_sweep
from mistral_failover.mistral.operation_documents import outcome_of
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import DEFAULT_PROJECT


@pytest.fixture
def project() -> str:
    """What a Mistral without authentication keeps everything under."""
    return DEFAULT_PROJECT


@pytest.fixture
def context(context_of: Callable[..., ActionContext]) -> ActionContext:
    """A request to such a Mistral."""
    return context_of(None, authenticated=False)


def test_it_sweeps_for_a_blocked_volume_once_in_a_while(
    state: Runtime, begun: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "settings", replace(state.settings, sweep_after=60.0))
    monkeypatch.setattr(background_sweep.process, "runtime", lambda: state)
    mistral: Any = None
    sweeper = background_sweep.BackgroundSweep(mistral)
    step = state.engine.check(begun, "e/a@h:1")
    assert step.operation is not None
    about = {"volume": "v1", "server": "s-a", "sight": "it is in error"}
    error = {"code": "VOLUME_ERROR", "message": "m", "remedy": "r", "blocked": True}
    state.engine.conclude(step.operation.ticket, outcome_of(None, {**error, "about": about}))

    looks = [sweeper.look() for _ in range(3)]

    assert looks == ["thing of payments may be able to continue", None, None]
