# SPDX-License-Identifier: Apache-2.0
"""The agent of a drill's guest: the real one, with another way to isolate rehearsals.

``python -m mistral_failover.lab.drill.guest_agent run --config FOLDER/failover-agent.yaml``
"""

from __future__ import annotations

import sys

from mistral_failover.agent.daemon.main import main
from mistral_failover.agent.daemon.settings import AgentConfig
from mistral_failover.lab.drill.rehearsals import GuestIsolating


def _isolating(config: AgentConfig) -> GuestIsolating:
    return GuestIsolating(config.journal.parent)


if __name__ == "__main__":
    sys.exit(main(isolating=_isolating))
