# SPDX-License-Identifier: Apache-2.0
"""What the operations of the shipped types do beyond what the adapters do for them."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.agent.channel.interface import (
    ChannelError,
    Command,
    CommandResult,
    Heartbeat,
)
from mistral_failover.agent.wire import Address
from mistral_failover.cloud import networks, servers, volumes
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import Evidence, ServerState
from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.cloud.volumes import Release
from mistral_failover.convergence.records import Outcome, Record
from mistral_failover.mistral.operation_documents import outcome_of
from mistral_failover.resources import activation, port, volume_attachment
from mistral_failover.resources.operation_context import OperationContext, sharing
from mistral_failover.runtime.errors import ActionError, describe, says_how_to_continue
from support.no_cloud import RunningServers

MEMBER = {"name": "db_a", "server_id": "s-a", "epoch": 3}
PROPERTIES = {"member": "db_a", "start": "pg-start", "stop": "pg-stop", "device": "/dev/vdb"}
OPERATION: dict[str, Any] = {
    "key": "k",
    "verb": "create",
    "group": "payments",
    "group_id": "g-1",
    "stack": "payments",
    "resource": {
        "id": "r",
        "name": "data",
        "type": "house",
        "physical_id": None,
        "attributes": {"server_id": "s-a"},
    },
    "member": MEMBER,
    "properties": PROPERTIES,
    "previous": None,
    "inputs": {},
    "unknown": False,
    "unsettled": 0.0,
    "timeout": 300.0,
}


def fenced(rung: str) -> dict[str, Any]:
    return {"fence:db_a": {"id": None, "attributes": {"rung": rung, "observed": "it is off"}}}


class Obedient:
    """A channel to a member that does what it is told, or ends with ``code``."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.commands: list[Command] = []

    def run(self, command: Command) -> CommandResult:
        self.commands.append(command)
        return CommandResult(command.id, self.code, "out", "no such device\n", False)


@pytest.fixture(autouse=True)
def volumes_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every volume is there."""
    monkeypatch.setattr(volumes, "is_gone", lambda *_: False)


class Empty:
    """A state store that has nothing else of the group."""

    def reading(self, _read: Any) -> dict[str, Any]:
        return {}


def context(channel: Obedient) -> OperationContext:
    request: Any = SimpleNamespace(store=Empty())
    cloud: Any = RunningServers()
    return OperationContext(request, cloud, channel, lambda: None)


def test_the_start_command_gets_every_further_property_as_an_argument() -> None:
    channel = Obedient()

    made = activation.activate(context(channel), OPERATION)

    (command,) = channel.commands
    assert (command.name, command.arguments) == ("pg-start", {"device": "/dev/vdb"})
    assert (command.to.member, command.to.server_id, command.epoch) == ("db_a", "s-a", 3)
    assert (command.limit, command.patience) == (30.0, 300.0)
    attributes = {"server_id": "s-a", "boot": None, "command": command.id}
    assert made == {"physical_id": "s-a/pg-start", "attributes": attributes}


def test_silence_may_not_last_longer_than_the_operation() -> None:
    channel = Obedient()

    activation.activate(context(channel), {**OPERATION, "timeout": 5.0})

    assert (channel.commands[0].limit, channel.commands[0].patience) == (5.0, 5.0)


def test_a_command_whose_outcome_the_agent_does_not_know_is_a_person_s_to_settle() -> None:
    class Forgetful(Obedient):
        def run(self, command: Command) -> CommandResult:
            self.commands.append(command)
            raise ChannelError("UNKNOWN_OUTCOME", "the agent died meanwhile")

    channel = Forgetful()
    with pytest.raises(ChannelError) as caught:
        activation.activate(context(channel), OPERATION)

    outcome = outcome_of(None, describe(caught.value))
    assert outcome.unknown, "a repeat carries the same id, and meets what the person said"
    assert not outcome.blocked
    assert outcome.error is not None
    assert outcome.error["code"] == "UNKNOWN_OUTCOME"
    settle = f"`failover-agent settle {channel.commands[0].id} --done` or `--not-done`"
    assert settle in outcome.error["remedy"]
    assert "db_a" in outcome.error["remedy"]


class Late(Obedient):
    """A channel to a member whose agent does not answer; ``beats`` are its latest heartbeats, one
    for each look. ``first``: one look is made beside the command."""

    def __init__(self, *beats: Heartbeat | None, first: bool = True) -> None:
        super().__init__()
        self.beats = list(beats)
        self.looked = Event()
        if not first:
            self.looked.set()

    def run(self, command: Command) -> CommandResult:
        self.commands.append(command)
        assert self.looked.wait(10)
        raise ChannelError("NO_ANSWER", "nothing was heard")

    def heard(self, to: Address) -> Heartbeat | None:
        assert to.server_id == "s-a", "the agent of another server tells nothing of this one's"
        beat = self.beats.pop(0)
        self.looked.set()
        return beat


NEW = {**OPERATION, "resource": {"id": "r", "physical_id": None, "attributes": {}}}
BEAT = Heartbeat(3, 1.0, (), None)


def failure(channel: Late, operation: dict[str, Any]) -> Outcome:
    with pytest.raises(ChannelError) as caught:
        activation.activate(context(channel), operation)
    return outcome_of(None, describe(caught.value))


@pytest.mark.parametrize("later", [None, BEAT], ids=["silent", "heard too late to answer"])
def test_an_agent_that_was_never_heard_before_the_command_is_waited_for(
    later: Heartbeat | None,
) -> None:
    outcome = failure(Late(None, later), NEW)

    assert outcome.transient
    assert outcome.unknown, "it may have run, so a repeat carries the same id"
    assert outcome.error is not None
    assert outcome.error["code"] == "NO_ANSWER"
    assert outcome.error["service"] == "the agent of db_a"
    assert outcome.error["detail"].startswith("not heard since server s-a was created")


def test_an_agent_that_was_heard_is_not_waited_for() -> None:
    assert not failure(Late(BEAT, BEAT), NEW).transient


def test_an_agent_that_made_something_on_the_server_is_not_waited_for() -> None:
    """The broker forgets a heartbeat after an hour."""
    assert not failure(Late(None, first=False), OPERATION).transient


def test_a_repeat_of_an_operation_sends_the_same_command_id() -> None:
    channel = Obedient()
    for _ in range(2):
        activation.activate(context(channel), OPERATION)
    activation.activate(context(channel), {**OPERATION, "key": "another"})

    first, again, other = (command.id for command in channel.commands)
    assert first == again != other


OTHER_ARGUMENTS = {**PROPERTIES, "device": "/dev/other"}


@pytest.mark.parametrize(
    "previous",
    [OTHER_ARGUMENTS, {**OTHER_ARGUMENTS, "stop": "mistyped"}],
    ids=["new arguments", "and a corrected stop command"],
)
def test_new_arguments_stop_and_start_the_application(previous: Any) -> None:
    channel = Obedient()

    activation.reactivate(context(channel), {**OPERATION, "previous": previous})

    assert [command.name for command in channel.commands] == ["pg-stop", "pg-start"]
    assert channel.commands[0].arguments == {}


def test_a_corrected_stop_command_alone_disturbs_nothing() -> None:
    channel = Obedient()
    previous = {**PROPERTIES, "stop": "mistyped"}

    made = activation.reactivate(context(channel), {**OPERATION, "previous": previous})

    assert channel.commands == []
    assert made["attributes"] == OPERATION["resource"]["attributes"]


def test_after_an_attempt_of_unknown_outcome_it_is_stopped_and_started() -> None:
    channel = Obedient()

    activation.reactivate(context(channel), {**OPERATION, "previous": PROPERTIES, "unknown": True})

    assert [command.name for command in channel.commands] == ["pg-stop", "pg-start"]


@pytest.mark.parametrize(
    ("written", "stop"),
    [
        (None, "mistyped"),
        (PROPERTIES, "pg-stop"),
        ({**PROPERTIES, "start": "mysql-start"}, "mistyped"),
        ({**PROPERTIES, "stop": {"get_attr": ["other", "stop"]}}, "mistyped"),
    ],
    ids=["left the file", "corrected", "another application", "not known yet"],
)
def test_a_quiesce_stops_with_the_corrected_name_what_is_the_same_application(
    written: Any, stop: str
) -> None:
    channel = Obedient()
    applied = {**PROPERTIES, "stop": "mistyped"}

    activation.quiesce(context(channel), {**OPERATION, "properties": applied, "written": written})

    assert [command.name for command in channel.commands] == [stop]


@pytest.mark.parametrize(
    ("exists", "proven", "asked"),
    [(True, False, ["s-a"]), (False, False, ["s-a"]), (False, True, [])],
)
def test_the_stop_goes_to_the_server_that_it_was_started_on_unless_that_was_provenly_deleted(
    monkeypatch: pytest.MonkeyPatch, exists: bool, proven: bool, asked: list[str]
) -> None:
    channel = Obedient()
    state = ServerState("ACTIVE" if exists else None, None, None, exists=exists)
    monkeypatch.setattr(servers, "server_state", lambda cloud, server: state)
    monkeypatch.setattr(
        servers, "deletion_proof", lambda cloud, server: Evidence(proven, "delete", "as recorded")
    )

    moved = {**OPERATION, "member": {**MEMBER, "server_id": "s-new"}}
    activation.quiesce(context(channel), moved)

    assert [command.to.server_id for command in channel.commands] == asked


@pytest.mark.parametrize(
    ("inputs", "asked"),
    [
        *((fenced(rung), []) for rung in ("stop", "delete", "confirm")),
        (fenced("quiesce"), ["pg-stop"]),  # a start that was under way may have ended since
        ({"fence:db_b": fenced("stop")["fence:db_a"]}, ["pg-stop"]),
    ],
    ids=["stop", "delete", "confirm", "quiesce", "another member's"],
)
def test_only_the_proof_that_a_member_is_off_spares_its_stop(
    inputs: dict[str, Any], asked: list[str]
) -> None:
    channel = Obedient()

    activation.quiesce(context(channel), {**OPERATION, "inputs": inputs})

    assert [command.name for command in channel.commands] == asked


@pytest.mark.parametrize(
    ("exists", "proven", "inputs", "refused"),
    [
        (True, False, {}, False),
        (False, True, {}, False),
        (False, False, {}, True),
        (False, False, fenced("confirm"), False),
    ],
)
def test_a_volume_of_a_server_that_is_gone_moves_only_with_a_proof(
    monkeypatch: pytest.MonkeyPatch, exists: bool, proven: bool, inputs: Any, refused: bool
) -> None:
    detached: list[str] = []
    state = ServerState("ACTIVE" if exists else "", None, None, exists)
    monkeypatch.setattr(servers, "server_state", lambda *_: state)
    monkeypatch.setattr(
        servers, "deletion_proof", lambda *_: Evidence(proven, "delete", "it may be running")
    )

    def detach(_c: Any, _v: str, server: str, _l: float, _r: Release) -> None:
        detached.append(server)

    monkeypatch.setattr(volumes, "detach", detach)
    resource = {**OPERATION["resource"], "physical_id": "v1"}
    operation = {**OPERATION, "resource": resource, "inputs": inputs}

    if refused:
        with pytest.raises(ActionError, match="it may be running") as caught:
            volume_attachment.detach_volume(context(Obedient()), operation)
        assert caught.value.code == "FENCE_UNPROVEN"
        assert "failover start payments --lost db_a" in caught.value.remedy
    else:
        volume_attachment.detach_volume(context(Obedient()), operation)
    assert detached == ([] if refused else ["s-a"])


@pytest.mark.parametrize(
    ("inputs", "properties", "release"),
    [
        ({}, {}, Release()),
        ({}, {"when_host_is_down": "delete_server"}, Release(delete_server=True)),
        (fenced("quiesce"), {}, Release(fenced=True)),
        (fenced("stop"), {"when_host_is_down": "ask"}, Release("it is off", True, stopped=True)),
        (
            fenced("confirm"),
            {"when_host_is_down": "delete_server"},
            Release("it is off", True, True, cut_off=True),
        ),
    ],
)
def test_a_volume_leaves_on_the_terms_of_the_fence_and_of_the_group_file(
    monkeypatch: pytest.MonkeyPatch, inputs: Any, properties: Any, release: Release
) -> None:
    asked: list[Release] = []
    monkeypatch.setattr(servers, "left_behind", lambda *_: None)
    status = "SHUTOFF" if inputs == fenced("stop") else "ACTIVE"
    monkeypatch.setattr(servers, "server_state", lambda *_: ServerState(status, None, None, True))

    def detach(_c: Any, _v: str, _s: str, _l: float, terms: Release) -> None:
        asked.append(terms)

    monkeypatch.setattr(volumes, "detach", detach)
    resource = {**OPERATION["resource"], "physical_id": "v1"}
    operation = {**OPERATION, "resource": resource, "inputs": inputs, "properties": properties}

    volume_attachment.detach_volume(context(Obedient()), operation)

    assert asked == [release]


@pytest.mark.parametrize("remove", ["volume", "port"])
@pytest.mark.parametrize(
    ("status", "left", "inputs", "why"),
    [
        ("ACTIVE", None, fenced("stop"), "has been started again"),
        ("SHUTOFF", "Nova evacuated it", fenced("stop"), "but Nova evacuated it"),
        ("SHUTOFF", "Nova evacuated it", {}, "is SHUTOFF, but Nova evacuated it"),
    ],
)
def test_from_a_server_whose_guest_may_run_again_elsewhere_nothing_is_taken(
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    left: str | None,
    inputs: Any,
    why: str,
    remove: str,
) -> None:
    asked: list[Any] = []
    state = ServerState(status, None, None, True, power_state=4 if status == "SHUTOFF" else 1)
    monkeypatch.setattr(servers, "server_state", lambda *_: state)
    monkeypatch.setattr(servers, "left_behind", lambda *_: left)
    monkeypatch.setattr(volumes, "detach", lambda *given: asked.append(given))
    monkeypatch.setattr(networks, "detach_port", lambda *given, **_: asked.append(given))
    detach = {"volume": volume_attachment.detach_volume, "port": port.detach_port}[remove]
    resource = {**OPERATION["resource"], "physical_id": "v1"}
    operation = {**OPERATION, "resource": resource, "inputs": inputs}

    with pytest.raises(ActionError, match=why) as caught:
        detach(context(Obedient()), operation)

    assert caught.value.code == "FENCE_UNPROVEN"
    assert "failover start payments --lost db_a" in caught.value.remedy
    assert asked == []


@pytest.mark.parametrize("is_blocked", [True, False])
@pytest.mark.parametrize("verb", ["attach", "detach"])
def test_who_has_to_help_is_told_how_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, verb: str, is_blocked: bool
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise CloudError("VOLUME_ERROR", "it is in error", remedy="Do this.", blocked=is_blocked)

    state = ServerState("ACTIVE", None, None, True)
    monkeypatch.setattr(servers, "server_state", lambda *_: state)
    monkeypatch.setattr(volumes, "resolve_volume", lambda *_: "v1")
    monkeypatch.setattr(volumes, verb, refuse)
    operation = {**OPERATION, "properties": {"volume": "data", "server": "db_a"}}
    perform = {
        "attach": volume_attachment.attach_volume,
        "detach": volume_attachment.detach_volume,
    }[verb]

    with pytest.raises(CloudError) as caught:
        perform(context(Obedient()), operation)

    assert ("failover sweep" in caught.value.remedy) is is_blocked
    assert caught.value.remedy.startswith("Do this. ")
    assert caught.value.remedy.endswith("failover start payments")


@pytest.mark.parametrize("error", [LeaseLost("it is gone"), CloudError("TOKEN_EXPIRED", "no")])
def test_who_needs_do_nothing_is_not_told_to_go_on(error: CloudError) -> None:
    before = error.remedy

    with pytest.raises(CloudError) as caught, says_how_to_continue("payments"):
        raise error

    assert caught.value.remedy == before


def record(name: str, **changes: Any) -> Record:
    made: dict[str, Any] = {
        "id": name,
        "group_id": "g",
        "name": name,
        "type": "volume_attachment",
        "member": "db_a",
        "epoch": 0,
        "action": "CREATE",
        "status": "COMPLETE",
        "physical_id": "v1",
        "attributes": {"server_id": "s-a"},
    }
    return Record(**made | changes)


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({}, True),
        ({"id": "r"}, False),
        ({"action": "DELETE"}, False),
        ({"status": "FAILED"}, False),
        ({"status": "IN_PROGRESS"}, False),
        ({"physical_id": "v2"}, False),
        ({"attributes": {"server_id": "s-b"}}, False),
        ({"type": "house"}, False),
    ],
)
def test_a_volume_stays_where_another_resource_has_it_too(changes: Any, shares: bool) -> None:
    resource = {**OPERATION["resource"], "type": "volume_attachment", "physical_id": "v1"}

    found = sharing([record("other", **changes)], {**OPERATION, "resource": resource})

    assert found == (["other"] if shares else [])


@pytest.mark.parametrize(
    "perform", [activation.activate, activation.reactivate, activation.quiesce]
)
def test_a_command_that_fails_is_told_in_its_own_words(perform: Any) -> None:
    with pytest.raises(ActionError, match="ended with 32: no such device") as caught:
        perform(context(Obedient(32)), {**OPERATION, "previous": OTHER_ARGUMENTS})

    assert caught.value.code == "COMMAND_FAILED"
    assert caught.value.remedy.endswith(" on db_a, then: failover start payments")


@pytest.mark.parametrize(
    ("member", "who"),
    [(None, "the member has no server"), ({**MEMBER, "server_id": None}, "db_a has no server")],
)
@pytest.mark.parametrize(
    "perform", [activation.activate, activation.quiesce, volume_attachment.attach_volume]
)
def test_a_member_without_a_server_is_refused_before_anything_is_done(
    perform: Any, member: Any, who: str
) -> None:
    channel = Obedient()

    resource = {**OPERATION["resource"], "attributes": {}}
    with pytest.raises(ActionError, match=who) as caught:
        perform(context(channel), {**OPERATION, "member": member, "resource": resource})

    assert caught.value.code == "UNKNOWN_MEMBER"
    assert channel.commands == []


DEAD_HOST = [
    ({}, "failover start payments --lost db_a"),
    (fenced("quiesce"), "failover confirm-fenced payments db_a"),
    (fenced("stop"), "failover confirm-fenced payments db_a"),
]


@pytest.mark.parametrize(("proof", "command"), DEAD_HOST, ids=["unfenced", "quiesced", "stopped"])
def test_a_port_behind_a_dead_host_names_the_command_that_frees_it(
    monkeypatch: pytest.MonkeyPatch, proof: dict[str, Any], command: str
) -> None:
    monkeypatch.setattr(servers, "left_behind", lambda *_: None)
    off = ServerState("SHUTOFF", None, "DOWN", exists=True)

    def refuse(*_: Any, **__: Any) -> None:
        raise CloudError("HOST_DOWN", "the compute service of its host is down")

    monkeypatch.setattr(servers, "server_state", lambda *_: off)
    monkeypatch.setattr(networks, "detach_port", refuse)
    record = {"id": "r", "physical_id": "p-1", "attributes": {"server_id": "s-a"}}
    operation: Any = {**OPERATION, "resource": record, "inputs": proof}

    with pytest.raises(CloudError) as raised:
        port.detach_port(context(Obedient()), operation)

    assert command in raised.value.remedy
