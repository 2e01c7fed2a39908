# SPDX-License-Identifier: Apache-2.0
"""``python -m support.chromium``: see that Debian's Chromium is there (root)."""

from __future__ import annotations

import shutil
import sys
from functools import partial

from support.pages import ROOT
from testcloud.errors import CloudError
from testcloud.packages import install_debian

DEBIAN = {"chromium": "chromium"}
"""The package, and the program by which it is seen to be there."""


class Traces:
    """Where the installer leaves its log."""

    run = log = ROOT / "build" / "ui"


def executable() -> str | None:
    """Return the path of Chromium, None if it is not installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


def main() -> int:
    """Install it where it is missing; return the exit code."""
    if executable():
        return 0
    try:
        install_debian(DEBIAN, Traces(), partial(print, flush=True), "the web page is tested in it")
    except CloudError as error:
        print(f"{error}\n{error.remedy}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
