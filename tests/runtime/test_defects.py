# SPDX-License-Identifier: Apache-2.0
"""An error that no code expects fails what it is about at once, is logged with its traceback and
without secrets, is counted, and is shown by the doctor and the status."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext
from sqlalchemy.exc import OperationalError, ProgrammingError

from mistral_failover import defects
from mistral_failover.actions import doctor, reports
from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.records import Ready
from mistral_failover.defects import defect
from mistral_failover.model.stages import Stage
from mistral_failover.recovery import advance
from mistral_failover.resources import modules, worker
from mistral_failover.runtime.errors import ActionError, caught
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.runtime.workers import Timers
from mistral_failover.store import defects as defects_in_store
from support.waiting import until

SECRET = "gAAAAABmSecretSecretSecretSecret"
DATA = {
    "data": {
        "type": "volume_attachment",
        "properties": {"volume": "data", "server": {"get_param": "active"}},
    }
}


class Broken:
    """An operation with a defect."""

    calls = 0

    @classmethod
    def operate(cls, *_: Any) -> dict[str, Any]:
        cls.calls += 1
        raise TypeError(f"unsupported operand: token {SECRET}")


def done(*_: Any) -> dict[str, Any]:
    """One without."""
    return {"physical_id": "p"}


def raising_once(real: Callable[..., Any]) -> Callable[..., Any]:
    """Raise at the first call."""
    left = [1]

    def function(*args: Any, **kwargs: Any) -> Any:
        if left:
            left.pop()
            raise TypeError("unsupported operand")
        return real(*args, **kwargs)

    return function


def always(*_args: Any, **_kwargs: Any) -> Any:
    raise TypeError("unsupported operand")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A defect at one place in the life of a node."""
    monkeypatch.setattr(modules, "operation", lambda _type, _name: done)
    monkeypatch.setattr(worker, "under_lease", lambda _request, _guard: None)
    monkeypatch.setattr(Broken, "calls", 0)
    match request.param:
        case "the operation":
            monkeypatch.setattr(modules, "operation", lambda _type, _name: Broken.operate)
        case "its preparation":
            monkeypatch.setattr(worker, "operation_document", always)
        case "the check of its node":
            monkeypatch.setattr(Engine, "check", always)
        case "its conclusion":
            monkeypatch.setattr(Engine, "conclude", raising_once(Engine.conclude))


@pytest.mark.parametrize(
    "broken",
    ["the operation", "its preparation", "the check of its node", "its conclusion"],
    indirect=True,
)
@pytest.mark.usefixtures("broken")
def test_a_type_error_fails_the_node_at_once_and_is_not_tried_again(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    caplog: pytest.LogCaptureFixture,
) -> None:
    ready = started(resources=DATA)
    began = time.monotonic()

    answer = advance.advance(Request(state, context), ready.traversal_id, Stage.END, hold=False)

    assert isinstance(answer, Result)
    assert answer.error["code"] == "FAILED"
    assert "TypeError" in answer.error["message"]
    assert time.monotonic() - began < 30
    assert Broken.calls <= 1
    status = reports.Status("payments").run(context)
    assert status["waiting"] == []
    failure = status["failure"]  # none of a node that could not even be checked
    assert failure is None or failure["code"] == "UNEXPECTED"
    assert "Traceback" in caplog.text
    assert SECRET not in caplog.text


def test_it_is_counted_and_shown_to_those_whose_work_it_was(
    state: Runtime, context: ActionContext, context_of: Callable[..., ActionContext], begun: Ready
) -> None:
    request = Request(state, context)
    assert request.project_id

    for _ in range(2):
        request.caught(TypeError(SECRET), "judging a test")
    assert state.defects.settle(30)

    (sentence,) = [
        each for each in reports.Status("payments").run(context)["defects"] if "a test" in each
    ]
    assert sentence.startswith("TypeError at ?")
    assert "2 times" in sentence
    found = doctor.Doctor().run(context)["findings"]
    (shown,) = [
        each for each in found if each["check"] == "defects" and "a test" in each["sentence"]
    ]
    assert shown["level"] == "warn"
    label = {"doing": "judging a test", "error": "TypeError"}
    rows = reports.Metrics().run(context)["families"]["defects"]
    assert [each["value"] for each in rows if each["labels"] == label] == [2]
    others = doctor.Doctor().run(context_of("another project"))["findings"]
    assert not [each for each in others if "judging a test" in each["sentence"]]


def test_one_of_no_project_is_in_the_metrics_of_each(
    state: Runtime, context: ActionContext
) -> None:
    caught(TypeError("odd"), "keeping some lease")
    assert state.defects.settle(30)

    rows = reports.Metrics().run(context)["families"]["defects"]
    assert [each["value"] for each in rows if "some lease" in each["labels"]["doing"]] == [1]


def test_what_can_not_be_recorded_keeps_no_other_from_it(
    state: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = defects_in_store._count

    def count(found: defects.Defect, *more: Any) -> None:
        if found.doing == "an odd one":
            raise ValueError("no such column")
        real(found, *more)

    monkeypatch.setattr(defects_in_store, "_count", count)
    for doing in ("an odd one", "an ordinary one"):
        caught(TypeError("odd"), doing)
        assert state.defects.settle(30)

    shown = defects_in_store.lately(state.database.for_project("any"))
    assert [each.doing for each in shown if each.doing.endswith("one")] == ["an ordinary one"]


def test_a_statement_that_the_store_does_not_take_is_not_repeated(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = []
    real = Engine.conclude

    def conclude(*given: Any) -> Any:
        tries.append(given)
        if len(tries) == 1:
            raise ProgrammingError("UPDATE", {}, Exception(1054, "unknown column"))
        return real(*given)

    monkeypatch.setattr(modules, "operation", lambda _type, _name: done)
    monkeypatch.setattr(worker, "under_lease", lambda _request, _guard: None)
    monkeypatch.setattr(Engine, "conclude", conclude)

    ready = started(resources=DATA)
    answer = advance.advance(Request(state, context), ready.traversal_id, Stage.END, hold=False)

    assert isinstance(answer, Result)
    assert "STORE_ERROR" in answer.error["message"]
    assert len(tries) == 2, "the outcome, and that it could not be recorded"


@pytest.mark.parametrize(
    "error",
    [
        ActionError("NOT_ADMITTED", "it is not admitted", ""),
        OperationalError("SELECT 1", {}, Exception(2013, "lost connection")),
    ],
)
def test_a_refusal_or_a_store_that_is_away_is_no_defect(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caught(error, "judging no defect")

    assert "Defect" not in caplog.text


def test_one_that_is_raised_again_is_recorded_once(caplog: pytest.LogCaptureFixture) -> None:
    error = TypeError("odd")

    caught(error, "judging one twice")
    caught(error, "sweeping")

    assert caplog.text.count("Defect while") == 1


def test_it_names_the_innermost_place_in_this_package() -> None:
    found: list[defects.Defect] = []

    class Recorder:
        def record(self, each: defects.Defect) -> None:
            found.append(each)

    recorder = Recorder()
    defects.recorders.add(recorder)
    try:
        Timers().after("soon", lambda: None)  # type: ignore[arg-type]
    except TypeError as error:
        defect(error, "putting something off")

    (one,) = found
    assert (one.project_id, one.doing, one.error) == ("", "putting something off", "TypeError")
    assert one.place.startswith("runtime/workers.py:")


def test_a_thread_that_it_happens_in_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    timers, later = Timers(), threading.Event()

    timers.after(0, lambda: 1 / 0)
    timers.after(0.01, later.set)

    assert later.wait(30)
    until(lambda: "ZeroDivisionError" in caplog.text)
