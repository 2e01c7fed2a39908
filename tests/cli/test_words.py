# SPDX-License-Identifier: Apache-2.0
"""What the commands say to people, without a server: no Python, one full stop, plurals."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from cliff.lister import Lister
from cliff.show import ShowOne
from openstack.exceptions import SDKException
from rich.console import Console, Group

from mistral_failover.cli import base, connection, doctor, order, show_pages, status_screen
from mistral_failover.cli.main import FailoverApp
from mistral_failover.mistral.client import MistralError
from mistral_failover.model.text import counted
from support import ui_answers


class One(base.ActionCommand, ShowOne):
    """Shows one thing."""

    def take_action(self, _: Any) -> tuple[list[str], list[Any]]:
        return ["group", "seconds"], ["payments", None]


class Many(base.ActionCommand, Lister):
    """Shows a row."""

    def take_action(self, _: Any) -> tuple[list[str], list[Any]]:
        return ["group", "seconds"], [["payments", None]]


class App:
    """What a command of cliff's knows of its application."""

    def __init__(self) -> None:
        self.stdout = io.StringIO()


@pytest.mark.parametrize("kind", [One, Many])
def test_people_read_a_dash_where_machines_get_null(kind: type[Any]) -> None:
    told = {}
    for formatter in ("table", "json"):
        command = kind(App(), None)
        command.run(command.get_parser("failover").parse_args(["-f", formatter]))
        told[formatter] = command.app.stdout.getvalue()

    assert "None" not in told["table"]
    assert "| -" in told["table"]
    assert "null" in told["json"]


@pytest.mark.parametrize(
    "error",
    [
        MistralError("CONFIG", "No channel is configured.", "Set it."),
        MistralError("CONFIG", "No channel is configured", "Set it."),
        SDKException("Cloud nope was not found."),
    ],
)
def test_a_sentence_has_one_full_stop(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(_: Any) -> Any:
        raise error

    monkeypatch.setattr(connection, "_client", fails)

    with pytest.raises(connection.CommandFailed) as said, connection.mistral(None):
        pass

    assert ".. " not in str(said.value)
    assert any(words in str(said.value) for words in ("configured. Set it. [", "found. Give --"))


def test_one_thing_is_told_in_the_singular() -> None:
    command = doctor.Doctor(FailoverApp(), None)
    command.app.stdout = io.StringIO()
    words = command.get_parser("failover doctor").parse_args([])

    command.produce_output(words, (), [["error", "store", None, "it is away", ""]])

    assert command.app.stdout.getvalue().endswith("1 finding: 1 error, 0 warnings\n")
    assert counted(2, "time") == "2 times"


def shown(incident: dict[str, Any]) -> str:
    """The page of ``failover show`` of an incident."""
    stream = io.StringIO()
    found = {"executions": {"trees": [], "left_out": ""}, **incident}
    Console(file=stream, width=200).print(show_pages.page(found))
    return stream.getvalue()


def test_how_often_an_alarm_was_heard_is_told_in_both_places() -> None:
    alarm = ui_answers.held(heard=1)
    incident = ui_answers.host_event([], heard=1)

    assert "heard 1 time, last" in status_screen.facts(ui_answers.status(), [alarm])["held"]
    assert "1 time, last" in shown(incident)


def test_the_alarm_of_a_host_says_of_each_group_why_it_is_held() -> None:
    reason = {"sentence": "3 of 6 groups failed", "evidence": "Nova does not answer"}
    children = [ui_answers.child("ledger", **reason), ui_answers.child("shop", sentence="")]

    page = shown(ui_answers.host_event(children, admit="failover admit 0"))

    assert "3 of 6 groups failed; the storm guard still holds it: Nova does not answer" in page
    assert "shop" in page
    assert "failover admit 0" in page


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_result_of_a_failed_step_is_not_squeezed_into_a_column(width: int) -> None:
    words = "it is not proven that db_a has stopped writing. To confirm it: failover confirm-fenced"
    row = {"key": "fa2120c3-0000", "verb": "create", "resource": "fence:db_a", "member": None}
    row |= {"attempts": 1, "started_at": 9.0, "seconds": 123.0, "result": words}
    stream = io.StringIO()

    Console(file=stream, width=width).print(Group(*show_pages._operations([row])))

    lines = stream.getvalue().splitlines()
    assert len(lines) < 10
    assert any("confirm-fenced" in line for line in lines)


class Terminal(io.StringIO):
    """A terminal on which a person types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("took", "looks"), [(0.0, 1), (60.0, 3)])
def test_who_answers_late_is_asked_again_if_a_sign_has_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], took: float, looks: int
) -> None:
    """First the agent is silent; it is heard again while the operator thinks."""
    now, seen = [0.0], []
    monkeypatch.setattr(order, "SIGNS_COUNT", 15.0)
    monkeypatch.setattr(order.time, "monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stdin", Terminal("y\ny\n"))

    def look() -> Any:
        seen.append(now[0])
        now[0] += took
        alive = len(seen) > 1
        sign = {"about": "agent", "says": "heard", "ago": 7.0, "alive": alive}
        words = {"afterwards": "", "sentence": "Two may write."}
        return {"group": "g", "member": "db_a", "signs": [sign], **words}

    read = Terminal.readline

    def answers(self: Terminal, *args: Any) -> str:
        now[0] += took
        return read(self, *args)

    monkeypatch.setattr(Terminal, "readline", answers)
    order.confirm_by_signs(look, "Is db_a certainly off")

    said = capsys.readouterr().err
    assert len(seen) == looks
    assert said.count("certainly off?") == max(1, looks - 1)
    assert ("This has changed" in said) == (looks > 1)
    assert "agent: heard (7.0 s ago)" in said
    assert re.search(r"as far as it is known at [0-9:]{8} UTC:", said)
