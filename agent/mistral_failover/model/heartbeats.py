# SPDX-License-Identifier: Apache-2.0
"""How often an agent is heard, and when it counts as silent."""

from __future__ import annotations

EVERY = 10.0
"""Seconds between two heartbeats of an agent, unless its own file says otherwise."""
FIRST = 12.0
"""Seconds to wait for a heartbeat of an agent that was never heard, or is late."""
SILENT = 60.0
"""Seconds without a heartbeat after which an agent counts as silent."""
