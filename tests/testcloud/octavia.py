# SPDX-License-Identifier: Apache-2.0
"""A private Octavia for the contract's tests: its API, on a database of its own. Its provider and
its networks do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testcloud import apis, ini
from testcloud.settings import Settings, write_private

REQUIREMENTS = ("octavia==19.0.0", "octavia-lib==3.12.0", "PyMySQL==1.2.4")


@contextmanager
def running(settings: Settings, folder: Path, database: str, auth: ini.Section) -> Iterator[str]:
    """Serve Octavia's API while the block runs; gives its address.

    ``folder``: for its configuration and logs. ``database``: the URL of an empty one in MariaDB.
    ``auth``: how it logs in to Keystone, as in ``[keystone_authtoken]``.

    :raises CloudError: INSTALL_FAILED, TOOL_FAILED, NO_UV.
    """
    programs = apis.installed(settings, "octavia", REQUIREMENTS)
    config = folder / "octavia.conf"
    write_private(config, ini.text(_sections(database, auth)))
    schema = ("octavia-db-manage", "--config-file", str(config), "upgrade", "head")
    log = folder / "octavia.log"
    with apis.serving(programs, schema, "octavia_api.py", [str(config)], log) as url:
        yield url


def _sections(database: str, auth: ini.Section) -> ini.Sections:
    return {
        "DEFAULT": {"transport_url": "fake://"},
        "database": {"connection": database},
        "api_settings": {
            "auth_strategy": "keystone",
            "default_provider_driver": "noop_driver",
            "enabled_provider_drivers": "noop_driver:Accepts everything and does nothing",
        },
        "controller_worker": {"network_driver": "network_noop_driver"},
        "keystone_authtoken": auth,
        "service_auth": auth,
    }
