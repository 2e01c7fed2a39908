# SPDX-License-Identifier: Apache-2.0
"""Orders: what a form starts, what it needs for that, and that --read-only has none."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.ui.action_client import ActionFailed
from mistral_failover.ui.orders import ORDERS
from support.ui_answers import INCIDENT, Answers, held, plan, status
from ui.conftest import Opened

PLAN = "a416c00c-7b12-538d-9db5-c40bbbabe986"
WHY = {"because": "new disks"}
SURE = {"typed": "payments"}
ACTIONS = [
    ("pause", {}, ("failover.pause", {"group": "payments", **WHY})),
    ("resume", {}, ("failover.resume", {"group": "payments", "only": "pause", **WHY})),
    (
        "maintenance",
        {"minutes": "90"},
        ("failover.maintenance", {"group": "payments", "minutes": 90, **WHY}),
    ),
    (
        "maintenance",
        {"minutes": " 5 ", "members.db_a": "on", "members.db_b": "on"},
        (
            "failover.maintenance",
            {"group": "payments", "minutes": 5, "members": ["db_a", "db_b"], **WHY},
        ),
    ),
    (
        "end-maintenance",
        {"members.db_a": "on"},
        (
            "failover.resume",
            {"group": "payments", "only": "maintenance", "members": ["db_a"], **WHY},
        ),
    ),
    (
        "end-maintenance",
        {},
        ("failover.resume", {"group": "payments", "only": "maintenance", **WHY}),
    ),
    ("dismiss", {"incident": "d3b9775c"}, ("failover.dismiss", {"incident": ["d3b9775c"], **WHY})),
]
WORKFLOWS = [
    (
        "admit",
        {"incident": "d3b9775c"},
        ("failover.failover", {"group": "payments", "incident": "d3b9775c", **WHY}),
    ),
    ("start", {"plan": PLAN}, ("failover.start_plan", {"plan": PLAN, **WHY})),
    (
        "confirm-fenced",
        {"member": "db_a"},
        ("failover.confirm_fenced", {"group": "payments", "member": "db_a", **WHY}),
    ),
]
Case = tuple[str, dict[str, str], tuple[str, dict[str, Any]]]


@pytest.mark.parametrize("case", ACTIONS, ids=lambda case: case[0])
def test_an_order_runs_the_action_of_the_command_line(opened: Opened, case: Case) -> None:
    name, fields, expected = case
    answers = Answers()

    answer = opened(answers).post("/order", what=name, group="payments", **WHY, **fields)

    assert expected in answers.asked
    assert answer.url.endswith("/group?name=payments")
    assert '<p class="said" role="status">' in answer.text


@pytest.mark.parametrize("case", WORKFLOWS, ids=lambda case: case[0])
def test_a_dangerous_order_starts_its_workflow_once_the_name_is_typed(
    opened: Opened, case: Case
) -> None:
    name, fields, expected = case
    answers = Answers()
    browser = opened(answers)
    order = {"what": name, "group": "payments", **WHY, **fields}

    for typed in ({}, {"typed": "payment"}, {"typed": "Payments"}):
        refused = browser.post("/order", **order, **typed)
        assert refused.status_code == 400
        assert "Nothing was done." in refused.text
    assert answers.started == []
    done = browser.post("/order", **order, **SURE)

    assert answers.started == [expected]
    assert "Started as execution e7f7a5a0-execution" in done.text
    assert "Started as execution" not in browser.get("/group?name=payments").text


@pytest.mark.parametrize("name", [order.name for order in ORDERS.values() if order.reason])
def test_an_order_needs_a_reason(opened: Opened, name: str) -> None:
    answers = Answers()
    subject = {ORDERS[name].subject: "payments"}
    fields = {"minutes": "5", "incident": "d3b9775c", "member": "db_a", **SURE, **subject}

    refused = opened(answers).post("/order", what=name, because=" ", **fields)

    assert refused.status_code == 400
    assert "Give a reason" in refused.text
    assert answers.started == []


def test_a_form_that_is_not_complete_does_nothing(opened: Opened) -> None:
    answers = Answers()
    browser = opened(answers)

    assert browser.post("/order", what="admit", group="payments", **WHY, **SURE).status_code == 400
    assert browser.post("/order", what="pause", **WHY).status_code == 400
    assert browser.post("/order", what="nothing", group="payments").status_code == 404
    assert answers.started == []
    reads = {"failover.status", "failover.held", "failover.availability"}
    assert {action for action, _ in answers.asked} == reads


@pytest.mark.parametrize("minutes", ["", "soon", "-5", "1.5"])
def test_a_maintenance_needs_its_minutes(opened: Opened, minutes: str) -> None:
    answers = Answers()
    form = {"what": "maintenance", "group": "payments", "minutes": minutes}

    refused = opened(answers).post("/order", **form, **WHY)

    assert refused.status_code == 400
    assert "Nothing was done." in refused.text
    assert "failover.maintenance" not in [action for action, _ in answers.asked]


def test_a_maintenance_is_of_members_of_the_group(opened: Opened) -> None:
    page = opened().get("/order?what=maintenance&group=payments").text

    for member in ("db_a", "db_b"):
        assert f'<input type="checkbox" name="members.{member}">' in page


def test_only_members_in_maintenance_can_be_taken_from_it(opened: Opened) -> None:
    work = {"by": "me", "because": "new disks", "since": 1.0, "until": 9e9, "members": ["db_b"]}
    browser = opened(Answers(status=status(maintenance=work)))

    group = browser.get("/group?name=payments").text
    page = browser.get("/order?what=end-maintenance&group=payments").text

    assert "what=end-maintenance" in group
    assert 'name="members.db_b"' in page
    assert 'name="members.db_a"' not in page


def test_a_group_without_maintenance_has_none_to_end(opened: Opened) -> None:
    page = opened().get("/group?name=payments").text

    assert "what=maintenance" in page
    assert "what=end-maintenance" not in page


def test_what_mistral_refuses_is_said(opened: Opened) -> None:
    refused = ActionFailed("payments is paused already", "Resume it.", "BAD_INPUT")
    answer = opened(Answers(pause=refused)).post("/order", what="pause", group="payments", **WHY)

    assert answer.status_code == 502
    assert "payments is paused already" in answer.text


@pytest.mark.parametrize(
    "asked",
    [
        "what=pause",
        "what=maintenance",
        "what=end-maintenance",
        f"what=admit&incident={INCIDENT}",
        f"what=dismiss&incident={INCIDENT}",
        f"what=start&plan={PLAN}",
        "what=confirm-fenced&member=db_a",
    ],
)
def test_a_form_says_what_it_does_and_shows_the_plan(opened: Opened, asked: str) -> None:
    page = opened().get(f"/order?group=payments&{asked}").text
    order = ORDERS[asked.partition("&")[0].removeprefix("what=")]

    assert order.title in page
    assert ("Type the group&#39;s name" in page or "Type the group's name" in page) == (
        order.dangerous
    )
    assert ("What would happen" in page) == (order.name in ("admit", "start", "confirm-fenced"))


def test_a_plan_says_on_the_page_how_a_member_comes_back_and_what_is_deleted(
    opened: Opened,
) -> None:
    back = "db_b comes back: replace (Heat makes another server; never done before)"
    gone = "db_b: server 5f0c; by Heat, as soon as the next one is there"
    shown = plan(ways_back=[{"sentence": back}], deletes=[{"sentence": gone}])

    page = opened(Answers(plan=shown)).get(f"/order?group=payments&what=start&plan={PLAN}").text

    assert f"<h3>Brought back</h3>\n<ul><li>{back}</li>" in page
    assert f"<h3>Deleted</h3>\n<ul><li>{gone}</li>" in page


def test_a_member_can_be_confirmed_as_fenced_although_no_plan_can_be_made(opened: Opened) -> None:
    refused = ActionFailed("db_a has left the stack", "Look.", "UNKNOWN_MEMBER")

    page = opened(Answers(plan=refused)).get(
        "/order?what=confirm-fenced&group=payments&member=db_a"
    )

    assert "payments would be refused: db_a has left the stack" in page.text
    assert "Confirm that the member is off" in page.text


def test_before_a_member_is_confirmed_as_fenced_the_page_says_what_speaks_against_it(
    opened: Opened,
) -> None:
    asked = "/order?what=confirm-fenced&group=payments&member=db_a"
    away = ActionFailed("db_a is not a member of payments", "Look.", "UNKNOWN_MEMBER")

    page, gone = opened().get(asked).text, opened(Answers(evidence=away)).get(asked).text

    assert "Nova says ACTIVE" in page
    assert page.count("it may still write") == 1
    assert "db_a is not a member of payments" in gone


def test_an_alarm_is_shown_with_the_plan_for_all_of_its_members_before_it_is_admitted(
    opened: Opened,
) -> None:
    alarm = held(lost=["db_a", "db_b"], sentence="host compute-1 failed")
    answers = Answers(held={"held": [alarm], "total": 1})

    page = opened(answers).get(f"/order?what=admit&group=payments&incident={INCIDENT}").text

    asked = {"group": "payments", "verb": "failover", "lost": ["db_a", "db_b"]}
    assert ("failover.plan", asked) in answers.asked
    assert "host compute-1 failed" in page


def test_an_alarm_that_is_no_longer_held_has_no_form(opened: Opened) -> None:
    browser = opened(Answers(held={"held": [], "total": 0}))

    for what in ("admit", "dismiss"):
        answer = browser.get(f"/order?what={what}&group=payments&incident={INCIDENT}")
        assert answer.status_code == 404
        assert "no longer held" in answer.text
        assert '<form method="post" action="/order"' not in answer.text


def test_an_alarm_without_a_member_is_admitted_on_the_command_line(opened: Opened) -> None:
    alarm = held(lost=None, admit="failover admit d3b9775c --lost MEMBER --because WHY")
    browser = opened(Answers(status=status(held=1), held={"held": [alarm], "total": 1}))

    group = browser.get("/group?name=payments").text
    form = browser.get(f"/order?what=admit&group=payments&incident={INCIDENT}")

    assert "what=admit" not in group
    assert "what=dismiss" in group
    assert form.status_code == 400
    assert alarm["admit"] in form.text


def test_read_only_pages_have_no_orders(opened: Opened) -> None:
    answers = Answers(
        status=status(
            held=1, remedies=[{"member": "db_a", "only_by_confirmation": False, "command": "x"}]
        )
    )
    browser = opened(answers, read_only=True)

    group = browser.get("/group?name=payments").text
    plan = browser.get("/plan?group=payments&verb=failover").text

    assert "/order" not in group + plan
    assert browser.get("/order?what=pause&group=payments").status_code == 404
    assert browser.post("/order", what="pause", group="payments", **WHY).status_code == 404
    assert "failover.pause" not in [action for action, _ in answers.asked]
