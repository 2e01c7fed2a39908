# SPDX-License-Identifier: Apache-2.0
"""The view models of the list of groups and of a group."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.cli.stopped import MOST
from mistral_failover.model.remedies import Advice
from mistral_failover.ui.group import group_view, verdict
from mistral_failover.ui.groups import Query, State, groups_view
from mistral_failover.ui.levels import Level
from support.ui_answers import NOW, held, member, overview, service, status, unproven

DIFFERENT = {"differs": True, "lines": ['+ limits: {"per_hour": 7}']}
ALARM = {"at": NOW - 60, "sentence": "db_a is lost", "refusal": ""}
PAUSE = {"by": "me", "because": "new disks", "since": NOW - 60}
SERVICE = service("DOWN", "its server is gone", since=NOW - 61, gone=["db_b"], explained=False)
CHAIN = {"workflow": "acme.failover", "stage": "activate", "remedy": "failover sweep payments"}
CHAIN |= {"sentence": "its chain ended with ERROR before it opened the stage activate"}
OPENING = CHAIN | {"sentence": "waits for its chain to open the stage activate", "remedy": ""}
WAIT = {"resource": "data", "member": "db_b", "what": "Attach data to db_b", "waiting_for": "Nova"}
WAIT |= {"since": NOW - 20, "next_try": 3.0, "tries": 4}


GONE = "its volume data is attached to a server that no record of the group names, and nothing else"
UNPROVEN = unproven()
REMEDY = {
    "resource": "fence:db_a",
    "member": "db_a",
    "reason": "no proof",
    "only_by_confirmation": False,
    "command": "failover confirm-fenced payments db_a",
}
ANSWERS = {
    "well": (status(), Level.GOOD),
    "never activated": (status("DEFINED", roles={}, traversal=None), Level.NEUTRAL),
    "out of service": (status(roles={}), Level.NEUTRAL),
    "at work": (status("IN_PROGRESS"), Level.WORKING),
    "chain ended": (status("IN_PROGRESS", chain=CHAIN), Level.TROUBLE),
    "chain": (status("IN_PROGRESS", chain=OPENING, reason=GONE), Level.WORKING),
    "rights ended": (status("IN_PROGRESS", reason=GONE), Level.TROUBLE),
    "waits": (status("IN_PROGRESS", waiting=[WAIT]), Level.ATTENTION),
    "blocked": (
        status("BLOCKED", reason=GONE, failure=UNPROVEN, remedies=[REMEDY]),
        Level.TROUBLE,
    ),
    "blocked otherwise": (status("BLOCKED", reason=GONE), Level.TROUBLE),
    "failed": (status("FAILED", failure=UNPROVEN | {"tried": []}), Level.TROUBLE),
    "failed without a step": (status("FAILED", reason=GONE), Level.TROUBLE),
    "down": (status(service=SERVICE | {"status": "DOWN"}), Level.TROUBLE),
    "degraded": (
        status(service=SERVICE | {"status": "DEGRADED", "reasons": [GONE, "x"]}),
        Level.ATTENTION,
    ),
    "unknown": (status(service=SERVICE | {"status": "UNKNOWN"}), Level.ATTENTION),
    "unstarted": (status(unstarted=[ALARM]), Level.TROUBLE),
    "held": (status(held=2), Level.ATTENTION),
    "paused": (status(pause=PAUSE | {"because": GONE}), Level.ATTENTION),
    "lost": (status(lost=["db_a"]), Level.ATTENTION),
    "many lost": (status(lost=[f"db_{i}" for i in range(40)]), Level.ATTENTION),
    "not in force": (status(in_force=DIFFERENT), Level.ATTENTION),
}


@pytest.mark.parametrize(
    ("state", "heading"),
    [
        ("blocked", "What was tried"),
        ("blocked otherwise", "What was tried"),
        ("failed", "What was tried"),
        ("degraded", "What was seen"),
    ],
)
def test_the_findings_are_headed_by_whether_something_was_tried(state: str, heading: str) -> None:
    assert verdict(ANSWERS[state][0]).heading == heading


@pytest.mark.parametrize("name", ANSWERS)
def test_one_short_sentence_says_why(name: str) -> None:
    answer, level = ANSWERS[name]
    found = verdict(answer)

    assert found.level is level
    assert 0 < len(found.sentence.split()) <= MOST
    assert found.sentence.endswith((".", "…"))


@pytest.mark.parametrize(
    "name",
    ["chain", "rights ended", "blocked otherwise", "failed without a step", "degraded", "paused"],
)
def test_what_is_too_long_for_the_sentence_is_beneath_it_as_a_whole(name: str) -> None:
    answer, _ = ANSWERS[name]
    said = OPENING["sentence"] if name == "chain" else GONE

    assert any(said in each.found for each in verdict(answer).findings)


def test_why_a_group_is_down_is_said_once() -> None:
    one = verdict(status(service=SERVICE | {"status": "DOWN", "gone": []}))

    assert "its server is gone" in one.sentence
    assert one.findings == ()


def test_a_group_whose_host_is_down_says_whose_host() -> None:
    members = [member("db_a", "a"), member("db_b", "b", condition="unreachable", why="host DOWN")]
    found = verdict(status(service=SERVICE | {"status": "UNKNOWN"}, members=members))

    assert "the host of db_b is down" in found.sentence
    assert [each.found for each in found.findings] == SERVICE["reasons"]


def test_a_cold_group_says_that_it_has_no_standby() -> None:
    cold = SERVICE | {"status": "SERVING", "reasons": [], "gone": [], "cold": True}

    assert "without a standby" in verdict(status(service=cold)).sentence
    warm = verdict(status(service=cold | {"standbys": ["db_a"]}))
    assert "standby" not in warm.sentence


def test_what_was_tried_for_a_proof_is_a_list_of_rungs_with_what_each_saw_and_when() -> None:
    found = verdict(ANSWERS["blocked"][0])

    assert "db_a" in found.sentence
    assert [(each.what, each.found) for each in found.findings] == [
        (each["what"], each["found"]) for each in UNPROVEN["tried"]
    ]
    assert all(each.at for each in found.findings)


def test_fences_that_failed_besides_are_not_forgotten() -> None:
    other = REMEDY | {"resource": "fence:db_c", "member": "db_c", "reason": "no board"}
    blocked = status("BLOCKED", failure=UNPROVEN, remedies=[REMEDY, other])

    found = verdict(blocked)

    assert "db_a and db_c" in found.sentence
    assert (found.findings[-1].what, found.findings[-1].found) == ("db_c", "no board")


def test_a_group_says_what_its_state_means_and_since_when() -> None:
    found = group_view(status(service=SERVICE | {"status": "DOWN"}))

    assert found.serves == "DOWN"
    assert found.meaning
    assert found.lasting == "1 min 01 s"


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
    assert second.command == "failover confirm-fenced payments db_a --because '...'"
    assert second.condition == "or, once you are sure that db_a is off"


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
    overview("payments", "BLOCKED", service="DEGRADED", reason="no proof", since=NOW - 100),
    overview("shop", held=3, pause=PAUSE),
    overview("stock", "DEFINED", service="OUT_OF_SERVICE", roles={}, since=None),
    overview("tills", service="DOWN", since=NOW - 7),
]


def shown(**query: Any) -> list[str]:
    return [row.name for row in groups_view(ROWS, NOW, Query(**query)).rows]


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({"service": "DOWN"}, State.DOWN),
        ({"service": "DOWN", "status": "BLOCKED", "held": 1}, State.DOWN),
        ({"service": "DOWN", "status": "IN_PROGRESS"}, State.IN_PROGRESS),
        ({"service": "DOWN", "status": "IN_PROGRESS", "held": 1}, State.WAITS),
        ({"service": "DEGRADED", "status": "BLOCKED"}, State.WAITS),
        ({"held": 1}, State.WAITS),
        ({"service": "DEGRADED", "status": "FAILED"}, State.DEGRADED),
        ({"service": "DEGRADED", "lost": ["db_a"]}, State.DEGRADED),
        ({"service": "UNKNOWN", "pause": PAUSE}, State.UNKNOWN),
        ({"service": "SERVING", "status": "IN_PROGRESS"}, State.IN_PROGRESS),
        ({"pause": PAUSE}, State.RESTRICTED),
        ({"lost": ["db_a"]}, State.RESTRICTED),
        ({}, State.SERVING),
        ({"service": "OUT_OF_SERVICE", "roles": {}}, State.OUT_OF_SERVICE),
    ],
)
def test_a_group_is_in_the_state_that_needs_a_person_most(
    row: dict[str, Any], state: State
) -> None:
    (found,) = groups_view([overview(**row)], NOW, Query()).rows

    assert found.state is state


def test_the_groups_that_need_a_person_come_first() -> None:
    states = [
        overview("a", service="OUT_OF_SERVICE"),
        overview("b"),
        overview("c", pause=PAUSE),
        overview("d", "IN_PROGRESS"),
        overview("e", service="UNKNOWN"),
        overview("f", service="DEGRADED"),
        overview("g", held=1),
        overview("h", service="DOWN"),
    ]

    assert [row.name for row in groups_view(states, NOW, Query()).rows] == list("hgfedcba")
    assert shown() == ["tills", "shop", "payments", "ledger", "books", "stock"]


def test_groups_are_sorted_by_name_or_time() -> None:
    assert shown(sort="name") == ["books", "ledger", "payments", "shop", "stock", "tills"]
    assert shown(sort="since")[:2] == ["books", "tills"]


def test_groups_are_filtered_by_text_and_state() -> None:
    assert shown(text="NO PROOF") == ["payments"]
    assert shown(text="disks") == ["shop"]
    assert shown(state=State.WAITS) == ["shop", "payments"]
    assert shown(state=State.DOWN, text="till") == ["tills"]
    assert shown(state=State.DOWN, text="shop") == []
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


@pytest.mark.parametrize("given", [{}, {"state": "x", "sort": "y"}, {"state": "", "sort": ""}])
def test_an_address_without_meaning_counts_as_none(given: dict[str, str]) -> None:
    assert Query.read(given) == Query()
