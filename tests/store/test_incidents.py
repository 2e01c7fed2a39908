# SPDX-License-Identifier: Apache-2.0
"""Incidents: repeats counted without a lock, what is held, what counts towards a storm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.ids import group_id
from mistral_failover.store import groups, incidents, suspensions, tables
from mistral_failover.store.database import Database
from mistral_failover.store.incidents import OPERATOR, Counted, Incident
from mistral_failover.store.suspensions import Maintenance, Pause, Suspensions
from support.rows import only_these_change
from support.together import together

BASE = Incident(
    "i",
    "mine",
    "g",
    "aodh",
    AlarmFact(lost=("a",)),
    {},
    Decision.HELD,
    "a sentence",
    rule=AdmissionRule.STORM,
)


def define(database: Database, name: str, project: str = "mine", **document: Any) -> str:
    return database.for_project(project).atomically(
        lambda tx: groups.define(tx, name, {"document": document, "types": []})
    )


def add(database: Database, identity: str, **fields: Any) -> Incident:
    incident = replace(BASE, id=identity, **fields)
    database.for_project(incident.project_id).atomically(lambda tx: incidents.add(tx, incident))
    return incident


def get(database: Database, identity: str) -> Incident:
    found = database.for_project("mine").reading(lambda tx: incidents.get(tx, identity))
    assert found is not None
    return found


def again(
    database: Database, identity: str, project: str = "mine", *, final: bool = True
) -> Counted | None:
    return database.for_project(project).atomically(
        lambda tx: incidents.count_repeat(tx, identity, final=final)
    )


@pytest.mark.parametrize(
    ("decision", "traversal", "counted"),
    [
        (Decision.IGNORED, None, True),
        (Decision.DISMISSED, None, True),
        (Decision.DUPLICATE, None, True),
        (Decision.ADMITTED, "t", True),
        (Decision.ADMITTED, None, False),
        (Decision.HELD, None, False),
    ],
)
def test_a_repeat_counts_only_on_what_is_decided_for_good(
    database: Database, decision: Decision, traversal: str | None, counted: bool
) -> None:
    add(database, "i", decision=decision, traversal_id=traversal)
    add(database, "beside", decision=Decision.IGNORED)

    with only_these_change(database, tables.incidents, ("id",), *["i"] * counted):
        found = again(database, "i")

    assert found == (Counted("i", traversal) if counted else None)
    assert get(database, "i").duplicates == counted
    assert (get(database, "i").last_at > get(database, "i").first_at) is counted


@pytest.mark.parametrize(
    ("fields", "counted"),
    [
        ({"decision": Decision.ADMITTED}, True),
        ({"decision": Decision.ADMITTED, "source": OPERATOR}, False),
        ({"decision": Decision.ADMITTED, "group_id": None}, False),
        ({"decision": Decision.HELD}, False),
    ],
    ids=["an alarm", "an order", "a host event", "a held alarm"],
)
def test_a_repeat_counts_on_an_alarm_that_is_about_to_begin(
    database: Database, fields: dict[str, Any], counted: bool
) -> None:
    add(database, "i", **fields)
    before = get(database, "i")

    found = again(database, "i", final=False)

    after = get(database, "i")
    assert found == (Counted("i", begin=after) if counted else None)
    assert (after.duplicates, after.said > before.said) == (int(counted), counted)


def test_a_repeat_of_another_project_s_or_of_nothing_counts_on_nothing(database: Database) -> None:
    add(database, "i", decision=Decision.IGNORED)

    assert again(database, "i", "theirs") is None
    assert again(database, "none") is None
    assert get(database, "i").duplicates == 0


def test_a_repeat_of_a_duplicate_counts_on_the_first(database: Database) -> None:
    add(database, "first", decision=Decision.ADMITTED, traversal_id="t")
    add(database, "other", decision=Decision.DUPLICATE, duplicate_of="first")

    assert again(database, "other") == Counted("first", "t")
    assert get(database, "first").duplicates == 1


def test_no_repeat_is_lost_however_many_come_at_once(database: Database) -> None:
    add(database, "first", decision=Decision.ADMITTED, traversal_id="t")
    add(database, "other", decision=Decision.DUPLICATE, duplicate_of="first")

    together(8, lambda number: [again(database, ("first", "other")[number % 2]) for _ in range(5)])

    assert get(database, "first").duplicates == 40


def test_an_incident_without_a_group_is_adopted_by_one(database: Database) -> None:
    add(database, "i", group_id=None)
    mine = database.for_project("mine")

    taken = together(4, lambda n: mine.atomically(lambda tx: incidents.adopt(tx, "i", f"g{n}")))

    assert taken.count(True) == 1
    assert get(database, "i").group_id == f"g{taken.index(True)}"


def test_only_what_is_held_is_dismissed_and_once(database: Database) -> None:
    add(database, "i")
    add(database, "admitted", decision=Decision.ADMITTED)

    def dismissed(which: str) -> bool:
        return database.for_project("mine").atomically(
            lambda tx: incidents.dismiss(tx, which, "why")
        )

    done = [dismissed(which) for which in ("i", "i", "admitted", "none")]

    assert done == [True, False, False, False]
    assert (get(database, "i").decision, get(database, "i").sentence) == ("DISMISSED", "why")
    assert get(database, "admitted").decision == "ADMITTED"


def test_what_was_reported_again_meanwhile_is_not_dismissed_and_keeps_its_fact(
    database: Database,
) -> None:
    add(database, "i")
    judged = get(database, "i").said
    database.for_project("mine").atomically(lambda tx: incidents.report_again(tx, "i"))

    def dismissed(said: int) -> bool:
        return database.for_project("mine").atomically(
            lambda tx: incidents.dismiss(tx, "i", "why", said=said)
        )

    def noted(said: int) -> bool:
        return database.for_project("mine").atomically(
            lambda tx: incidents.replace_held_fact(tx, "i", AlarmFact(lost=("b",)), said=said)
        )

    assert (noted(judged), dismissed(judged)) == (False, False)
    assert (get(database, "i").decision, get(database, "i").fact) == (
        "HELD",
        BASE.fact,
    )
    latest = get(database, "i").said
    assert (noted(latest), dismissed(latest)) == (True, True)


@pytest.fixture
def still(database: Database) -> Iterator[Database]:
    """The database, whose clock stands still: all happens in one moment."""
    made = Database(database.url.render_as_string(hide_password=False), clock=lambda: 1_000_000.0)
    yield made
    made.close()


def latest(database: Database, series: str = "s") -> str | None:
    found = database.for_project("mine").reading(
        lambda tx: incidents.latest_of_series(tx, "g", series)
    )
    return found.id if found else None


def test_the_latest_word_of_a_series_is_the_one_that_was_said_last(still: Database) -> None:
    add(still, "on", series="s", firing=True)
    add(still, "off", series="s", firing=False)
    add(still, "other", series="o")
    add(still, "elsewhere", series="s", group_id="h")

    assert latest(still) == "off"
    still.for_project("mine").atomically(lambda tx: incidents.report_again(tx, "on"))
    assert latest(still) == "on"
    again(still, "off")  # nothing is decided on it, so this is no word yet
    assert latest(still) == "on"
    assert latest(still, "none") is None


@pytest.mark.parametrize("first", ["a", "b"])
def test_in_one_moment_the_word_that_came_later_is_the_latest(still: Database, first: str) -> None:
    second = {"a": "b", "b": "a"}[first]
    add(still, first, series="s", decision=Decision.IGNORED)
    add(still, second, series="s", decision=Decision.IGNORED)
    assert latest(still) == second

    again(still, first)
    assert latest(still) == first

    again(still, second)
    assert latest(still) == second


def test_the_latest_word_is_that_of_the_order_where_a_clock_steps_back(database: Database) -> None:
    add(database, "on", series="s", firing=True)
    earlier = Database(database.url.render_as_string(hide_password=False), clock=lambda: 1.0)
    add(earlier, "off", series="s", firing=False)
    earlier.close()

    assert latest(database) == "off"


def test_a_fact_that_another_alarm_tells_of_again_is_no_word_of_the_first_s_series(
    still: Database,
) -> None:
    add(still, "on", series="s", firing=True, decision=Decision.ADMITTED, traversal_id="t")
    add(still, "another", series="o", decision=Decision.DUPLICATE, duplicate_of="on")
    add(still, "off", series="s", firing=False, decision=Decision.IGNORED)

    assert again(still, "another") == Counted("on", "t")

    assert latest(still) == "off"
    assert get(still, "on").duplicates == 1


def test_of_words_said_at_once_each_has_a_place_of_its_own(still: Database) -> None:
    for name in "abcd":
        add(still, name, series="s", decision=Decision.IGNORED)

    together(4, lambda number: [again(still, "abcd"[number]) for _ in range(5)])

    places = {name: get(still, name).said for name in "abcd"}
    assert len(set(places.values())) == 4
    assert latest(still) == max(places, key=lambda name: places[name])


def test_what_waits_is_listed_in_the_order_in_which_it_was_said(still: Database) -> None:
    said = ["c", "a", "b"]
    for name in said:
        add(still, name, decision=Decision.ADMITTED)

    def ids(found: list[Incident]) -> list[str]:
        return [incident.id for incident in found]

    read = still.for_project("mine").reading
    assert ids(read(lambda tx: incidents.unstarted_of_group(tx, "g"))) == said
    assert ids(read(lambda tx: incidents.waiting(tx, "g"))) == said
    assert ids(read(incidents.unstarted)) == said
    assert ids(read(lambda tx: incidents.of_group(tx, "g", 2))) == ["b", "a"]


def test_what_counts_towards_a_storm(database: Database) -> None:
    add(database, "1", group_id="admitted", decision=Decision.ADMITTED)
    add(database, "2", group_id="admitted", decision=Decision.ADMITTED)
    add(database, "3", group_id="held", rule=AdmissionRule.COOLDOWN)
    add(database, "4", group_id="expected", rule=AdmissionRule.PAUSED)
    add(database, "5", group_id="ignored", decision=Decision.IGNORED)
    add(database, "6", group_id=None, rule=AdmissionRule.COOLDOWN)
    add(database, "7", group_id="ordered", decision=Decision.ADMITTED, source=OPERATOR)
    add(database, "8", group_id="theirs", decision=Decision.ADMITTED, project_id="theirs")

    rules = (AdmissionRule.COOLDOWN, AdmissionRule.STORM)

    def failing(ago: float) -> set[str]:
        return database.for_project("mine").reading(
            lambda tx: incidents.failing_since(tx, tx.now() - ago, rules)
        )

    assert failing(60) == {"admitted", "held"}
    assert failing(-60) == set()


def test_the_held_are_listed_latest_first_with_their_groups_names(database: Database) -> None:
    identity = define(database, "payments")
    add(database, "1", group_id=identity)
    add(database, "2", group_id=None)
    add(database, "3", decision=Decision.ADMITTED, group_id=identity)
    add(database, "4", project_id="theirs")

    def listed(group: str | None, limit: int = 9) -> tuple[int, list[tuple[str, str | None]]]:
        total, rows = database.for_project("mine").reading(
            lambda tx: incidents.held_alarms(tx, group, limit)
        )
        return total, [(row.incident.id, row.group) for row in rows]

    assert listed(None) == (2, [("2", None), ("1", "payments")])
    assert listed(None, 1) == (2, [("2", None)])
    assert listed(identity) == (1, [("1", "payments")])


def test_a_host_event_is_listed_once_in_place_of_its_held_children(database: Database) -> None:
    priorities = {"one": 0, "two": 7}
    ids = {name: define(database, name, priority=each) for name, each in priorities.items()}
    event = {"decision": Decision.ADMITTED, "group_id": None, "rule": AdmissionRule.HOST}
    add(database, "event", **event, fact=AlarmFact(host="cmp1"))
    add(database, "done", **event, fact=AlarmFact(host="cmp2"))
    add(database, "c1", group_id=ids["one"], parent="event")
    add(database, "c2", group_id=ids["two"], parent="event")
    add(database, "c3", group_id=ids["one"], parent="event", decision=Decision.DUPLICATE)
    add(database, "c4", group_id=ids["one"], parent="done", decision=Decision.ADMITTED)

    read = database.for_project("mine").reading
    total, rows = read(lambda tx: incidents.held_alarms(tx, None, 9))
    _, mine = read(lambda tx: incidents.held_alarms(tx, ids["one"], 9))

    assert (total, [(row.incident.id, row.children) for row in rows]) == (1, [("event", 2)])
    assert [row.incident.id for row in mine] == ["c1"]
    children = read(lambda tx: incidents.children_of(tx, "event"))
    assert [(each.id, group) for each, group in children] == [
        ("c1", "one"),
        ("c3", "one"),
        ("c2", "two"),
    ]
    held = read(lambda tx: list(incidents.held_of_groups(tx, parents=["event"])))
    assert [(row.incident.id, row.group, row.priority) for row in held] == [
        ("c1", "one", 0),
        ("c2", "two", 7),
    ]
    assert read(lambda tx: list(incidents.held_of_groups(tx, rules=[AdmissionRule.PAUSED]))) == []
    assert read(lambda tx: incidents.events_of_host(tx, "cmp1")) == ["event"]
    theirs = database.for_project("theirs")
    assert theirs.reading(lambda tx: incidents.events_of_host(tx, "cmp1")) == []


def test_a_host_event_itself_waits_for_no_traversal(database: Database) -> None:
    add(database, "event", decision=Decision.ADMITTED, group_id=None, rule=AdmissionRule.HOST)

    assert database.for_project("mine").reading(incidents.unstarted) == []


def test_what_has_not_begun_is_found_by_its_group(database: Database) -> None:
    add(database, "1", decision=Decision.ADMITTED)
    add(database, "2", decision=Decision.ADMITTED, traversal_id="t")
    add(database, "3", decision=Decision.ADMITTED, source=OPERATOR)
    add(database, "4", decision=Decision.ADMITTED, group_id="h")
    add(database, "5")

    found = database.for_project("mine").reading(lambda tx: incidents.unstarted_of_group(tx, "g"))

    assert [incident.id for incident in found] == ["1"]


def test_a_duplicate_is_not_shown_beside_the_first(database: Database) -> None:
    add(database, "first", decision=Decision.ADMITTED)
    add(database, "other", decision=Decision.DUPLICATE, duplicate_of="first")

    shown = database.for_project("mine").reading(lambda tx: incidents.of_group(tx, "g", 10))

    assert [incident.id for incident in shown] == ["first"]


# -- pauses and maintenances


@pytest.fixture
def group(database: Database) -> str:
    return define(database, "g")


def test_a_group_is_suspended_until_it_is_resumed(database: Database, group: str) -> None:
    ann: Pause = {"by": "ann", "because": "", "since": 0.0}
    bob: Maintenance = {"by": "bob", "because": "", "since": 0.0, "until": 1.0, "members": []}
    cec: Pause = {"by": "cec", "because": "", "since": 0.0}

    mine = database.for_project("mine")

    def held() -> Suspensions:
        return mine.reading(lambda tx: suspensions.of_group(tx, group))

    assert held() == {}
    mine.atomically(lambda tx: suspensions.suspend(tx, group, "pause", ann))
    mine.atomically(lambda tx: suspensions.suspend(tx, group, "maintenance", bob))
    mine.atomically(lambda tx: suspensions.suspend(tx, group, "pause", cec))
    assert held() == {"pause": cec, "maintenance": bob}

    mine.atomically(lambda tx: suspensions.resume(tx, group))
    assert held() == {}


def test_the_groups_with_a_goal_are_counted_by_project(database: Database, group: str) -> None:
    for project, other in (("mine", "h"), ("theirs", "g")):
        identity = define(database, other, project)
        database.atomically(lambda tx: tx.swap_traversal(identity, None, "t", "d"))  # noqa: B023

    assert database.for_project("mine").reading(groups.count_with_goal) == 1
    assert database.for_project("unknown").reading(groups.count_with_goal) == 0
    assert database.for_project("unknown").reading(groups.first_of) is None
    assert database.for_project("mine").reading(groups.first_of) in {group, identity} | {
        group_id("mine", "h")
    }
