# SPDX-License-Identifier: Apache-2.0
"""Commands to members: send once, wait as long as the agent is working, and describe what was
observed if no result comes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mistral_failover.agent.channel.interface import (
    Channel,
    ChannelError,
    Command,
    CommandResult,
    Heartbeat,
)
from mistral_failover.agent.wire import Address
from mistral_failover.alongside import alongside
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.volume_holders import GONE, target_down
from mistral_failover.fault_points import reach
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.ids import derived_id
from mistral_failover.model.remedies import instead, need, sentence
from mistral_failover.model.types import Verb
from mistral_failover.resources.operation_context import (
    OperationContext,
    member_of,
    say_how_to_go_on,
)
from mistral_failover.runtime.errors import ActionError, masked, start_command

SILENCE = 30.0
"""Seconds without a message from the agent after which an operation's command fails."""
_RECENT = 15.0  # seconds within which an agent that lives has sent a heartbeat


def command_member(
    context: OperationContext,
    operation: OperationDocument,
    name: str,
    arguments: dict[str, Any],
    server_id: str,
    rehearsal: str | None = None,
) -> CommandResult:
    """Run a named command of the operation's member on one of its servers; a repeat of the
    operation sends the same command id. ``rehearsal``: as of a `Command`.

    A server whose agent was never heard may still be booting. So there NO_ANSWER is transient: the
    operation waits for the agent as for an unavailable service. A server that does not exist any
    more never answers: what was to start there is to start on another one, CloudError TARGET_DOWN.
    Errors otherwise as :func:`run_command`.
    """
    member = member_of(operation)
    command = Command(
        id=derived_id(operation["key"], name, *filter(None, [rehearsal])),
        to=Address(operation["group_id"], operation["group"], member["name"], server_id),
        epoch=member["epoch"],
        name=name,
        arguments=arguments,
        limit=min(SILENCE, operation["timeout"]),
        longest=operation["timeout"],
        rehearsal=rehearsal,
    )
    # What the record has on this server was made there by the agent, so that one was heard.
    known = operation["resource"]["attributes"].get("server_id") == server_id
    with _naming_the_state_of_its_server(context, operation, name, server_id):
        return _run_heard(context.channel, command, known=known)


def _run_heard(channel: Channel, command: Command, *, known: bool) -> CommandResult:
    if known:
        return run_command(channel, command)
    # The look is made while the command is sent: an agent may be heard in the end, too late to
    # answer.
    with alongside(lambda: channel.heard(command.to)) as heard:
        try:
            return run_command(channel, command)
        except ChannelError as error:
            if error.heard or error.transient or error.code != "NO_ANSWER" or heard() is not None:
                raise
            raise _not_heard_yet(command, error) from None


@contextmanager
def _naming_the_state_of_its_server(
    context: OperationContext, operation: OperationDocument, name: str, server_id: str
) -> Iterator[None]:
    """Let the error of a command that was to start something say that its server is gone, or that
    it does not run until a person ends its state. While Nova does not answer, the operation waits
    for Nova."""
    try:
        yield
    except ChannelError as failure:
        unanswered = failure.code == "NO_ANSWER" or failure.transient
        starts = operation["verb"] != Verb.DELETE
        if not (unanswered and starts):
            raise
        seen = server_state(context.cloud, server_id)
        if seen.exists:
            if failure.code == "NO_ANSWER" and seen.waits_for_a_person:
                group = operation["group"]
                failure.message += f", and {seen.unfit}"
                failure.remedy = f"{sentence(seen.needs, group)}. Then: {start_command(group)}"
                failure.needs = seen.needs
            raise
        why = "its server does not exist"
        error = target_down(name, server_id, why, GONE, host=None, held=False)
        error.message = f"Could not run {name} on server {server_id}: {why}"
        say_how_to_go_on(operation, error, gone=True)
        raise error from failure


def run_command(channel: Channel, command: Command) -> CommandResult:
    """Run a command on a member.

    This also waits for an agent that has not taken the command yet, if its heartbeat shows that it
    is working, for example stopping applications after it was deposed. Raises ActionError
    COMMAND_FAILED; ChannelError, whose message says what was observed; LeaseLost.
    """
    reach("command.before")
    result = _wait(channel, command)
    reach("command.after")
    if result.exit_code != 0:
        said = masked((result.stderr or result.stdout).strip())[-500:]
        raise ActionError(
            "COMMAND_FAILED",
            f"{command.name} on {command.to.member} ended with {result.exit_code}: {said}",
            f"Check {command.name} on {command.to.member}, then: "
            + start_command(command.to.group),
        )
    return result


def _wait(channel: Channel, command: Command) -> CommandResult:
    began = time.monotonic()
    left = command.patience
    while True:
        attempt = replace(command, limit=min(command.limit, left), longest=left)
        try:
            return channel.run(attempt)
        except ChannelError as error:
            seconds = time.monotonic() - began
            left = command.patience - seconds
            if error.code == "UNKNOWN_OUTCOME":
                raise _unknown(command, error) from None
            if error.code != "NO_ANSWER":
                raise
            beat, words = last_heartbeat(channel, command)
            if error.heard or left <= 0 or beat is None or not _at_work(beat, command.limit):
                said = _observed(command, error.heard, beat, words, seconds)
                raise _unanswered(command, said, error) from None


def last_heartbeat(channel: Channel, command: Command) -> tuple[Heartbeat | None, str]:
    """Return the last heartbeat of the agent that a command is for, if there is one, and a clause
    that describes it. Raises LeaseLost."""
    try:
        beat = channel.heard(command.to)
    except ChannelError as error:
        return None, f"its heartbeats cannot be read: {error.message.rstrip('.')}"
    if beat is None:
        return None, "no heartbeat of it was received"
    return beat, f"its last heartbeat came {beat.ago:.0f} s ago"


def _at_work(beat: Heartbeat, limit: float) -> bool:
    return bool(beat.running) and beat.ago <= max(limit, _RECENT)


def _observed(
    command: Command, heard: str, beat: Heartbeat | None, words: str, seconds: float
) -> str:
    agent = f"{command.to.member}'s agent"
    if heard and seconds >= command.patience:
        return f"{agent} reports that {command.name} is still running after {seconds:.0f} s"
    if heard:
        return f"{agent} sent no further message for {command.limit:g} s: {heard} ({words})"
    if beat is not None and _at_work(beat, command.limit):
        at_work = (
            f"{' and '.join(beat.running)} {'are' if beat.running[1:] else 'is'} still running"
        )
        return (
            f"{agent} reports that {at_work} after {seconds:.0f} s; {command.name} waits for that"
        )
    return f"{agent} did not answer for {command.limit:g} s ({words})"


def _unanswered(command: Command, said: str, error: ChannelError) -> ChannelError:
    member, group = command.to.member, command.to.group
    return ChannelError(
        "NO_ANSWER",
        said,
        f"Check whether {member} is still running, and repair its agent, then: "
        f"{start_command(group)}. Only if the member is lost, have it fenced: "
        f"{start_command(group, lost=member)}",
        heard=error.heard,
        detail=error.detail,
        needs=instead(
            [
                need("MOVE_SILENT", lost=(member,), silent=member),
                need("REBOOT_SERVER", server=command.to.server_id),
            ]
        ),
    )


def _not_heard_yet(command: Command, error: ChannelError) -> ChannelError:
    """Return the error that makes the operation wait for the first heartbeat of the agent."""
    member, server_id = command.to.member, command.to.server_id
    return ChannelError(
        error.code,
        error.message,
        f"See how far it booted: openstack console log show {server_id}. {error.remedy}",
        service=f"the agent of {member}",
        detail=f"not heard since server {server_id} was created; does failover-agent run there?",
    )


def _unknown(command: Command, error: ChannelError) -> ChannelError:
    """Return the error with the command that an operator runs on the server to settle it."""
    return ChannelError(
        error.code,
        error.message,
        f"Check on {command.to.member} whether {command.name} took effect, and record that there "
        f"with `failover-agent settle {command.id} --done` or `--not-done`. To continue the "
        f"operation: {start_command(command.to.group)}",
        heard=error.heard,
    )
