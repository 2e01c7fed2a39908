# SPDX-License-Identifier: Apache-2.0
"""An agent that can be told where to go wrong: ``python -m broker.agent FOLDER ARGUMENT...``.

It takes the arguments of ``failover-agent`` and obeys FOLDER/plan.json, as ``support.armed`` says.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path

from mistral_failover import fault_points
from mistral_failover.agent.main import main
from support.armed import Faults

if __name__ == "__main__":
    folder = Path(sys.argv.pop(1))
    # SIGUSR1 has every thread's stack written down: for those who wonder why nothing moves.
    faulthandler.register(signal.SIGUSR1, (folder / "stacks").open("a"), all_threads=True)
    fault_points.arm(Faults(folder))
    sys.exit(main())
