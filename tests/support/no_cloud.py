# SPDX-License-Identifier: Apache-2.0
"""A cloud out of reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mistral_failover.cloud.errors import CloudError


@dataclass
class NoCloud:
    """A cloud of which only the guard is asked: its Heat does not answer."""

    guard: Any = None

    @property
    def heat(self) -> Any:
        """Raises."""
        raise CloudError("UNREACHABLE", "Heat does not answer.")
