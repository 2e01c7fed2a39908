# SPDX-License-Identifier: Apache-2.0
"""Commands that ask no server answer at once: each imports only what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "cinderclient", "heatclient", "keystoneauth1", "mistral", "openstack", "oslo_config",
    "requests", "sqlalchemy",
)  # fmt: skip
"""What only a command needs that talks to a cloud, to Mistral or to a state store."""
OF_TERMINALS = ("rich",)
"""What only a command needs that shows progress."""

SCRIPT = f"""
import sys
from mistral_failover.cli.main import main
try:
    sys.exit(main(sys.argv[1:]))
finally:
    heavy = {HEAVY + OF_TERMINALS!r}
    commands = [name for name in sys.modules if name.startswith("mistral_failover.cli.")]
    print(*(name for name in heavy if name in sys.modules), file=sys.stderr)
    print(*sorted(commands), file=sys.stderr)
"""


def imported_by(*words: str) -> tuple[set[str], set[str]]:
    """Run ``failover`` in a fresh interpreter; return which heavy packages and which modules of
    the command line it has imported."""
    command = [sys.executable, "-c", SCRIPT, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    heavy, commands = done.stderr.splitlines()[-2:]
    return set(heavy.split()), set(commands.split())


@pytest.mark.parametrize(
    "words",
    [
        "--version",
        "--help",
        "help status",
        "status --help",
        "start --help",
        "server --help",
        "workflows validate --help",
        "group validate examples/postgresql.yaml",
    ],
)
def test_a_local_command_imports_no_heavy_package(words: str) -> None:
    heavy, _ = imported_by(*words.split())

    assert not heavy


def test_a_command_does_not_import_the_others() -> None:
    _, commands = imported_by("agent", "list", "--help")

    assert "mistral_failover.cli.agents" in commands
    assert not commands & {"mistral_failover.cli.capacity", "mistral_failover.cli.drill"}
