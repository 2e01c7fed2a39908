# SPDX-License-Identifier: Apache-2.0
"""Groups, members and incidents, by project."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.records import Action, Record, Status
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import Decision
from mistral_failover.model.group import Group
from mistral_failover.store import groups, incidents
from mistral_failover.store.database import Database
from mistral_failover.store.incidents import OPERATOR, Incident
from mistral_failover.store.transaction import ProjectTransaction, SqlTransaction
from support.together import together
from support.world import type_file


def definition(*types: str, resources: dict[str, Any] | None = None) -> dict[str, Any]:
    document = {
        "failover_template_version": "2026-11-21",
        "stack": "s",
        "members": {"servers": ["a", "b"]},
        "resources": resources or {},
    }
    return {"document": document, "types": [type_file(name) for name in types]}


def define(database: Database, project: str, name: str, *types: str) -> str:
    return database.for_project(project).atomically(
        lambda tx: groups.define(tx, name, definition(*types))
    )


def types_of(database: Database, identity: str) -> list[str]:
    stored = database.reading(lambda tx: tx.definition(identity))
    return sorted(document["name"] for document in stored["types"])


@pytest.fixture
def group(database: Database) -> str:
    return define(database, "mine", "g", "x", "y")


def test_names_that_differ_in_case_alone_are_different(database: Database) -> None:
    small, capital = define(database, "mine", "db"), define(database, "mine", "DB")

    assert small != capital
    assert sorted(database.for_project("mine").reading(groups.names)) == ["DB", "db"]
    found = database.for_project("mine").reading(lambda tx: groups.find(tx, "DB"))
    assert found is not None
    assert found.id == capital


def test_names_may_be_written_in_any_script(database: Database) -> None:
    define(database, "mine", "données-\N{CJK UNIFIED IDEOGRAPH-4E2D}-\N{SNOWMAN}\U0001f600")

    assert database.for_project("mine").reading(groups.names) == ["données-中-☃😀"]


def test_a_group_that_many_define_at_once_is_defined_once(database: Database) -> None:
    ids = together(6, lambda n: define(database, "mine", "g", f"t{n}"))

    assert len(set(ids)) == 1
    assert database.for_project("mine").reading(groups.names) == ["g"]


def test_a_changed_definition_takes_effect_at_once(database: Database, group: str) -> None:
    parsed = Definitions()

    def read() -> Group:
        def find(tx: ProjectTransaction) -> Group:
            found = groups.find(tx, "g")
            assert found is not None
            return parsed.group(tx, found)

        return database.for_project("mine").reading(find)

    assert {"x", "y"} <= set(read().types)
    assert read() is read()
    define(database, "mine", "g", "z")
    assert "z" in read().types
    assert "x" not in read().types


def test_types_that_live_records_need_stay_defined(database: Database, group: str) -> None:
    live = Record(id="r", group_id=group, name="r", type="x")
    gone = Record(id="s", group_id=group, name="s", type="y", action=Action.DELETE)

    def insert(tx: SqlTransaction) -> None:
        tx.insert_records((live,), tx.now())
        tx.insert_records((gone,), tx.now())

    database.atomically(insert)

    define(database, "mine", "g", "z")
    assert types_of(database, group) == ["x", "z"]

    define(database, "mine", "g", "x")
    assert types_of(database, group) == ["x"]


# -- members


def replaced(database: Database, group: str, *seen: tuple[str, str]) -> list[groups.ReplacedMember]:
    return database.for_project("mine").atomically(
        lambda tx: groups.record_members(tx, group, [(name, server, 1.5) for name, server in seen])
    )


def members(database: Database, group: str) -> dict[str, groups.MemberRow]:
    return database.for_project("mine").reading(lambda tx: groups.members_of(tx, group))


def see(
    database: Database, group: str, *seen: tuple[str, str]
) -> dict[str, tuple[str | None, int]]:
    replaced(database, group, *seen)
    return {name: (row.server_id, row.epoch) for name, row in members(database, group).items()}


def test_another_server_behind_a_known_name_raises_the_epoch(
    database: Database, group: str
) -> None:
    assert see(database, group, ("a", "s1"), ("b", "s2")) == {"a": ("s1", 1), "b": ("s2", 1)}
    assert see(database, group, ("a", "s1")) == {"a": ("s1", 1), "b": ("s2", 1)}
    assert see(database, group, ("a", "s3")) == {"a": ("s3", 2), "b": ("s2", 1)}
    assert database.reading(lambda tx: tx.epochs(group)) == {"a": 2, "b": 1}


def test_who_was_replaced_is_told_once_with_the_server_before_and_the_new_epoch(
    database: Database, group: str
) -> None:
    assert replaced(database, group, ("a", "s1"), ("b", "s2")) == []
    assert replaced(database, group, ("a", "s1"), ("b", "s2")) == []

    database.atomically(lambda tx: tx.raise_epochs(group, ["a"]))

    assert replaced(database, group, ("a", "s3"), ("b", "s2")) == [
        groups.ReplacedMember("a", "s1", 3)
    ]
    assert replaced(database, group, ("a", "s3"), ("b", "s2")) == []


def test_a_replacement_that_many_see_at_once_raises_the_epoch_once(
    database: Database, group: str
) -> None:
    together(6, lambda n: see(database, group, ("a", "s1"), ("b", "s2")))
    assert see(database, group) == {"a": ("s1", 1), "b": ("s2", 1)}

    told = together(6, lambda n: replaced(database, group, ("a", "new")))
    assert sorted(told, key=len)[:-1] == [[]] * 5
    assert see(database, group) == {"a": ("new", 2), "b": ("s2", 1)}


def test_a_look_that_is_older_than_what_is_known_changes_nothing(
    database: Database, group: str
) -> None:
    def late(server: str, before: dict[str, groups.MemberRow]) -> list[groups.ReplacedMember]:
        seen = [("a", server, 1.5), ("new", "s9", 1.5)]
        return database.for_project("mine").atomically(
            lambda tx: groups.record_members(tx, group, seen, before)
        )

    none = members(database, group)
    see(database, group, ("a", "s1"))
    first = members(database, group)
    see(database, group, ("a", "s2"))

    for before in (none, first):
        with pytest.raises(groups.StaleObservation, match="a was replaced"):
            late("s1", before)
    assert see(database, group) == {"a": ("s2", 2)}

    assert late("s2", first) == [], "what is known by now may be seen by anybody"
    assert late("s3", members(database, group)) == [groups.ReplacedMember("a", "s2", 3)]


def test_members_whose_names_differ_in_case_alone_are_different(
    database: Database, group: str
) -> None:
    assert see(database, group, ("db", "s1"), ("DB", "s2")) == {"db": ("s1", 1), "DB": ("s2", 1)}


def test_a_persons_word_holds_for_the_epoch_it_was_given_in(database: Database, group: str) -> None:
    def word() -> str | None:
        return members(database, group)["a"].confirmed_because

    def confirm(member: str) -> bool:
        return database.for_project("mine").atomically(
            lambda tx: groups.confirm_fenced(tx, group, member, "seen off")
        )

    see(database, group, ("a", "s1"))
    assert word() is None
    assert confirm("a")
    assert confirm("a"), "again, with the same words"
    assert word() == "seen off"
    database.atomically(lambda tx: tx.raise_epochs(group, ["a"]))
    assert word() is None
    assert confirm("a")
    assert word() == "seen off"
    assert not confirm("unknown")


def holds(database: Database, group: str, member: str, **more: Any) -> None:
    record = Record(id=f"r-{member}", group_id=group, name="r", type="x", member=member, **more)
    database.atomically(lambda tx: tx.insert_records((record,), tx.now()))


def leave(database: Database, group: str, *seen: str, listed: bool = True) -> dict[str, int]:
    """Let the members leave that the cloud does not show; returns the epochs of the others."""
    database.for_project("mine").atomically(
        lambda tx: groups.leave(tx, group, seen if listed else None)
    )
    return {name: row.epoch for name, row in members(database, group).items()}


def test_a_deleted_group_has_no_members_and_their_epochs_go_on(
    database: Database, group: str
) -> None:
    see(database, group, ("a", "s1"), ("b", "s2"), ("c", "s3"))
    database.atomically(lambda tx: tx.raise_epochs(group, ["a", "b"]))
    project = database.for_project("mine")
    project.atomically(lambda tx: groups.forget(tx, group))
    define(database, "mine", "g", "x")

    assert members(database, group) == {}
    assert project.reading(groups.members_in) == []
    assert project.reading(lambda tx: groups.member_of_server(tx, "s1")) is None
    assert database.reading(lambda tx: tx.epochs(group)) == {}

    assert replaced(database, group, ("a", "new"), ("b", "s2")) == [
        groups.ReplacedMember("a", "s1", 3)
    ]
    assert see(database, group) == {"a": ("new", 3), "b": ("s2", 2)}


def test_a_member_that_no_group_file_names_leaves_once_it_holds_nothing(
    database: Database, group: str
) -> None:
    see(database, group, ("a", "s1"), ("b", "s2"), ("c", "s3"), ("d", "s4"))
    holds(database, group, "c")
    holds(database, group, "d", action=Action.DELETE, status=Status.COMPLETE)

    assert leave(database, group).keys() == {"a", "b", "c"}
    assert see(database, group, ("d", "s5"))["d"] == ("s5", 2)


def test_members_of_an_autoscaling_group_leave_when_the_cloud_shows_them_no_more(
    database: Database,
) -> None:
    scaled = {"document": {"members": {"autoscaling_group": "db"}}, "types": []}
    group = database.for_project("mine").atomically(lambda tx: groups.define(tx, "g", scaled))
    see(database, group, ("a", "s1"), ("b", "s2"))

    assert leave(database, group, listed=False).keys() == {"a", "b"}, "the cloud was not asked"
    assert leave(database, group, "a").keys() == {"a"}


def test_a_goal_that_names_a_member_that_left_brings_it_back_with_its_epoch(
    database: Database, group: str
) -> None:
    see(database, group, ("a", "s1"), ("c", "s3"))
    database.atomically(lambda tx: tx.raise_epochs(group, ["c"]))
    assert leave(database, group) == {"a": 1}

    database.atomically(lambda tx: tx.return_members(group, ["a", "c", "unknown"]))
    database.atomically(lambda tx: tx.return_members(group, ["c"]))

    assert see(database, group) == {"a": ("s1", 1), "c": ("s3", 2)}


def test_a_server_of_two_groups_is_found_in_the_one_that_is_named(
    database: Database, group: str
) -> None:
    second = database.for_project("mine").atomically(lambda tx: groups.define(tx, "h", {}))
    see(database, group, ("a", "s1"))
    see(database, second, ("b", "s1"))

    def behind(name: str | None) -> tuple[str, str] | None:
        return database.for_project("mine").reading(
            lambda tx: groups.member_of_server(tx, "s1", name)
        )

    assert [behind(None), behind("g"), behind("h"), behind("i")] == [
        ("g", "a"),
        ("g", "a"),
        ("h", "b"),
        None,
    ]


# -- incidents


def incident(identity: str, **fields: Any) -> Incident:
    first = Incident(
        identity, "mine", "g", "aodh", AlarmFact(lost=("a",)), {}, Decision.ADMITTED, "because"
    )
    return replace(first, **fields)


def add(database: Database, *several: Incident) -> None:
    own = database.for_project("mine")
    for one in several:
        own.atomically(lambda tx: incidents.add(tx, one))  # noqa: B023 - run at once


def get(database: Database, identity: str, project: str = "mine") -> Incident | None:
    return database.for_project(project).reading(lambda tx: incidents.get(tx, identity))


def test_duplicates_that_come_at_once_are_all_counted(database: Database) -> None:
    add(database, incident("i"))

    own = database.for_project("mine")
    together(8, lambda n: own.atomically(lambda tx: incidents.count_duplicate(tx, "i")))

    known = get(database, "i")
    assert known is not None
    assert known.duplicates == 8


def test_an_incident_causes_at_most_one_traversal(database: Database) -> None:
    add(database, incident("i"), incident("held", decision=Decision.HELD))
    own = database.for_project("mine")
    assert [one.id for one in own.reading(incidents.unstarted)] == ["i"]

    for traversal in ("t1", "t2"):
        own.atomically(lambda tx: incidents.link(tx, "i", traversal))  # noqa: B023

    known = get(database, "i")
    assert known is not None
    assert known.traversal_id == "t1"
    assert own.reading(incidents.unstarted) == []


def test_a_decision_is_replaced(database: Database) -> None:
    add(database, incident("i", decision=Decision.HELD))

    database.for_project("mine").atomically(
        lambda tx: incidents.decide(tx, "i", Decision.ADMITTED, "an operator said so")
    )

    known = get(database, "i")
    assert known is not None
    assert (known.decision, known.sentence) == ("ADMITTED", "an operator said so")


def test_only_admitted_alarms_count_towards_the_limits(database: Database) -> None:
    add(
        database,
        incident("alarm"),
        incident("held", decision=Decision.HELD),
        incident("person", source=OPERATOR),
        incident("elsewhere", group_id="h"),
    )

    def since(at: float) -> list[float]:
        return database.for_project("mine").reading(
            lambda tx: incidents.admitted_alarms_since(tx, "g", at)
        )

    assert len(since(0)) == 1
    assert since(database.reading(lambda tx: tx.now()) + 1) == []
    latest = database.for_project("mine").reading(lambda tx: incidents.of_group(tx, "g", 2))
    assert len(latest) == 2
    assert latest[0].first_at >= latest[1].first_at, "newest first"


def test_of_two_groups_that_are_defined_at_the_same_moment_one_reads_the_other(
    kind: str, database: Database
) -> None:
    both = threading.Barrier(2)

    def see(name: str) -> list[str]:
        attempts = itertools.count()

        def store(tx: ProjectTransaction) -> list[str]:
            groups.define(tx, name, definition())
            if kind == "server" and next(attempts) == 0:  # SQLite's writers take turns
                both.wait(30)
            return [other for other in groups.documents(tx, locked=True) if other != name]

        return database.for_project("p").atomically(store)

    with ThreadPoolExecutor(2) as pool:
        seen = list(pool.map(see, ("one", "two")))

    assert sorted(seen) in ([[], ["one"]], [[], ["two"]])
