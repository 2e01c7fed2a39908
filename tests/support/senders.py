# SPDX-License-Identifier: Apache-2.0
"""Programs that send alarms, or check what they are configured with.

``python -m support.senders``: see that they are there (root). Without them their tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial

import pytest

from support.chromium import Traces
from testcloud.errors import CloudError
from testcloud.packages import install_debian
from testcloud.serving import PLACES

DEBIAN = {
    "prometheus": "promtool",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "icinga2-bin": "icinga2",
    "zabbix-proxy-sqlite3": "zabbix_js",
    "nodejs": "node",
}
"""The packages, and the programs by which they are seen to be there."""


def main() -> None:
    """Install what is missing, if that is possible."""
    if os.geteuid() != 0:
        return
    try:
        why = "the configurations of senders of alarms are tested with it"
        install_debian(DEBIAN, Traces(), partial(print, flush=True), why)
    except CloudError as error:
        print(f"{error}\n{error.remedy}", file=sys.stderr)


def program(name: str) -> str:
    """The path of one of these programs; the test is skipped if it is not installed."""
    found = shutil.which(name, path=PLACES)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


if __name__ == "__main__":
    main()
