# SPDX-License-Identifier: Apache-2.0
"""The version of this package and of the agent's: ``python -m deploy.version [VERSION]``.

It is stated in ``setup.cfg``. The agent's packages, the images and the documents take it from
there; two lines of other files have to repeat it, and this writes them.
"""

from __future__ import annotations

import configparser
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = (
    ("setup.cfg", r"(?m)^(version = )(.+)$"),
    ("setup.cfg", r"(?m)^(    mistral-failover-agent==)(.+)$"),
    ("agent/pyproject.toml", r'(?m)^(version = ")([^"]+)'),
)
"""Each file that has it, and the line: what is before it, and it."""
_FORM = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


def version(root: Path = ROOT) -> str:
    """Return the version of the sources in a folder."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(root / "setup.cfg", encoding="utf-8")
    return setup["metadata"]["version"]


def write(new: str, root: Path = ROOT) -> None:
    """Write a version wherever it is stated. Raises ValueError for one in another form."""
    if _FORM.fullmatch(new) is None:
        raise ValueError(f"{new} is no version. Write it as 1.0.0 or 1.0.0rc1.")
    for name, line in PLACES:
        text = (root / name).read_text("utf-8")
        (root / name).write_text(re.sub(line, rf"\g<1>{new}", text, count=1), "utf-8")


def main() -> int:
    """Write the version that is named, if one is; print the version."""
    if len(sys.argv) > 1:
        try:
            write(sys.argv[1])
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    print(version())
    return 0


if __name__ == "__main__":
    sys.exit(main())
