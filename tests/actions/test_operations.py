# SPDX-License-Identifier: Apache-2.0
"""What the operations of the shipped types do beyond what the adapters do for them."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.actions import operations
from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.operations import Tools
from mistral_failover.agent.channel import Command, CommandResult

MEMBER = {"name": "db_a", "server_id": "s-a", "epoch": 3}
PROPERTIES = {"member": "db_a", "start": "pg-start", "stop": "pg-stop", "device": "/dev/vdb"}
OPERATION: dict[str, Any] = {
    "key": "k",
    "group": "payments",
    "stack": "payments",
    "member": MEMBER,
    "properties": PROPERTIES,
    "previous": None,
    "inputs": {},
    "timeout": 300.0,
}
FENCED = {"fence:db_a": {"id": None, "attributes": {"observed": "SHUTOFF"}}}


class Obedient:
    """A channel to a member that does what it is told, or ends with ``code``."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.commands: list[Command] = []

    def run(self, command: Command) -> CommandResult:
        self.commands.append(command)
        return CommandResult(command.id, self.code, "out", "no such device\n", False)


def tools(channel: Obedient) -> Tools:
    return Tools(None, channel)  # type: ignore[arg-type] - no operation here calls the cloud


def test_the_start_command_gets_every_further_property_as_an_argument() -> None:
    channel = Obedient()

    made = operations.activate(tools(channel), OPERATION)

    (command,) = channel.commands
    assert (command.name, command.arguments) == ("pg-start", {"device": "/dev/vdb"})
    assert (command.member, command.server_id, command.epoch) == ("db_a", "s-a", 3)
    assert command.limit == 300.0
    assert made == {"physical_id": "s-a/pg-start", "attributes": {"output": "out"}}


def test_a_repeat_of_an_operation_sends_the_same_command_id() -> None:
    channel = Obedient()
    for _ in range(2):
        operations.activate(tools(channel), OPERATION)
    operations.activate(tools(channel), {**OPERATION, "key": "another"})

    first, again, other = (command.id for command in channel.commands)
    assert first == again != other


@pytest.mark.parametrize("previous", [None, {**PROPERTIES, "stop": "old-stop"}])
def test_new_arguments_stop_the_application_as_it_was_and_start_it_anew(previous: Any) -> None:
    channel = Obedient()

    operations.reactivate(tools(channel), {**OPERATION, "previous": previous})

    stop = (previous or PROPERTIES)["stop"]
    assert [command.name for command in channel.commands] == [stop, "pg-start"]
    assert channel.commands[0].arguments == {}


def test_a_quiesce_runs_the_stop_command() -> None:
    channel = Obedient()

    made = operations.quiesce(tools(channel), OPERATION)

    assert [command.name for command in channel.commands] == ["pg-stop"]
    assert made == {"attributes": {"quiesced_by": "its stop command"}}


def test_a_fenced_member_is_quiesced_by_the_proof_alone() -> None:
    channel = Obedient()

    made = operations.quiesce(tools(channel), {**OPERATION, "inputs": FENCED})

    assert channel.commands == []
    assert made == {"attributes": {"quiesced_by": "SHUTOFF"}}


@pytest.mark.parametrize(
    "perform", [operations.activate, operations.reactivate, operations.quiesce]
)
def test_a_command_that_fails_is_told_in_its_own_words(perform: Any) -> None:
    with pytest.raises(ActionError, match="ended with 32: no such device") as caught:
        perform(tools(Obedient(32)), OPERATION)

    assert caught.value.code == "COMMAND_FAILED"
    assert "on db_a" in caught.value.remedy


@pytest.mark.parametrize(
    ("member", "who"),
    [(None, "the member has no server"), ({**MEMBER, "server_id": None}, "db_a has no server")],
)
@pytest.mark.parametrize(
    "perform", [operations.activate, operations.quiesce, operations.attach_volume]
)
def test_a_member_without_a_server_is_refused_before_anything_is_done(
    perform: Any, member: Any, who: str
) -> None:
    channel = Obedient()

    with pytest.raises(ActionError, match=who) as caught:
        perform(tools(channel), {**OPERATION, "member": member})

    assert caught.value.code == "UNKNOWN_MEMBER"
    assert channel.commands == []
