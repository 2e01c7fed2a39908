# SPDX-License-Identifier: Apache-2.0
"""``python -m support.fence_agents``: see that fence agents, boards and Ceph are there (root).

Without them their tests are skipped.
"""

from __future__ import annotations

from support.debian import install
from testcloud.packages import DEBIAN_FOR_MACHINES

DEBIAN = {
    name: DEBIAN_FOR_MACHINES[name]
    for name in ("fence-agents", "openipmi", "ipmitool", "ceph-mon", "ceph-osd", "ceph-common")
}
"""The packages, and the programs by which they are seen to be there."""


def main() -> None:
    """Install what is missing, if that is possible."""
    why = "fences by power switches and by Ceph are tested with it"
    install({**DEBIAN, "openssl": "openssl"}, why)


if __name__ == "__main__":
    main()
