# SPDX-License-Identifier: Apache-2.0
"""The ladder: rung by rung until one yields a proof, and never an assumption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.fencing import Suspect, fence, suspect_of
from mistral_failover.actions.operations import Tools
from mistral_failover.agent.channel import ChannelError, Command, CommandResult, Heartbeat
from mistral_failover.agent.wire import Address
from mistral_failover.cloud import servers
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import LeaseLost
from mistral_failover.cloud.mistral_api import Outcome
from mistral_failover.cloud.servers import Evidence, ServerState
from mistral_failover.cloud.waits import Look, wait_until
from mistral_failover.convergence.records import Record
from mistral_failover.model.ids import derived_id
from mistral_failover.store.groups import MemberRow

OFF = Evidence(True, "stop", "SHUTOFF")
STILL_ON = Evidence(False, "stop", "still ACTIVE")
GONE = Evidence(True, "delete", "deleted")
NOT_GONE = Evidence(False, "delete", "deleted in the database alone")
MEMBER = MemberRow("db_a", "s-a", 1.0, 4, None)


class Cloud:
    """What waits without a guard, and shortly."""

    @staticmethod
    def wait(probe: Callable[[], Look], *, what: str, limit: float) -> Any:
        return wait_until(probe, what=what, limit=limit, first=0.001, ceiling=0.01)


class Attempt:
    """A climb: what each rung does when it comes to it, and in which order they came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.climbed: list[Any] = []
        self.commands: list[Command] = []
        self.deposed: list[tuple[str, int]] = []
        self.mistral: Any = None
        self.answers: dict[str, Any] = {
            "depose": None,
            "quiesce": 0,
            "heard": None,
            "stop": OFF,
            "delete": GONE,
            "confirm": None,
        }
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
        self.climbed.append(("quiesce", command.to.server_id, command.limit))
        code = self._answer("quiesce")
        return CommandResult(command.id, code, "", "it hangs", False)

    def depose(self, to: Address, epoch: int) -> None:
        """The command channel, too."""
        assert (to.group, to.member) == ("payments", "db_a")
        self.deposed.append((to.server_id, epoch))
        self._answer("depose")

    def heard(self, to: Address) -> Heartbeat | None:
        """And this."""
        beat: Heartbeat | None = self._answer("heard")
        return beat

    def confirmed(self) -> str | None:
        """What a person has said by now."""
        self.climbed.append("confirm")
        return self.answers["confirm"]

    def climb(
        self,
        *ladder: str | dict[str, Any],
        member: MemberRow = MEMBER,
        servers: tuple[str, ...] = ("s-a",),
        stops: tuple[str, ...] = ("pg-stop",),
        unvouched: tuple[str, ...] = (),
        attached: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        operation = {
            "key": "k",
            "group": "payments",
            "group_id": "g-1",
            "ticket": {"lock": {"token": 1}},
            "properties": {
                "ladder": [
                    {"kind": rung, "limit": 5} if isinstance(rung, str) else rung for rung in ladder
                ]
            },
        }
        here = tuple((server, stop) for server in servers for stop in stops)
        suspect = Suspect(member, servers, here, unvouched, self.confirmed, attached)
        tools = Tools(Cloud(), self, lambda: self.mistral)  # type: ignore[arg-type]
        return fence(tools, operation, suspect)["attributes"]


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Attempt:
    return Attempt(monkeypatch)


def test_the_first_proof_ends_the_climb(attempt: Attempt) -> None:
    proof = attempt.climb("quiesce", "stop", "delete", "confirm")

    assert proof == {"rung": "quiesce", "observed": "db_a confirmed: pg-stop"}
    assert attempt.climbed == ["confirm", ("quiesce", "s-a", 5.0)]


def nova_has_it_in(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    state = ServerState(status, None, None, exists=True)
    monkeypatch.setattr(servers, "server_state", lambda cloud, server: state)


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
        (ChannelError("NO_ANSWER", "it is silent"), "said nothing for 5 s"),
        (
            ChannelError("UNKNOWN_OUTCOME", "it may have run."),
            "quiesce: it may have run. Look on db_a whether",
        ),
        (ChannelError("CONFIG", "no channel"), "no channel"),
        (CloudError("UNREACHABLE", "no channel"), "no channel"),
        (1, "pg-stop on db_a ended with 1: it hangs"),
        (OverflowError("10**400"), "the command channel failed (OverflowError)"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), "failed (UnicodeEncodeError)"),
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


def test_the_rungs_are_climbed_in_the_order_of_the_ladder(attempt: Attempt) -> None:
    attempt.answers |= {"quiesce": 1, "stop": STILL_ON, "delete": NOT_GONE}

    with pytest.raises(ActionError) as caught:
        attempt.climb("delete", "stop", "confirm", "quiesce")

    names = [entry[0] for entry in attempt.climbed if entry != "confirm"]
    assert names == ["delete", "stop", "quiesce"]
    positions = [caught.value.message.index(f"{name}: ") for name in names]
    assert positions == sorted(positions)


@pytest.mark.parametrize("rung", ["quiesce", "stop", "delete"])
def test_a_lost_lease_ends_the_climb_at_once(attempt: Attempt, rung: str) -> None:
    attempt.answers[rung] = LeaseLost("gone")

    with pytest.raises(LeaseLost):
        attempt.climb(rung, "confirm")

    assert attempt.climbed.count("confirm") == 1, "nobody was asked after that"


@pytest.mark.parametrize("ladder", [["stop"], ["quiesce", "stop", "confirm"]])
def test_what_a_person_confirms_counts_before_any_rung(attempt: Attempt, ladder: list[str]) -> None:
    attempt.answers["confirm"] = "I saw it"

    proof = attempt.climb(*ladder)

    assert proof == {"rung": "confirm", "observed": "a person confirmed it: I saw it"}
    assert attempt.climbed == ["confirm"]


@pytest.mark.parametrize("rung", ["stop", "delete"])
def test_a_member_whose_server_nobody_knows_is_not_proven_off(attempt: Attempt, rung: str) -> None:
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
    with pytest.raises(ActionError, match="no stop command on db_a speaks for data"):
        attempt.climb("quiesce", stops=(), unvouched=("data",))

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


def observed(attempt: Attempt, *ladder: Any) -> str:
    with pytest.raises(ActionError) as caught:
        attempt.climb(*ladder)
    said: str = caught.value.message
    return said


@pytest.mark.parametrize(
    ("beat", "words"),
    [
        (None, "no heartbeat of it is known"),
        (Heartbeat(4, 42.4, (), None), "its last heartbeat came 42 s ago"),
        (Heartbeat(4, 42.4, ("pg-stop",), None), "its last heartbeat came 42 s ago"),
        (
            ChannelError("UNREACHABLE", "no broker."),
            "of its heartbeats nothing is known: no broker",
        ),
    ],
)
def test_of_a_silent_agent_it_is_told_for_how_long_it_was_silent(
    attempt: Attempt, beat: Any, words: str
) -> None:
    attempt.answers |= {"quiesce": ChannelError("NO_ANSWER", "nothing"), "heard": beat}

    said = observed(attempt, {"kind": "quiesce", "limit": 3, "longest": 300})

    assert f"quiesce: db_a's agent said nothing for 3 s ({words});" in said
    assert len(attempt.commands) == 1


def test_of_one_that_was_at_work_to_the_end_it_is_told_that_it_was(attempt: Attempt) -> None:
    attempt.answers["quiesce"] = ChannelError(
        "NO_ANSWER", "too long", heard="it said 4 s ago that it runs"
    )

    said = observed(attempt, {"kind": "quiesce", "limit": 1e-9, "longest": 1e-9})

    assert "quiesce: db_a's agent says that pg-stop still runs after 0 s;" in said


def test_of_one_that_fell_silent_at_work_both_are_told(attempt: Attempt) -> None:
    attempt.answers |= {
        "quiesce": ChannelError("NO_ANSWER", "too long", heard="it said 4 s ago that it runs"),
        "heard": Heartbeat(4, 9.0, (), None),
    }

    said = observed(attempt, {"kind": "quiesce", "limit": 3, "longest": 300})

    assert (
        "quiesce: db_a's agent said nothing more for 3 s: it said 4 s ago that it runs (its last "
        "heartbeat came 9 s ago);" in said
    )


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

    assert (
        "db_a's agent says that pg-down and fs-down still run after 0 s, and pg-stop waits" in said
    )


# -- a workflow of the user's


class Mistral:
    """Mistral, in which a workflow goes through states one look after the other."""

    def __init__(self, *outcomes: Outcome | Exception) -> None:
        self.outcomes = list(outcomes)
        self.started: list[tuple[str, str, dict[str, Any]]] = []
        self.ended: list[tuple[str, str]] = []

    def outcome(self, execution: str) -> Outcome | None:
        if not self.started:
            return None
        found = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(found, Exception):
            raise found
        return found

    def start(self, execution: str, workflow: str, input: Any, why: str) -> None:
        self.started.append((execution, workflow, dict(input)))

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
    (stands("SUCCESS"), "is SUCCESS, but its output has no text proof"),
    (stands("SUCCESS", proof="  "), "has no text proof"),
    (stands("SUCCESS", proof=True), "has no text proof"),
    (stands("ERROR", error={"code": "BMC", "message": "no BMC"}), "is ERROR: no BMC"),
    (stands("ERROR", error="no BMC"), "is ERROR: no BMC"),
    (stands("ERROR", "Failure caused by\n task"), "is ERROR: Failure caused by task"),
    (stands("ERROR", "password=geheim"), "is ERROR: password=***"),
    (stands("ERROR", proof="off"), "is ERROR: it did not say why"),
    (stands("CANCELLED"), "is CANCELLED: it did not say why"),
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


def test_a_workflow_that_takes_too_long_is_stopped(attempt: Attempt) -> None:
    attempt.mistral = Mistral(stands("RUNNING"))

    said = observed(attempt, {**POWER_OFF, "limit": 0.02})

    ((execution, state),) = attempt.mistral.ended
    assert state == "CANCELLED"
    assert f"(execution {execution}) is RUNNING after 0.02 s, and was stopped" in said


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
    assert "workflow: where Mistral is, neither a token nor" in observed(attempt, POWER_OFF)


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


def record(name: str, type_: str, *, member: str = "db_a", server: str | None = "s-1") -> Record:
    attributes = {"server_id": server} if server else {}
    properties = {"stop": "pg-stop"} if type_ == "activation" else {}
    return Record(
        name, "g", name, type_, member, action="CREATE", properties=properties,
        attributes=attributes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("records", "servers_", "stops", "unvouched"),
    [
        ([], ("s-a",), (), ()),
        ([record("elsewhere", "volume_attachment", member="db_b")], ("s-a",), (), ()),
        ([record("data", "volume_attachment")], ("s-1",), (), ("data",)),
        (
            [record("data", "volume_attachment"), record("db", "activation")],
            ("s-1",),
            (("s-1", "pg-stop"),),
            (),
        ),
        (
            # The server behind the name was replaced; the application's stop there says nothing
            # about the volume on the old one.
            [record("data", "volume_attachment"), record("db", "activation", server=None)],
            ("s-1", "s-a"),
            (("s-a", "pg-stop"),),
            ("data",),
        ),
        (
            [record("db", "activation"), record("other", "dns_record", server=None)],
            ("s-1", "s-a"),
            (("s-1", "pg-stop"),),
            ("other",),
        ),
        ([Record("new", "g", "new", "activation", "db_a")], ("s-a",), (), ()),
    ],
    ids=[
        "nothing there",
        "only on others",
        "a volume alone",
        "an application on its volume",
        "an application on another server than its volume",
        "a type of the user's",
        "what never began",
    ],
)
def test_what_has_to_be_fenced_follows_from_what_is_on_the_member(
    records: list[Record], servers_: Any, stops: Any, unvouched: Any
) -> None:
    suspect = suspect_of(MEMBER, records, lambda: None)

    assert (suspect.servers, suspect.stops, suspect.unvouched) == (servers_, stops, unvouched)


def test_what_needs_another_is_stopped_before_it() -> None:
    def application(name: str, *requires: str) -> Record:
        return Record(
            name, "g", name, "activation", "db_a", action="CREATE", requires=requires,
            properties={"stop": f"{name}-stop"}, attributes={"server_id": "s-1"},
        )  # fmt: skip

    records = [
        application("a_mount", "data"),
        record("data", "volume_attachment"),
        application("database", "a_mount"),
        application("b_report", "routing"),
        Record("routing", "g", "routing", "stack_parameters", requires=("database",)),
    ]

    for order in (records, records[::-1]):
        stops = [stop for _, stop in suspect_of(MEMBER, order, lambda: None).stops]
        assert stops == ["b_report-stop", "database-stop", "a_mount-stop"]


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
    assert attempt.climb("quiesce", stops=())["observed"] == "nothing of the group is on db_a"
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


def test_a_person_who_speaks_while_the_ladder_is_climbed_spares_the_rungs_above(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(cloud: Any, server: str, limit: float) -> Evidence:
        attempt.answers["confirm"] = "I see that it is off"
        return STILL_ON

    monkeypatch.setattr(servers, "stop", stop)

    assert attempt.climb("stop", "delete")["rung"] == "confirm"
    assert not any("delete" in rung for rung in attempt.climbed)


def test_what_a_command_wrote_goes_into_a_workflow_without_its_secrets(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    class Mistral:
        def outcome(self, execution: str) -> Outcome | None:
            return Outcome("house.off", "SUCCESS", {"proof": "off"}, "") if given else None

        def start(self, execution: str, workflow: str, facts: Any, why: str) -> None:
            given.append(facts)

    said = CommandResult("k", 1, "", "no connection: postgres://admin:hunter2@db password=x", False)
    monkeypatch.setattr(attempt, "run", lambda command: said)
    attempt.mistral = Mistral()

    attempt.climb("quiesce", {"kind": "workflow", "workflow": "house.off", "limit": 5})

    assert "no connection" in given[0]["because"]
    assert "hunter2" not in str(given)


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

        def start(self, execution: str, workflow: str, facts: Any, why: str) -> None:
            begun[execution] = 0.0

    attempt.mistral = Mistral()

    for _ in range(2):  # a repeat under the same lock meets what it began
        proof = attempt.climb({"kind": "workflow", "workflow": "house.off", "limit": 5})

        assert proof["rung"] == "workflow"
        assert len(begun) == 1 + runs
