# SPDX-License-Identifier: Apache-2.0
"""A real agent: python -m support.agent_process FILE [POINT [PROTOCOL]].

It kills itself at a fault point, or speaks another version of the protocol."""

from __future__ import annotations

import os
import signal
import sys

from mistral_failover import fault_points
from mistral_failover.agent import wire
from mistral_failover.agent.daemon.main import main


def _die_at(point: str) -> None:
    def hook(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    fault_points.arm(hook)


if __name__ == "__main__":
    if sys.argv[2:] and sys.argv[2]:
        _die_at(sys.argv[2])
    if sys.argv[3:]:
        wire.PROTOCOL = int(sys.argv[3])
    sys.exit(main(["--config", sys.argv[1], "run"]))
