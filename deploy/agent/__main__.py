# SPDX-License-Identifier: Apache-2.0
# What Python runs of the folder, or of the file, with the agent and all that it needs.
import sys

if sys.version_info < (3, 9):
    sys.exit(f"failover-agent needs Python 3.9 or newer; this is {sys.version.split()[0]}")

from mistral_failover.agent.daemon.main import main  # noqa: E402 - an older Python cannot read it

sys.exit(main())
