# SPDX-License-Identifier: Apache-2.0
"""Plans over an emulated cloud, without Mistral."""

from support.planned_groups import emulated, group, protect, state

__all__ = ["emulated", "group", "protect", "state"]
