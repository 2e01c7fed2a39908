# SPDX-License-Identifier: Apache-2.0
"""An application that ended behind the back of its group: its server was restarted, and its agent
came back alone; or it died in a guest that runs. The group is DOWN, and the application is started
again where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import agents
from mistral_failover.agent.channel.emulated import EmulatedChannel
from mistral_failover.recovery import observe as observing
from support.looks import healed, observe, service, volume_of
from support.operators import Operator
from support.waiting import until

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())
ENDED = "it has ended: the check of its start command does not find it any more"
RESTARTED = "its server was restarted, and it was not started there since"


@pytest.fixture
def serving(group: Any) -> Any:
    """A group that serves on db_a, and was seen to."""
    group.activate()
    observe(group)
    assert service(group) == ("SERVING", [])
    return group


def declare(group: Any, **more: Any) -> None:
    """Say more of the application of the group's guests."""
    name = group.name
    group.cloud.add_application(
        name, start="start", stop="stop", needs_volume=True, stack=name, **more
    )


def stop_and_start(operator: Operator, server: str) -> None:
    operator.stop_server(server)
    operator.act(server, "os-start")


RESTARTS: dict[str, Callable[[Operator, str], object]] = {
    "stop and start": stop_and_start,
    "reboot": lambda operator, server: operator.act(server, "reboot"),
    "rebuild": lambda operator, server: operator.act(server, "rebuild"),
    "resize": lambda operator, server: resize(operator, server),
}


def resize(operator: Operator, server: str) -> None:
    operator.act(server, "resize")
    operator.act(server, "confirmResize")


def restart(group: Any, operator: Operator, how: str = "reboot") -> None:
    RESTARTS[how](operator, group.server("db_a"))
    until(lambda: group.cloud.guests()[group.server("db_a")]["answers"])


def runs(group: Any) -> bool:
    return group.name in group.cloud.guests()[group.server("db_a")]["applications"]


@pytest.mark.parametrize("how", RESTARTS)
def test_an_application_that_a_restart_ended_is_started_again(
    serving: Any, operator: Operator, how: str
) -> None:
    restart(serving, operator, how)
    assert not runs(serving)

    run = healed(serving)

    assert run.state == "SUCCESS"
    assert runs(serving)
    assert serving.runs_on() == ["db_a"], "nothing moved"
    assert observe(serving)[0]["service"] == "SERVING"
    assert service(serving) == ("SERVING", [])


def test_what_only_reports_says_so_and_names_the_command_that_starts_it(
    protect: Callable[..., Any], operator: Operator
) -> None:
    group = protect(heal="report")
    group.activate()
    restart(group, operator)

    (row,) = observe(group)

    assert (row["service"], row["heal"]) == ("DOWN", None)
    said = group.status()["service"]
    assert (said["status"], said["reasons"]) == ("DOWN", [f"database on db_a: {RESTARTED}"])
    group.run("sweep", group=group.name).assert_succeeded()
    until(lambda: runs(group))
    until(lambda: service(group) == ("SERVING", []))


def test_a_pause_holds_it_back_until_it_is_over(serving: Any, operator: Operator) -> None:
    serving.run("pause", group=serving.name, because="we work on it")
    restart(serving, operator)
    (row,) = observe(serving)
    assert (row["service"], row["heal"]) == ("DOWN", None)
    serving.run("resume", group=serving.name, because="done").assert_succeeded()

    assert healed(serving).state == "SUCCESS"
    assert runs(serving)


def test_an_application_that_starts_by_itself_serves(serving: Any, operator: Operator) -> None:
    """Its check says so, which is better evidence than the boot."""
    declare(serving, status="status", at_boot=True)
    restart(serving, operator)
    assert runs(serving)

    assert observe(serving) == []

    assert service(serving) == ("SERVING", [])


def test_an_application_without_a_check_that_starts_by_itself_is_started_all_the_same(
    serving: Any, operator: Operator
) -> None:
    declare(serving, at_boot=True)
    restart(serving, operator)

    assert healed(serving).state == "SUCCESS"

    assert observe(serving)[0]["service"] == "SERVING"


def test_it_is_not_started_while_something_else_that_it_serves_by_is_missing(
    serving: Any, operator: Operator
) -> None:
    restart(serving, operator)
    operator.detach(volume_of(serving), serving.server("db_a"))

    (row,) = observe(serving)

    assert (row["service"], row["heal"]) == ("DOWN", None)


def test_an_agent_that_does_not_tell_its_boot_is_believed_as_before(
    serving: Any, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = EmulatedChannel.heard

    def as_before(channel: Any, to: Any) -> Any:
        beat = heard(channel, to)
        return beat and replace(beat, boot=None, in_effect=())

    monkeypatch.setattr(EmulatedChannel, "heard", as_before)
    restart(serving, operator)

    assert observe(serving) == []


def test_the_agents_of_the_group_say_that_the_server_was_restarted(
    serving: Any, operator: Operator
) -> None:
    restart(serving, operator)

    rows = agents.Agents(serving.name).run(CONTEXT)

    (row,) = (row for row in rows if row["member"] == "db_a")
    assert RESTARTED in row["sentence"]
    assert row["agent"]["boot"] is not None


def test_only_the_server_whose_application_was_cut_off_is_concerned(
    serving: Any, operator: Operator
) -> None:
    operator.act(serving.server("db_b"), "reboot")

    assert observe(serving) == []


def checked(protect: Callable[..., Any], **more: Any) -> Any:
    """A group that serves on db_a, whose start command has a check, and was seen to."""
    group = protect(**more)
    declare(group, status="status")
    group.activate()
    observe(group)
    assert service(group) == ("SERVING", [])
    return group


def kill(group: Any) -> None:
    group.cloud.fault("server", group.server("db_a"), "app")
    assert not runs(group)


def test_an_application_that_died_is_down_and_the_advised_command_starts_it(
    protect: Callable[..., Any],
) -> None:
    group = checked(protect, heal="report")
    kill(group)

    (row,) = observe(group)

    assert (row["service"], row["heal"]) == ("DOWN", None)
    assert service(group) == ("DOWN", [f"database on db_a: {ENDED}"])
    group.run("sweep", group=group.name).assert_succeeded()
    until(lambda: runs(group))
    until(lambda: service(group) == ("SERVING", []))
    assert group.runs_on() == ["db_a"], "nothing moved"


def test_an_application_that_died_is_healed_each_time(
    protect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "REPAIR_WELL", 0.0)
    group = checked(protect)
    kill(group)

    assert healed(group).state == "SUCCESS"

    assert runs(group)
    assert observe(group)[0]["service"] == "SERVING"
    kill(group)
    assert healed(group).state == "SUCCESS", "the start that came after was found, too"


def test_without_a_check_only_the_projects_own_alarm_finds_it(serving: Any) -> None:
    kill(serving)

    assert observe(serving) == []

    assert service(serving) == ("SERVING", [])


def test_in_a_pause_an_operator_may_stop_it_by_hand(protect: Callable[..., Any]) -> None:
    group = checked(protect)
    group.run("pause", group=group.name, because="a new release of it")
    kill(group)

    (row,) = observe(group)

    assert (row["service"], row["heal"]) == ("DOWN", None)
    assert not runs(group)


def test_what_cannot_be_started_where_it_was_fails_over_if_the_group_says_so(
    protect: Callable[..., Any],
) -> None:
    group = checked(protect, heal="failover")
    group.cloud.fault("server", group.server("db_a"), "misconfigured")
    kill(group)
    assert healed(group).state == "ERROR", "the start command failed"
    assert group.runs_on() == []

    assert healed(group).state == "SUCCESS"

    assert group.runs_on() == ["db_b"]


def test_what_ends_again_soon_fails_over_if_the_group_says_so(
    protect: Callable[..., Any],
) -> None:
    group = checked(protect, heal="failover")
    kill(group)
    assert healed(group).state == "SUCCESS"
    assert group.runs_on() == ["db_a"]
    assert observe(group)[0]["service"] == "SERVING"
    kill(group)

    assert healed(group).state == "SUCCESS"

    assert group.runs_on() == ["db_b"]


def test_the_repair_of_something_else_is_no_reason_to_move(
    protect: Callable[..., Any], operator: Operator
) -> None:
    group = checked(protect, heal="failover")
    operator.update_stack(group.name, active="none")
    assert healed(group).state == "SUCCESS"
    observe(group)
    kill(group)

    (row,) = observe(group)

    assert (row["service"], row["heal"]) == ("DOWN", None)


@pytest.mark.parametrize(
    ("order", "ended", "member"),
    [("on_alarm", "FAILED", "db_b"), ("switchover", "RETURNED", "db_a")],
)
def test_an_order_that_did_not_end_well_keeps_no_application_from_being_healed(
    protect: Callable[..., Any], order: str, ended: str, member: str
) -> None:
    group = checked(protect)
    group.cloud.api_fault("stack_patch", "fail")
    words = group.fails() if order == "on_alarm" else {"group": group.name, "to": "db_b"}
    group.run(order, **words).assert_failed_with(ended)
    assert group.runs_on() == [member]
    observe(group)
    group.cloud.fault("server", group.server(member), "app")

    assert healed(group).state == "SUCCESS"

    assert group.runs_on() == [member]
