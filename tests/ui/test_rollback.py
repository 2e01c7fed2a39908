# SPDX-License-Identifier: Apache-2.0
"""A rollback: choose an earlier goal, see the differences and the plan, then start the plan."""

from __future__ import annotations

import re

from mistral_failover.ui.action_client import ActionFailed
from support.ui_answers import BEFORE, GOALS, Answers, plan, status
from ui.conftest import Opened

PLANNED = plan(
    verb="rollback",
    sentence="rollback of payments: active on db_a (now active on db_b)",
    inputs={"goal": BEFORE, "recovered": ["db_a"]},
)
CHOSEN = f"/plan?group=payments&verb=rollback&goal={BEFORE}"


def test_the_goals_of_a_group_say_where_its_roles_were_and_whether_they_were_reached(
    opened: Opened,
) -> None:
    page = opened().get("/goals?group=payments").text

    assert "active: db_b, lost: db_a" in page
    assert "not reached" in page
    assert "a new disk" in page
    assert page.index("0123456789ab") < page.index("111111111111") < page.index("fedcba987654")


def test_a_rollback_is_offered_only_to_goals_that_were_reached_before_the_present_one(
    opened: Opened,
) -> None:
    page = opened().get("/goals?group=payments").text

    links = re.findall(r'href="(/plan\?[^"]+)"', page)
    assert [link.replace("&amp;", "&") for link in links] == [CHOSEN]


def test_a_group_leads_to_its_goals(opened: Opened) -> None:
    assert 'href="/goals?group=payments"' in opened().get("/group?name=payments").text


def test_a_group_without_a_goal_says_so(opened: Opened) -> None:
    assert "never given a goal" in opened(Answers(goals=[])).get("/goals?group=payments").text


def test_a_chosen_goal_is_planned_and_compared_with_the_present_one(opened: Opened) -> None:
    answers = Answers(plan=PLANNED)

    page = opened(answers).get(CHOSEN).text

    asked = {"group": "payments", "verb": "rollback", "goal": BEFORE}
    assert ("failover.plan", asked) in answers.asked
    compared = {"group": "payments", "before": GOALS[0]["version"], "after": BEFORE}
    assert ("failover.compare_goals", compared) in answers.asked
    assert "~ roles.active: db_b -&gt; db_a" in page
    assert "rollback of payments: active on db_a" in page
    assert f'<option value="{BEFORE}" selected>' in page
    assert answers.started == []


def test_a_verb_gets_only_the_fields_that_it_takes(opened: Opened) -> None:
    answers = Answers(status=status(lost=["db_a"]))
    browser = opened(answers)
    every = f"&lost=db_b&to=db_a&goal={BEFORE}&recovered.db_a=on"

    for verb in ("failover", "switchover", "failback", "rollback"):
        browser.get(f"/plan?group=payments&verb={verb}{every}")

    planned = [asked for action, asked in answers.asked if action == "failover.plan"]
    about = {"group": "payments"}
    assert planned == [
        about | {"verb": "failover", "lost": ["db_b"], "to": "db_a", "recovered": ["db_a"]},
        about | {"verb": "switchover", "to": "db_a"},
        about | {"verb": "failback", "to": "db_a", "recovered": ["db_a"]},
        about | {"verb": "rollback", "goal": BEFORE, "recovered": ["db_a"]},
    ]


def test_a_lost_member_is_confirmed_as_healthy_in_the_plan_and_in_the_order(
    opened: Opened,
) -> None:
    browser = opened(Answers(plan=PLANNED, status=status(lost=["db_a"])))

    page = browser.get(f"{CHOSEN}&recovered.db_a=on").text
    order = browser.get("/order?what=start&group=payments&plan=a416c00c").text

    assert '<input type="checkbox" name="recovered.db_a" checked>' in page
    for shown in (page, order):
        assert "You confirm as healthy: <strong>db_a</strong>" in shown


def test_no_member_is_confirmed_as_healthy_that_is_not_lost(opened: Opened) -> None:
    assert "checkbox" not in opened().get(CHOSEN).text


def test_a_refused_plan_leaves_the_form_to_choose_again(opened: Opened) -> None:
    refused = ActionFailed("db_a is lost and would hold a role", "Confirm it.", "INVALID_DOCUMENT")
    browser = opened(Answers(plan=refused, status=status(lost=["db_a"])))

    page = browser.get(CHOSEN).text

    assert "db_a is lost and would hold a role" in page
    assert 'name="recovered.db_a"' in page
    assert f'<option value="{BEFORE}" selected>' in page
    assert "~ roles.active: db_b -&gt; db_a" in page
    assert "Start this plan" not in page


def test_a_rollback_is_started_as_the_plan_that_was_shown(opened: Opened) -> None:
    answers = Answers(plan=PLANNED)
    browser = opened(answers)

    page = browser.get(CHOSEN).text
    assert f"/order?what=start&amp;group=payments&amp;plan={PLANNED['plan']}" in page
    order = {"what": "start", "group": "payments", "plan": PLANNED["plan"], "because": "it broke"}
    assert browser.post("/order", **order, typed="ledger").status_code == 400
    assert answers.started == []
    browser.post("/order", **order, typed="payments")

    started = {"plan": PLANNED["plan"], "because": "it broke"}
    assert answers.started == [("failover.start_plan", started)]


def test_a_read_only_page_plans_a_rollback_and_starts_none(opened: Opened) -> None:
    browser = opened(Answers(plan=PLANNED), read_only=True)

    assert "Plan it" in browser.get("/goals?group=payments").text
    assert "/order" not in browser.get(CHOSEN).text
