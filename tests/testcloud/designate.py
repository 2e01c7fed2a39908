# SPDX-License-Identifier: Apache-2.0
"""A private Designate for the contract's tests: its services in one process, on a database of its
own. Its own name server answers for its zones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from testcloud import apis, ini
from testcloud.settings import Settings, write_private

REQUIREMENTS = ("designate==23.0.0",)


@dataclass(frozen=True)
class Designate:
    """Where it is: its API, and the port of its name server on loopback."""

    url: str
    dns_port: int


@contextmanager
def running(settings: Settings, folder: Path, auth: ini.Section) -> Iterator[Designate]:
    """Run Designate while the block runs.

    ``folder``: for its configuration, database and logs. ``auth``: how it logs in to Keystone, as
    in ``[keystone_authtoken]``.

    :raises CloudError: INSTALL_FAILED, TOOL_FAILED, NO_UV.
    """
    programs = apis.installed(settings, "designate", REQUIREMENTS)
    config, pools, port = folder / "designate.conf", folder / "pools.yaml", apis.free_port()
    paste = programs.parent / "etc" / "designate" / "api-paste.ini"
    write_private(config, ini.text(_sections(folder, paste, port, auth)))
    write_private(pools, yaml.safe_dump([_pool(port)]))
    schema = ("designate-manage", "--config-file", str(config), "database", "sync")
    files, log = (str(config), str(pools)), folder / "designate.log"
    with apis.serving(programs, schema, "designate_api.py", files, log) as url:
        yield Designate(url, port)


def _sections(folder: Path, paste: Path, port: int, auth: ini.Section) -> ini.Sections:
    return {
        "DEFAULT": {"transport_url": "fake://", "state_path": str(folder)},
        "storage:sqlalchemy": {"connection": f"sqlite:///{folder / 'designate.sqlite'}"},
        "oslo_messaging_notifications": {"driver": "noop"},
        "heartbeat_emitter": {"emitter_type": "noop"},
        "service:api": {"auth_strategy": "keystone", "api_paste_config": str(paste)},
        "service:mdns": {"listen": f"127.0.0.1:{port}"},
        # The shortest pauses: a change takes a second or two, by default some ten.
        "service:producer": {"enabled_tasks": "increment_serial"},
        "producer_task:increment_serial": {"interval": "1"},
        "service:worker": {"poll_delay": "0", "poll_retry_interval": "1", "poll_timeout": "2"},
        "keystone_authtoken": auth,
    }


def _pool(port: int) -> dict[str, object]:
    """A pool whose only name server is Designate's own."""
    here: dict[str, object] = {"host": "127.0.0.1", "port": port}
    target = {"type": "fake", "description": "", "masters": [here], "options": here}
    return {
        "name": "default",
        "description": "",
        "attributes": {},
        "ns_records": [{"hostname": "ns1.example.org.", "priority": 1}],
        "nameservers": [here],
        "targets": [target],
    }
