# SPDX-License-Identifier: Apache-2.0
"""``failover complete``: what a shell is told, and what it makes of it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from support.commands import failover

# Each tries the words of a line, the last of which is being typed.
BASH = """
_get_comp_words_by_ref() {
  words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur="${COMP_WORDS[$COMP_CWORD]}"
}
try() {
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
  _failover; echo "${COMPREPLY[@]}"
}
"""
ZSH = """
compdef() { true }
compadd() { shift; print -- ${(M)@:#${words[CURRENT]}*} }
_files() { print FILES }
try() { words=("$@"); CURRENT=$#; _failover }
"""
FISH = "function try; complete -C (string join ' ' -- $argv) | cut -f 1 | string join ' '; end"
SHELLS = {"bash": (BASH, ["-c"]), "zsh": (ZSH, ["-f", "-c"]), "fish": (FISH, ["-N", "-c"])}


def completed(shell: str, *lines: str) -> list[list[str]]:
    """What the shell proposes for each line."""
    helpers, command = SHELLS[shell]
    told = failover("complete", "--name", "failover", "--shell", shell)
    assert told.returncode == 0, told.stderr
    tries = "\n".join(f"try {line}" for line in lines)
    script = f"{helpers}\n{told.stdout}\n{tries}\ntrue\n"
    done = subprocess.run([shell, *command, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    """A shell that is installed here."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def test_a_shell_completes_commands_and_their_options(shell: str) -> None:
    found = completed(
        shell, "failover gr", "failover group cr", "failover confirm", "failover group create --na"
    )

    assert found == [["group"], ["create"], ["confirm-fenced"], ["--name"]]


@pytest.mark.parametrize("name", SHELLS)
def test_a_script_knows_every_command_without_the_shell(name: str) -> None:
    told = failover("complete", "--name", "failover", "--shell", name)

    assert told.returncode == 0, told.stderr
    assert "maintenance" in told.stdout
    assert "--no-activate" in told.stdout
