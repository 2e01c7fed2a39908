# SPDX-License-Identifier: Apache-2.0
"""The program ``failover``, run within this process: a new one takes a second to load."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.cli.main import main


class _Terminal(io.StringIO):
    """What is typed by somebody at a terminal."""

    def isatty(self) -> bool:
        return True


def failover(*words: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``failover ...``. ``typed``: somebody sits at a terminal, and types this."""
    out, err = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(_reading(_Terminal(typed) if typed is not None else io.StringIO()))
        try:
            code = main(list(words))
        except SystemExit as ended:
            code = _status_of(ended)
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    return subprocess.CompletedProcess(["failover", *words], code, out.getvalue(), err.getvalue())


def server_that_refuses(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``failover server`` with its state in a folder, for options that it refuses. What it does
    to its whole process is left out: before it looks at them it sets the umask and takes signals,
    and one that refused nothing would end the process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "umask", lambda mask: 0)
        patch.setattr(signal, "signal", lambda number, handler: None)
        patch.setattr(os, "_exit", _nothing_was_refused)
        return failover("server", "--emulated", "--state-dir", str(folder), *words)


def _nothing_was_refused(status: int) -> None:
    raise AssertionError(f"the server ran, and ended with {status}")


def _status_of(ended: SystemExit) -> int:
    """The status with which a process would exit."""
    if ended.code is None:
        return 0
    return ended.code if isinstance(ended.code, int) else 1


class _reading(contextlib._RedirectStream[Any]):  # noqa: N801 - as its siblings are called
    """Let sys.stdin be another one for a while."""

    _stream = "stdin"


def heeds_ctrl_c() -> None:
    """For Popen's ``preexec_fn``: what a shell starts in the background ignores SIGINT, and so does
    all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
