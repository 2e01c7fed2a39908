# SPDX-License-Identifier: Apache-2.0
"""The state store is lost, or a backup of it is loaded: what a group has is found again from the
world, and nothing moves while it is not known. On the real engine with an emulated cloud."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import alarms, groups, orders, recovery, reports
from mistral_failover.actions.agents import Agents
from mistral_failover.agent.channel.emulated import EmulatedChannel
from mistral_failover.runtime.process import Runtime
from mistral_failover.store.tables import metadata
from support.activation import done
from support.operators import Operator
from support.pages import page
from support.waiting import patiently, until

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())
ACTIVE = {"get_param": "active"}
STARTED = {
    "type": "activation",
    "properties": {"member": ACTIVE, "start": "start", "stop": "stop"},
}


def file_of(state: Runtime) -> str:
    return str(state.database.url.database)


def lose(state: Runtime) -> None:
    """Make the store as new."""
    with state.database.engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())


def backup(state: Runtime, file: Path) -> Path:
    """A backup, as docs/backup.md makes it: its last step marks it as one."""
    with closing(sqlite3.connect(file_of(state))) as source, closing(sqlite3.connect(file)) as copy:
        source.backup(copy)
        return file


def mark(file: Path) -> None:
    (statement,) = set(re.findall(r"UPDATE failover_groups[^;]*;", page("backup")))
    with closing(sqlite3.connect(file)) as copy, copy:
        copy.execute(statement)


def restore(state: Runtime, file: Path) -> None:
    with closing(sqlite3.connect(file)) as copy, closing(sqlite3.connect(file_of(state))) as target:
        copy.backup(target)


@contextmanager
def moves_nothing(group: Any) -> Iterator[None]:
    """Nothing in the cloud is changed, and no agent gets a command."""
    since = group.cloud.audit()[-1]["seq"]
    yield
    asked = group.cloud.audit(since, kind="request")
    changes = [
        f"{row['method']} {row['path']}"
        for row in asked
        if row["method"] not in ("GET", "HEAD")
        and "/auth/tokens" not in row["path"]
        and not row["path"].endswith("/preview")
    ]
    assert changes == []


def document(group: Any) -> dict[str, Any]:
    shown = done(reports.Status(group.name, definition=True).run(CONTEXT))
    return dict(shown["definition"]["document"])


def create(group: Any, definition: dict[str, Any], **inputs: Any) -> Any:
    """What failover group create does."""
    done(groups.Define(definition, name=group.name).run(CONTEXT))
    return group.run("activate_first", group=group.name, **inputs)


def is_as_before(group: Any, before: dict[str, Any]) -> None:
    now = group.status()
    for key in ("roles", "stack", "vacant"):
        assert now[key] == before[key], key
    held = [{(h["volume"], h["member"], h["server"]) for h in s["holders"]} for s in (now, before)]
    assert held[0] == held[1]
    assert now["status"] == "COMPLETE"
    servers = [{each["name"]: each["server"] for each in seen["members"]} for seen in (now, before)]
    assert servers[0] == servers[1]


def epochs(group: Any) -> dict[str, int]:
    return {each["name"]: each["epoch"] for each in group.status()["members"]}


def agent_epochs(group: Any) -> dict[str, int]:
    rows = done(Agents(group.name).run(CONTEXT))
    return {row["member"]: row["agent"]["epoch"] for row in rows if row["agent"]}


def fails_over(group: Any) -> None:
    """db_b serves; db_a was fenced, and runs again: its agent knows that."""
    patiently(group, "on_alarm", **group.fails()).assert_succeeded()
    Operator(group.cloud).start_server(group.server("db_a"))
    until(lambda: agent_epochs(group).get("db_a") == 2)


def fails_over_and_recovers(group: Any) -> None:
    """The same, and db_a is healthy again."""
    fails_over(group)
    group.run("failover", group=group.name, lost=[], recovered=["db_a"]).assert_succeeded()


def test_a_group_whose_store_is_lost_is_found_again_where_it_serves(
    group: Any, state: Runtime
) -> None:
    group.activate()
    fails_over_and_recovers(group)
    before, file = group.status(), document(group)
    lose(state)

    create(group, file).assert_succeeded()

    is_as_before(group, before)
    assert (group.holders(), group.runs_on()) == (["db_b"], ["db_b"])
    assert epochs(group)["db_b"] == agent_epochs(group)["db_b"]
    assert epochs(group)["db_a"] == 3, "above what its agent knew"
    group.run("switchover", group=group.name, to="db_a").assert_succeeded()
    assert (group.holders(), group.runs_on()) == (["db_a"], ["db_a"])


def test_a_group_whose_store_is_lost_fails_over_again(group: Any, state: Runtime) -> None:
    group.activate()
    fails_over_and_recovers(group)
    file = document(group)
    lose(state)
    create(group, file).assert_succeeded()

    patiently(group, "on_alarm", **group.fails(member="db_b")).assert_succeeded()

    assert (group.holders(), group.runs_on()) == (["db_a"], ["db_a"])


def test_a_member_that_is_off_is_no_member_that_serves(group: Any, state: Runtime) -> None:
    group.activate()
    patiently(group, "on_alarm", **group.fails()).assert_succeeded()
    before, file = group.status(), document(group)
    lose(state)

    create(group, file).assert_succeeded()

    is_as_before(group, before)
    assert (group.holders(), group.runs_on()) == (["db_b"], ["db_b"])


def test_a_backup_moves_nothing_until_its_groups_begin_again(
    group: Any, state: Runtime, tmp_path: Path
) -> None:
    """Since the backup the group has failed over."""
    group.activate()
    file = backup(state, tmp_path / "backup.sqlite")
    mark(file)
    fails_over_and_recovers(group)
    before, definition = group.status(), document(group)
    restore(state, file)

    with moves_nothing(group):
        nothing_moves(group)
    create(group, definition).assert_succeeded()

    is_as_before(group, before)
    assert (group.holders(), group.runs_on()) == (["db_b"], ["db_b"])
    held = done(alarms.Held(group=group.name).run(CONTEXT))["held"]
    assert {(row["rule"], *row["lost"]) for row in held} == {
        ("restored", "db_a"),
        ("restored", "db_b"),
    }
    done(alarms.DismissHeld(group=group.name, because="both are well").run(CONTEXT))
    assert group.observed()["status"] == "SERVING"


def nothing_moves(group: Any) -> None:
    """Whatever comes: an alarm about each member, a sweep, a look, an order, a plan."""
    for member in group.members:
        alarm = group.cloud.alarm_body(group.server(member))
        group.run("on_alarm", **alarm)
    recovery.Sweep().run(CONTEXT)
    recovery.Sweep(group=group.name).run(CONTEXT)
    recovery.Observe(group.name).run(CONTEXT)
    for order in (
        orders.Begin(group.name, lost=["db_b"]),
        orders.Begin(group.name, definition="defined", lost=[]),
        orders.Switchover(group.name, to="db_b"),
        orders.Failback(group.name, because="it is to go home"),
        orders.Rollback(group.name),
        orders.Remove(group.name),
        orders.Plan(group.name, lost=["db_b"]),
    ):
        answer = order.run(CONTEXT)
        assert isinstance(answer, Result), order
        assert answer.error["code"] == "RESTORED"
        assert "failover group create FILE" in answer.error["remedy"]
    status = group.status()
    assert status["restored"]
    assert status["service"]["status"] == "UNKNOWN"


def test_a_traversal_of_a_backup_is_not_continued(
    group: Any, state: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the backup a failover to db_b had begun. It ended, and the group went home since."""
    group.activate()
    monkeypatch.setattr(state, "eager", False)
    begun = done(orders.Switchover(group.name, to="db_b").run(CONTEXT))
    file = backup(state, tmp_path / "backup.sqlite")
    mark(file)
    monkeypatch.setattr(state, "eager", True)
    group.run("converge", traversal=begun["traversal"]).assert_succeeded()
    group.run("failback", group=group.name).assert_succeeded()
    before, definition = group.status(), document(group)
    restore(state, file)

    with moves_nothing(group):
        recovery.Sweep(group=group.name).run(CONTEXT)
        ended = group.run("converge", traversal=begun["traversal"])
        assert ended.state == "ERROR"
    create(group, definition).assert_succeeded()

    is_as_before(group, before)
    assert (group.holders(), group.runs_on()) == (["db_a"], ["db_a"])


def test_an_agent_that_knows_a_later_epoch_gives_an_unmarked_backup_away(
    group: Any, state: Runtime, tmp_path: Path
) -> None:
    group.activate()
    file = backup(state, tmp_path / "backup.sqlite")
    fails_over_and_recovers(group)
    before, definition = group.status(), document(group)
    restore(state, file)

    with moves_nothing(group):
        refused = orders.Begin(group.name, lost=["db_b"]).run(CONTEXT)
        assert isinstance(refused, Result)
        assert refused.error["code"] == "RESTORED"
        nothing_moves(group)
    create(group, definition).assert_succeeded()

    is_as_before(group, before)
    assert (group.holders(), group.runs_on()) == (["db_b"], ["db_b"])


def test_a_look_that_hears_such_an_agent_marks_the_group(
    group: Any, state: Runtime, tmp_path: Path
) -> None:
    group.activate()
    file = backup(state, tmp_path / "backup.sqlite")
    fails_over(group)
    restore(state, file)

    with moves_nothing(group):
        recovery.Observe(group.name).run(CONTEXT)

    assert group.status()["restored"]
    assert "db_a has epoch 1 there, and its agent knows 2" in " ".join(group.told("restored"))
    (alone,) = [group.status()["reason"]]
    assert "older than what happened since" in alone


@pytest.fixture
def stateless(protect: Callable[..., Any]) -> Any:
    """An application without a volume and without an address."""
    group = protect({"database": STARTED})
    group.cloud.add_application(group.name, start="start", stop="stop", stack=group.name)
    return group


def test_agents_tell_where_an_application_without_a_volume_runs(
    stateless: Any, state: Runtime
) -> None:
    stateless.activate()
    stateless.run("switchover", group=stateless.name, to="db_b").assert_succeeded()
    before, file = stateless.status(), document(stateless)
    lose(state)

    done(groups.Define(file, name=stateless.name).run(CONTEXT))
    refused = stateless.run("activate_first", group=stateless.name, to="db_a")
    assert refused.output["error"]["code"] == "SERVES_ALREADY"
    stateless.run("activate_first", group=stateless.name).assert_succeeded()

    is_as_before(stateless, before)
    assert stateless.runs_on() == ["db_b"]


def test_while_the_agent_that_could_tell_is_not_heard_nothing_is_started(
    stateless: Any, state: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    stateless.activate()
    fails_over(stateless)
    before, file = stateless.status(), document(stateless)
    lose(state)
    hears, silent = EmulatedChannel.heard, stateless.server("db_b")
    monkeypatch.setattr(
        EmulatedChannel,
        "heard",
        lambda channel, to: None if to.server_id == silent else hears(channel, to),
    )

    with moves_nothing(stateless):
        refused = create(stateless, file)
    assert refused.output["error"]["code"] == "SERVES_UNKNOWN"
    assert "db_b" in refused.output["error"]["message"]
    stateless.run("activate_first", group=stateless.name, to="db_b").assert_succeeded()

    assert stateless.status()["roles"] == before["roles"]
    assert stateless.runs_on() == ["db_b"]
