# SPDX-License-Identifier: Apache-2.0
"""Who asks: for the record of what a person decided."""

from __future__ import annotations

from mistral_failover.model.text import plain
from mistral_failover.runtime.process import Request


def caller_name(request: Request) -> str:
    """The name of the request's user; where Mistral's authentication is off nobody has one."""
    return plain(request.context.security.user_name or "somebody without a name")
