# SPDX-License-Identifier: Apache-2.0
"""What the actions say of a group's rehearsals."""

from __future__ import annotations

from typing import Any

from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import rehearsals
from support.activation import done

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())
"""What an action gets from a Mistral whose authentication is off."""


def rehearsed(group: Any) -> list[dict[str, Any]]:
    """The group's rehearsals, the latest first."""
    return [dict(each) for each in done(rehearsals.Rehearsals(group.name).run(CONTEXT))]


def latest(group: Any) -> dict[str, Any]:
    """The latest one."""
    return rehearsed(group)[0]
