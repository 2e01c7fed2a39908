# SPDX-License-Identifier: Apache-2.0
"""The ladder: rung by rung until one yields a proof, and never an assumption."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from mistral_failover.agent.channel.interface import ChannelError, Command, CommandResult, Heartbeat
from mistral_failover.cloud import servers
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import Evidence, ServerState
from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.runtime.errors import ActionError, describe
from support.fence_attempts import NOT_GONE, OFF, STILL_ON, Attempt, nova_has_it_in, observed


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Attempt:
    return Attempt(monkeypatch)


def test_the_first_proof_ends_the_climb(attempt: Attempt) -> None:
    proof = attempt.climb("quiesce", "stop", "delete", "confirm")

    assert proof == {"rung": "quiesce", "observed": "db_a confirmed: pg-stop"}
    assert attempt.climbed == ["confirm", ("quiesce", "s-a", 5.0)]


def test_a_member_that_nova_has_in_error_is_stopped_though_it_quiesced(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova_has_it_in(monkeypatch, "ERROR")

    proof = attempt.climb("quiesce", "stop", "confirm", attached=("s-a",))

    assert proof["rung"] == "stop"


def test_without_a_further_proof_its_word_counts_all_the_same(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova_has_it_in(monkeypatch, "ERROR")
    attempt.answers["stop"] = STILL_ON

    assert attempt.climb("quiesce", "stop", attached=("s-a",))["rung"] == "quiesce"


def test_for_a_proof_that_is_there_no_server_is_deleted(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova_has_it_in(monkeypatch, "ERROR")
    attempt.answers["stop"] = STILL_ON

    proof = attempt.climb("quiesce", "stop", "delete", attached=("s-a",))

    assert proof["rung"] == "quiesce"
    assert [rung for rung, *_ in attempt.climbed if rung == "delete"] == []


def test_a_member_that_nova_has_in_no_error_is_left_running(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova_has_it_in(monkeypatch, "ACTIVE")

    assert attempt.climb("quiesce", "stop", attached=("s-a",))["rung"] == "quiesce"


def test_a_nova_that_does_not_answer_takes_nothing_from_a_member_s_word(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(cloud: Any, server: str) -> ServerState:
        raise CloudError("UNREACHABLE", "no Nova")

    monkeypatch.setattr(servers, "server_state", silent)

    assert attempt.climb("quiesce", "stop", attached=("s-a",))["rung"] == "quiesce"


NO_PROOF = {
    "quiesce": [
        (ChannelError("NO_ANSWER", "it is silent"), "did not answer for 5 s"),
        (
            ChannelError("UNKNOWN_OUTCOME", "it may have run."),
            "quiesce: it may have run. Check on db_a whether",
        ),
        (ChannelError("CONFIG", "no channel"), "no channel"),
        (1, "pg-stop on db_a ended with 1: it hangs"),
        (OverflowError("10**400"), "the command channel failed (OverflowError)"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), "failed (UnicodeEncodeError)"),
    ],
    "stop": [(STILL_ON, "still ACTIVE"), (CloudError("HOST_DOWN", "no host"), "no host")],
    "delete": [(NOT_GONE, "in the database alone"), (CloudError("FORBIDDEN", "no"), "no")],
    "confirm": [(None, "no operator has confirmed it yet")],
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
    assert not caught.value.transient
    assert f"{rung}: " in caught.value.message
    assert words in caught.value.message
    assert "failover confirm-fenced payments db_a --because" in caught.value.remedy
    for word in ("failover.confirm_fenced", '"payments"', '"db_a"', "because"):
        assert word in caught.value.remedy


@pytest.mark.parametrize(("rung", "answer", "words"), [c for c in CASES if c[0] != "confirm"])
def test_after_a_rung_without_a_proof_the_next_one_is_climbed(
    attempt: Attempt, rung: str, answer: Any, words: str
) -> None:
    attempt.answers |= {"quiesce": 1, rung: answer}
    following = "delete" if rung != "delete" else "stop"

    proof = attempt.climb(rung, following)

    assert proof["rung"] == following


def test_a_rung_of_a_package_that_was_removed_proves_nothing(attempt: Attempt) -> None:
    """A goal may be older than what is installed."""
    attempt.answers["stop"] = STILL_ON
    gone = {"kind": "house_power", "board": "bmc-7", "limit": 5}

    assert "house_power: no installed package" in observed(attempt, gone)
    assert attempt.climb(gone, "delete")["rung"] == "delete"


def test_the_rungs_are_climbed_in_the_order_of_the_ladder(attempt: Attempt) -> None:
    attempt.answers |= {"quiesce": 1, "stop": STILL_ON, "delete": NOT_GONE}

    with pytest.raises(ActionError) as caught:
        attempt.climb("delete", "stop", "confirm", "quiesce")

    names = [entry[0] for entry in attempt.climbed if entry != "confirm"]
    assert names == ["delete", "stop", "quiesce"]
    positions = [caught.value.message.index(f"{name}: ") for name in names]
    assert positions == sorted(positions)


def test_without_a_proof_each_rung_says_what_it_found_and_when(attempt: Attempt) -> None:
    attempt.answers |= {"depose": NO_BROKER, "quiesce": 1, "stop": STILL_ON}

    with pytest.raises(ActionError) as caught:
        attempt.climb("quiesce", "stop", "confirm")

    tried = describe(caught.value)["tried"]
    assert [each["what"] for each in tried] == ["depose", "quiesce", "stop", "confirm"]
    assert tried[2]["found"] == "still ACTIVE"
    times = [each["at"] for each in tried]
    assert times == sorted(times)
    assert len({*times}) > 1, "each has its own"


NO_NOVA = CloudError(
    "UNREACHABLE", "Nova is not reachable", service="Nova", detail="connection refused"
)
NO_BROKER = ChannelError("UNREACHABLE", "no broker", detail="connection reset")
UNASKED = [("quiesce", NO_BROKER), ("quiesce", NO_NOVA), ("stop", NO_NOVA), ("delete", NO_NOVA)]


@pytest.mark.parametrize(("rung", "error"), UNASKED)
def test_a_rung_whose_service_is_away_disproves_nothing(
    attempt: Attempt, rung: str, error: CloudError | ChannelError
) -> None:
    """A BLOCKED fence would wait for a person although nothing was found out."""
    attempt.answers |= {"quiesce": 1, "stop": STILL_ON, "delete": NOT_GONE, rung: error}

    with pytest.raises(ActionError) as caught:
        attempt.climb("quiesce", "stop", "delete", "confirm")

    facts = describe(caught.value)
    assert facts["code"] == "FENCE_UNPROVEN"
    assert facts["transient"] is True
    assert (facts["service"], facts["detail"]) == (error.service, error.detail)
    assert facts["blocked"] is True, "what it comes to when the service is waited for no longer"
    assert [each[0] for each in attempt.climbed if each != "confirm"] == [
        "quiesce",
        "stop",
        "delete",
    ]


@pytest.mark.parametrize(("rung", "error"), UNASKED)
def test_a_rung_whose_service_is_away_hinders_no_other_proof(
    attempt: Attempt, rung: str, error: CloudError | ChannelError
) -> None:
    following = "delete" if rung != "delete" else "stop"
    attempt.answers[rung] = error

    assert attempt.climb(rung, following)["rung"] == following


def test_a_workflow_that_can_not_be_started_disproves_nothing(attempt: Attempt) -> None:
    class Away:
        def outcome(self, execution: str) -> None:
            raise CloudError("SERVER_ERROR", "oops", service="Mistral", detail="HTTP 503")

    attempt.mistral = Away()

    with pytest.raises(ActionError) as caught:
        attempt.climb({"kind": "workflow", "workflow": "ipmi", "limit": 0.05})

    assert caught.value.transient
    assert (caught.value.service, caught.value.detail) == ("Mistral", "HTTP 503")


@pytest.mark.parametrize("step", ["depose", "quiesce"])
def test_a_state_store_that_is_away_ends_the_climb(attempt: Attempt, step: str) -> None:
    """Without it no call is permitted; and of the member it says nothing."""
    attempt.answers[step] = OperationalError("SELECT 1", {}, Exception("gone"))

    with pytest.raises(OperationalError) as caught:
        attempt.climb("quiesce", "stop", "confirm")

    assert describe(caught.value)["code"] == "STORE_UNREACHABLE"


def test_an_agent_that_can_not_be_told_is_nothing_to_wait_for(attempt: Attempt) -> None:
    """It learns it when it comes back; the proof is the rungs'."""
    attempt.answers |= {"depose": NO_BROKER, "stop": STILL_ON}

    with pytest.raises(ActionError) as caught:
        attempt.climb("stop")

    assert caught.value.blocked
    assert not caught.value.transient


@pytest.mark.parametrize("rung", ["quiesce", "stop", "delete"])
def test_a_lost_lease_ends_the_climb_at_once(attempt: Attempt, rung: str) -> None:
    attempt.answers[rung] = LeaseLost("gone")

    with pytest.raises(LeaseLost):
        attempt.climb(rung, "confirm")

    assert attempt.climbed.count("confirm") == 1, "no rung was asked after that"


@pytest.mark.parametrize("ladder", [["stop"], ["quiesce", "stop", "confirm"]])
def test_what_a_person_confirms_counts_before_any_rung(attempt: Attempt, ladder: list[str]) -> None:
    attempt.answers["confirm"] = "I saw it"

    proof = attempt.climb(*ladder)

    assert proof == {"rung": "confirm", "observed": "an operator confirmed it: I saw it"}
    assert attempt.climbed == ["confirm"]


@pytest.mark.parametrize("rung", ["stop", "delete"])
def test_a_member_whose_server_is_unknown_is_not_proven_off(attempt: Attempt, rung: str) -> None:
    with pytest.raises(ActionError, match="no server of db_a is known"):
        attempt.climb(rung, servers=())


def test_every_server_of_the_member_has_to_be_proven_off(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name may stand for a new server while the old one, on a dead host, still writes."""

    def stop(cloud: Any, server_id: str, limit: float) -> Evidence:
        return OFF if server_id == "new" else STILL_ON

    monkeypatch.setattr(servers, "stop", stop)

    with pytest.raises(ActionError, match="still ACTIVE"):
        attempt.climb("stop", servers=("new", "old"))


def test_quiescing_proves_nothing_of_what_no_stop_command_speaks_for(attempt: Attempt) -> None:
    with pytest.raises(ActionError, match="no stop command on db_a covers data"):
        attempt.climb("quiesce", stops=(), without_stop_command=("data",))

    assert attempt.commands == []


# -- the agents are told first


@pytest.mark.parametrize("confirmed", [None, "I saw it"])
def test_every_agent_of_the_member_is_deposed_before_anything_else(
    attempt: Attempt, confirmed: str | None
) -> None:
    attempt.answers["confirm"] = confirmed

    attempt.climb("stop", servers=("new", "old"))

    assert attempt.deposed == [("new", 4), ("old", 4)]


@pytest.mark.parametrize("error", [ValueError("4300 digits"), RuntimeError("no thread")])
def test_a_channel_that_fails_in_whatever_way_stops_no_climb(
    attempt: Attempt, error: Exception
) -> None:
    attempt.answers |= {"depose": error, "quiesce": error, "stop": STILL_ON}
    with pytest.raises(ActionError) as caught:
        attempt.climb("quiesce", "stop")
    failed = f"the command channel failed ({type(error).__name__})"
    assert f"(depose: {failed}; quiesce: {failed}; stop: still ACTIVE; " in caught.value.message
    assert str(error) not in caught.value.message
    attempt.answers["stop"] = OFF
    assert attempt.climb("quiesce", "stop")["rung"] == "stop"


@pytest.mark.parametrize("step", ["depose", "quiesce"])
@pytest.mark.parametrize("code", ["TOKEN_EXPIRED", "TRUST_GONE"])
def test_rights_that_were_lost_over_the_channel_end_the_climb(
    attempt: Attempt, step: str, code: str
) -> None:
    attempt.answers[step] = CloudError(code, "gone")
    with pytest.raises(CloudError, match="gone"):
        attempt.climb("quiesce", "stop")


UNTOLD = [ChannelError("UNREACHABLE", "no broker."), ChannelError("CONFIG", "no channel is set.")]


@pytest.mark.parametrize("error", UNTOLD, ids=lambda e: e.code)
def test_an_agent_that_can_not_be_told_stops_no_climb_and_this_is_said(
    attempt: Attempt, error: ChannelError
) -> None:
    attempt.answers["depose"] = error

    assert attempt.climb("stop")["rung"] == "stop"
    attempt.answers["stop"] = STILL_ON
    with pytest.raises(ActionError) as caught:
        attempt.climb("stop", servers=("s-1", "s-2"))

    assert f"(depose: {error.message.rstrip('.')}; stop: still ACTIVE; " in caught.value.message


def test_a_lost_lease_ends_the_climb_before_it_began(attempt: Attempt) -> None:
    attempt.answers["depose"] = LeaseLost("gone")

    with pytest.raises(LeaseLost):
        attempt.climb("stop")

    assert attempt.climbed == []


# -- what was observed of a member that did not quiesce


@pytest.mark.parametrize(
    ("beat", "words"),
    [
        (None, "no heartbeat of it was received"),
        (Heartbeat(4, 42.4, (), None), "its last heartbeat came 42 s ago"),
        (Heartbeat(4, 42.4, ("pg-stop",), None), "its last heartbeat came 42 s ago"),
        (
            ChannelError("UNREACHABLE", "no broker."),
            "its heartbeats cannot be read: no broker",
        ),
    ],
)
def test_of_a_silent_agent_it_is_told_for_how_long_it_was_silent(
    attempt: Attempt, beat: Any, words: str
) -> None:
    attempt.answers |= {"quiesce": ChannelError("NO_ANSWER", "nothing"), "heard": beat}

    said = observed(attempt, {"kind": "quiesce", "limit": 3, "longest": 300})

    assert f"quiesce: db_a's agent did not answer for 3 s ({words});" in said
    assert len(attempt.commands) == 1


def test_of_one_that_was_at_work_to_the_end_it_is_told_that_it_was(attempt: Attempt) -> None:
    attempt.answers["quiesce"] = ChannelError(
        "NO_ANSWER", "too long", heard="it said 4 s ago that it runs"
    )

    said = observed(attempt, {"kind": "quiesce", "limit": 1e-9, "longest": 1e-9})

    assert "quiesce: db_a's agent reports that pg-stop is still running after" in said


def test_of_one_that_fell_silent_at_work_both_are_told(attempt: Attempt) -> None:
    attempt.answers |= {
        "quiesce": ChannelError("NO_ANSWER", "too long", heard="it said 4 s ago that it runs"),
        "heard": Heartbeat(4, 9.0, (), None),
    }

    said = observed(attempt, {"kind": "quiesce", "limit": 3, "longest": 300})

    assert "sent no further message for 3 s: it said 4 s ago that it runs" in said
    assert "(its last heartbeat came 9 s ago);" in said


def test_a_command_may_take_as_long_as_the_rung_says(attempt: Attempt) -> None:
    attempt.climb({"kind": "quiesce", "limit": 3, "longest": 300}, "stop")

    (command,) = attempt.commands
    assert (command.limit, command.patience) == (3.0, 300.0)


def test_one_that_does_not_take_the_command_but_is_at_work_is_waited_for(attempt: Attempt) -> None:
    """As a deposed agent, which first stops what it has to."""
    silent = ChannelError("NO_ANSWER", "nothing")
    attempt.answers["heard"] = Heartbeat(4, 2.0, ("pg-down",), "stopping")

    def run(command: Command) -> CommandResult:
        attempt.commands.append(command)
        if len(attempt.commands) < 3:
            raise silent
        return CommandResult(command.id, 0, "", "", False)

    attempt.run = run  # type: ignore[method-assign]
    proof = attempt.climb({"kind": "quiesce", "limit": 3, "longest": 300})

    assert proof["rung"] == "quiesce"
    assert len({command.id for command in attempt.commands}) == 1
    assert all(297 < command.patience <= 300 for command in attempt.commands)


def test_but_not_for_ever(attempt: Attempt) -> None:
    attempt.answers |= {
        "quiesce": ChannelError("NO_ANSWER", "nothing"),
        "heard": Heartbeat(4, 2.0, ("pg-down", "fs-down"), "stopping"),
    }

    said = observed(attempt, {"kind": "quiesce", "limit": 0.01, "longest": 0.01})

    assert "db_a's agent reports that pg-down and fs-down are still running after" in said
    assert "pg-stop waits" in said


def test_a_person_who_speaks_during_the_climb_is_heard(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(cloud: Any, server_id: str, limit: float) -> Evidence:
        attempt.answers["confirm"] = "I pulled the plug"
        return STILL_ON

    monkeypatch.setattr(servers, "stop", stop)

    proof = attempt.climb("stop", "confirm")

    assert proof["observed"] == "an operator confirmed it: I pulled the plug"


def test_a_person_who_speaks_while_the_ladder_is_climbed_spares_the_rungs_above(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(cloud: Any, server: str, limit: float) -> Evidence:
        attempt.answers["confirm"] = "I see that it is off"
        return STILL_ON

    monkeypatch.setattr(servers, "stop", stop)

    assert attempt.climb("stop", "delete")["rung"] == "confirm"
    assert not any("delete" in rung for rung in attempt.climbed)
