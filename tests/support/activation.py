# SPDX-License-Identifier: Apache-2.0
"""The first activation of a group by actions alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import orders, recovery


def done(answer: Any) -> Any:
    """An action's answer, which must not be an error."""
    assert not isinstance(answer, Result), answer.error
    return answer


def activate(group: str, context: Callable[[], ActionContext]) -> dict[str, Any]:
    """The actions of failover.activate_first without its tasks; returns how it ended.

    Nearly every test of a group begins so, and the tasks take longer than what they do.
    """
    because = "it is brought up as it is defined"
    begun = done(orders.Begin(group, lost=[], definition="defined", because=because).run(context()))
    while (answer := done(recovery.Advance(begun["traversal"], "end").run(context())))["again"]:
        pass
    return dict(answer["outcome"])
