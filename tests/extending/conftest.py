# SPDX-License-Identifier: Apache-2.0
"""Another package adds something, and it works everywhere: over an emulated cloud, without
Mistral."""

from support.planned_groups import emulated, protect, state

__all__ = ["emulated", "protect", "state"]
