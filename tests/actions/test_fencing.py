# SPDX-License-Identifier: Apache-2.0
"""The ladder: rung by rung until one yields a proof, and never an assumption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.fencing import Suspect, fence
from mistral_failover.actions.operations import Tools
from mistral_failover.agent.channel import ChannelError, Command, CommandResult
from mistral_failover.cloud import servers
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import LeaseLost
from mistral_failover.cloud.servers import Evidence
from mistral_failover.store.groups import MemberRow

OFF = Evidence(True, "stop", "SHUTOFF")
STILL_ON = Evidence(False, "stop", "still ACTIVE")
GONE = Evidence(True, "delete", "deleted")
NOT_GONE = Evidence(False, "delete", "deleted in the database alone")
MEMBER = MemberRow("db_a", "s-a", 1.0, 4, None)


class Attempt:
    """A climb: what each rung does when it comes to it, and in which order they came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.climbed: list[Any] = []
        self.commands: list[Command] = []
        self.answers: dict[str, Any] = {"quiesce": 0, "stop": OFF, "delete": GONE, "confirm": None}
        monkeypatch.setattr(servers, "stop", self._nova("stop"))
        monkeypatch.setattr(servers, "delete_server", self._nova("delete"))

    def _nova(self, rung: str) -> Callable[..., Any]:
        def verb(cloud: Any, server_id: str, limit: float) -> Any:
            self.climbed.append((rung, server_id, limit))
            return self._answer(rung)

        return verb

    def _answer(self, rung: str) -> Any:
        answer = self.answers[rung]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run(self, command: Command) -> CommandResult:
        """The command channel."""
        self.commands.append(command)
        self.climbed.append(("quiesce", command.server_id, command.limit))
        code = self._answer("quiesce")
        return CommandResult(command.id, code, "", "it hangs", False)

    def confirmed(self) -> str | None:
        """What a person has said by now."""
        self.climbed.append("confirm")
        return self.answers["confirm"]

    def climb(
        self,
        *ladder: str,
        member: MemberRow = MEMBER,
        stops: tuple[str, ...] = ("pg-stop",),
    ) -> dict[str, Any]:
        operation = {
            "key": "k",
            "group": "payments",
            "properties": {"ladder": [{"kind": kind, "limit": 5} for kind in ladder]},
        }
        suspect = Suspect(member, stops, self.confirmed)
        return fence(Tools(None, self), operation, suspect)["attributes"]  # type: ignore[arg-type]


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Attempt:
    return Attempt(monkeypatch)


def test_the_first_proof_ends_the_climb(attempt: Attempt) -> None:
    proof = attempt.climb("quiesce", "stop", "delete", "confirm")

    assert proof == {"rung": "quiesce", "observed": "db_a confirmed: pg-stop"}
    assert attempt.climbed == [("quiesce", "s-a", 5.0)]


NO_PROOF = {
    "quiesce": [
        (ChannelError("NO_ANSWER", "it is silent"), "it is silent"),
        (ChannelError("CONFIG", "no channel"), "no channel"),
        (CloudError("TOKEN_EXPIRED", "no token"), "no token"),
        (1, "pg-stop on db_a ended with 1: it hangs"),
    ],
    "stop": [(STILL_ON, "still ACTIVE"), (CloudError("UNREACHABLE", "no Nova"), "no Nova")],
    "delete": [(NOT_GONE, "in the database alone"), (CloudError("FORBIDDEN", "no"), "no")],
    "confirm": [(None, "nobody has confirmed it yet")],
}
CASES = [(rung, answer, words) for rung, all_ in NO_PROOF.items() for answer, words in all_]


@pytest.mark.parametrize(("rung", "answer", "words"), CASES)
def test_a_rung_without_a_proof_alone_blocks_and_says_what_was_tried(
    attempt: Attempt, rung: str, answer: Any, words: str
) -> None:
    attempt.answers[rung] = answer

    with pytest.raises(ActionError) as caught:
        attempt.climb(rung)

    assert caught.value.code == "FENCE_UNPROVEN"
    assert caught.value.blocked
    assert f"{rung}: " in caught.value.message
    assert words in caught.value.message
    for word in ("failover.confirm_fenced", '"payments"', '"db_a"', "because"):
        assert word in caught.value.remedy


@pytest.mark.parametrize(("rung", "answer", "words"), [c for c in CASES if c[0] != "confirm"])
def test_after_a_rung_without_a_proof_the_next_one_is_climbed(
    attempt: Attempt, rung: str, answer: Any, words: str
) -> None:
    attempt.answers |= {rung: answer, "confirm": "I saw it"}

    proof = attempt.climb(rung, "confirm")

    assert proof == {"rung": "confirm", "observed": "a person confirmed it: I saw it"}


def test_the_rungs_are_climbed_in_the_order_of_the_ladder(attempt: Attempt) -> None:
    attempt.answers |= {"quiesce": 1, "stop": STILL_ON, "delete": NOT_GONE}

    with pytest.raises(ActionError) as caught:
        attempt.climb("delete", "stop", "confirm", "quiesce")

    names = [entry if isinstance(entry, str) else entry[0] for entry in attempt.climbed]
    assert names == ["delete", "stop", "confirm", "quiesce"]
    positions = [caught.value.message.index(f"{name}: ") for name in names]
    assert positions == sorted(positions)


@pytest.mark.parametrize("rung", ["quiesce", "stop", "delete"])
def test_a_lost_lease_ends_the_climb_at_once(attempt: Attempt, rung: str) -> None:
    attempt.answers |= {rung: LeaseLost("gone"), "confirm": "I saw it"}

    with pytest.raises(LeaseLost):
        attempt.climb(rung, "confirm")

    assert "confirm" not in attempt.climbed


def test_a_member_without_a_server_needs_no_climb(attempt: Attempt) -> None:
    proof = attempt.climb("quiesce", member=MemberRow("db_a", None, None, 1, None))

    assert proof == {"rung": "delete", "observed": "db_a has no server any more"}
    assert attempt.climbed == []


def test_everything_that_runs_on_the_member_is_stopped_in_its_epoch(attempt: Attempt) -> None:
    proof = attempt.climb("quiesce", stops=("app-stop", "pg-stop"))

    assert proof["observed"] == "db_a confirmed: app-stop and pg-stop"
    assert [c.name for c in attempt.commands] == ["app-stop", "pg-stop"]
    assert {c.epoch for c in attempt.commands} == {4}
    assert len({c.id for c in attempt.commands}) == 2


def test_a_repeated_climb_sends_the_same_commands(attempt: Attempt) -> None:
    attempt.climb("quiesce")
    attempt.climb("quiesce")

    first, second = attempt.commands
    assert first.id == second.id


def test_where_nothing_of_the_group_ran_quiescing_needs_no_command(attempt: Attempt) -> None:
    assert attempt.climb("quiesce", stops=())["observed"].endswith("was running")
    assert attempt.commands == []


def test_a_person_who_speaks_during_the_climb_is_heard(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(cloud: Any, server_id: str, limit: float) -> Evidence:
        attempt.answers["confirm"] = "I pulled the plug"
        return STILL_ON

    monkeypatch.setattr(servers, "stop", stop)

    proof = attempt.climb("stop", "confirm")

    assert proof["observed"] == "a person confirmed it: I pulled the plug"
