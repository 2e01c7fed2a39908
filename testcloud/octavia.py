# SPDX-License-Identifier: Apache-2.0
"""A private Octavia for the contract's tests: its API, on a database of its own.

It needs Keystone and nothing else of a cloud, because its provider and its networks do nothing. So
it is none of the test cloud's processes, and also runs beside the emulated cloud.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testcloud import hashes, ini
from testcloud.errors import CloudError
from testcloud.packages import CONSTRAINTS, run, uv
from testcloud.settings import HERE, Settings, write_private

REQUIREMENTS = ("octavia==19.0.0", "octavia-lib==3.12.0", "PyMySQL==1.2.4")
_SECONDS = 180  # for the schema, and for the API to answer


@contextmanager
def running(settings: Settings, folder: Path, database: str, auth: ini.Section) -> Iterator[str]:
    """Serve Octavia's API while the block runs; gives its address.

    ``folder``: for its configuration and logs. ``database``: the URL of an empty one in MariaDB.
    ``auth``: how it logs in to Keystone, as in ``[keystone_authtoken]``.

    :raises CloudError: INSTALL_FAILED, TOOL_FAILED, NO_UV.
    """
    programs = _installed(settings)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config, log = folder / "octavia.conf", folder / "octavia.log"
    write_private(config, ini.text(_sections(database, auth)))
    with log.open("ab") as output:
        tool = [str(programs / "octavia-db-manage"), "--config-file", str(config)]
        done = subprocess.run(
            [*tool, "upgrade", "head"],
            stdout=output,
            stderr=output,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise CloudError("TOOL_FAILED", "octavia-db-manage failed.", f"See {log}.")
        process = subprocess.Popen(
            # -P: beside the program there is another module called octavia.
            [str(programs / "python"), "-P", str(HERE / "octavia_api.py"), str(config), str(port)],
            stdout=output,
            stderr=output,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(url, process, log)
        yield url
    finally:
        process.kill()
        process.wait()


def _installed(settings: Settings) -> Path:
    """Install Octavia in an environment of its own, once; return the folder of its programs."""
    venv = settings.state / "octavia"
    stamp, key = venv / ".installed", hashes.of_files([CONSTRAINTS], *REQUIREMENTS, sys.version)
    if not hashes.stamped(stamp, key):
        run([uv(), "venv", "--quiet", "--clear", "--python", sys.executable, str(venv)], settings)
        python = str(venv / "bin" / "python")
        wanted = ("--constraint", str(CONSTRAINTS), *REQUIREMENTS)
        run([uv(), "pip", "install", "--quiet", "--python", python, *wanted], settings)
        hashes.stamp_with(stamp, key)
    return venv / "bin"


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


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=10).close()  # noqa: S310 - the address is ours
            return
        except (urllib.error.URLError, TimeoutError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise CloudError("TOOL_FAILED", "octavia-api failed.", f"See {log}.") from None
        time.sleep(0.1)
