# SPDX-License-Identifier: Apache-2.0
"""``python -m testbroker install``: see that Debian's RabbitMQ is there (root)."""

from __future__ import annotations

import sys
from pathlib import Path

from testbroker.broker import install
from testcloud.errors import CloudError

USAGE = "python -m testbroker install"


def main() -> int:
    """Run the command; returns the exit code."""
    if sys.argv[1:] != ["install"]:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        install(Path(__file__).parents[2] / ".broker", print)
    except CloudError as error:
        print(f"{error}\n{error.remedy}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
