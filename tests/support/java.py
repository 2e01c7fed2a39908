# SPDX-License-Identifier: Apache-2.0
"""``python -m support.java``: see that a Java is there, which checks the specification (root).

Without it its tests are skipped.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from support.chromium import Traces
from testcloud.errors import CloudError
from testcloud.packages import install_debian


def main() -> None:
    """Install it if it is missing, if that is possible."""
    if os.geteuid() != 0:
        return
    try:
        why = "TLC checks the specification with it"
        install_debian({"default-jre-headless": "java"}, Traces(), partial(print, flush=True), why)
    except CloudError as error:
        print(f"{error}\n{error.remedy}", file=sys.stderr)


if __name__ == "__main__":
    main()
