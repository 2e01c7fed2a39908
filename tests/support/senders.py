# SPDX-License-Identifier: Apache-2.0
"""Programs that send alarms, or check what they are configured with.

``python -m support.senders``: see that they are there (root). Without them their tests are skipped.
"""

from __future__ import annotations

from support.debian import install

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
    install(DEBIAN, "the configurations of senders of alarms are tested with it")


if __name__ == "__main__":
    main()
