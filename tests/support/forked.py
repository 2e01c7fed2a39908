# SPDX-License-Identifier: Apache-2.0
"""Processes that start in milliseconds: forked from one that has imported everything.

Importing Mistral takes seconds, most of the time of a test that kills one and starts it again. So
Python's fork server imports it once for each process of the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["support.preloaded"])


class Forked:
    """A process that runs a function as a program; what of ``subprocess.Popen`` the tests use.

    What it prints is appended to ``output``; its standard output goes to ``printed`` instead, or
    with ``piped`` it is ``stdout``. ``env``: default is ours.
    """

    def __init__(
        self,
        main: Callable[[], int | None],
        arguments: Sequence[str],
        *,
        output: Path,
        env: Mapping[str, str] | None = None,
        piped: bool = False,
        printed: Path | None = None,
    ) -> None:
        self.args = [main.__module__, *arguments]
        files = (str(output), str(printed or output))
        surroundings = (dict(os.environ if env is None else env), str(Path.cwd()))
        reading, writing = _CONTEXT.Pipe(duplex=False)
        # A daemon: whatever a test leaves behind ends with the tests.
        self._process = _CONTEXT.Process(
            target=_run,
            args=(main, self.args, files, surroundings, writing if piped else None),
            daemon=True,
        )
        # The server starts with the first process, and Python 3.11 tells it no other way. Programs
        # that later tests start must not find the tests there.
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{ROOT}")
            self._process.start()
        writing.close()
        self.stdout = os.fdopen(os.dup(reading.fileno()), encoding="utf-8") if piped else None
        reading.close()

    @property
    def pid(self) -> int:
        """Its id."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self._process.kill()


def run(
    main: Callable[[], int | None],
    *words: str,
    timeout: float,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, for at most ``timeout`` seconds. Raises
    subprocess.TimeoutExpired."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = Forked(main, words, output=err, printed=out, env=env)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, code, out.read_text(), err.read_text())


def _run(
    main: Callable[[], int | None],
    arguments: list[str],
    files: tuple[str, str],
    surroundings: tuple[dict[str, str], str],
    out: Connection | None,
) -> None:
    sys.argv = arguments
    environment, folder = surroundings
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None  # the one of the environment
    for path, stream in zip(files, (2, 1), strict=True):
        with Path(path).open("ab") as file:
            os.dup2(file.fileno(), stream)
    if out is not None:
        os.dup2(out.fileno(), 1)
        out.close()
    sys.exit(main())
