# SPDX-License-Identifier: Apache-2.0
"""A type of your own, tested without a cloud: its group file, its workflows, a whole traversal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mistral_lib.actions import Result

from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.loop import run
from mistral_failover.convergence.records import Operation, Outcome
from mistral_failover.embedded.validate import validate
from mistral_failover.model.goal import render_goal
from mistral_failover.model.group import Group, parse_group
from mistral_failover.store import groups, schema
from mistral_failover.store.database import Database

HERE = Path(__file__).parent
WORKFLOWS = (HERE / "point_name.yaml", HERE / "remove_name.yaml")
URL = "http://dns.example.org/records/payments.example.org"


@pytest.fixture
def group() -> Group:
    """The group file, read together with the type."""
    types = [(HERE / "house_name.yaml").read_text(encoding="utf-8")]
    return parse_group((HERE / "group.yaml").read_text(encoding="utf-8"), types=types)


@pytest.fixture
def names(workflow: Any) -> Any:
    """The engine with the example's workflows in it."""
    for path in WORKFLOWS:
        workflow.load(path)
    return workflow


def operation(target: str = "db_b") -> dict[str, Any]:
    """As much of an operation as these workflows read."""
    return {
        "properties": {
            "service": "http://dns.example.org/records",
            "record": "payments.example.org",
            "target": target,
        },
        "resource": {"physical_id": "payments.example.org"},
    }


def test_the_workflows_obey_the_house_rules() -> None:
    assert validate(WORKFLOWS, strict=True) == []


def test_the_name_follows_the_application_and_never_vanishes(group: Group, tmp_path: Path) -> None:
    assert history(group, Database(f"sqlite:///{tmp_path / 'state.sqlite'}")) == [
        "create database db_a",
        "create name db_a",
        "create fence:db_a db_a",
        "delete database db_a",
        "create database db_b",
        "update name db_b",
    ]


def test_pointing_a_name_puts_the_whole_record(names: Any) -> None:
    names.replace("std.http", {"status": 200})

    ended = names.run("example.point_name", {"operation": operation()})

    ended.assert_succeeded()
    assert ended.output == {
        "physical_id": "payments.example.org",
        "attributes": {"target": "db_b"},
    }
    (call,) = names.calls("std.http")
    assert (call["method"], call["url"], call["json"]) == ("PUT", URL, {"target": "db_b"})


def test_a_service_that_stumbles_is_asked_again(names: Any) -> None:
    names.replace("std.http", sequence=[Result(error={"status": 503}), {"status": 200}])

    names.run("example.point_name", {"operation": operation()}).assert_succeeded()


def test_a_service_that_refuses_fails_the_operation_with_a_code(names: Any) -> None:
    names.replace("std.http", Result(error={"status": 403}))

    ended = names.run("example.point_name", {"operation": operation()})

    ended.assert_failed_with("DNS_REFUSED")
    assert len(names.calls("std.http")) == 3


def test_removing_a_name_that_is_not_there_succeeds(names: Any) -> None:
    names.replace("std.http", Result(error={"status": 404}))

    names.run("example.remove_name", {"operation": operation()}).assert_succeeded()


def test_a_name_that_can_not_be_removed_fails_the_operation(names: Any) -> None:
    names.replace("std.http", Result(error={"status": 500}))

    ended = names.run("example.remove_name", {"operation": operation()})

    ended.assert_failed_with("DNS_REFUSED")


def history(group: Group, database: Database) -> list[str]:
    """What an activation on db_a and then a failover away from it carry out, one after the other.

    The core runs without Mistral: a queue of ready nodes, and operations that only take notes.
    """
    done: list[str] = []

    def note(operation: Operation) -> Outcome:
        where = operation.properties.get("member") or operation.properties.get("target")
        done.append(f"{operation.ticket.verb} {operation.record.name} {where}")
        return Outcome(physical_id=operation.record.name)

    def define(tx: Any) -> str:
        stored = {"document": group.definition, "types": [group.types["house_name"].to_dict()]}
        identity = groups.define(tx, group.name, stored)
        groups.record_members(tx, identity, [(m, f"server of {m}", None) for m in ("db_a", "db_b")])
        return identity

    schema.upgrade(database)
    identity = database.for_project("project").atomically(define)
    engine = Engine(database, lease=30.0)
    current = None
    for number, (active, lost) in enumerate([("db_a", []), ("db_b", ["db_a"])]):
        goal = render_goal(group, {"active": active}, lost)
        traversal = f"traversal {number}"
        started = engine.start(
            identity, goal, traversal_id=traversal, expected=current, cause="a test"
        )
        run(engine, started.ready, note, owner="test")
        current = traversal
    return done
