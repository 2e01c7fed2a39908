# SPDX-License-Identifier: Apache-2.0
"""The action that runs the doctor."""

from __future__ import annotations

from typing import Any

from mistral_lib.actions import Result

from mistral_failover.actions.base import FailoverAction
from mistral_failover.doctor import all_checks
from mistral_failover.runtime.inputs import OptionalText
from mistral_failover.runtime.request import Request


class Doctor(FailoverAction):
    """Check everything that a failover needs; each finding says what helps. Never fails."""

    def run(self, context: Any) -> Any:
        """As the others, except that an error which prevents an action from running is a
        finding."""
        answer = super().run(context)
        return all_checks.unable(answer.error) if isinstance(answer, Result) else answer

    def answer(self, request: Request, group: OptionalText = None) -> Any:
        return all_checks.doctor(request, group)
