# SPDX-License-Identifier: Apache-2.0
"""An alarm that a group file names follows its member."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import recovery
from mistral_failover.reports.advice import advice
from support.operators import Operator

_numbers = itertools.count(1)
ACTIVE = {"get_param": "active"}
NOBODY = "0b5e9d2c-9a4f-4e0f-9a53-0d5f0c1e7a12"
DATABASE = {
    "type": "activation",
    "properties": {"member": ACTIVE, "start": "start", "stop": "stop"},
}


def watch(alarm: str, server: Any = ACTIVE) -> dict[str, Any]:
    """The resource for an alarm."""
    properties = {"alarm": alarm, "server": server}
    return {"type": "alarm", "depends_on": "database", "properties": properties}


@dataclass
class Watched:
    """A group whose file names an alarm."""

    group: Any
    operator: Operator
    name: str
    alarm: str

    def watched(self) -> list[str]:
        """The members whose servers the alarm watches; else their ids."""
        servers = {self.group.server(member): member for member in self.group.members}
        found = self.operator.watched(self.alarm)
        return [servers.get(each, each) for each in found]

    def observe(self) -> list[dict[str, Any]]:
        """Look at the group now; the rows about what has changed."""
        context = ActionContext(SecurityContext(), ExecutionContext())
        rows = recovery.Observe(self.group.name).run(context)
        assert isinstance(rows, list), rows
        return rows

    def heal(self) -> str:
        """Look, and run the workflow that is to be started; what was seen."""
        (row,) = [row for row in self.observe() if row["heal"]]
        heal = row["heal"]
        self.group.workflows.run(heal["workflow"], heal["input"], timeout=60).assert_succeeded()
        return str(row["sentence"])


@pytest.fixture
def defined(protect: Callable[..., Any], cloud: Any) -> Callable[..., Watched]:
    """Make a group with an alarm; ``named``: whether the file has its name, not its id."""

    def make(server: Any = ACTIVE, *, named: bool = True, **more: Any) -> Watched:
        operator, name = Operator(cloud), f"lost{next(_numbers)}"
        alarm = operator.make_alarm(name, "payments", NOBODY)
        resources = {"database": DATABASE, "watch": watch(name if named else alarm, server)}
        group = protect(resources, **more)
        group.cloud.add_application(group.name, start="start", stop="stop", stack=group.name)
        return Watched(group, operator, name, alarm)

    return make


@pytest.fixture
def serving(defined: Callable[..., Watched]) -> Watched:
    """A group that serves on db_a, watched by its alarm, and was seen to."""
    made = defined()
    assert made.group.activate()["status"] == "COMPLETE"
    assert made.group.observed()["status"] == "SERVING"
    return made


def test_the_alarm_follows_the_active_member_and_nothing_else_of_it_changes(
    defined: Callable[..., Watched],
) -> None:
    made = defined(named=False)
    made.operator.set_alarm(made.alarm, severity="critical", repeat_actions=True)
    before = made.operator.alarm(made.alarm)

    made.group.activate()
    assert made.watched() == ["db_a"]
    made.group.run("switchover", group=made.group.name).assert_succeeded()
    assert made.watched() == ["db_b"]
    made.group.run("rollback", group=made.group.name).assert_succeeded()
    assert made.watched() == ["db_a"]

    after = made.operator.alarm(made.alarm)
    assert {key: value for key, value in after.items() if key != "event_rule"} == {
        key: value for key, value in before.items() if key != "event_rule"
    }
    (state, instance) = after["event_rule"]["query"]
    assert state == before["event_rule"]["query"][0]
    assert instance["value"] == made.group.server("db_a")


def test_after_a_failover_the_alarm_watches_the_new_active_server_and_can_fire_again(
    serving: Watched,
) -> None:
    serving.operator.set_alarm(serving.alarm, state="alarm")
    body = serving.group.fails()

    serving.group.run("on_alarm", **body).assert_succeeded()

    assert serving.watched() == ["db_b"]
    assert serving.operator.alarm(serving.alarm)["state"] == "insufficient data"


def test_an_alarm_that_was_pointed_elsewhere_is_repaired_within_one_look(serving: Watched) -> None:
    """Then the loss of the active server fails over."""
    group = serving.group
    serving.operator.point_alarm(serving.alarm, NOBODY)

    seen = serving.heal()

    assert seen == (
        f"{group.name} is DEGRADED: watch: alarm {serving.name} watches server {NOBODY}, not db_a"
    )
    assert serving.watched() == ["db_a"]
    assert group.runs_on() == ["db_a"]
    assert group.observed()["status"] == "SERVING"
    assert any("drift observed" in cause for cause in group.traversals())
    group.run("on_alarm", **group.fails()).assert_succeeded()
    assert group.runs_on() == ["db_b"]
    assert serving.watched() == ["db_b"]


def test_what_changes_the_alarm_back_is_not_followed_at_once(serving: Watched) -> None:
    serving.operator.point_alarm(serving.alarm, NOBODY)
    serving.heal()
    assert serving.group.observed()["status"] == "SERVING"
    serving.operator.point_alarm(serving.alarm, NOBODY)

    (row,) = serving.observe()

    assert (row["service"], row["heal"]) == ("DEGRADED", None)


def test_an_alarm_is_only_reported_where_the_group_says_so(
    defined: Callable[..., Watched],
) -> None:
    made = defined(heal="report")
    made.group.activate()
    made.operator.point_alarm(made.alarm, NOBODY)

    (row,) = made.observe()

    assert (row["service"], row["heal"]) == ("DEGRADED", None)


def test_an_alarm_that_is_gone_is_reported_and_missed_by_no_failover(serving: Watched) -> None:
    group = serving.group
    serving.operator.delete_alarm(serving.alarm)

    (row,) = serving.observe()
    assert (row["service"], row["heal"]) == ("DEGRADED", None)
    assert "does not exist" in row["sentence"]
    group.run("switchover", group=group.name).assert_succeeded()
    assert group.runs_on() == ["db_b"]
    assert group.observed()["status"] == "DEGRADED"

    serving.alarm = serving.operator.make_alarm(serving.name, group.name, NOBODY)
    serving.heal()
    assert serving.watched() == ["db_b"]
    assert group.observed()["status"] == "SERVING"


def test_the_command_about_an_alarm_that_is_gone_gives_the_group_another_one(
    defined: Callable[..., Watched],
) -> None:
    made = defined(named=False)
    group = made.group
    group.activate()
    made.operator.delete_alarm(made.alarm)
    group.observed()
    (shown,) = (each.command for each in advice(group.status()))
    assert shown == "failover group update FILE"

    made.alarm = made.operator.make_alarm(made.name, group.name, NOBODY)
    group.redefine({"database": DATABASE, "watch": watch(made.alarm)})
    group.run("activate_first", group=group.name).assert_succeeded()

    assert made.watched() == ["db_a"]
    assert group.observed()["status"] == "SERVING"


def test_a_disabled_alarm_is_reported_with_the_command_that_helps(serving: Watched) -> None:
    serving.operator.set_alarm(serving.alarm, enabled=False)

    (row,) = serving.observe()

    assert (row["service"], row["heal"]) == ("DEGRADED", None)
    (shown,) = (each.command for each in advice(serving.group.status()))
    assert shown == f"openstack alarm update --enabled True {serving.alarm}"


def test_an_alarm_whose_resource_leaves_the_goal_stays_as_it_is(serving: Watched) -> None:
    group, before = serving.group, serving.operator.alarm(serving.alarm)
    group.redefine({"database": DATABASE})

    group.run("activate_first", group=group.name).assert_succeeded()
    group.run("switchover", group=group.name).assert_succeeded()

    assert serving.operator.alarm(serving.alarm) == before


def test_an_alarm_of_a_certain_member_keeps_watching_it(defined: Callable[..., Watched]) -> None:
    made = defined(server="db_b")
    made.group.activate()
    made.group.run("switchover", group=made.group.name).assert_succeeded()

    assert made.watched() == ["db_b"]


def test_an_aodh_that_is_away_for_a_moment_is_waited_for(serving: Watched) -> None:
    group = serving.group
    group.cloud.api_fault("alarm_update", status=503, times=2)
    group.cloud.api_fault("alarm_list", status=503, times=2)

    group.run("switchover", group=group.name).assert_succeeded()

    assert serving.watched() == ["db_b"]


def test_an_aodh_that_forbids_the_change_stops_no_failover_and_is_told(serving: Watched) -> None:
    group = serving.group
    group.cloud.api_fault("alarm_update", status=403, times=100)

    group.run("switchover", group=group.name).assert_succeeded()

    assert serving.watched() == ["db_a"]
    (reason,) = group.observed()["reasons"]
    assert "[FORBIDDEN]" in reason
    group.cloud.clear_api_faults()
    group.run("switchover", group=group.name).assert_succeeded()
    serving.operator.point_alarm(serving.alarm, NOBODY)
    (reason,) = group.observed()["reasons"]
    assert "[FORBIDDEN]" not in reason


def test_several_alarms_of_a_name_are_not_chosen_from(serving: Watched) -> None:
    group = serving.group
    other = serving.operator.make_alarm(serving.name, "payments", NOBODY)

    group.run("switchover", group=group.name).assert_succeeded()

    assert serving.operator.watched(other) == [NOBODY]
    (reason,) = group.observed()["reasons"]
    assert f"has 2 alarms with the name {serving.name}" in reason


def test_the_doctor_looks_at_the_alarms_of_the_group_file(serving: Watched) -> None:
    def said() -> list[tuple[str, str]]:
        rows = serving.group.examined_all("alarms")
        return [(row["level"], row["sentence"]) for row in rows][1:]

    name, operator = serving.name, serving.operator
    assert said() == [("ok", f"watch: alarm {name} can follow its member")]
    operator.set_alarm(serving.alarm, enabled=False)
    assert said() == [("warn", f"watch: alarm {name} is disabled, so it does not fire")]
    operator.set_alarm(serving.alarm, enabled=True, event_rule={"event_type": "*", "query": []})
    ((level, sentence),) = said()
    assert (level, "names no server" in sentence) == ("warn", True)
    operator.delete_alarm(serving.alarm)
    ((level, sentence),) = said()
    assert (level, "[NOT_FOUND]" in sentence) == ("error", True)
