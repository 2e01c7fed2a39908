# SPDX-License-Identifier: Apache-2.0
"""Every command, as a table for people and as JSON for machines, where it does what it shall.

Those that only look, and those whose order is quick, are run here; the others by a test of their
own in this folder, which is looked for.
"""

from __future__ import annotations

import ast
import json
import sqlite3
import time
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from cliff.command import Command
from cliff.display import DisplayCommandBase

from mistral_failover import workflows
from support.commands import failover

TESTS = Path(__file__).parents[1]
COMMANDS: dict[str, type[Command]] = {
    point.name.replace("_", " "): point.load() for point in entry_points(group="failover.cli")
}
HERE = {
    "agent list",
    "alarms",
    "diff",
    "dismiss",
    "doctor",
    "goals",
    "group activate",
    "group list",
    "group show",
    "group validate",
    "history",
    "lock break",
    "locks",
    "maintenance off",
    "maintenance on",
    "member list",
    "pause",
    "plan",
    "resume",
    "server",
    "show",
    "status",
    "workflows diff",
    "workflows install",
    "workflows remove",
}
"""In this file."""
PROCESSES = {
    "drill": "support/drills.py",
    "emulator break": "server/test_emulated.py",
}
"""As a user starts them, with what they print in both forms (a drill's table:
end_to_end/test_wheel.py)."""
FORMATTED = {name for name, each in COMMANDS.items() if issubclass(each, DisplayCommandBase)}


class Both:
    """Runs a command in both forms, each of which must succeed."""

    def __init__(self, deployment: Any) -> None:
        self.deployment = deployment
        self.run: set[str] = set()

    def table(self, command: str, *words: str) -> str:
        """What people see: values in words, none as Python or JSON writes it."""
        done = self.deployment.failover(*command.split(), *words)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        assert "{'" not in done.stdout, done.stdout
        assert '{"' not in done.stdout, done.stdout
        self.run.add(f"{command} table")
        return str(done.stdout)

    def machine(self, command: str, *words: str) -> Any:
        """What machines read."""
        found = self.deployment.shown(*command.split(), *words)
        self.run.add(f"{command} json")
        return found

    def __call__(self, command: str, *words: str) -> tuple[str, Any]:
        """Both, the table first."""
        return self.table(command, *words), self.machine(command, *words)


def test_what_is_run_here_or_as_users_start_it_is_a_command_with_both_forms() -> None:
    assert HERE | set(PROCESSES) <= FORMATTED
    for command, path in PROCESSES.items():
        text = (TESTS / path).read_text("utf-8")
        assert ('"-f", "json"' in text, command.split()[0] in text) == (True, True)


@pytest.mark.parametrize("command", sorted(FORMATTED - HERE - set(PROCESSES)))
def test_a_test_of_the_commands_runs_every_other_one_in_both_forms(command: str) -> None:
    forms = {
        (path, "json" if as_json else "table")
        for path, words, as_json in _command_lines()
        if words[: len(command.split())] == command.split()
    }

    assert any({(path, "table"), (path, "json")} <= forms for path, _ in forms), (
        f"No file in tests/cli runs failover {command} as a table and as JSON"
    )


@cache
def _command_lines() -> list[tuple[str, list[str], bool]]:
    """The command lines in the other tests of commands: the file, the words, whether as JSON."""
    return [
        (path.name, words, as_json)
        for path in sorted((TESTS / "cli").glob("test_*.py"))
        if path.name != Path(__file__).name
        for words, as_json in _written(ast.parse(path.read_text("utf-8")))
    ]


def _written(tree: ast.AST) -> Iterator[tuple[list[str], bool]]:
    """The words of each command line that is written in a test, and whether it asks for JSON."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function, parts = ast.unparse(node.func), node.args
        elif isinstance(node, ast.List | ast.Tuple):
            function, parts = "", node.elts
        else:
            continue
        flat = [
            each
            for part in parts
            for each in (
                part.value.elts
                if isinstance(part, ast.Starred) and isinstance(part.value, ast.Tuple)
                else [part]
            )
        ]
        words = [w.value for w in flat if isinstance(w, ast.Constant) and isinstance(w.value, str)]
        yield words, function.endswith((".shown", "machine")) or "json" in words


def test_what_only_looks_shows_people_and_machines_the_same(deployment: Any) -> None:
    both, group = Both(deployment), "shown"
    deployment.protect(group)

    table, found = both("status", group)
    assert found["status"] in table
    traversal = found["traversal"]["id"]
    table, found = both("show", traversal[:8])
    assert (found["id"], "critical path" in table) == (traversal, True)
    table, rows = both("history", group)
    assert rows[-1]["sentence"] in " ".join(table.split())
    table, rows = both("goals", group)
    assert rows[0]["version"][:8] in table
    table, rows = both("member list", group)
    assert [row["member"] in table for row in rows] == [True, True]
    table, rows = both("agent list", group)
    assert [row["member"] in table for row in rows] == [True, True]
    table, rows = both("group list")
    assert all(row["name"] in table for row in rows)
    table, found = both("group show", group)
    assert (found["definition"]["stack"], group in table) == (group, True)
    table, found = both("plan", group, "--lost", "db_a")
    assert (found["lost"], "db_a" in table) == (["db_a"], True)
    table, rows = both("doctor", group)
    assert all(row["check"] in table for row in rows)
    table, rows = both("alarms", group)
    assert (table.strip(), rows) == ("", [])

    goals = [row["version"] for row in both.machine("goals", deployment.group)]
    table, rows = both("diff", deployment.group, goals[-1], goals[0])
    assert all(row["path"] in table for row in rows)

    looking = HERE - ORDERS - OF_FILES - {"server"}
    assert both.run == {f"{command} {form}" for command in looking for form in ("table", "json")}


ORDERS = {
    "dismiss",
    "group activate",
    "lock break",
    "locks",
    "maintenance off",
    "maintenance on",
    "pause",
    "resume",
}
OF_FILES = {
    "group validate",
    "workflows diff",
    "workflows install",
    "workflows remove",
}


def test_what_was_ordered_is_told_to_people_and_to_machines(deployment: Any) -> None:
    both, group = Both(deployment), "ordered"
    file = deployment.file(group)
    deployment.shown("group", "create", str(file), "--no-activate")

    table, found = both("group activate", group)
    assert ("active: db_a" in table, found["status"]) == (True, "COMPLETE")

    table, found = both("maintenance on", group, "db_a", "--minutes", "5", "--because", "disks")
    assert ("disks" in table, found["maintenance"]["because"]) == (True, "disks")
    table = both.table("maintenance off", group, "db_a")
    assert "are judged as they come" in table
    assert both.machine("maintenance off", group)["maintenance"] is None

    table, found = both("pause", group, "--because", "we look")
    assert ("we look" in table, found["pause"]["because"]) == (True, "we look")
    incidents = [heard(deployment, group, f"o-{number}") for number in range(2)]
    table = both.table("dismiss", incidents[0], "--because", "a drill")
    assert "a drill" in table
    (row,) = both.machine("dismiss", incidents[1], "--because", "a drill")
    assert row["incident"] == incidents[1]
    assert "are judged as they come" in both.table("resume", group)
    assert both.machine("resume", group)["pause"] is None

    for form, owner in ((both.table, "dead/-@nowhere:1"), (both.machine, "dead/-@nowhere:2")):
        volume = left_locked(deployment, group, owner)
        assert owner in both.table("locks", group)
        assert [row["owner"] for row in both.machine("locks", group)] == [owner]
        told = form("lock break", volume, "--owner", owner, "--because", "it burned")
        assert "COMPLETE" in str(told)

    assert both.run == {f"{command} {form}" for command in ORDERS for form in ("table", "json")}


def heard(deployment: Any, group: str, identity: str) -> str:
    """An alarm that is held, for the group is paused."""
    body = {"group": group, "id": identity, "member": "db_a"}
    ended = deployment.mistral.client.run("failover.on_event", {"body": body})
    (admission,) = ended["output"]["admissions"]
    return str(admission["incident"])


def left_locked(deployment: Any, group: str, owner: str) -> str:
    """A record whose lock a dead process has left, its lease long over; the record's id."""
    resources = deployment.status(group)["resources"]
    volume = next(r["id"] for r in resources if r["type"] == "volume_attachment")
    database = sqlite3.connect(deployment.folder / "failover.sqlite", timeout=30)
    with database:
        database.execute(
            "UPDATE failover_resources SET owner = ?, lease_until = ?, token = token + 1,"
            " atomic_key = atomic_key + 1 WHERE id = ?",
            (owner, time.time() - 3600, volume),
        )
    database.close()
    return str(volume)


def test_what_is_done_with_files_is_told_to_people_and_to_machines(deployment: Any) -> None:
    both, names = Both(deployment), ("--namespace", "forms")
    table, rows = both("group validate", str(deployment.file("filed")))
    assert (table, rows) == ("", [])
    assert "created" in both.table("workflows install", *names)
    assert {row["done"] for row in both.machine("workflows install", *names)} == {"same (private)"}
    table, rows = both("workflows diff", *names)
    assert {row["state"] for row in rows} == {"same"}
    assert "failover.sweep" in table
    assert "failover.sweep" in both.table("workflows remove", *names, "--yes")
    assert both.machine("workflows remove", *names, "--yes") == []

    assert both.run == {f"{command} {form}" for command in OF_FILES for form in ("table", "json")}


def test_workflow_files_are_validated_without_a_server(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: '2.0'\nw:\n  tasks:\n    t:\n      action: no.such\n", "utf-8")

    fine = failover("workflows", "validate", "--strict", *map(str, workflows.paths()))
    refused = failover("workflows", "validate", str(bad))

    assert fine.returncode == 0, fine.stdout + fine.stderr
    assert refused.returncode == 1
    assert "UNKNOWN_ACTION" in refused.stdout
    assert "no.such" in refused.stdout


def test_what_keeps_a_server_from_working_is_told_in_both_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "none.yaml"))
    words = ("server", "--check", "--state-dir", str(tmp_path / "state"))
    ports = ("--listen", "127.0.0.1:0", "--webhook-listen", "127.0.0.1:0")

    table = failover(*words, *ports)
    rows = json.loads(failover(*words, *ports, "-f", "json").stdout)

    assert table.returncode == 1
    assert "NO_CLOUD" in {row["code"] for row in rows}
    assert all(row["code"] in table.stdout for row in rows)
