# SPDX-License-Identifier: Apache-2.0
"""The operation of ``stack_parameters``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mistral_failover.cloud import patches
from mistral_failover.cloud.update_guard import KeptParts
from mistral_failover.resources.operation_tools import Document, Tools
from mistral_failover.runtime.remedies import going_on


def patch_stack(tools: Tools, operation: Document, keep: Callable[[], KeptParts]) -> dict[str, Any]:
    """PATCH the stack's parameters and follow the update to its end; refused while it would take
    one of the servers or volumes to ``keep``."""
    with going_on(operation["group"]):
        patched = patches.patch_parameters(
            tools.cloud,
            operation["stack"],
            operation["properties"]["parameters"],
            operation["timeout"],
            keep,
        )
    return {"physical_id": patched.stack, "attributes": {"status": patched.status}}
