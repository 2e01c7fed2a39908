# SPDX-License-Identifier: Apache-2.0
"""The embedded Mistral in a process of its own: several side by side, or one to be killed."""

import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from mistral_failover.embedded import __main__ as embedded
from mistral_failover.embedded import access
from mistral_failover.errors import CodedError
from mistral_failover.mistral.client import MistralClient
from mistral_failover.model.documents import load_json
from support.forked import Forked


class MistralProcess:
    """``python -m mistral_failover.embedded`` on a state directory; a context manager.

    :param state_dir: as for :class:`~mistral_failover.embedded.server.EmbeddedMistral`; the log is
    ``mistral.log`` in it, what the process prints besides is ``mistral.out``. :param workflows:
    files to register at the start. :param overrides: ``{"group.option": value}``. :param env:
    environment of the process; default is ours. :param sweep: it continues stalled work of dead
    processes by itself. :param main: the program that is run; another one takes the same arguments.
    """

    def __init__(
        self,
        state_dir: str | Path,
        port: int = 0,
        *,
        workflows: Iterable[str | Path] = (),
        auth_url: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        sweep: bool = False,
        main: Callable[[], None] = embedded.main,
    ) -> None:
        self.state_dir = Path(state_dir)
        self._main = main
        self._command = [str(self.state_dir), "--port", str(port)]
        if auth_url:
            self._command += ["--auth-url", auth_url]
        if sweep:
            self._command.append("--sweep")
        for name, value in (overrides or {}).items():
            self._command += ["--set", f"{name}={value}"]
        self._command += ["--workflows", *(str(Path(w).absolute()) for w in workflows)]
        self._env = dict(env) if env is not None else None
        self._process: Forked | None = None
        self._url: str | None = None
        self._client: MistralClient | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The API's base. Raises :class:`CodedError` ``NOT_RUNNING``."""
        if self._url is None:
            raise CodedError("NOT_RUNNING", "the process is not running", "call start() first")
        return self._url

    @property
    def token_file(self) -> Path:
        """The file with the token that every request to the API needs."""
        return self.state_dir / access.TOKEN_FILE

    @property
    def token(self) -> str:
        """That token. Raises :class:`CodedError` ``TOKEN_UNREADABLE``."""
        return access.token(self.state_dir)

    @property
    def client(self) -> MistralClient:
        """A client of the API. Raises as :attr:`url`."""
        if self._client is None:
            self._client = MistralClient(self.url, token=self.token)
        return self._client

    @property
    def pid(self) -> int | None:
        """Of the running process, else None."""
        return self._process.pid if self._process else None

    def start(self) -> Self:
        """Start the process; returns when its API answers.

        :raises CodedError: ``DID_NOT_START`` with what it printed last.
        """
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        output = self.state_dir / "mistral.out"
        self._process = Forked(self._main, self._command, output=output, env=self._env, piped=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            code = self._process.wait()
            self._forget()
            last = output.read_text("utf-8").strip().splitlines()[-1:] or ["nothing"]
            raise CodedError("DID_NOT_START", f"exit code {code}: {last[0]}", f"see {output}")
        self._url = load_json(line, "line")["url"]
        return self

    def stop(self, timeout: float = 15) -> int | None:
        """Ask the process to end, kill it after ``timeout`` seconds; returns its exit code."""
        if self._process is None:
            return None
        self._process.terminate()
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._forget()

    def kill(self) -> None:
        """Kill it at once (SIGKILL), as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _forget(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = self._url = self._client = None
