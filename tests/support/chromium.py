# SPDX-License-Identifier: Apache-2.0
"""``python -m support.chromium``: see that Debian's Chromium is there (root)."""

from __future__ import annotations

import shutil
import sys

from support.debian import install

DEBIAN = {"chromium": "chromium"}
"""The package, and the program by which it is seen to be there."""


def executable() -> str | None:
    """Return the path of Chromium, None if it is not installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


def main() -> int:
    """Install it where it is missing; return the exit code."""
    return 0 if executable() or install(DEBIAN, "the web page is tested in it") else 1


if __name__ == "__main__":
    sys.exit(main())
