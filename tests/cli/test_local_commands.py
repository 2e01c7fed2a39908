# SPDX-License-Identifier: Apache-2.0
"""Commands that ask no server answer at once: each imports only what it needs."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = (
    "cinderclient", "heatclient", "keystoneauth1", "mistral", "openstack", "oslo_config",
    "requests", "sqlalchemy",
)  # fmt: skip
"""What only a command needs that talks to a cloud, to Mistral or to a state store."""
OF_TERMINALS = ("rich",)
"""What only a command needs that shows progress."""

SCRIPT = f"""
import json
import sys
from mistral_failover.cli.main import main
for line in sys.argv[1:]:
    try:
        code = main(line.split())
    except SystemExit as ended:
        code = ended.code or 0
    heavy = [name for name in {HEAVY + OF_TERMINALS!r} if name in sys.modules]
    commands = [name for name in sys.modules if name.startswith("mistral_failover.cli.")]
    print(json.dumps([line, code, heavy, commands]), file=sys.stderr)
"""
"""Runs ``failover`` with the words of each line in turn; tells after each one what is imported."""


def imported_by(*lines: str) -> list[tuple[str, set[str], set[str]]]:
    """Run these commands in one fresh interpreter; return for each which heavy packages and which
    modules of the command line are imported after it."""
    command = [sys.executable, "-c", SCRIPT, *lines]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    told = [json.loads(each) for each in done.stderr.splitlines() if each.startswith("[")]
    assert [each[:2] for each in told] == [[line, 0] for line in lines], done.stderr
    return [(line, set(heavy), set(commands)) for line, _, heavy, commands in told]


LOCAL = (
    "--version",
    "--help",
    "help status",
    "status --help",
    "start --help",
    "server --help",
    "workflows validate --help",
    "alarm sign --help",
    "group validate examples/postgresql.yaml",
)


def test_a_local_command_imports_no_heavy_package() -> None:
    """What one imports stays imported, so the first line that has something is the one at fault."""
    importing = [(line, heavy) for line, heavy, _ in imported_by(*LOCAL) if heavy]

    assert importing == []


def test_a_command_does_not_import_the_others() -> None:
    ((_, _, commands),) = imported_by("agent list --help")

    assert "mistral_failover.cli.members" in commands
    assert not commands & {"mistral_failover.cli.capacity", "mistral_failover.cli.drill"}
