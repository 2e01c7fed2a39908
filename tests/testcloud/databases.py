# SPDX-License-Identifier: Apache-2.0
"""All schemas, in parallel: each service upgrades its own with its own tool."""

from __future__ import annotations

import base64
import os
import subprocess
import time
from collections.abc import Callable

from testcloud import infrastructure
from testcloud.errors import CloudError
from testcloud.service_processes import environment
from testcloud.settings import REGION, Settings, write_private

_LIMIT = 300  # seconds for one tool


def tool(settings: Settings, *command: str, secrets: dict[str, str] | None = None) -> float:
    """Run a service's tool to its end; return the seconds it took.

    `secrets`: variables of the environment, since everybody can read a command line.

    :raises CloudError: TOOL_FAILED.
    """
    begun = time.monotonic()
    name = command[0]
    log = settings.log / f"{'-'.join(part for part in command[:3] if part[0] not in '-/')}.log"
    with log.open("ab") as output:
        os.fchmod(output.fileno(), 0o600)
        try:
            done = subprocess.run(
                [str(settings.venv / "bin" / name), *command[1:]],
                env=environment(settings) | (secrets or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_LIMIT,
                check=False,
                # Where the kernel shares the processor out by sessions, each gets a share.
                start_new_session=True,
            )
            failed = done.returncode != 0
        except subprocess.TimeoutExpired:
            failed = True
    if failed:
        raise CloudError("TOOL_FAILED", f"{' '.join(command[:3])} failed.", f"See {log}.")
    return time.monotonic() - begun


def bootstrap(settings: Settings) -> None:
    """Make Keystone's keys and its first administrator."""
    for repository in ("fernet-keys", "credential-keys"):
        for key in ("0", "1"):
            text = base64.urlsafe_b64encode(os.urandom(32)).decode()
            write_private(settings.data / "keystone" / repository / key, text)
        (settings.data / "keystone" / repository).chmod(0o700)
    public = settings.auth_url
    tool(
        settings,
        *("keystone-manage", "bootstrap", "--bootstrap-username", "admin"),
        *("--bootstrap-project-name", "admin", "--bootstrap-role-name", "admin"),
        *("--bootstrap-service-name", "keystone", "--bootstrap-region-id", REGION),
        *("--bootstrap-admin-url", public, "--bootstrap-internal-url", public),
        *("--bootstrap-public-url", public),
        secrets={"OS_BOOTSTRAP_PASSWORD": settings.secret("admin")},
    )


def cells(settings: Settings) -> None:
    """Make Nova's cells, and say which hypervisors belong to them.

    `nova-manage cell_v2 discover_hosts` would need the hypervisors to be up first.
    """
    wanted = (
        ("0", "cell0", "none:///", settings.database_url("nova_cell0")),
        ("1", "cell1", settings.messages_url, settings.database_url("nova")),
    )
    infrastructure.sql(
        settings,
        ("USE nova_api", ()),
        *(
            (
                "INSERT IGNORE INTO cell_mappings (uuid, name, transport_url, database_connection)"
                " VALUES (CONCAT('00000000-0000-0000-0000-00000000000', %s), %s, %s, %s)",
                cell,
            )
            for cell in wanted
        ),
        *(
            (
                "INSERT IGNORE INTO host_mappings (cell_id, host)"
                " SELECT id, %s FROM cell_mappings WHERE name = 'cell1'",
                (host,),
            )
            for host in settings.hosts
        ),
    )


def nova_cell0(settings: Settings) -> None:
    """The schema of the cell for servers that found no host."""
    url = settings.database_url("nova_cell0")
    tool(
        settings,
        *("nova-manage", "db", "sync", "--local_cell"),
        secrets={"OS_DATABASE__CONNECTION": url},
    )


def _one(*command: str) -> Callable[[Settings], None]:
    def run(settings: Settings) -> None:
        tool(settings, *command)

    return run


SCHEMAS: dict[str, Callable[[Settings], None]] = {
    "nova_api": _one("nova-manage", "api_db", "sync"),
    "nova": _one("nova-manage", "db", "sync", "--local_cell"),
    "nova_cell0": nova_cell0,
    "mistral": _one("mistral-db-manage", "upgrade", "head"),
    "keystone": _one("keystone-manage", "db_sync"),
    "neutron": _one("neutron-db-manage", "upgrade", "head"),
    "cinder": _one("cinder-manage", "db", "sync"),
    "glance": _one("glance-manage", "db_sync"),
    "aodh": _one("aodh-dbsync"),
    "heat": _one("heat-manage", "db_sync"),
    "placement": _one("placement-manage", "db", "sync"),
}
"""How each database is brought up; what takes longest comes first."""
