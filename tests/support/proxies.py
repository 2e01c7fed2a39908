# SPDX-License-Identifier: Apache-2.0
"""Real proxies on loopback: tinyproxy for what leaves, nginx for what comes in.

``python -m support.proxies``: see that they are there (root). Without them their tests are skipped.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from support import debian
from support.gateway import Authority
from testcloud.apis import free_port

DEBIAN = {"tinyproxy-bin": "tinyproxy", "nginx-light": "nginx"}
"""The packages, and the programs by which they are seen to be there."""


def main() -> None:
    """Install what is missing, if that is possible."""
    debian.install(DEBIAN, "clouds and servers behind proxies are tested with it")


@contextmanager
def tinyproxy(folder: Path, *more: str) -> Iterator[str]:
    """Run a forward proxy; gives its URL. ``more``: lines of its configuration."""
    program, port, file = debian.program("tinyproxy"), free_port(), folder / "tinyproxy.conf"
    log = folder / "tinyproxy.log"
    lines = (f"Port {port}", "Listen 127.0.0.1", "Timeout 60", f'LogFile "{log}"', "MaxClients 50")
    file.write_text("\n".join((*lines, "LogLevel Connect", *more)) + "\n")
    with _running([program, "-d", "-c", str(file)], port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def nginx(
    folder: Path, locations: Sequence[str], trusted: Authority | None = None, *more: str
) -> Iterator[str]:
    """Run a reverse proxy; gives its URL. ``locations``: of its configuration; ``trusted``: serve
    TLS; ``more``: further lines of the server."""
    program, port, file = debian.program("nginx"), free_port(), folder / "nginx.conf"
    tls = []
    if trusted is not None:
        tls = [f"ssl_certificate {trusted.served};", f"ssl_certificate_key {trusted.key};"]
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    lines = [
        "daemon off;",
        "worker_processes 1;",
        f"pid {folder}/nginx.pid;",
        f"error_log {folder}/nginx.log;",
        *(["user root;"] if os.geteuid() == 0 else []),
        "events {}",
        "http {",
        "access_log off;",
        *(f"{kind}_temp_path {folder}/{kind};" for kind in kinds),
        "server {",
        f"listen 127.0.0.1:{port}{' ssl' if trusted else ''};",
        *tls,
        *more,
        *locations,
        "}",
        "}",
    ]
    file.write_text("\n".join(lines) + "\n")
    with _running([program, "-p", str(folder), "-c", str(file)], port):
        yield f"{'https' if trusted else 'http'}://localhost:{port}"


@contextmanager
def _running(command: Sequence[str], port: int) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(200):
                with socket.socket() as asked:
                    if asked.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, f"{command[0]} ended"
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()  # one that is just starting may have missed the signal


if __name__ == "__main__":
    main()
