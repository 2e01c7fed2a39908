# SPDX-License-Identifier: Apache-2.0
"""``failover show``, ``locks``, ``lock break`` and ``doctor``, against a real Mistral."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from support.scripted_http import scripted_server


def machine(deployment: Any, *words: str, code: int = 0) -> Any:
    done = deployment.failover(*words, "-f", "json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def traversal(deployment: Any) -> str:
    identity: str = deployment.status(deployment.group)["traversal"]["id"]
    return identity


def test_a_traversal_is_shown_whole_with_its_tree_of_executions(
    deployment: Any, traversal: str
) -> None:
    found = machine(deployment, "show", traversal[:8])

    assert (found["kind"], found["id"], found["status"]) == ("traversal", traversal, "COMPLETE")
    assert [s["stage"] for s in found["stages"]] == [
        "quiesce",
        "move_volumes",
        "activate",
        "update_stack",
    ]
    assert 0 < found["critical_path"]["seconds"] <= found["seconds"]
    assert found["executions"]["left_out"] == ""
    (root,) = found["executions"]["trees"]
    assert (root["workflow"], root["state"]) == ("failover.failover", "SUCCESS")
    below = [e for task in root["tasks"] for e in task["executions"]]
    assert {e["workflow"] for e in below} == {"failover.converge"}
    assert sum(len(e["operations"]) for e in [root, *below]) >= 1
    assert found["incident"] in machine(deployment, "show", found["incident"])["id"]


def test_people_get_a_page(deployment: Any, traversal: str) -> None:
    done = deployment.failover("show", traversal[:8], "--group", deployment.group)

    assert done.returncode == 0, done.stderr
    for said in ("COMPLETE after", "stages", "critical path", "failover.failover SUCCESS"):
        assert said in done.stdout
    goal = deployment.failover("show", deployment.status(deployment.group)["goal"][:10])
    assert "volume_attachment" in goal.stdout


def test_an_unknown_id_ends_with_exit_code_1(deployment: Any) -> None:
    done = deployment.failover("show", "0badc0de")

    assert done.returncode == 1
    assert "[UNKNOWN_ID]" in done.stderr


def test_a_dead_owner_s_lock_is_listed_and_broken_and_its_work_goes_on(deployment: Any) -> None:
    """The owner dies by hand: the lock is written as one whose lease is over, and the node of the
    current traversal as one that waits."""
    group = "locked"
    deployment.protect(group)
    status = deployment.status(group)
    volume = next(r for r in status["resources"] if r["type"] == "volume_attachment")
    owner = "dead/-@nowhere:1"
    database = sqlite3.connect(deployment.folder / "failover.sqlite", timeout=30)
    with database:
        database.execute(
            "UPDATE failover_resources SET owner = ?, lease_until = ?, token = token + 1,"
            " atomic_key = atomic_key + 1 WHERE id = ?",
            (owner, time.time() - 3600, volume["id"]),
        )
    database.close()

    (row,) = machine(deployment, "locks", group)
    people = deployment.failover("locks", group)
    wrong = deployment.failover("lock", "break", volume["id"], "--owner", "another")
    done = deployment.failover(
        "lock", "break", volume["id"][:8], "--owner", owner, "--because", "its host burned"
    )

    assert (row["owner"], row["alive"], row["execution"]["id"]) == (owner, False, "dead")
    assert "its lease expired" in people.stdout
    assert wrong.returncode == 1
    assert "LOCK_MOVED" in wrong.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its host burned" in done.stderr
    assert machine(deployment, "locks", group) == []


def test_the_doctor_finds_all_well_where_it_is(deployment: Any) -> None:
    found = machine(deployment, "doctor", deployment.group)

    assert {row["check"] for row in found} >= {
        "connection",
        "store",
        "rights",
        "services",
        "actions",
        "workflows",
        "sweep",
        "clocks",
        "goal",
        "stack",
        "members",
        "volumes",
        "fence",
        "agents",
        "alarms",
    }
    assert [row for row in found if row["level"] == "error"] == []
    people = deployment.failover("doctor", deployment.group)
    assert people.returncode == 0
    assert "0 errors" in people.stdout


def test_the_doctor_tells_what_is_amiss_and_what_helps(deployment: Any) -> None:
    group = "ailing"
    deployment.protect(group, fence=["quiesce", "stop"])
    status = deployment.status(group)
    volume = next(r for r in status["resources"] if r["type"] == "volume_attachment")
    take_away(deployment.cloud, volume["attributes"]["server_id"], volume["physical_id"])

    found = machine(deployment, "doctor", group, code=1)
    people = deployment.failover("doctor", group)

    errors = {row["check"]: row for row in found if row["level"] == "error"}
    # On a busy machine a member may not be looked at in time, which is an error as well.
    assert errors.keys() - {"members"} == {"volumes", "service"}, errors
    assert "should be on db_a" in errors["volumes"]["sentence"]
    assert errors["volumes"]["remedy"]
    assert [r["level"] for r in found if r["check"] == "fence"] == ["warn"]
    assert people.returncode == 1
    assert re.search(r"[1-3] errors?,", people.stdout)


def take_away(cloud: Any, server: str, volume: str) -> None:
    """Detach a volume behind the group's back."""
    web = requests.Session()
    web.trust_env = False
    web.headers["X-Auth-Token"] = cloud.token()
    path = f"{cloud.url}/compute/v2.1/servers/{server}/os-volume_attachments/{volume}"
    web.delete(path, timeout=10).raise_for_status()
    end = time.monotonic() + 30
    while web.get(path, timeout=10).status_code != 404:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def bare() -> Iterator[str]:
    """A Mistral without the pack."""
    with scripted_server(lambda _: (200, {}, {"actions": [], "workflows": []})) as mistral:
        yield f"{mistral.url}/v2"


def test_the_doctor_says_how_to_install_the_package_where_mistral_lacks_it(
    deployment: Any, bare: str
) -> None:
    done = deployment.failover("doctor", url=bare)

    assert done.returncode == 1
    assert "pip install mistral-failover" in done.stdout


def test_the_doctor_says_that_mistral_does_not_answer(deployment: Any) -> None:
    done = deployment.failover("doctor", url="http://127.0.0.1:1/v2")

    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stdout
