# SPDX-License-Identifier: Apache-2.0
"""``python -m support.shells``: see that the shells are there for which there is completion (root).

Without them their tests are skipped.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from support.chromium import Traces
from testcloud.errors import CloudError
from testcloud.packages import install_debian

DEBIAN = {"zsh": "zsh", "fish": "fish"}
"""The packages, and the programs by which they are seen to be there."""
BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")


def main() -> None:
    """Install what is missing, if that is possible."""
    if os.geteuid() != 0:
        return
    also = [] if BASH_COMPLETION.exists() else ["bash-completion"]
    try:
        why = "the completion of commands is tested in it"
        install_debian(DEBIAN, Traces(), partial(print, flush=True), why, also=also)
    except CloudError as error:
        print(f"{error}\n{error.remedy}", file=sys.stderr)


if __name__ == "__main__":
    main()
