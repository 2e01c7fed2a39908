# SPDX-License-Identifier: Apache-2.0
"""The failure of a host: which groups it hit, what holds them, and the decision about all."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mistral_failover.ui.action_client import ActionFailed
from mistral_failover.ui.orders import AT_ONCE
from support.ui_answers import (
    HOST_EVENT,
    INCIDENT,
    Answers,
    child,
    held,
    host_event,
    overview,
    plan,
    status,
)
from ui.conftest import Opened

PAGE = f"/alarm?id={HOST_EVENT}"
ADMIT = f"/order?what=admit-event&incident={HOST_EVENT}"
DISMISS = f"/order?what=dismiss-event&incident={HOST_EVENT}"
REPORT = "/order?what=host-lost&host=compute-1"
THERE = {
    "host": "compute-1",
    "groups": [
        {"group": "payments", "members": ["db_a", "db_b"]},
        {"group": "books", "members": ["db_a"]},
    ],
    "unsure": "",
}
WHY = {"because": "it burned"}
ABOUT = {"place": "compute-1", "incident": HOST_EVENT}
SETTLED = host_event(
    [child("books", "DISMISSED"), child("ledger", "ADMITTED")], admit=None, dismiss=None
)


def answers(**more: Any) -> Answers:
    rows = [
        overview("books"),
        overview("ledger", "IN_PROGRESS", service="DOWN"),
        overview("payments", service="DOWN"),
    ]
    groups = {"overview": rows, "total": 3, "groups": [], "now": 1.0}
    return Answers(**{"show": host_event(), "groups": groups, **more})


def test_the_list_of_groups_leads_to_the_failure_of_a_host(opened: Opened) -> None:
    alarm = held(incident=HOST_EVENT, group=None, host="compute-1", children=2, lost=None)
    page = opened(Answers(held={"held": [alarm], "total": 1})).get("/").text

    assert f'href="{PAGE}"' in page


def test_a_failed_host_shows_its_groups_their_decisions_and_their_state_now(
    opened: Opened,
) -> None:
    page = opened(answers()).get(PAGE).text

    assert "<h1>Host compute-1 " in page
    assert "3 groups: 1 ADMITTED, 2 HELD." in page
    for group in ("books", "ledger", "payments"):
        assert f'href="/group?name={group}"' in page
    assert "db_a of ledger is declared lost" in page
    assert "IN PROGRESS, active will be on db_b" in page
    assert 'badge trouble">DOWN' in page


def test_the_storm_guard_says_why_it_still_holds_an_alarm(opened: Opened) -> None:
    page = opened(answers()).get(PAGE).text

    assert "3 of 6 groups of the project failed within 600 s" in page
    assert "The storm guard still holds it: Nova does not answer." in page


def test_a_group_says_why_the_storm_guard_holds_its_alarm(opened: Opened) -> None:
    alarms = {"held": [held(evidence="Nova does not answer")], "total": 1}
    page = opened(Answers(status=status(held=1), held=alarms)).get("/group?name=payments").text

    assert "The storm guard still holds it: Nova does not answer." in page
    assert f'href="/alarm?id={INCIDENT}"' in page


def test_a_group_lists_its_latest_alarms_and_orders_with_what_was_decided(opened: Opened) -> None:
    page = opened().get("/group?name=payments").text

    assert "Latest alarms and orders" in page
    assert "ADMITTED" in page
    assert f'<a href="/alarm?id={INCIDENT}">alarm server_lost: db_a is declared lost</a>' in page


def test_an_alarm_of_a_group_leads_to_its_host_and_to_the_failover_that_it_started(
    opened: Opened,
) -> None:
    alarm = host_event(
        [],
        group="payments",
        fact={"group": "payments", "lost": ["db_a"]},
        parent=HOST_EVENT,
        traversals=[{"id": "b0394ddc", "cause": "db_a is lost"}],
    )
    page = opened(Answers(show=alarm)).get(f"/alarm?id={INCIDENT}").text

    assert "<h1>Alarm " in page
    assert f'href="{PAGE}"' in page
    assert '<a href="/timeline?id=b0394ddc">db_a is lost</a>' in page


def test_an_order_of_an_operator_is_called_an_order(opened: Opened) -> None:
    order = host_event([], group="payments", source="operator", fact={}, order={"verb": "rollback"})

    assert "<h1>Order " in opened(Answers(show=order)).get(f"/alarm?id={INCIDENT}").text


def test_a_host_whose_alarms_are_decided_has_no_orders(opened: Opened) -> None:
    browser = opened(answers(show=SETTLED))

    page = browser.get(PAGE).text
    assert re.findall(r"what=([a-z-]+)", page) == ["host-lost"], "it can fail again"
    for order in (ADMIT, DISMISS):
        refused = browser.get(order)
        assert refused.status_code == 404
        assert '<form method="post" action="/order"' not in refused.text


def test_a_host_on_which_no_member_is_known_can_only_be_dismissed(opened: Opened) -> None:
    nowhere = host_event(
        [], decision="HELD", admit="failover admit x", dismiss="failover dismiss x"
    )
    browser = opened(answers(show=nowhere))

    page = browser.get(PAGE).text

    assert "what=dismiss-event" in page
    assert "what=admit-event" not in page
    assert browser.get(ADMIT).status_code == 404
    assert browser.get(DISMISS).status_code == 200


def test_what_is_no_alarm_is_not_shown_as_one(opened: Opened) -> None:
    assert opened().get(PAGE).status_code == 404, "the answer is a traversal"


# -- orders


def test_the_plan_of_each_failover_is_shown_before_all_are_admitted(opened: Opened) -> None:
    found = answers()
    page = opened(found).get(ADMIT).text

    planned = [asked for action, asked in found.asked if action == "failover.plan"]
    about = {"verb": "failover", "lost": ["db_a"]}
    assert sorted(planned, key=lambda asked: asked["group"]) == [
        {"group": "books", **about},
        {"group": "payments", **about},
    ]
    assert "2 alarms held" in page
    assert page.count('data-label="Step">Fence db_b') == 2
    assert "1 risk" in page
    assert "Type the host or zone's name" in page


def test_a_failover_that_cannot_be_planned_is_named(opened: Opened) -> None:
    def planned(group: str, **_: Any) -> Any:
        if group == "books":
            raise ActionFailed(
                "no member of books could take over", "Repair one.", "NO_ELIGIBLE_MEMBER"
            )
        return plan()

    page = opened(answers(plan=planned)).get(ADMIT).text

    assert "books would be refused: no member of books could take over Repair one." in page
    assert page.count('data-label="Step">Fence db_b') == 1


def test_only_those_are_planned_that_one_order_admits(opened: Opened) -> None:
    children = [child(f"group{n:02}", turn=50 - n) for n in range(50)]
    found = answers(show=host_event(children))

    opened(found).get(ADMIT)

    planned = {asked["group"] for action, asked in found.asked if action == "failover.plan"}
    assert planned == {f"group{n:02}" for n in range(50 - AT_ONCE, 50)}, "the first in turn"


def test_all_alarms_of_a_host_are_admitted_once_its_name_is_typed(opened: Opened) -> None:
    rows = [
        {"group": "payments", "workflow": "failover.converge", "traversal": "t1"},
        {"group": "shop", "workflow": "shop.failover", "traversal": "t2"},
    ]
    refused = {"group": "books", "incident": "i", "error": {"message": "no member could take over"}}
    found = answers(admit_held={"admitted": rows, "refused": [refused], "left": 4})
    browser = opened(found)
    order = {"what": "admit-event", **ABOUT, **WHY}

    for typed in ({}, {"typed": "compute-2"}, {"typed": "payments"}):
        assert browser.post("/order", **order, **typed).status_code == 400
    assert "failover.admit_held" not in [action for action, _ in found.asked]
    done = browser.post("/order", **order, typed="compute-1")

    assert ("failover.admit_held", {"incident": HOST_EVENT, **WHY, "limit": AT_ONCE}) in found.asked
    assert found.started == [
        ("failover.converge", {"traversal": "t1"}),
        ("shop.failover", {"traversal": "t2"}),
    ]
    assert done.url.endswith(PAGE)
    assert "Admitted: payments, shop." in done.text
    assert "books: could not start, the sweep tries again: no member could take over." in done.text
    assert "4 alarms left: admit again" in done.text


def test_a_mistral_that_goes_away_while_all_are_admitted_leaves_them_to_the_sweep(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"group": "payments", "workflow": "failover.converge", "traversal": "t1"}
    found = answers(admit_held={"admitted": [row], "refused": [], "left": 0})

    def away(workflow: str, **_: Any) -> str:
        raise ActionFailed("no answer", "Start it.", "MISTRAL_UNREACHABLE")

    monkeypatch.setattr(found, "start", away)
    order = {"what": "admit-event", **ABOUT, **WHY, "typed": "compute-1"}
    done = opened(found).post("/order", **order)

    assert "the next sweep continues payments" in done.text


def test_all_alarms_of_a_host_are_dismissed_once_its_name_is_typed(opened: Opened) -> None:
    found = answers()
    browser = opened(found)
    order = {"what": "dismiss-event", **ABOUT, **WHY}

    assert browser.post("/order", **order, typed="payments").status_code == 400
    assert "failover.dismiss" not in [action for action, _ in found.asked]
    done = browser.post("/order", **order, typed="compute-1")

    assert ("failover.dismiss", {"incident": [HOST_EVENT], **WHY}) in found.asked
    assert done.url.endswith(PAGE)


def test_a_host_is_reported_from_the_list_of_groups_and_from_its_alarm(opened: Opened) -> None:
    browser = opened(answers())

    assert '<input type="hidden" name="what" value="host-lost">' in browser.get("/").text
    assert "/order?what=host-lost&amp;host=compute-1" in browser.get(PAGE).text


def test_the_plan_of_each_group_is_shown_before_its_host_is_reported(opened: Opened) -> None:
    found = answers(members_on_host=THERE)
    page = opened(found).get(REPORT).text

    planned = [asked for action, asked in found.asked if action == "failover.plan"]
    assert sorted(planned, key=lambda asked: asked["group"]) == [
        {"group": "books", "verb": "failover", "lost": ["db_a"]},
        {"group": "payments", "verb": "failover", "lost": ["db_a", "db_b"]},
    ]
    assert "members on compute-1: payments (db_a, db_b), books (db_a)" in page
    assert page.count('data-label="Step">Fence db_b') == 2
    assert "Type the host's name" in page


def test_what_is_not_known_about_a_host_is_said(opened: Opened) -> None:
    unsure = "Nova could not be asked [TIMEOUT]"
    many = [{"group": f"group{n:02}", "members": ["db_a"]} for n in range(50)]
    found = answers(members_on_host={**THERE, "groups": many, "unsure": unsure})
    browser = opened(found)

    page = browser.get(REPORT).text

    assert f"some may be missing: {unsure}" in page
    assert f"below are the plans of the first {AT_ONCE} groups" in page
    assert [action for action, _ in found.asked].count("failover.plan") == AT_ONCE


def test_a_host_without_members_has_no_form(opened: Opened) -> None:
    browser = opened(answers(members_on_host={**THERE, "groups": []}))

    refused = browser.get(REPORT)

    assert refused.status_code == 404
    assert "No group of this project is known to have a member on compute-1." in refused.text
    assert '<form method="post" action="/order"' not in refused.text
    assert browser.get("/order?what=host-lost").status_code == 400


def test_a_host_is_reported_once_its_name_is_typed(opened: Opened) -> None:
    event = {"incident": HOST_EVENT, "decision": "ADMITTED", "sentence": "compute-1 failed"}
    row = {"group": "payments", "workflow": "failover.converge", "traversal": "t1"}
    refused = {"sentence": "db_a of books is lost", "error": {"message": "no member is left"}}
    given = {
        "admissions": [event, row, refused],
        "started": [row],
        "refused": [refused],
        "left": [],
    }
    found = answers(members_on_host=THERE, admit_event=given)
    browser = opened(found)
    report = re.search(r'name="report" value="([^"]+)"', browser.get(REPORT).text)
    assert report is not None
    order = {"what": "host-lost", "host": "compute-1", "report": report[1], **WHY}

    for typed in ({}, {"typed": "compute-2"}, {"typed": "payments"}):
        assert browser.post("/order", **order, **typed).status_code == 400
    assert "failover.admit_event" not in [action for action, _ in found.asked]
    done = browser.post("/order", **order, typed="compute-1")

    body = {"host": "compute-1", "id": report[1]}
    assert ("failover.admit_event", {"body": body, "kind": "signal", **WHY}) in found.asked
    assert found.started == [("failover.converge", {"traversal": "t1"})]
    assert done.url.endswith(PAGE)
    assert "compute-1 failed. db_a of books is lost: could not start" in done.text


def test_a_report_for_which_the_list_has_no_room_leads_to_the_groups(opened: Opened) -> None:
    event = {"incident": None, "decision": "HELD", "sentence": "the list is full"}
    given = {"admissions": [event], "started": [], "refused": [], "left": []}
    browser = opened(answers(admit_event=given))
    order = {"what": "host-lost", "host": "compute-1", "report": "r", **WHY, "typed": "compute-1"}

    done = browser.post("/order", **order)

    assert done.url == f"{browser.url}/"
    assert "the list is full" in done.text


def test_the_host_s_name_in_a_form_is_that_of_its_alarm(opened: Opened) -> None:
    page = opened(answers()).get(f"{ADMIT}&place=compute-2").text

    assert '<input type="hidden" name="place" value="compute-1">' in page


def test_a_read_only_page_shows_the_host_and_has_no_orders(opened: Opened) -> None:
    browser = opened(answers(), read_only=True)
    page = browser.get(PAGE).text

    assert "failover admit 9f0c1b52 --because WHY" in page
    assert "/order" not in page + browser.get("/").text
    for order in (ADMIT, REPORT):
        assert browser.get(order).status_code == 404
    order = {"what": "admit-event", **ABOUT, **WHY, "typed": "compute-1"}
    assert browser.post("/order", **order).status_code == 404


def test_a_zone_is_reported_from_the_list_of_groups_and_admitted_like_a_host(
    opened: Opened,
) -> None:
    event = {"incident": HOST_EVENT, "decision": "ADMITTED", "sentence": "zone east failed"}
    given = {"admissions": [event], "started": [], "refused": [], "left": []}
    alarm = host_event(fact={"zone": "east"})
    there = {**THERE, "host": None, "zone": "east"}
    found = answers(show=alarm, members_on_host=there, admit_event=given)
    browser = opened(found)

    assert '<input type="hidden" name="what" value="zone-lost">' in browser.get("/").text
    page = browser.get(PAGE).text
    assert "<h1>Zone east" in page
    assert "/order?what=zone-lost&amp;zone=east" in page
    form = browser.get("/order?what=zone-lost&zone=east").text
    assert "members in zone east: payments (db_a, db_b), books (db_a)" in form
    order = {"what": "zone-lost", "zone": "east", "report": "r", **WHY}
    assert browser.post("/order", **order, typed="west").status_code == 400
    browser.post("/order", **order, typed="east")

    body = {"zone": "east", "id": "r"}
    assert ("failover.admit_event", {"body": body, "kind": "signal", **WHY}) in found.asked
    assert '<input type="hidden" name="place" value="east">' in browser.get(ADMIT).text


def test_a_zone_without_members_has_no_form(opened: Opened) -> None:
    browser = opened(answers(members_on_host={**THERE, "groups": []}))

    refused = browser.get("/order?what=zone-lost&zone=esat")

    assert refused.status_code == 404
    assert "No group of this project is known to have a member in zone esat." in refused.text
