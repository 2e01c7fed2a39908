# SPDX-License-Identifier: Apache-2.0
"""``failover rollback`` and ``failover sweep``, against a real Mistral."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from mistral_failover.cli import order
from mistral_failover.cli.progress import Progress

ENDED = {"id": "of a Mistral that was started anew", "state": "CANCELLED", "output": None}


class Terminal(io.StringIO):
    """A stream on which somebody reads along."""

    def isatty(self) -> bool:
        return True


def followed(client: Any, journal: Any, group: str | None) -> dict[str, Any]:
    """What is made of an execution that was ended from outside."""
    with Progress(io.StringIO()) as tell:
        following = order._ExecutionFollower(client, journal, tell, group, 60)
        execution, facts = following.to_its_end("failover.switchover", dict(ENDED))
    return {"state": execution["state"], **facts}


def test_an_order_whose_execution_was_ended_is_followed_by_its_group(deployment: Any) -> None:
    group, client = "cut-short", deployment.mistral.client
    deployment.protect(group)

    with Progress(io.StringIO()) as tell:
        journal = order._JournalPrinter(client, group, tell, set())
        never_begun = followed(client, journal, group)
        deployment.run("switchover", group=group)
        begun = followed(client, journal, group)

    assert order.exit_code(never_begun) == 1
    assert "before it had begun anything" in never_begun["reason"]
    assert (order.exit_code(begun), begun["roles"]) == (0, {"active": "db_b"})
    assert order.exit_code(followed(client, None, None)) == 1, "no operator can be asked"


def test_ctrl_c_ends_the_following_alone_and_says_how_to_rejoin(
    deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = "rejoined"
    deployment.protect(group)

    def pressed(_: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(order._ExecutionFollower, "_pause", pressed)
        done = deployment.failover("switchover", group, "-f", "json")

    assert done.returncode == 4
    assert f"failover watch {group}" in done.stderr
    deployment.mistral.client.wait(json.loads(done.stdout)["execution"])
    assert deployment.status(group)["roles"] == {"active": "db_b"}


def test_a_terminal_shows_the_step_that_is_reached() -> None:
    stream = Terminal()

    with Progress(stream) as tell:
        assert tell.on_terminal
        tell.doing("step 3 of 6: Attach data to db_b (4.0 s of at most 300 s)")

    assert "step 3 of 6" in stream.getvalue()


def test_a_sweep_that_was_ended_does_not_say_that_nothing_was_left(
    deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "execute", lambda *_, **__: dict(ENDED))

    done = deployment.failover("sweep")

    assert (done.returncode, "[CUT_SHORT]" in done.stderr) == (1, True)
    assert "Nothing was left" not in done.stderr
    assert "failover sweep" in done.stderr


def test_a_sentence_with_brackets_is_told_on_a_terminal() -> None:
    stream = Terminal()
    with Progress(stream) as tell:
        tell(1.0, "failed", "the answer was [/v2] and [bold]")
    assert "[/v2] and [bold]" in stream.getvalue()


def test_a_group_goes_back_to_the_goal_before_and_to_one_that_is_named(deployment: Any) -> None:
    group = "undone"
    deployment.protect(group)
    deployment.run("switchover", group=group)
    first, second = [row["version"] for row in deployment.shown("goals", group)][::-1]

    back = deployment.shown("rollback", group, "--because", "it was wrong")
    named = deployment.failover("rollback", group, "--goal", second[:10])

    assert (back["status"], back["roles"]) == ("COMPLETE", {"active": "db_a"})
    assert named.returncode == 0, named.stderr
    assert "active: db_b" in named.stdout
    assert "Done: " in named.stderr
    assert first != second


def test_a_rollback_is_planned_without_changing_anything(deployment: Any) -> None:
    group = "planned-back"
    deployment.protect(group)
    deployment.run("failover", group=group, lost=["db_a"])
    before = deployment.status(group)["traversal"]["id"]
    first = deployment.shown("goals", group)[-1]["version"][:10]
    words = ("--recovered", "db_a", "--dry-run")

    latest = deployment.shown("rollback", group, *words)
    named = deployment.shown("rollback", group, "--goal", first, *words)
    refused = deployment.failover("rollback", group, "--dry-run")

    assert (latest["roles"], latest["lost"]) == ({"active": "db_a"}, [])
    assert named["goal"] == latest["goal"]
    assert refused.returncode == 1, "a lost member held a role in that goal"
    assert deployment.status(group)["traversal"]["id"] == before
    started = deployment.failover("start", "--plan", latest["plan"])
    assert started.returncode == 0, started.stdout
    assert deployment.status(group)["roles"] == {"active": "db_a"}


def test_who_is_lost_is_vouched_for(deployment: Any) -> None:
    group = "vouched-back"
    deployment.protect(group)
    deployment.run("failover", group=group, lost=["db_a"])  # its agent quiesces it: it is well

    told = deployment.failover("rollback", group, "--recovered", "db_a")

    assert told.returncode == 0, told.stdout + told.stderr
    assert deployment.status(group)["roles"] == {"active": "db_a"}
    assert deployment.status(group)["lost"] == []


def test_a_rollback_that_leads_nowhere_is_refused(deployment: Any) -> None:
    done = deployment.failover("rollback", deployment.group, "--goal", "0badc0de")

    assert done.returncode == 1
    assert "UNKNOWN_GOAL" in done.stdout


def test_a_sweep_says_what_a_group_waits_for_that_does_not_serve(deployment: Any) -> None:
    """Nothing is stalled, and nothing serves."""
    group = "swept-down"
    deployment.protect(group, fence=["confirm"])
    deployment.crash(group)
    assert deployment.failover("start", group, "--lost", "db_a", "--yes").returncode == 3

    one = deployment.failover("sweep", group, "-f", "json")
    every = deployment.failover("sweep")

    assert one.returncode == 0, one.stderr
    json.loads(one.stdout)
    assert f"{group} is DOWN: nothing serves" in one.stderr
    assert f"failover confirm-fenced {group} db_a" in one.stderr
    assert f"{group} is DOWN. Next: failover status {group}\n" in every.stderr


def test_a_sweep_says_what_it_found(deployment: Any) -> None:
    everything = deployment.failover("sweep", "-f", "json")
    one = deployment.failover("sweep", deployment.group)
    unknown = deployment.failover("sweep", "unknown")
    started = deployment.failover("sweep", "--no-wait", "-f", "json")

    assert everything.returncode == 0, everything.stderr
    assert one.returncode == 0, one.stderr
    assert (unknown.returncode, "[UNKNOWN_GROUP]" in unknown.stderr) == (1, True)
    assert "execution" in started.stdout
