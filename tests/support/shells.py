# SPDX-License-Identifier: Apache-2.0
"""``python -m support.shells``: see that the shells are there for which there is completion (root).

Without them their tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

from support.debian import install

DEBIAN = {"zsh": "zsh", "fish": "fish"}
"""The packages, and the programs by which they are seen to be there."""
BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")


def main() -> None:
    """Install what is missing, if that is possible."""
    also = [] if BASH_COMPLETION.exists() else ["bash-completion"]
    install(DEBIAN, "the completion of commands is tested in it", also=also)


if __name__ == "__main__":
    main()
