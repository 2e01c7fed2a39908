# SPDX-License-Identifier: Apache-2.0
"""The ladder: rung by rung until one yields a proof, and never an assumption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.fencing import Suspect, fence, suspect_of
from mistral_failover.actions.operations import Tools
from mistral_failover.agent.channel import ChannelError, Command, CommandResult
from mistral_failover.cloud import servers
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import LeaseLost
from mistral_failover.cloud.servers import Evidence, ServerState
from mistral_failover.convergence.records import Record
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
        servers: tuple[str, ...] = ("s-a",),
        stops: tuple[str, ...] = ("pg-stop",),
        unvouched: tuple[str, ...] = (),
        attached: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        operation = {
            "key": "k",
            "group": "payments",
            "properties": {"ladder": [{"kind": kind, "limit": 5} for kind in ladder]},
        }
        here = tuple((server, stop) for server in servers for stop in stops)
        suspect = Suspect(member, servers, here, unvouched, self.confirmed, attached)
        return fence(Tools(None, self), operation, suspect)["attributes"]  # type: ignore[arg-type]


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
        (ChannelError("NO_ANSWER", "it is silent"), "it is silent"),
        (ChannelError("CONFIG", "no channel"), "no channel"),
        (CloudError("UNREACHABLE", "no channel"), "no channel"),
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
