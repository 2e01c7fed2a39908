# SPDX-License-Identifier: Apache-2.0
"""The workflows, one a file; ``mistral-db-manage populate`` finds them by :func:`paths`."""

from pathlib import Path


def paths() -> list[str]:
    """The files of all workflows."""
    return sorted(str(path) for path in Path(__file__).parent.glob("*.yaml"))
