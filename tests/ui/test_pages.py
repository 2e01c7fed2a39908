# SPDX-License-Identifier: Apache-2.0
"""The pages over HTTP, as a browser without JavaScript reads them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mistral_failover.ui.action_client import ActionFailed
from support.ui_answers import (
    MOVING,
    NOW,
    TRAVERSAL,
    Answers,
    held,
    operation,
    overview,
    status,
    traversal,
)
from ui.conftest import Opened

READ = ["/", "/group?name=payments", f"/timeline?id={TRAVERSAL}", "/history"]
READ += [f"/timeline?id={TRAVERSAL}&step=3", "/history?group=payments", "/plan?group=payments"]
READ += ["/plan?group=payments&verb=failover&lost=db_b", "/goals?group=payments", "/work"]


@pytest.mark.parametrize("path", READ)
def test_every_page_is_whole_and_has_a_heading(opened: Opened, path: str) -> None:
    answer = opened().get(path)

    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.text.rstrip().endswith("</html>")
    assert answer.text.count("<h1>") == 1
    assert '<html lang="en">' in answer.text


def test_the_list_has_every_group_of_every_answer(opened: Opened) -> None:
    rows = [overview(f"group{i:04}") for i in range(1000)]

    def project(after: str = "", **_: Any) -> Any:
        behind = [row for row in rows if row["name"] > after]
        return {"overview": behind[:500], "total": 1000, "groups": [], "now": NOW}

    browser = opened(Answers(groups=project))
    page = browser.get("/").text

    assert "1000 of 1000 groups." in page
    assert page.count('data-label="Group"') == 1000


def test_a_filter_and_an_order_are_addresses(opened: Opened) -> None:
    rows = [overview("shop", "BLOCKED", reason="no proof"), overview("ledger"), overview("books")]
    browser = opened(Answers(groups={"overview": rows, "total": 3, "groups": [], "now": NOW}))

    page = browser.get("/?state=waits+for+a+person").text
    ordered = browser.get("/?sort=name").text

    assert "1 of 3 groups." in page
    assert "no proof" in page
    assert "/group?name=ledger" not in page
    assert ordered.index("name=books") < ordered.index("name=ledger") < ordered.index("name=shop")


def test_a_group_begins_with_what_is_wrong_and_what_helps(opened: Opened) -> None:
    remedies = [
        {
            "resource": "fence:db_a",
            "member": "db_a",
            "reason": "no proof",
            "only_by_confirmation": False,
            "command": "failover confirm-fenced payments db_a --because '...'",
        }
    ]
    blocked = status("BLOCKED", reason="fence: no proof", remedies=remedies, resources=MOVING)
    page = opened(Answers(status=blocked)).get("/group?name=payments").text

    sentence = page.index("no proof that db_a is off")
    first = page.index("failover start payments --lost db_a")
    assert sentence < first
    assert first < page.index("failover confirm-fenced payments db_a --because")
    assert "volume leaving moving" in page


def test_a_chain_that_ended_is_found_by_asking_mistral_for_it(opened: Opened) -> None:
    waits = {"sentence": "waits for its chain", "remedy": ""}
    waits |= {"workflow": "acme.failover", "stage": "activate"}
    ended = waits | {"sentence": "its chain ended with ERROR", "remedy": "failover sweep payments"}

    def asked(agents: bool = False, **_: Any) -> Any:
        return status("IN_PROGRESS", chain=ended if agents else waits)

    page = opened(Answers(status=asked)).get("/group?name=payments").text

    assert "its chain ended with ERROR" in page
    assert "failover sweep payments" in page


def test_held_alarms_have_their_commands_and_their_orders(opened: Opened) -> None:
    answers = Answers(status=status(held=1), held={"held": [held()], "total": 1})
    page = opened(answers).get("/group?name=payments").text

    assert "1 alarm waits for you" in page
    assert "failover admit d3b9775c --because WHY" in page
    assert "what=admit&amp;group=payments&amp;incident=d3b9775c" in page


def test_the_list_shows_failed_hosts_and_alarms_of_no_known_group(opened: Opened) -> None:
    alarms = [
        held(),
        held(group=None, host="compute-1", children=2, lost=None, sentence="compute-1 failed"),
        held(group=None, lost=None, sentence="alarm about a stranger"),
    ]
    page = opened(Answers(held={"held": alarms, "total": 3})).get("/").text

    assert "compute-1 failed: 2 groups wait" in page
    assert "alarm about a stranger" in page
    assert alarms[0]["sentence"] not in page, "it is on the page of its group"
    assert page.count('aria-label="Copy failover admit d3b9775c') == 2


def test_the_list_has_no_room_for_alarms_that_there_are_not(opened: Opened) -> None:
    assert "Alarms that wait for you" not in opened().get("/").text


def test_the_plan_for_a_lost_member_is_shown_before_anything_happens(opened: Opened) -> None:
    answers = Answers()
    page = opened(answers).get("/plan?group=payments&verb=failover&lost=db_b").text

    asked = {"group": "payments", "verb": "failover", "lost": ["db_b"]}
    assert ("failover.plan", asked) in answers.asked
    assert "Fence db_b" in page
    assert "Detach data from db_b (if needed)" in page
    assert "no member could take over. Repair one." in page
    assert answers.started == []


def test_a_finished_failover_is_replayed_step_by_step(opened: Opened) -> None:
    browser = opened()

    fourth = browser.get(f"/timeline?id={TRAVERSAL}&step=4").text
    last = browser.get(f"/timeline?id={TRAVERSAL}&step=999").text

    assert "Step 4 of 11" in fourth
    assert "is leaving" in fourth
    assert "moving" not in fourth.partition("<main")[2]
    assert f"/timeline?id={TRAVERSAL}&amp;step=5" in fourth
    assert "Step 11 of 11" in last
    assert "volume is here" in last


def test_a_finished_failover_is_asked_for_once(opened: Opened) -> None:
    answers = Answers()
    browser = opened(answers)

    for step in range(1, 4):
        browser.get(f"/timeline?id={TRAVERSAL}&step={step}")

    assert [action for action, _ in answers.asked].count("failover.show") == 1


def test_a_superseded_failover_is_asked_for_until_its_last_step_has_ended(opened: Opened) -> None:
    running = operation("create", "data", "volume_attachment", "db_b", "move_volumes", 5, None)
    answers = Answers(show=traversal(status="SUPERSEDED", operations=[running]))
    browser = opened(answers)
    assert "running" in browser.get(f"/timeline?id={TRAVERSAL}").text

    answers.answers["show"] = traversal(status="SUPERSEDED")
    time.sleep(1.1)

    assert "running" not in browser.get(f"/timeline?id={TRAVERSAL}").text


@pytest.mark.parametrize(
    ("code", "expected"), [("UNKNOWN_GROUP", 404), ("MISTRAL_UNREACHABLE", 502)]
)
def test_what_keeps_a_page_from_being_read_is_said_with_its_remedy(
    opened: Opened, code: str, expected: int
) -> None:
    trouble = ActionFailed("no answer from Mistral", "Start it.", code)
    answer = opened(Answers(status=trouble)).get("/group?name=payments")

    assert answer.status_code == expected
    assert "no answer from Mistral" in answer.text
    assert "Start it." in answer.text
    assert code in answer.text


def test_an_address_without_a_group_leads_back(opened: Opened) -> None:
    answer = opened().get("/group")

    assert answer.status_code == 400
    assert "Begin at the list of groups." in answer.text


@pytest.mark.parametrize("path", ["/nothing", "/static/../app.py", "/live?page=/nothing"])
def test_an_unknown_address_is_not_found(opened: Opened, path: str) -> None:
    assert opened().get(path).status_code == 404
