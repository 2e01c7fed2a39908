# SPDX-License-Identifier: Apache-2.0
"""The user of a request, for the record of operators' decisions."""

from __future__ import annotations

from mistral_failover.model.text import plain
from mistral_failover.runtime.process import Request


def caller_name(request: Request) -> str:
    """Return the name of the request's user; without authentication in Mistral there is none."""
    return plain(request.context.security.user_name or "an unknown user")
