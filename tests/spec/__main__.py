# SPDX-License-Identifier: Apache-2.0
"""``python -m spec``: search the larger models, and print their numbers of states for
docs/safety.md. Arguments are parts of their names."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from spec import tlc
from spec.models import LARGE, SMALL


def main(parts: list[str]) -> int:
    """Return 1 if a promise is broken."""
    if why := tlc.missing():
        print(why, file=sys.stderr)
        return 1
    broken = 0
    for name, model in ({**SMALL, **LARGE} if parts else LARGE).items():
        if parts and not any(part in name for part in parts):
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            result = tlc.check(model, Path(folder), limit=6 * 3600.0)
        said = "holds" if result.violated is None else f"{result.violated}: {result.moves}"
        seconds = time.monotonic() - began
        print(f"| {name} | {result.distinct:,} | {seconds:.0f} s | {said} |", flush=True)
        broken += result.violated is not None
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
