# SPDX-License-Identifier: Apache-2.0
"""Check the command channel and each member's agent."""

from __future__ import annotations

import time
from collections.abc import Iterable
from shlex import quote
from urllib.parse import urlsplit

from mistral_failover.agent.channel.interface import Channel, ChannelError, Heartbeat
from mistral_failover.agent.wire import Address
from mistral_failover.doctor.checks import Examination, ExaminedGroup, Finding, error, ok, warn
from mistral_failover.groups.agent_health import commands_of, lacking, sends_commands
from mistral_failover.loopback import is_loopback
from mistral_failover.model.heartbeats import EVERY, FIRST, SILENT
from mistral_failover.model.observation import Condition
from mistral_failover.runtime.deadlines import within
from mistral_failover.store import groups, observations
from mistral_failover.store.transaction import ProjectTransaction

LATE = 1.5 * EVERY
"""Seconds after which a heartbeat is late: the agent is silent, or the clocks differ."""
REACH = 16.0
"""Seconds that the first request over the channel may take: an unreachable broker is tried for
15."""
_PAUSE = 0.5
_PLAIN = "amqp"


def channel(examination: Examination) -> Iterable[Finding]:
    """Check that the command channel is configured and keeps commands secret on their way."""
    url = examination.settings.command_channel
    if not url:
        yield ok("no command channel is configured; only groups with activation need one")
        return
    parts = urlsplit(url)
    unsigned = parts.scheme.startswith(_PLAIN) and not examination.settings.agent_key_file
    open_to_all = parts.scheme == _PLAIN and not (
        parts.hostname == "localhost" or is_loopback(parts.hostname or "")
    )
    if unsigned:
        yield error(
            "agent_key_file is not set: commands cannot be signed",
            "Set [failover] agent_key_file on every executor: docs/broker.md.",
        )
    if open_to_all:
        yield warn(
            "the command channel is not encrypted (amqp)",
            "Use amqps and a certificate: docs/broker.md.",
        )
    if not unsigned and not open_to_all:
        yield ok(f"the command channel is {parts.scheme}")


def agents(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check that the broker is reachable with the executor's rights, and that every agent is
    heard."""
    snapshot, examination = subject.snapshot, subject.examination
    if subject.out_of_service or not sends_commands(snapshot.group):
        return
    if not examination.settings.command_channel:
        yield error(
            "its resources start and stop by commands, but no command channel is configured",
            "Set [failover] command_channel, and run an agent on each member: docs/agent.md.",
        )
        return
    known = examination.reading(lambda tx: groups.members_of(tx, snapshot.state.id))
    off = examination.reading(lambda tx: _servers_off(tx, snapshot.state.id))
    asked = {
        m.name: Address(snapshot.state.id, snapshot.group.name, m.name, m.server_id)
        for m in known.values()
        if m.server_id is not None
    }
    line = examination.request.channel(examination.cloud, examination.guard)
    try:
        beats = within(min(REACH, examination.left), lambda: _heard(line, asked))
    except ChannelError as problem:
        yield error(f"{problem} [{problem.code}]", problem.remedy)
        return
    if beats is None:
        yield error(
            f"the command channel did not answer within {REACH:.0f} s",
            "Check [failover] command_channel, and that the broker is running.",
        )
        return
    shifted = within(min(FIRST + 2, examination.left), lambda: _shifted(line, asked, beats)) or {}
    for member in known.values():
        beat = beats.get(member.name)
        silent = (beat is None or beat.ago > LATE) and member.name not in shifted
        if silent and member.name in off and member.name not in snapshot.lost:
            yield ok(f"the agent on {member.name} is silent: {off[member.name]}")
            continue
        yield from _member(member, beat, shifted.get(member.name), snapshot.lost)
        held = [role for role, holder in snapshot.roles.items() if holder == member.name]
        if lacks := lacking(beat, commands_of(snapshot.group, held or None)):
            yield (error if held else warn)(
                f"{member.name}: {lacks}",
                f"Add it to {member.name}'s allow-list (docs/agent.md), or correct the name in the "
                f"group file and run: failover group update FILE --name {quote(subject.name)}",
            )


def _servers_off(tx: ProjectTransaction, group_id: str) -> dict[str, str]:
    """Return by member why its server cannot run an agent, as the last look found it. The check of
    the members says what helps."""
    look = observations.of_group(tx, group_id)
    return {
        each.name: each.observed.why
        for each in (look.seen.members if look else ())
        if each.condition in (Condition.STOPPED, Condition.DELETED)
    }


def _member(
    member: groups.MemberRow, beat: Heartbeat | None, shifted: float | None, lost: frozenset[str]
) -> Iterable[Finding]:
    name = member.name
    start = f"on {name}: systemctl status failover-agent; docs/agent.md"
    if beat is None:
        if name not in lost:
            yield error(f"no heartbeat of the agent on {name} was ever received", start)
    elif shifted is not None:
        yield warn(
            f"the heartbeats of the agent on {name} arrive, but their timestamps are "
            f"{shifted:.0f} s old: the clock of {name} or of this executor is wrong",
            f"Synchronize the clocks of {name} and of Mistral's hosts with chrony or ntpd: an "
            f"agent whose heartbeats seem {SILENT:.0f} s old counts as silent.",
        )
    elif beat.ago > LATE:
        silent = f"the agent on {name} has sent no heartbeat for {beat.ago:.0f} s"
        if name in lost:
            yield ok(f"{silent}; it is declared lost")
        elif beat.ago > SILENT:
            yield error(silent, start)
        else:
            yield warn(silent, start)
    elif beat.not_ready is not None:
        yield error(
            f"the agent on {name} is not ready: {beat.not_ready}",
            f"on {name}: failover-agent check; it is ready again by itself once it can write",
        )
    elif 0 < beat.epoch < member.epoch:  # 0: nothing was commanded there yet
        yield warn(
            f"the agent on {name} has epoch {beat.epoch}, but {member.epoch} is current",
            f"The agent receives the new epoch by itself; if not, on {name}: systemctl restart "
            "failover-agent",
        )
    else:
        epoch = f", epoch {beat.epoch}" if beat.epoch else ""  # 0: it got no command yet
        runs = f"; it runs {', '.join(beat.running)}" if beat.running else ""
        yield ok(f"the agent on {name} sent a heartbeat {beat.ago:.0f} s ago{epoch}{runs}")
    if beat is not None and beat.deposed is not None and name not in lost:
        yield warn(
            f"the agent on {name} was deposed: {beat.deposed}",
            f"If that is a failure, {start}. Otherwise do nothing: its next command ends this "
            "state.",
        )


def _heard(line: Channel, asked: dict[str, Address]) -> dict[str, Heartbeat]:
    beats = {name: line.heard(address) for name, address in asked.items()}
    return {name: beat for name, beat in beats.items() if beat is not None}


def _shifted(
    line: Channel, asked: dict[str, Address], beats: dict[str, Heartbeat]
) -> dict[str, float]:
    """Return those agents whose last heartbeat seems late but that still send, with the seconds by
    which their timestamps are off: the age of a silent agent's last heartbeat keeps growing; if
    only the clock is wrong, the age starts again with each heartbeat."""
    began = time.monotonic()
    late = {name: beat.ago for name, beat in beats.items() if beat.ago > LATE}
    found: dict[str, float] = {}
    while late.keys() - found.keys() and time.monotonic() - began < FIRST:
        time.sleep(_PAUSE)
        for name in late.keys() - found.keys():
            again = line.heard(asked[name])
            grown = late[name] + time.monotonic() - began
            if again is not None and again.ago < grown - EVERY / 2:
                found[name] = again.ago
    return found
