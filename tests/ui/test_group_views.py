# SPDX-License-Identifier: Apache-2.0
"""The view models of the list of groups and of a group."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.cli.status_screen import Advice
from mistral_failover.ui.group import group_view, verdict
from mistral_failover.ui.groups import Query, groups_view
from mistral_failover.ui.levels import Level
from support.ui_answers import NOW, held, overview, status

DIFFERENT = {"differs": True, "lines": ['+ limits: {"per_hour": 7}']}
ALARM = {"at": NOW - 60, "sentence": "db_a is lost"}
PAUSE = {"by": "me", "because": "new disks", "since": NOW - 60}
SERVICE: dict[str, Any] = {"since": NOW - 61, "reasons": ["its server is gone"], "gone": ["db_b"]}
SERVICE |= {"seen_at": NOW, "another_stack": False}
CHAIN = {"sentence": "its chain ended with ERROR", "remedy": "failover sweep payments"}
OPENING = {"sentence": "waits for its chain acme.failover to open the stage activate", "remedy": ""}
WAIT = {"resource": "data", "member": "db_b", "what": "Attach data to db_b", "waiting_for": "Nova"}
WAIT |= {"since": NOW - 20, "next_try": 3.0, "tries": 4}


@pytest.mark.parametrize(
    ("answer", "level", "begins"),
    [
        (status(), Level.GOOD, "Not stuck: active on db_b."),
        (status("DEFINED", roles={}, traversal=None), Level.NEUTRAL, "Not stuck: the group was"),
        (status(roles={}), Level.NEUTRAL, "Not stuck: the group is out of service."),
        (status("IN_PROGRESS"), Level.WORKING, "Not stuck: at work (db_a is lost)."),
        (status("IN_PROGRESS", chain=CHAIN), Level.TROUBLE, "Stuck: its chain ended with ERROR."),
        (
            status("IN_PROGRESS", chain=OPENING, reason=OPENING["sentence"]),
            Level.WORKING,
            "Not stuck: it waits for its chain acme.failover to open the stage activate.",
        ),
        (status("IN_PROGRESS", reason="rights ended"), Level.TROUBLE, "Stuck: rights ended."),
        (
            status("IN_PROGRESS", waiting=[WAIT]),
            Level.ATTENTION,
            "Waiting for Nova since ",
        ),
        (
            status("BLOCKED", reason="no proof"),
            Level.TROUBLE,
            "Stuck: it waits for an operator. no",
        ),
        (status("FAILED", reason="no standby"), Level.TROUBLE, "Stopped: no standby."),
        (
            status(service=SERVICE | {"status": "DOWN"}),
            Level.TROUBLE,
            "Not serving: its server is gone.",
        ),
        (
            status(service=SERVICE | {"status": "DEGRADED"}),
            Level.ATTENTION,
            "Serving, but degraded",
        ),
        (status(service=SERVICE | {"status": "UNKNOWN"}), Level.ATTENTION, "Not known whether"),
        (status(unstarted=[ALARM]), Level.TROUBLE, "A failover has not started: db_a is lost."),
        (status(held=2), Level.ATTENTION, "Waiting for you: 2 alarms held"),
        (status(pause=PAUSE), Level.ATTENTION, "Serving, but alarms are held: paused since"),
        (status(lost=["db_a"]), Level.ATTENTION, "Serving; still declared lost: db_a."),
        (status(in_force=DIFFERENT), Level.ATTENTION, "Serving. The latest definition is not in"),
    ],
)
def test_one_sentence_says_what_is_wrong(answer: dict[str, Any], level: Level, begins: str) -> None:
    found = verdict(answer)

    assert found.sentence.startswith(begins)
    assert found.level is level


def test_the_details_show_how_the_latest_definition_differs() -> None:
    facts = dict(group_view(status(in_force=DIFFERENT)).facts)

    assert facts["not in force"] == tuple(DIFFERENT["lines"])


def test_the_commands_are_apart_from_their_words() -> None:
    remedies = [
        {
            "member": "db_a",
            "only_by_confirmation": False,
            "command": "failover confirm-fenced payments db_a",
        }
    ]
    first, second = verdict(status("BLOCKED", remedies=remedies)).commands

    assert first == Advice(
        "failover start payments --lost db_a",
        "once db_a or its host answers",
        "tries to fence again",
    )
    assert second.command == "failover confirm-fenced payments db_a"
    assert second.condition == "once you are sure that db_a is off"


def test_a_group_shows_its_members_and_what_waits() -> None:
    found = group_view(status(lost=["db_a"], held=1), [held(lost=None)])

    assert [(m.name, m.roles, m.lost) for m in found.members] == [
        ("db_a", "", True),
        ("db_b", "active", False),
    ]
    assert found.holders == ("db_b",)
    (alarm,) = found.held
    assert alarm.lost == ()
    assert alarm.heard.startswith("heard 2 times")


ROWS = [
    overview("books", since=NOW - 5),
    overview("ledger", "IN_PROGRESS", service="DOWN", cause="db_a is lost"),
    overview("payments", "BLOCKED", service="DOWN", reason="no proof", since=NOW - 100),
    overview("shop", held=3, pause=PAUSE),
    overview("stock", "DEFINED", service="OUT_OF_SERVICE", roles={}, since=None),
    overview("tills", service="DOWN", since=NOW - 7),
]


def shown(**query: Any) -> list[str]:
    return [row.name for row in groups_view(ROWS, NOW, Query(**query)).rows]


def test_the_most_urgent_groups_come_first() -> None:
    assert shown() == ["tills", "payments", "shop", "ledger", "stock", "books"]


def test_groups_are_sorted_by_name_or_time() -> None:
    assert shown(sort="name") == ["books", "ledger", "payments", "shop", "stock", "tills"]
    assert shown(sort="since")[:2] == ["books", "tills"]


def test_groups_are_filtered_by_text_and_level() -> None:
    assert shown(text="NO PROOF") == ["payments"]
    assert shown(text="disks") == ["shop"]
    assert shown(level=Level.TROUBLE) == ["tills", "payments"]
    assert shown(level=Level.TROUBLE, text="till") == ["tills"]
    assert shown(text="nothing") == []


def test_a_row_says_what_is_under_way_and_what_waits_for_the_operator() -> None:
    rows = {row.name: row for row in groups_view(ROWS, NOW, Query()).rows}

    assert rows["ledger"].under_way == "db_a is lost"
    assert rows["ledger"].active == "active will be on db_b"
    assert rows["shop"].waits_for_you[0] == "3 alarms held"
    assert rows["payments"].waits_for_you == ("no proof",)
    assert (rows["stock"].serves, rows["stock"].since) == ("never activated", "never")


def test_the_counts_are_of_all_groups_whatever_the_filter() -> None:
    view = groups_view(ROWS, NOW, Query(text="books"))

    assert (len(view.rows), view.total) == (1, 6)
    assert sum(view.counts.values()) == 6


@pytest.mark.parametrize("given", [{}, {"level": "x", "sort": "y"}, {"level": "", "sort": ""}])
def test_an_address_without_meaning_counts_as_none(given: dict[str, str]) -> None:
    assert Query.read(given) == Query()
