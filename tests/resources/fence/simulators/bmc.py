# SPDX-License-Identifier: Apache-2.0
"""A simulated management board: the part of Redfish that power fencing uses, over real sockets.

python bmc.py FOLDER MODE [CERTIFICATE]

FOLDER has one file for each host, ``on`` or ``off``: the true power of the machine. The board
prints its port, then serves until it is killed. With a CERTIFICATE (with its key) it speaks TLS.

MODE: ``works``; ``refuses`` answers 503 to every change; ``hangs`` takes requests and never
answers; ``lies`` reports a change that it does not make; ``late`` answers after 3 s; ``half-open``
accepts connections and says nothing; ``returns`` switches the machine on again after the first look
that showed it off; ``slow`` switches it off at the third look; ``dies`` with the machine that it
switches off; ``garbage`` answers what is not JSON.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

USER, PASSWORD = "fence", "s3cret-of-the-board"
SYSTEMS = "/redfish/v1/Systems"
RESET = "Actions/ComputerSystem.Reset"
LATE = 3.0


class Board(ThreadingHTTPServer):
    """The board, and what it claims about each machine."""

    daemon_threads = True

    def __init__(self, folder: Path, mode: str, certificate: str | None) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.folder, self.mode = folder, mode
        self.claimed: dict[str, str] = {}
        self.looks: dict[str, int] = {}
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def power(self, host: str) -> str | None:
        """Return what the board says about a machine: On, Off, or None for an unknown one."""
        file = self.folder / host
        if not file.is_file():
            return None
        if host in self.looks:
            self._looked(host, file)
        return self.claimed.get(host) or file.read_text("utf-8").strip().title()

    def _looked(self, host: str, file: Path) -> None:
        """Change the power by the number of looks since the switching, as far as the mode does."""
        self.looks[host] += 1
        if self.mode == "slow" and self.looks[host] == 3:
            file.write_text("off", "utf-8")
        if self.mode == "returns" and self.looks[host] == 2:
            file.write_text("on", "utf-8")

    def switch(self, host: str, to: str) -> None:
        """Switch a machine on or off, as far as the mode does."""
        if self.mode == "lies":
            self.claimed[host] = to.title()
            return
        self.looks[host] = 0
        if self.mode != "slow":
            (self.folder / host).write_text(to, "utf-8")
        if self.mode == "dies":
            os._exit(0)


class Request(BaseHTTPRequestHandler):
    """One request to the board."""

    server: Board
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Show the root, the list of systems, or one of them."""
        if not self._admitted():
            return
        path = self.path.rstrip("/")
        if path == "/redfish/v1":
            self._answer(200, {"Systems": {"@odata.id": SYSTEMS}, "RedfishVersion": "1.6.0"})
        elif path == SYSTEMS:
            hosts = sorted(file.name for file in self.server.folder.iterdir())
            members = [{"@odata.id": f"{SYSTEMS}/{host}"} for host in hosts]
            self._answer(200, {"Members": members, "Members@odata.count": len(members)})
        else:
            self._system(path.rpartition("/")[2])

    def do_POST(self) -> None:
        """Switch a machine."""
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        if not self._admitted():
            return
        host = self.path.removeprefix(f"{SYSTEMS}/").partition("/")[0]
        if self.server.mode == "refuses":
            self._answer(503, {"error": {"message": "the board is busy"}})
        elif self.server.power(host) is None or not self.path.endswith(RESET):
            self._answer(404, {})
        else:
            self.server.switch(host, "on" if body.get("ResetType") == "On" else "off")
            self._answer(200, {})

    def _system(self, host: str) -> None:
        power = self.server.power(host)
        if power is None:
            self._answer(404, {"error": {"message": f"no system {host}"}})
            return
        target = f"{SYSTEMS}/{host}/{RESET}"
        kinds = ["On", "ForceOff", "ForceRestart"]
        reset = {"target": target, "ResetType@Redfish.AllowableValues": kinds}
        actions = {"#ComputerSystem.Reset": reset}
        self._answer(200, {"Id": host, "Name": host, "PowerState": power, "Actions": actions})

    def _admitted(self) -> bool:
        if self.server.mode == "hangs":
            time.sleep(3600)
        if self.server.mode == "late":
            time.sleep(LATE)
        wanted = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") == f"Basic {wanted}":
            return True
        self._answer(401, {"error": {"message": "wrong user or password"}})
        return False

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = b"<html>" if self.server.mode == "garbage" else json.dumps(body).encode()
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is logged."""


def half_open() -> None:
    """Accept connections and say nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    held = []
    while True:
        held.append(listener.accept()[0])


def main() -> None:
    """Serve until the process is killed."""
    folder, mode, certificate = Path(sys.argv[1]), sys.argv[2], (sys.argv[3:] or [None])[0]
    if mode == "half-open":
        half_open()
    board = Board(folder, mode, certificate)
    print(board.server_address[1], flush=True)
    board.serve_forever()


if __name__ == "__main__":
    main()
