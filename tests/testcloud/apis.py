# SPDX-License-Identifier: Apache-2.0
"""One service from PyPI for the contract's tests, in an environment of its own.

It needs Keystone and nothing else of a cloud. So it is none of the test cloud's processes, and also
runs beside the emulated cloud.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from testcloud import hashes
from testcloud.errors import CloudError
from testcloud.packages import CONSTRAINTS, run, uv
from testcloud.settings import HERE, Settings

_SECONDS = 180  # for the schema, and for the API to answer


def installed(settings: Settings, name: str, requirements: Sequence[str]) -> Path:
    """Install a service, once; return the folder of its programs.

    :raises CloudError: INSTALL_FAILED, NO_UV.
    """
    venv = settings.state / name
    stamp, key = venv / ".installed", hashes.of_files([CONSTRAINTS], *requirements, sys.version)
    if not hashes.stamped(stamp, key):
        run([uv(), "venv", "--quiet", "--clear", "--python", sys.executable, str(venv)], settings)
        python = str(venv / "bin" / "python")
        wanted = ("--constraint", str(CONSTRAINTS), *requirements)
        run([uv(), "pip", "install", "--quiet", "--python", python, *wanted], settings)
        hashes.stamp_with(stamp, key)
    return venv / "bin"


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(
    programs: Path, schema: Sequence[str], program: str, arguments: Sequence[str], log: Path
) -> Iterator[str]:
    """Make the schema by a tool, and serve an API while the block runs; gives its address.

    :param schema: the tool and its arguments; empty: the API makes it.
    :param program: a file beside this one. It gets the port and the ``arguments``.
    :raises CloudError: TOOL_FAILED.
    """
    port = free_port()
    with log.open("ab") as output:
        tool = [str(programs / each) for each in schema[:1]] + list(schema[1:])
        if tool and _run(tool, output) != 0:
            raise CloudError("TOOL_FAILED", f"{schema[0]} failed.", f"See {log}.")
        process = subprocess.Popen(
            # -P: beside the program there is another module called like the service.
            [str(programs / "python"), "-P", str(HERE / program), str(port), *arguments],
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


def _run(tool: list[str], output: BinaryIO) -> int:
    done = subprocess.run(tool, stdout=output, stderr=output, timeout=_SECONDS, check=False)
    return done.returncode


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=10).close()  # noqa: S310 - the address is ours
            return
        except (urllib.error.URLError, TimeoutError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise CloudError("TOOL_FAILED", "The API failed.", f"See {log}.") from None
        time.sleep(0.1)
