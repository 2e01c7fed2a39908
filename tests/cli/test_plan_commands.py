# SPDX-License-Identifier: Apache-2.0
"""``failover plan`` and ``failover start``, against a real Mistral."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.cli import order
from mistral_failover.cli.connection import CommandFailed
from mistral_failover.cli.plan import facts_said
from mistral_failover.cli.start import Start
from support import ui_answers
from support.commands import failover
from support.operators import Operator


@pytest.mark.parametrize(
    ("sentence", "lost", "recovered"),
    [
        ("db_a is down", ["db_a"], []),
        ("  db_a  has failed. ", ["db_a"], []),
        ('"db_a" is LOST!', ["db_a"], []),
        ("db_a dead", ["db_a"], []),
        ("db_b is well", [], ["db_b"]),
        ("db_b recovered", [], ["db_b"]),
        ("db_b has recovered", [], ["db_b"]),
        ("db_b is back", [], ["db_b"]),
        ("db_b is up again", [], ["db_b"]),
        ("member db_a is not responding", ["db_a"], []),
    ],
)
def test_a_fact_is_read_as_people_write_it(
    sentence: str, lost: list[str], recovered: list[str]
) -> None:
    assert facts_said([sentence]) == (lost, recovered)


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "db_a",
        "db_a is",
        "db_a is purple",
        "db_a is not down",
        "is db_a down?",
        "all is lost now",
    ],
)
def test_a_fact_that_is_not_understood_is_refused_with_those_that_are(sentence: str) -> None:
    with pytest.raises(CommandFailed, match="MEMBER is WORD") as caught:
        facts_said([sentence])

    assert "down" in str(caught.value)
    assert "recovered" in str(caught.value)


def started(
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    *words: str,
    service: str = "SERVING",
    gone: tuple[str, ...] = (),
    **more: Any,
) -> dict[str, Any]:
    """The inputs that ``failover start payments ...`` orders, of a group in that state."""
    orders: list[dict[str, Any]] = []

    def follow(_app: Any, _workflow: str, inputs: Any, **_: Any) -> dict[str, Any]:
        orders.append(dict(inputs))
        return {"status": "COMPLETE"}

    monkeypatch.setattr(order, "follow", follow)
    command = Start(SimpleNamespace(), None)
    roles = {} if status == "REMOVED" else {"active": "db_a"}
    answer = ui_answers.status(
        "COMPLETE" if status == "REMOVED" else status,
        roles={} if status == "DEFINED" else roles,
        traversal=None if status == "DEFINED" else {"id": "some", "ended_at": 80.0},
        service={
            "status": service,
            "since": 90.0,
            "seen_at": None,
            "gone": list(gone),
            "standbys": [],
            "cold": False,
            "stack_gone": False,
            "another_stack": False,
            "reasons": [],
            "needs": [],
            "explained": True,
            **more,
        },
        now=100.0,
    )
    monkeypatch.setattr(command, "run_action", lambda *_, **__: answer)
    command.take_action(command.get_parser("failover start").parse_args(["payments", *words]))
    return orders[0]


@pytest.mark.parametrize("words", [(), ("--because", "it looks odd")])
def test_who_says_nothing_of_a_group_that_is_well_is_refused(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    with pytest.raises(CommandFailed, match="BAD_INPUT") as caught:
        started(monkeypatch, "COMPLETE", *words)

    for way in ("--lost MEMBER", '--fact "MEMBER is down"', "failover switchover payments"):
        assert way in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "command"),
    [("stack_gone", "failover group delete"), ("another_stack", "failover group adopt-stack")],
)
def test_a_group_without_its_stack_is_refused_with_what_helps_instead(
    monkeypatch: pytest.MonkeyPatch, flag: str, command: str
) -> None:
    """With --lost the order would be refused, too."""
    with pytest.raises(CommandFailed, match=command) as caught:
        started(
            monkeypatch, "COMPLETE", service="DOWN", reasons=["its stack is gone"], **{flag: True}
        )

    assert "its stack is gone" in str(caught.value)
    assert "--lost" not in str(caught.value)


def test_a_group_that_was_taken_out_of_service_is_not_brought_up_by_who_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(CommandFailed, match="failover group activate payments"):
        started(monkeypatch, "REMOVED")


@pytest.mark.parametrize("status", ["FAILED", "BLOCKED", "IN_PROGRESS", "DEFINED"])
def test_a_start_without_facts_continues_to_the_goal_and_declares_no_member_lost(
    monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    assert started(monkeypatch, status) == {"group": "payments", "lost": []}


def test_what_is_said_is_ordered_as_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"lost": ["db_a"]}
    for words in (("--lost", "db_a", "--yes"), ("--fact", "db_a is down", "--yes")):
        assert started(monkeypatch, "COMPLETE", *words) == {"group": "payments", **said}
    assert started(monkeypatch, "COMPLETE", "--recovered", "db_b") == {
        "group": "payments",
        "lost": [],
        "recovered": ["db_b"],
    }


@pytest.mark.parametrize("service", ["SERVING", "DEGRADED", "UNKNOWN"])
def test_a_member_that_may_serve_is_lost_only_if_a_person_is_sure(
    monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    with pytest.raises(CommandFailed, match="NOT_SURE"):
        started(monkeypatch, "COMPLETE", "--lost", "db_a", service=service)


@pytest.mark.parametrize(
    ("service", "gone"), [("DOWN", ()), ("DOWN", ("db_a",)), ("UNKNOWN", ("db_a",))]
)
def test_of_a_member_that_does_not_serve_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, service: str, gone: tuple[str, ...]
) -> None:
    order = started(monkeypatch, "COMPLETE", "--lost", "db_a", service=service, gone=gone)
    assert order == {"group": "payments", "lost": ["db_a"]}


def test_a_plan_without_an_eligible_member_says_why_each_cannot(deployment: Any) -> None:
    done = deployment.failover("plan", "payments", "--lost", "db_a", "--lost", "db_b")

    assert done.returncode == 1
    assert "(db_a: it is declared lost; db_b: it is declared lost)" in done.stderr


def test_a_plan_is_shown_to_people_and_to_machines_and_started_as_it_is(deployment: Any) -> None:
    group = "planned"
    deployment.protect(group)

    shown = deployment.failover("plan", group, "--fact", "db_a is down", "--fit-width")
    plan = json.loads(deployment.failover("plan", group, "--lost", "db_a", "-f", "json").stdout)

    assert shown.returncode == 0, shown.stderr
    for words in ("Attach data to db_b", "at once", "db_a is fenced", "[NO_STANDBY]"):
        assert words in " ".join(shown.stdout.replace("|", " ").split()), words
    assert plan["plan"] in shown.stdout  # the same world, the same plan
    assert plan["roles"] == {"active": "db_b"}
    assert deployment.status(group)["roles"] == {"active": "db_a"}

    started = deployment.failover("start", "--plan", plan["plan"][:8], "-f", "json")
    again = deployment.failover("plan", "--plan", plan["plan"])
    stale = deployment.failover("plan", group, "--verb", "remove", "-f", "json")

    assert started.returncode == 0, started.stderr
    assert json.loads(started.stdout)["status"] == "COMPLETE"
    for step in plan["steps"]:
        assert f"{step['what']}: started" in started.stderr
    assert deployment.status(group)["roles"] == {"active": "db_b"}
    assert "no longer so" in again.stdout

    deployment.run("failover", group=group, lost=[], recovered=["db_a"])
    refused = deployment.failover("start", "--plan", json.loads(stale.stdout)["plan"])

    assert refused.returncode == 1
    assert "PLAN_STALE" in refused.stdout
    assert f"failover plan {group} --verb remove" in " ".join(
        refused.stdout.replace("|", " ").split()
    )
    assert "the group has received a goal" in " ".join(refused.stdout.replace("|", " ").split())
    assert deployment.status(group)["roles"] == {"active": "db_b"}


def test_a_start_without_facts_fences_no_member_of_a_healthy_group(deployment: Any) -> None:
    group = "all-well"
    deployment.protect(group)

    done = deployment.failover("start", group)

    assert (done.returncode, "[BAD_INPUT]" in done.stderr) == (1, True)
    assert deployment.status(group)["lost"] == []
    assert deployment.status(group)["roles"] == {"active": "db_a"}
    told = deployment.shown("plan", group)
    assert "db_a counts as lost" in told["sentence"]
    unknown = deployment.failover("start", "all-wel")
    assert 'Did you mean "all-well"?' in unknown.stderr


def test_a_healthy_member_is_not_fenced_unless_a_person_is_sure(deployment: Any) -> None:
    group = "looks-well"
    deployment.protect(group)
    deployment.failover("sweep", group)
    assert deployment.status(group)["service"]["seen_at"] is not None

    unasked = deployment.failover("start", group, "--lost", "db_a")
    doubted = deployment.failover("start", group, "--lost", "db_a", typed="n\n")

    assert "give --yes" in unasked.stderr
    assert [unasked.returncode, doubted.returncode] == [1, 1]
    assert "db_a looked healthy" in doubted.stderr
    assert f"failover switchover {group}" in doubted.stderr
    assert deployment.status(group)["lost"] == []
    sure = deployment.failover("start", group, "--lost", "db_a", typed="y\n")
    assert sure.returncode == 0, sure.stderr
    assert deployment.status(group)["lost"] == ["db_a"]


def test_a_member_whose_server_runs_again_since_the_last_look_is_not_fenced_unasked(
    deployment: Any,
) -> None:
    group = "runs-again"
    deployment.protect(group)
    server = deployment.cloud.resources(group)["db_a"]["physical_resource_id"]
    operator = Operator(deployment.cloud)
    operator.act(server, "pause")
    deployment.failover("sweep", group)
    assert deployment.status(group)["service"]["gone"] == ["db_a"]
    operator.act(server, "unpause")

    doubted = deployment.failover("start", group, "--lost", "db_a", typed="n\n")

    assert doubted.returncode == 1
    assert "db_a looked healthy" in doubted.stderr
    assert deployment.status(group)["lost"] == []


def test_a_member_that_is_healthy_again_may_take_over_and_no_role_moves(deployment: Any) -> None:
    group = "recovers"
    deployment.protect(group)
    deployment.run("on_alarm", group=None, **deployment.crash(group))
    assert deployment.status(group)["lost"] == ["db_a"]
    server = deployment.cloud.resources(group)["db_a"]["physical_resource_id"]
    Operator(deployment.cloud).start_server(server)

    why = "it was started again"
    done = deployment.failover("recover", group, "db_a", "--because", why, "-f", "json")

    assert done.returncode == 0, done.stderr
    after = deployment.status(group)
    assert (after["lost"], after["roles"]) == ([], {"active": "db_b"})
    again = deployment.failover("recover", group, "db_a")
    assert (again.returncode, "COMPLETE" in again.stdout) == (0, True), "a repeat is harmless"
    assert deployment.status(group)["traversal"]["cause"] == "declared healthy: db_a"


@pytest.mark.parametrize("fault", ["crash", "delete"])
@pytest.mark.parametrize("words", [("recover",), ("start", "--recovered")])
def test_a_member_that_is_not_seen_well_is_healthy_only_if_a_person_is_sure(
    deployment: Any, fault: str, words: tuple[str, ...]
) -> None:
    """And even then it is no standby before something has seen it."""
    group = f"not-well-{fault}-{len(words)}"
    deployment.protect(group)
    server = deployment.cloud.resources(group)["db_a"]["physical_resource_id"]
    if fault == "delete":
        Operator(deployment.cloud).delete_server(server)
        deployment.run("failover", group=group, lost=["db_a"])
    else:
        deployment.run("on_alarm", group=None, **deployment.crash(group))
    verb, *option = words
    order = (verb, group, *option, "db_a")

    unasked = deployment.failover(*order)
    doubted = deployment.failover(*order, typed="n\n")

    assert "give --yes" in unasked.stderr
    assert [unasked.returncode, doubted.returncode] == [1, 1]
    assert "server: Nova" in doubted.stderr
    assert f"failover replace {group} db_a" in doubted.stderr
    assert deployment.status(group)["lost"] == ["db_a"]
    sure = deployment.failover(*order, "--yes")
    assert sure.returncode == 0, sure.stderr
    after = deployment.status(group)
    assert (after["lost"], after["service"]["status"]) == ([], "DEGRADED")


@pytest.mark.parametrize(
    "words",
    [
        ["plan"],
        ["plan", "payments", "--plan", "some-id"],
        ["plan", "payments", "--fact", "db_a dwn"],
        ["start"],
        ["start", "payments", "--plan", "some-id"],
        ["start", "payments", "--fact", "db_a dwn"],
        ["history", "--follow"],
        ["history", "payments", "--summary", "--follow"],
        ["history", "payments", "--summary", "--traversal", "0a1b2c3d"],
        ["history", "payments", "--summary", "--after", "0"],
    ],
)
def test_a_wrong_command_line_is_refused_without_asking_mistral(words: list[str]) -> None:
    done = failover("--mistral-url", "http://127.0.0.1:1/v2", *words)

    assert (done.returncode, "[USAGE]" in done.stderr) == (2, True), done.stderr
