# SPDX-License-Identifier: Apache-2.0
"""An agent that can be told where to go wrong: a program, see :func:`main`.

Its first argument is a folder, the others are those of ``failover-agent``; it obeys
FOLDER/plan.json, as ``support.injected_faults`` says.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path

from mistral_failover import fault_points
from mistral_failover.agent.daemon import main as agent
from support.injected_faults import FaultInjector


def main() -> int:
    """Serve as ``failover-agent`` does, with the hook armed."""
    folder = Path(sys.argv.pop(1))
    # SIGUSR1 has every thread's stack written down: for those who wonder why nothing moves.
    faulthandler.register(signal.SIGUSR1, (folder / "stacks").open("a"), all_threads=True)
    fault_points.arm(FaultInjector(folder))
    return agent.main()
