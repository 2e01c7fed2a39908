# SPDX-License-Identifier: Apache-2.0
"""``failover complete``: what bash is told, and what it makes of it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from support.commands import failover

HELPERS = """
_get_comp_words_by_ref() {
  words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur="${COMP_WORDS[$COMP_CWORD]}"
}
try() {
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
  _failover; echo "${COMPREPLY[@]}"
}
"""


@pytest.mark.skipif(not shutil.which("bash"), reason="it completes for bash")
def test_bash_completes_commands_and_their_options() -> None:
    told = failover("complete", "--name", "failover")
    assert told.returncode == 0, told.stderr
    script = f"{told.stdout}\n{HELPERS}\ntry failover gr\ntry failover group cr\n"

    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)

    first, second = done.stdout.splitlines()
    assert first.split() == ["group"], done.stderr
    assert second.split() == ["create"], done.stderr
