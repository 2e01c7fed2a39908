# SPDX-License-Identifier: Apache-2.0
"""The rung ``workflow: name``: a workflow of the user's, what it proves and what it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.agent.channel.interface import CommandResult
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import LeaseLost, NoLongerNeeded
from mistral_failover.mistral.api import Failure, Outcome
from mistral_failover.model.ids import derived_id
from support.fence_attempts import STILL_ON, Attempt, nova_has_it_in, observed


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Attempt:
    return Attempt(monkeypatch)


# -- a workflow of the user's


class Mistral:
    """Mistral, in which a workflow goes through states one look after the other."""

    def __init__(self, *outcomes: Outcome | Exception) -> None:
        self.outcomes = list(outcomes)
        self.failed: Failure | None = None
        self.started: list[tuple[str, str, dict[str, Any]]] = []
        self.ended: list[tuple[str, str]] = []

    def outcome(self, execution: str) -> Outcome | None:
        if not self.started:
            return None
        found = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(found, Exception):
            raise found
        return found

    def start(
        self, execution: str, workflow: str, input: Any, why: str, namespace: str = ""
    ) -> None:
        self.started.append((execution, workflow, dict(input)))

    def failure(self, execution: str) -> Failure | None:
        return self.failed

    def end(self, execution: str, state: str, why: str) -> None:
        self.ended.append((execution, state))


POWER_OFF = {"kind": "workflow", "workflow": "house.power_off", "limit": 5}


def stands(state: str, said: str = "", **output: Any) -> Outcome:
    return Outcome("house.power_off", state, output, said)


def test_a_workflow_proves_by_its_success_and_a_text(attempt: Attempt) -> None:
    attempt.answers["stop"] = STILL_ON
    proven = stands("SUCCESS", proof="BMC of cmp1:\n chassis power is off")
    attempt.mistral = Mistral(stands("RUNNING"), stands("RUNNING"), proven)

    proof = attempt.climb("stop", POWER_OFF, "confirm")

    assert proof == {
        "rung": "workflow",
        "observed": "house.power_off: BMC of cmp1: chassis power is off",
    }
    ((execution, workflow, given),) = attempt.mistral.started
    assert (workflow, execution) == ("house.power_off", derived_id("k", "rung", workflow))
    assert given == {
        "group": "payments",
        "member": "db_a",
        "servers": ["s-a"],
        "because": "db_a is declared lost; stop: still ACTIVE",
    }


NO_POWER_OFF = [
    (stands("SUCCESS"), "is SUCCESS, but its output has no text named proof"),
    (stands("SUCCESS", proof="  "), "has no text named proof"),
    (stands("SUCCESS", proof=True), "has no text named proof"),
    (stands("ERROR", error={"code": "BMC", "message": "no BMC"}), "is ERROR: no BMC"),
    (stands("ERROR", error="no BMC"), "is ERROR: no BMC"),
    (stands("ERROR", "Failure caused by\n task"), "is ERROR: Failure caused by task"),
    (stands("ERROR", "password=geheim"), "is ERROR: password=***"),
    (stands("ERROR", proof="off"), "is ERROR: it gave no reason"),
    (stands("CANCELLED"), "is CANCELLED: it gave no reason"),
    (Outcome("other", "SUCCESS", {"proof": "off"}, ""), "is an execution of other"),
    (CloudError("FORBIDDEN", "not you."), "house.power_off: not you;"),
]


@pytest.mark.parametrize(("outcome", "words"), NO_POWER_OFF)
def test_whatever_else_comes_of_a_workflow_is_no_proof(
    attempt: Attempt, outcome: Any, words: str
) -> None:
    attempt.mistral = Mistral(outcome)

    said = observed(attempt, POWER_OFF)

    assert "workflow: house.power_off" in said
    assert words in said
    assert attempt.mistral.ended == []


def test_the_task_that_failed_is_named_unless_the_workflow_says_why_itself(
    attempt: Attempt,
) -> None:
    for own, words in (({}, "is ERROR: task ask_bmc: no route"), ({"error": "my own"}, "my own")):
        attempt.mistral = Mistral(stands("ERROR", "Failure caused by task", **own))
        attempt.mistral.failed = Failure("ask_bmc", "no route")

        assert words in observed(attempt, POWER_OFF)


def test_a_workflow_that_takes_too_long_is_stopped(attempt: Attempt) -> None:
    attempt.mistral = Mistral(stands("RUNNING"))

    said = observed(attempt, {**POWER_OFF, "limit": 0.02})

    ((execution, state),) = attempt.mistral.ended
    assert state == "CANCELLED"
    assert f"(execution {execution}) is RUNNING after 0.02 s, and was stopped" in said


def test_a_workflow_is_stopped_once_an_operator_confirms_the_fence(attempt: Attempt) -> None:
    class Confirmed(Mistral):
        def outcome(self, execution: str) -> Outcome | None:
            if self.started:
                attempt.answers["confirm"] = "I saw it"
                raise NoLongerNeeded("an operator confirmed the fence")
            return None

    attempt.mistral = Confirmed()

    assert attempt.climb(POWER_OFF, "confirm")["rung"] == "confirm"
    assert [state for _, state in attempt.mistral.ended] == ["CANCELLED"]


def test_one_that_can_not_be_stopped_either_is_told_so(attempt: Attempt) -> None:
    class Stubborn(Mistral):
        def end(self, execution: str, state: str, why: str) -> None:
            raise CloudError("UNREACHABLE", "no Mistral.")

    attempt.mistral = Stubborn(stands("PAUSED"))

    said = observed(attempt, {**POWER_OFF, "limit": 0.02})

    assert "is PAUSED after 0.02 s, and could not be stopped: no Mistral" in said


def test_a_repeated_climb_meets_the_same_execution(attempt: Attempt) -> None:
    attempt.mistral = Mistral(stands("ERROR"))
    for _ in range(2):
        observed(attempt, POWER_OFF)

    assert len(attempt.mistral.started) == 1


def test_without_mistral_s_address_there_is_no_proof(attempt: Attempt) -> None:
    assert "workflow: neither the token nor" in observed(attempt, POWER_OFF)


def test_a_lease_that_is_lost_during_a_workflow_ends_the_climb(attempt: Attempt) -> None:
    attempt.mistral = Mistral(LeaseLost("gone"))

    with pytest.raises(LeaseLost):
        attempt.climb(POWER_OFF)


def test_for_a_proof_that_is_there_no_host_is_switched_off(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova_has_it_in(monkeypatch, "ERROR")
    attempt.mistral = Mistral(stands("SUCCESS", proof="off"))

    assert attempt.climb("quiesce", POWER_OFF, attached=("s-a",))["rung"] == "quiesce"
    assert attempt.mistral.started == []


def test_what_a_command_wrote_goes_into_a_workflow_without_its_secrets(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    class Mistral:
        def outcome(self, execution: str) -> Outcome | None:
            return Outcome("house.off", "SUCCESS", {"proof": "off"}, "") if given else None

        def start(
            self, execution: str, workflow: str, facts: Any, why: str, namespace: str = ""
        ) -> None:
            given.append(facts)

    said = CommandResult("k", 1, "", "no connection: postgres://admin:hunter2@db password=x", False)
    monkeypatch.setattr(attempt, "run", lambda command: said)
    attempt.mistral = Mistral()

    attempt.climb("quiesce", {"kind": "workflow", "workflow": "house.off", "limit": 5})

    assert "no connection" in given[0]["because"]
    assert "hunter2" not in str(given)


def test_what_a_former_worker_started_anew_is_met_as_well(attempt: Attempt) -> None:
    """It may still run: a second one beside it would do its work twice."""
    first = derived_id("k", "rung", POWER_OFF["workflow"])
    begun = {
        first: stands("CANCELLED"),
        derived_id(first, "again"): stands("SUCCESS", proof="off"),
    }
    begun[first] = replace(begun[first], ago=60.0)

    class Mistral:
        def outcome(self, execution: str) -> Outcome | None:
            return begun.get(execution)

        def start(self, execution: str, workflow: str, *more: Any) -> None:
            raise AssertionError("nothing is started")

    attempt.mistral = Mistral()

    assert attempt.climb(POWER_OFF) == {
        "rung": "workflow",
        "observed": "house.power_off: off",
    }


@pytest.mark.parametrize(("ago", "runs"), [(4.0, 0), (6.0, 1)])
def test_what_a_workflow_proved_longer_ago_than_its_limit_is_proved_anew(
    attempt: Attempt, ago: float, runs: int
) -> None:
    begun: dict[str, float] = {derived_id("k", "rung", "house.off"): ago}

    class Mistral:
        def outcome(self, execution: str) -> Outcome | None:
            if execution not in begun:
                return None
            return Outcome("house.off", "SUCCESS", {"proof": "off"}, "", begun[execution])

        def start(
            self, execution: str, workflow: str, facts: Any, why: str, namespace: str = ""
        ) -> None:
            begun[execution] = 0.0

    attempt.mistral = Mistral()

    for _ in range(2):  # a repeat under the same lock meets what it began
        proof = attempt.climb({"kind": "workflow", "workflow": "house.off", "limit": 5})

        assert proof["rung"] == "workflow"
        assert len(begun) == 1 + runs
