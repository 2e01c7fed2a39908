# SPDX-License-Identifier: Apache-2.0
"""The program ``failover``, run within this process: a new one takes a second to load."""

from __future__ import annotations

import contextlib
import io
import logging
import signal
import subprocess
from typing import Any

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
