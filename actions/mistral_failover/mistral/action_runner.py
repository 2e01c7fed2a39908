# SPDX-License-Identifier: Apache-2.0
"""Carry out an operation within the action that checked its node.

Mistral's tasks are the scarce resource (some 25 a second in one engine process). If a type says
that an operation's workflow is one action, that action runs here, exactly as Mistral would run it:
the class behind its name in the entry points, with the operation and the context.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, cast

import stevedore
from mistral_lib.actions import Action, Result
from stevedore.exception import NoMatches

from mistral_failover.convergence.records import Outcome
from mistral_failover.mistral.operation_documents import (
    IssuedOperation,
    OperationDocument,
    outcome_of,
)
from mistral_failover.model.documents import load_json
from mistral_failover.runtime.errors import ActionError, caught

GROUP = "mistral.actions"


@cache
def action_class(name: str) -> type[Action]:
    """Return the class of an installed action. Raises ActionError UNKNOWN_ACTION if there is
    none."""
    try:
        return cast(type[Action], stevedore.DriverManager(GROUP, name, invoke_on_load=False).driver)
    except NoMatches:
        raise ActionError(
            "UNKNOWN_ACTION",
            f"the action {name} is not installed",
            "Install its package where Mistral's executors run, and restart them.",
        ) from None


def run(name: str, operation: OperationDocument | IssuedOperation, context: Any) -> Outcome:
    """Run an operation's action and return its outcome. Never raises."""
    try:
        action = action_class(name)(operation=operation)
        if not action.is_sync():
            raise ActionError(
                "ASYNC_ACTION",
                f"{name} is asynchronous and cannot run in place",
                "Remove action from the operation's type, so that its workflow is run.",
            )
        result = action.run(context)
        if not isinstance(result, Result):
            result = Result(data=result)
        # As Mistral would hand it on: JSON, or it is no result.
        data, failure = load_json(
            json.dumps([result.data, result.error], allow_nan=False), "result"
        )
    except Exception as error:  # a user's action may raise anything
        return outcome_of(None, caught(error, f"running the operation {name}"))
    return outcome_of(data, failure)
