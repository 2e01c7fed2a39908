# SPDX-License-Identifier: Apache-2.0
"""``python -m support.fence_agents``: see that fence agents, boards and Ceph are there (root).

Without them their tests are skipped.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from support.chromium import Traces
from testcloud.errors import CloudError
from testcloud.packages import DEBIAN_FOR_MACHINES, install_debian

DEBIAN = {
    name: DEBIAN_FOR_MACHINES[name]
    for name in ("fence-agents", "openipmi", "ipmitool", "ceph-mon", "ceph-osd", "ceph-common")
}
"""The packages, and the programs by which they are seen to be there."""


def main() -> None:
    """Install what is missing, if that is possible."""
    if os.geteuid() != 0:
        return
    try:
        why = "fences by power switches and by Ceph are tested with it"
        tell = partial(print, flush=True)
        install_debian({**DEBIAN, "openssl": "openssl"}, Traces(), tell, why)
    except CloudError as error:
        print(f"{error}\n{error.remedy}", file=sys.stderr)


if __name__ == "__main__":
    main()
