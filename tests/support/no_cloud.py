# SPDX-License-Identifier: Apache-2.0
"""Clouds that are asked for one thing."""

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


class RunningServers:
    """A cloud in which every server runs."""

    @staticmethod
    def read_nova(path: str) -> dict[str, Any]:
        """Return the server."""
        return {
            "server": {
                "id": path.rpartition("/")[2],
                "status": "ACTIVE",
                "OS-EXT-STS:task_state": None,
                "OS-EXT-STS:power_state": 1,
            }
        }
