# SPDX-License-Identifier: Apache-2.0
"""``python -m support.java``: see that a Java is there, which checks the specification (root).

Without it its tests are skipped.
"""

from __future__ import annotations

from support.debian import install


def main() -> None:
    """Install it if it is missing, if that is possible."""
    install({"default-jre-headless": "java"}, "TLC checks the specification with it")


if __name__ == "__main__":
    main()
