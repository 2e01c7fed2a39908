# SPDX-License-Identifier: Apache-2.0
"""Incidents: repeats counted without a lock, what is held, what counts towards a storm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.store import groups, incidents, suspensions, tables
from mistral_failover.store.database import Database
from mistral_failover.store.incidents import OPERATOR, Incident
from support.rows import only_these_change
from support.together import together

BASE = Incident("i", "mine", "g", "aodh", {"lost": "a"}, {}, "HELD", "a sentence", rule="storm")


def add(database: Database, identity: str, **fields: Any) -> Incident:
    incident = replace(BASE, id=identity, **fields)
    database.atomically(lambda tx: incidents.add(tx, incident))
    return incident


def get(database: Database, identity: str) -> Incident:
    found = database.for_project("mine").reading(lambda tx: incidents.get(tx, identity))
    assert found is not None
    return found


def again(database: Database, identity: str, project: str = "mine") -> Any:
    return database.for_project(project).atomically(lambda tx: incidents.count_again(tx, identity))


@pytest.mark.parametrize(
    ("decision", "traversal", "counted"),
    [
        ("IGNORED", None, True),
        ("DISMISSED", None, True),
        ("DUPLICATE", None, True),
        ("ADMITTED", "t", True),
        ("ADMITTED", None, False),
        ("HELD", None, False),
    ],
)
def test_a_repeat_counts_only_on_what_is_decided_for_good(
    database: Database, decision: str, traversal: str | None, counted: bool
) -> None:
    add(database, "i", decision=decision, traversal_id=traversal)
    add(database, "beside", decision="IGNORED")

    with only_these_change(database, tables.incidents, ("id",), *["i"] * counted):
        found = again(database, "i")

    assert found == (("i", traversal) if counted else None)
    assert get(database, "i").duplicates == counted
    assert (get(database, "i").last_at > get(database, "i").first_at) is counted


def test_a_repeat_of_another_project_s_or_of_nothing_counts_on_nothing(database: Database) -> None:
    add(database, "i", decision="IGNORED")

    assert again(database, "i", "theirs") is None
    assert again(database, "none") is None
    assert get(database, "i").duplicates == 0


def test_a_repeat_of_a_duplicate_counts_on_the_first(database: Database) -> None:
    add(database, "first", decision="ADMITTED", traversal_id="t")
    add(database, "other", decision="DUPLICATE", duplicate_of="first")

    assert again(database, "other") == ("first", "t")
    assert get(database, "first").duplicates == 1


def test_no_repeat_is_lost_however_many_come_at_once(database: Database) -> None:
    add(database, "first", decision="ADMITTED", traversal_id="t")
    add(database, "other", decision="DUPLICATE", duplicate_of="first")

    together(8, lambda number: [again(database, ("first", "other")[number % 2]) for _ in range(5)])

    assert get(database, "first").duplicates == 40


def test_an_incident_without_a_group_is_adopted_by_one(database: Database) -> None:
    add(database, "i", group_id=None)

    taken = together(
        4,
        lambda n: database.atomically(lambda tx: incidents.adopt(tx, "i", f"g{n}")),
    )

    assert taken.count(True) == 1
    assert get(database, "i").group_id == f"g{taken.index(True)}"


def test_only_what_is_held_is_dismissed_and_once(database: Database) -> None:
    add(database, "i")
    add(database, "admitted", decision="ADMITTED")

    done = [
        database.for_project("mine").atomically(
            lambda tx, which=which: incidents.dismiss(tx, which, "why")
        )
        for which in ("i", "i", "admitted", "none")
    ]

    assert done == [True, False, False, False]
    assert (get(database, "i").decision, get(database, "i").sentence) == ("DISMISSED", "why")
    assert get(database, "admitted").decision == "ADMITTED"


def test_what_was_reported_again_meanwhile_is_not_dismissed_and_keeps_its_fact(
    database: Database,
) -> None:
    add(database, "i")
    judged = get(database, "i").said
    database.atomically(lambda tx: incidents.report_again(tx, "i"))

    def dismissed(said: int) -> bool:
        return database.for_project("mine").atomically(
            lambda tx: incidents.dismiss(tx, "i", "why", said=said)
        )

    def noted(said: int) -> bool:
        return database.atomically(
            lambda tx: incidents.replace_held_fact(tx, "i", {"lost": "b"}, said=said)
        )

    assert (noted(judged), dismissed(judged)) == (False, False)
    assert (get(database, "i").decision, get(database, "i").fact) == ("HELD", {"lost": "a"})
    latest = get(database, "i").said
    assert (noted(latest), dismissed(latest)) == (True, True)


@pytest.fixture
def still(database: Database) -> Iterator[Database]:
    """The database, whose clock stands still: all happens in one moment."""
    made = Database(database.url, clock=lambda: 1_000_000.0)
    yield made
    made.close()


def latest(database: Database, series: str = "s") -> str | None:
    found = database.reading(lambda tx: incidents.latest_of_series(tx, "g", series))
    return found.id if found else None


def test_the_latest_word_of_a_series_is_the_one_that_was_said_last(still: Database) -> None:
    add(still, "on", series="s", firing=True)
    add(still, "off", series="s", firing=False)
    add(still, "other", series="o")
    add(still, "elsewhere", series="s", group_id="h")

    assert latest(still) == "off"
    still.atomically(lambda tx: incidents.report_again(tx, "on"))
    assert latest(still) == "on"
    again(still, "off")  # nothing is decided on it, so this is no word yet
    assert latest(still) == "on"
    assert latest(still, "none") is None


@pytest.mark.parametrize("first", ["a", "b"])
def test_in_one_moment_the_word_that_came_later_is_the_latest(still: Database, first: str) -> None:
    second = {"a": "b", "b": "a"}[first]
    add(still, first, series="s", decision="IGNORED")
    add(still, second, series="s", decision="IGNORED")
    assert latest(still) == second

    again(still, first)
    assert latest(still) == first

    again(still, second)
    assert latest(still) == second


def test_the_latest_word_is_that_of_the_order_where_a_clock_steps_back(database: Database) -> None:
    add(database, "on", series="s", firing=True)
    earlier = Database(database.url, clock=lambda: 1.0)
    add(earlier, "off", series="s", firing=False)
    earlier.close()

    assert latest(database) == "off"


def test_a_fact_that_another_alarm_tells_of_again_is_no_word_of_the_first_s_series(
    still: Database,
) -> None:
    add(still, "on", series="s", firing=True, decision="ADMITTED", traversal_id="t")
    add(still, "another", series="o", decision="DUPLICATE", duplicate_of="on")
    add(still, "off", series="s", firing=False, decision="IGNORED")

    assert again(still, "another") == ("on", "t")

    assert latest(still) == "off"
    assert get(still, "on").duplicates == 1


def test_of_words_said_at_once_each_has_a_place_of_its_own(still: Database) -> None:
    for name in "abcd":
        add(still, name, series="s", decision="IGNORED")

    together(4, lambda number: [again(still, "abcd"[number]) for _ in range(5)])

    places = {name: get(still, name).said for name in "abcd"}
    assert len(set(places.values())) == 4
    assert latest(still) == max(places, key=lambda name: places[name])


def test_what_waits_is_listed_in_the_order_in_which_it_was_said(still: Database) -> None:
    said = ["c", "a", "b"]
    for name in said:
        add(still, name, decision="ADMITTED")

    def ids(found: list[Incident]) -> list[str]:
        return [incident.id for incident in found]

    assert ids(still.reading(lambda tx: incidents.unstarted_of_group(tx, "g"))) == said
    assert ids(still.reading(lambda tx: incidents.waiting(tx, "g"))) == said
    assert ids(still.for_project("mine").reading(incidents.unstarted)) == said
    assert ids(still.reading(lambda tx: incidents.of_group(tx, "g", 2))) == ["b", "a"]


def test_what_counts_towards_a_storm(database: Database) -> None:
    add(database, "1", group_id="admitted", decision="ADMITTED")
    add(database, "2", group_id="admitted", decision="ADMITTED")
    add(database, "3", group_id="held", rule="cooldown")
    add(database, "4", group_id="expected", rule="paused")
    add(database, "5", group_id="ignored", decision="IGNORED")
    add(database, "6", group_id=None, rule="cooldown")
    add(database, "7", group_id="ordered", decision="ADMITTED", source=OPERATOR)
    add(database, "8", group_id="theirs", decision="ADMITTED", project_id="theirs")

    def failing(ago: float) -> set[str]:
        return database.for_project("mine").reading(
            lambda tx: incidents.failing_since(tx, tx.now() - ago, ("cooldown", "storm"))
        )

    assert failing(60) == {"admitted", "held"}
    assert failing(-60) == set()


def test_the_held_are_listed_latest_first_with_their_groups_names(database: Database) -> None:
    name = {"document": {}, "types": []}
    identity = database.for_project("mine").atomically(
        lambda tx: groups.define(tx, "payments", name)
    )
    add(database, "1", group_id=identity)
    add(database, "2", group_id=None)
    add(database, "3", decision="ADMITTED", group_id=identity)
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
    ids = {}
    for name, priority in (("one", 0), ("two", 7)):
        definition = {"document": {"priority": priority}, "types": []}
        ids[name] = database.for_project("mine").atomically(
            lambda tx, n=name, d=definition: groups.define(tx, n, d)
        )
    event = {"decision": "ADMITTED", "group_id": None, "rule": "host"}
    add(database, "event", **event, fact={"lost": None, "host": "cmp1"})
    add(database, "done", **event, fact={"lost": None, "host": "cmp2"})
    add(database, "c1", group_id=ids["one"], parent="event")
    add(database, "c2", group_id=ids["two"], parent="event")
    add(database, "c3", group_id=ids["one"], parent="event", decision="DUPLICATE")
    add(database, "c4", group_id=ids["one"], parent="done", decision="ADMITTED")

    def read(function: Any) -> Any:
        return database.for_project("mine").reading(function)

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
    assert read(lambda tx: list(incidents.held_of_groups(tx, rules=["paused"]))) == []
    assert read(lambda tx: incidents.events_of_host(tx, "cmp1")) == ["event"]
    theirs = database.for_project("theirs")
    assert theirs.reading(lambda tx: incidents.events_of_host(tx, "cmp1")) == []


def test_a_host_event_itself_waits_for_no_traversal(database: Database) -> None:
    add(database, "event", decision="ADMITTED", group_id=None, rule="host")

    assert database.for_project("mine").reading(incidents.unstarted) == []


def test_what_has_not_begun_is_found_by_its_group(database: Database) -> None:
    add(database, "1", decision="ADMITTED")
    add(database, "2", decision="ADMITTED", traversal_id="t")
    add(database, "3", decision="ADMITTED", source=OPERATOR)
    add(database, "4", decision="ADMITTED", group_id="h")
    add(database, "5")

    found = database.reading(lambda tx: incidents.unstarted_of_group(tx, "g"))

    assert [incident.id for incident in found] == ["1"]


def test_a_duplicate_is_not_shown_beside_the_first(database: Database) -> None:
    add(database, "first", decision="ADMITTED")
    add(database, "other", decision="DUPLICATE", duplicate_of="first")

    shown = database.reading(lambda tx: incidents.of_group(tx, "g", 10))

    assert [incident.id for incident in shown] == ["first"]


# -- pauses and maintenances


@pytest.fixture
def group(database: Database) -> str:
    name = {"document": {}, "types": []}
    return database.for_project("mine").atomically(lambda tx: groups.define(tx, "g", name))


def test_a_group_is_suspended_until_it_is_resumed(database: Database, group: str) -> None:
    def held() -> Any:
        return database.reading(lambda tx: suspensions.of_group(tx, group))

    assert held() == {}
    database.atomically(lambda tx: suspensions.suspend(tx, group, "pause", {"by": "ann"}))
    database.atomically(lambda tx: suspensions.suspend(tx, group, "maintenance", {"by": "bob"}))
    database.atomically(lambda tx: suspensions.suspend(tx, group, "pause", {"by": "cec"}))
    assert held() == {"pause": {"by": "cec"}, "maintenance": {"by": "bob"}}

    database.atomically(lambda tx: suspensions.resume(tx, group))
    assert held() == {}


def test_the_groups_with_a_goal_are_counted_by_project(database: Database, group: str) -> None:
    name = {"document": {}, "types": []}
    for project, other in (("mine", "h"), ("theirs", "g")):
        identity = database.for_project(project).atomically(
            lambda tx, n=other: groups.define(tx, n, name)
        )
        database.atomically(lambda tx, which=identity: tx.swap_traversal(which, None, "t"))

    assert database.for_project("mine").reading(groups.count_with_goal) == 1
    assert database.for_project("unknown").reading(groups.count_with_goal) == 0
    assert database.for_project("unknown").reading(groups.first_of) is None
    assert database.for_project("mine").reading(groups.first_of) in {group, identity} | {
        groups.group_id("mine", "h")
    }
