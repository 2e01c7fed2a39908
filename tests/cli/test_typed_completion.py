# SPDX-License-Identifier: Apache-2.0
"""Completion as docs/reference.md installs it, in real shells on a terminal."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.pages import ROOT, blocks, page
from support.shells import BASH_COMPLETION

pytestmark = pytest.mark.drills

READY = "ready> "
START = {
    "bash": (["bash", "--noprofile", "-i"], ".bashrc", f"PS1='{READY}'; . {BASH_COMPLETION}\n"),
    "zsh": (["zsh", "-i"], ".zshrc", f"PS1='{READY}'\n"),
    "fish": (
        ["fish", "-i"],
        ".config/fish/config.fish",
        f"set fish_greeting; function fish_prompt; printf '{READY}'; end\n",
    ),
}
"""How each shell starts, and the file of its own that makes its prompt."""
FILE = {"bash": "my", "zsh": "~/my", "fish": "~/my"}
"""The beginning of a file's name. What cliff prints for bash leaves ~ as it is."""


class Terminal:
    """A shell on a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.shown = ""

    def read_until(self, text: str) -> None:
        """Wait until this text was shown."""
        deadline = time.monotonic() + 60
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._descriptor], [], [], 0.1)[0]:
                self.shown += os.read(self._descriptor, 65536).decode(errors="replace")

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self._descriptor, text.encode())


@contextmanager
def started(words: list[str], home: Path) -> Iterator[Terminal]:
    """A shell of a user with this home."""
    descriptor, its = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *words],
        cwd=home,
        env=environment(home),
        stdin=its,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    try:
        yield Terminal(descriptor)
    finally:
        process.kill()
        process.wait()
        os.close(descriptor)


def environment(home: Path) -> dict[str, str]:
    """The environment of a user with this home, who has the command."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"HOME": str(home), "PATH": programs, "TERM": "vt100", "LANG": "C.UTF-8"}


@pytest.mark.parametrize("shell", START)
def test_keys_that_are_left_out_are_completed(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None or (shell == "bash" and not BASH_COMPLETION.exists()):
        pytest.skip(f"{shell} or its completion is not installed")
    words, own, lines = START[shell]
    (install,) = blocks(page("reference"), "sh")
    subprocess.run(["bash", "-eu", "-c", install], env=environment(tmp_path), check=True)
    lines += "\n".join(blocks(page("reference"), "zsh")) if shell == "zsh" else ""
    (tmp_path / own).write_text(lines, "utf-8")
    shutil.copy(ROOT / "examples" / "postgresql.yaml", tmp_path / "my-group.yaml")

    with started(words, tmp_path) as terminal:
        terminal.read_until(READY)
        terminal.type(f"failover gr\tva\t{FILE[shell]}\t\r")
        terminal.read_until("my-group.yaml: no problems found")
