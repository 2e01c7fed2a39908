# SPDX-License-Identifier: Apache-2.0
"""A server that was restarted behind the back of its group: its agent comes back, its application
does not. The group is DOWN, and the application is started again where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import agents
from mistral_failover.agent.channel.emulated import EmulatedChannel
from support.looks import healed, observe, service, volume_of
from support.operators import Operator
from support.waiting import until

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())
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
