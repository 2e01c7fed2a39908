# SPDX-License-Identifier: Apache-2.0
"""``failover server`` as a process, and senders of alarms."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import requests

from mistral_failover.cli.connection import of_server
from mistral_failover.cli.main import main
from mistral_failover.mistral.client import MistralClient
from mistral_failover.server import secret
from mistral_failover.server.secret import SIGNATURE, TIMESTAMP
from support import forked

_START = 120.0


class ServerProcess:
    """A server on free ports; a context manager. ``words``: further words of its command line;
    ``settings``: options of [failover]; ``listen``: for Mistral's API, None: as by default."""

    def __init__(
        self,
        folder: Path,
        *words: str,
        settings: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        listen: str | None = "127.0.0.1:0",
    ) -> None:
        self.folder = folder
        self._words: Sequence[str] = words
        self._listen = [] if listen is None else ["--listen", listen]
        self.settings = settings or {}
        self._env = os.environ | dict(env or {})
        self._process: forked.Forked | None = None

    @property
    def command(self) -> list[str]:
        """The words after ``failover`` with which it is started."""
        config = self.folder / "failover.conf"
        lines = [f"{name} = {value}" for name, value in self.settings.items()]
        config.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        config.write_text("\n".join(["[failover]", *lines, ""]))
        config.chmod(0o600)
        where = ["--state-dir", str(self.folder), "--config-file", str(config)]
        doors = [*self._listen, "--webhook-listen", "127.0.0.1:0"]
        return ["server", *where, *doors, *self._words]

    def launch(self) -> Self:
        """Start it, unless it runs; returns at once."""
        if self._process is not None:
            return self
        self.log = self.folder / "server.log"
        command = self.command
        (self.folder / "server.json").unlink(missing_ok=True)
        self._process = forked.Forked(main, command, output=self.log, env=self._env)
        return self

    def wait(self) -> Self:
        """Wait until it is ready."""
        assert self._process is not None
        deadline = time.monotonic() + _START
        while not (self.folder / "server.json").exists():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)
        return self

    def failover(self, *words: str, limit: float = 300) -> subprocess.CompletedProcess[str]:
        """Run ``failover --embedded ...`` as a process, for at most ``limit`` seconds."""
        where = ("--embedded", "--server-state", str(self.folder))
        return forked.run(main, *where, *words, timeout=limit)

    def __enter__(self) -> Self:
        return self.launch().wait()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def facts(self) -> dict[str, Any]:
        """What it has written down."""
        found: dict[str, Any] = json.loads((self.folder / "server.json").read_text())
        return found

    @property
    def client(self) -> MistralClient:
        """Of its Mistral."""
        return of_server(self.facts)

    def action(self, name: str, /, **inputs: Any) -> Any:
        """Run an action."""
        return self.client.run_action(name, inputs)

    def stop(self) -> int | None:
        """End it; its exit code."""
        if self._process is None:
            return None
        self._process.terminate()
        try:
            return self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        """End it at once, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def send_signed(self, body: object) -> requests.Response:
        """Send an alarm as a sender that signs."""
        key = Path(self.facts["secret_file"]).read_bytes().strip()
        return signed(self.facts["webhook"], key, json.dumps(body).encode())

    def send(self, body: object, query: str = "") -> requests.Response:
        """Send an alarm as a sender that can not sign."""
        token = secret.read(Path(self.facts["secret_file"])).token
        return post(f"{self.facts['webhook']}/{token}{query}", json.dumps(body).encode())


def signed(
    url: str, key: bytes, body: bytes, *, at: str | None = None, **more: Any
) -> requests.Response:
    """Sign as the documentation says, and send."""
    at = at or str(int(time.time()))
    signature = hmac.new(key, at.encode() + b"." + body, hashlib.sha256).hexdigest()
    return post(url, body, {TIMESTAMP: at, SIGNATURE: signature}, **more)


def post(
    url: str, body: bytes, headers: Mapping[str, str] | None = None, **more: Any
) -> requests.Response:
    """POST, without a proxy of the environment."""
    with requests.Session() as session:
        session.trust_env = False
        return session.post(url, data=body, headers=dict(headers or {}), timeout=60, **more)
