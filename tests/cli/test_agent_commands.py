# SPDX-License-Identifier: Apache-2.0
"""``failover agent key`` and ``failover agent list``, against a real Mistral."""

from __future__ import annotations

import json
from typing import Any

from cli.conftest import SECRET
from mistral_failover.agent.wire import group_key, member_key
from mistral_failover.model.ids import group_id
from mistral_failover.runtime.request import DEFAULT_PROJECT


def shown(done: Any) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_key_of_a_member_is_what_the_executors_derive(deployment: Any) -> None:
    identity = group_id(DEFAULT_PROJECT, "payments")

    found = shown(deployment.failover("agent", "key", "payments", "db_a", "-f", "json"))

    assert found == {
        "project": DEFAULT_PROJECT,
        "group": "payments",
        "group_id": identity,
        "member": "db_a",
        "key": member_key(group_key(SECRET, identity), "db_a").hex(),
    }


def test_the_key_alone_goes_into_a_file(deployment: Any) -> None:
    done = deployment.failover("agent", "key", "payments", "db_a", "-f", "value", "-c", "key")

    assert len(bytes.fromhex(done.stdout.strip())) == 32


def test_the_group_s_key_is_there_before_the_group_is_and_mistral_keeps_nothing_of_it(
    deployment: Any,
) -> None:
    found = shown(deployment.failover("agent", "key", "not-yet", "-f", "json"))

    key = found["group_key"].encode()
    assert len(bytes.fromhex(found["group_key"])) == 32
    kept = [file for file in deployment.folder.rglob("*") if file.is_file()]
    assert any(file.suffix in (".db", ".sqlite") for file in kept)
    assert any(file.suffix == ".log" for file in kept)
    for file in kept:
        content = file.read_bytes()
        assert key not in content, file
        assert SECRET not in content, file
    rows = deployment.mistral.client.request("GET", "action_executions")["action_executions"]
    kept_rows = {row["name"] for row in rows if row["state"] != "ERROR"}  # refused ones
    assert "failover.enroll" not in kept_rows


def test_a_key_that_mistral_would_keep_is_not_made(deployment: Any) -> None:
    client = deployment.mistral.client
    wanted = {"name": "failover.enroll", "input": '{"group": "payments"}'}
    wanted["params"] = '{"save_result": true}'
    begun = client.request("POST", "action_executions", json=wanted)

    ended = client._wait_action(begun["id"])

    assert ended["state"] == "ERROR"
    assert ended["output"]["result"]["code"] == "WOULD_BE_KEPT"


def test_the_members_and_what_their_agents_said(deployment: Any) -> None:
    rows = shown(deployment.failover("agent", "list", deployment.group, "-f", "json"))

    assert [row["member"] for row in rows] == ["db_a", "db_b"]
    assert rows[1]["epoch"] == 1
    assert rows[1]["agent"]["epoch"] == 1
    assert rows[1]["sentence"].startswith("last heartbeat 0 s ago")
    people = deployment.failover("agent", "list", deployment.group).stdout
    assert "last heartbeat 0 s ago" in people


def test_the_agents_of_an_unknown_group_are_refused(deployment: Any) -> None:
    done = deployment.failover("agent", "list", "unknown")

    assert done.returncode == 1
    assert "[UNKNOWN_GROUP]" in done.stderr
