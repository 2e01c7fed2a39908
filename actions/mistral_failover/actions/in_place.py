# SPDX-License-Identifier: Apache-2.0
"""Carrying an operation out within the action that checked its node.

Mistral's tasks are the scarce resource (some 25 a second in one engine process). Where a type says
that an operation's workflow is one action, that action is run here, exactly as Mistral would run
it: the class behind its name in the entry points, given the operation and the context.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import stevedore
from mistral_lib.actions import Action, Result

from mistral_failover.actions.documents import outcome_of
from mistral_failover.actions.errors import describe
from mistral_failover.convergence.records import Outcome

GROUP = "mistral.actions"


@cache
def action_class(name: str) -> type[Action]:
    """The class of an installed action. Raises stevedore's NoMatches when there is none."""
    driver: type[Action] = stevedore.DriverManager(GROUP, name, invoke_on_load=False).driver
    return driver


def run(name: str, operation: dict[str, Any], context: Any) -> Outcome:
    """Run an operation's action and return what came of it. Never raises."""
    try:
        result = action_class(name)(operation=operation).run(context)
    except Exception as error:  # noqa: BLE001 - a user's action may raise anything
        return outcome_of(None, describe(error))
    if isinstance(result, Result):
        return outcome_of(result.data, result.error)
    return outcome_of(result, None)
