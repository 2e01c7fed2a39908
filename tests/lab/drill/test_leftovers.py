# SPDX-License-Identifier: Apache-2.0
"""The audit of what must not lie about at rest: attachments in no record, and secrets."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.lab.drill.audit import Secrets, State, at_rest, audit, password_of
from mistral_failover.lab.drill.scene import Scene

TOKEN = "gAAAAABk-0123456789abcdefghijklmnopqrstuvwxyz"
SECRETS = Secrets(
    frozenset({hashlib.sha256(TOKEN.encode()).hexdigest()}),
    {"the broker's password": "swan/lake 1", "the key of db_a": "c0ffee" * 10, "nothing": ""},
)


def attached(volume: str, server: str = "server-a", kind: str = "attached") -> dict[str, Any]:
    return {"kind": kind, "volume": volume, "server": server, "seq": 1}


def record(volume: str, action: str = "CREATE", group: str = "g") -> dict[str, Any]:
    """A volume that the group has on db_a, or had."""
    return {
        "id": f"r-{volume}-{group}",
        "name": volume,
        "group_id": group,
        "type": "volume_attachment",
        "action": action,
        "status": "COMPLETE",
        "goal_version": 3,
        "owner": None,
        "physical_id": volume,
        "member": "db_a",
        "token": 1,
    }


def state(*resources: dict[str, Any], status: str = "COMPLETE") -> State:
    """A group that is at rest, of the members db_a and db_b."""
    return State(
        groups=[{"id": "g", "name": "payments", "current_traversal": "t"}],
        members=[
            {"group_id": "g", "name": "db_a", "server_id": "server-a"},
            {"group_id": "g", "name": "db_b", "server_id": None},
        ],
        traversals=[
            {
                "id": "t",
                "group_id": "g",
                "status": status,
                "reason": "",
                "goal_version": 3,
                "incident_id": None,
                "cause": "somebody asked",
            }
        ],
        resources=resources,
        nodes=[],
        operations=[],
        journal=[],
    )


def found(kept: State, *events: dict[str, Any]) -> list[str]:
    return [str(violation) for violation in at_rest(events, kept)]


NO_ORPHANS = {
    "its record has it": (state(record("data")), [attached("data")]),
    "it is gone": (state(), [attached("data"), attached("data", kind="detached")]),
    "another stack has it": (state(), [attached("data", "a-server-of-another-stack")]),
    "another group has it there": (state(record("data", group="h")), [attached("data")]),
    "the group is not at rest": (state(status="FAILED"), [attached("data")]),
}


@pytest.mark.parametrize(("kept", "events"), NO_ORPHANS.values(), ids=NO_ORPHANS)
def test_a_volume_is_no_orphan_where(kept: State, events: list[dict[str, Any]]) -> None:
    assert found(kept, *events) == []


@pytest.mark.parametrize("records", [[], [record("other", "DELETE")]])
def test_a_volume_on_a_member_that_is_in_no_record_is_found(records: list[dict[str, Any]]) -> None:
    assert found(state(*records), attached("other")) == [
        "invariant 5: volume other is on db_a, but no record of it exists"
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"X-Auth-Token: {TOKEN}", "a token"),
        ("connecting as failover with swan/lake 1", "the broker's password"),
        ("amqp://failover:swan%2Flake%201@broker/", "the broker's password"),
        ("c0ffee" * 10, "the key of db_a"),
    ],
)
def test_a_secret_that_was_written_down_is_found(tmp_path: Path, text: str, what: str) -> None:
    log = tmp_path / "mistral.log"
    log.write_text(f"one line\n{text}\n")
    files = [log, tmp_path / "gone"]

    (violation,) = audit([], state(), files=files, secrets=SECRETS)
    assert str(violation) == f"invariant 9: mistral.log holds {what}"

    kept = replace(state(), journal=[{"kind": "said", "at": 1.0, "sentence": f"it said {text}"}])
    (violation,) = audit([], kept, secrets=SECRETS)
    assert str(violation) == f"invariant 9: the state store holds {what}"


def test_what_only_looks_like_a_secret_is_none(tmp_path: Path) -> None:
    log = tmp_path / "mistral.log"
    log.write_text(f"gAAAAABk-of-another-cloud-{'x' * 30} swan lake c0ffee")

    assert audit([], state(), files=[log], secrets=SECRETS) == []


def test_a_drill_looks_for_its_secrets_wherever_they_have_no_business(tmp_path: Path) -> None:
    scene = Scene(
        tmp_path,
        agents=True,
        broker="amqps://failover:swan%2Flake@broker/",
        settings={"database": "mysql+pymysql://failover:nutcracker@db/failover"},
    )
    files = {
        "cloud/state.json": '{"tokens": {"5e884898": {}}}',
        "clouds.yaml": "password: demo",
        "mistral.conf": "database = mysql+pymysql://failover:nutcracker@db/failover",
        "mistral.log": "started",
        "api-token": "7ea7ab1e" * 8,
        "agent-secret": "5ec4e7" * 8,
        "guests/servers/s-a/key": "c0ffee" * 8,
        "guests/servers/s-a/broker-url": "amqps://failover:swan%2Flake@broker/",
        "guests/servers/s-a/agent.log": "heard",
        "broker/queues/q/1": "a message",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    named = scene.secrets().named

    assert scene.secrets().token_hashes == {"5e884898"}
    assert named == {
        "the broker's password": "swan/lake",
        "the database's password": "nutcracker",
        "the token of Mistral's API": "7ea7ab1e" * 8,
        "the installation's secret": "5ec4e7" * 8,
        "the key of s-a": "c0ffee" * 8,
    }
    looked = {str(path.relative_to(tmp_path)) for path in scene.written()}
    assert looked == {"mistral.log", "guests/servers/s-a/agent.log", "broker/queues/q/1"}


def test_the_password_of_an_address_is_found_as_it_is_typed() -> None:
    assert password_of("amqps://failover:swan%2Flake%201@broker:5671/") == "swan/lake 1"
    assert password_of("filesystem:///tmp/broker") == ""
