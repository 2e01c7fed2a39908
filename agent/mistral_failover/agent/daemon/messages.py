# SPDX-License-Identifier: Apache-2.0
"""The documents that an agent reads and writes: their formats and checks."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mistral_failover.agent import wire
from mistral_failover.agent.daemon.journal import JournalEntry
from mistral_failover.agent.daemon.settings import Account, CommandSpec, Identity
from mistral_failover.agent.wire import MAX_OUTPUT

if TYPE_CHECKING:
    from typing import TypeGuard  # Python 3.9 has none

SKEW = 300.0
"""Seconds by which the clocks of an executor and a server may differ."""
OWN = "deposed:"
"""The prefix of the ids of the agent's own commands; no other command has it."""

_WORD = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
_REHEARSAL = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONGEST_LIMIT = 7 * 86400.0


_REHEARSAL_LANE, _END_LANE = "rehearsal/", "rehearsal/end"  # no other lane has a slash in its name
_END = CommandSpec(wire.END_REHEARSAL, (), Account("", 0, 0, (), "/"), lane=_END_LANE)


class Refused(Exception):  # noqa: N818 - it names the answer, not a mechanism
    """A command that is not carried out. ``code``: REFUSED, OLD_EPOCH, UNKNOWN_COMMAND, or, in a
    rehearsal, NOT_REHEARSABLE, REHEARSAL_RUNNING, REHEARSAL_ENDED. The message quotes no value of
    the request."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")


@dataclass(frozen=True)
class Request:
    """A requested command. ``limit``: seconds within which the sender expects a message;
    ``longest``: seconds within which it expects the result while progress is reported.
    ``rehearsal``: the id of the rehearsal that it belongs to; None: it is a real command."""

    id: str
    member: str
    epoch: int
    name: str
    reply_to: str
    limit: float = 30.0
    longest: float = 30.0
    sent_at: float = 0.0
    arguments: dict[str, Any] = field(default_factory=dict)
    rehearsal: str | None = None

    @property
    def ends_rehearsal(self) -> bool:
        """Whether it is the agent's own command that ends a rehearsal."""
        return self.name == wire.END_REHEARSAL


def read_command(document: Mapping[str, Any], identity: Identity) -> Request:
    """Parse a command's document after its signature was verified.

    Raises wire.Malformed if it cannot even be answered, else `Refused`, which the caller answers by
    :func:`answerable`.
    """
    request = answerable(document)
    why = wire.not_understood(document, "the executor of Mistral", "the agent")
    if why is not None:
        raise Refused("REFUSED", f"Not understood: {why}.")
    _check_addressee(document, identity)
    arguments = document.get("arguments")
    if not request.name:
        raise Refused("REFUSED", "The command's name is not valid.")
    if not isinstance(arguments, dict):
        raise Refused("REFUSED", "The command's arguments are not a mapping.")
    limit, sent_at = document.get("limit"), document.get("sent_at")
    longest = document.get("longest", limit)
    if not _is_limit(limit) or not _is_limit(longest):
        raise Refused("REFUSED", "The command's limit is not a number of seconds.")
    if not _is_number(sent_at):
        raise Refused("REFUSED", "The command has no sending time.")
    return Request(
        id=request.id,
        member=request.member,
        epoch=request.epoch,
        name=request.name,
        reply_to=request.reply_to,
        limit=float(limit),
        longest=float(longest),
        sent_at=float(sent_at),
        arguments=arguments,
        rehearsal=request.rehearsal,
    )


def answerable(document: Mapping[str, Any]) -> Request:
    """Return what is needed to answer a document. Raises wire.Malformed if that is missing."""
    command_id, reply_to = document.get("id"), document.get("reply_to")
    if not _is_word(command_id) or command_id.startswith(OWN) or not _is_word(reply_to):
        raise wire.Malformed("MALFORMED", "its id or reply_to is not valid")
    name, rehearsal = document.get("name"), document.get("rehearsal")
    if rehearsal is not None:
        # A rehearsal's command that is not named as one could be a real one by mistake.
        name = wire.name_meant(name) if isinstance(name, str) else None
        if not isinstance(rehearsal, str) or not _REHEARSAL.fullmatch(rehearsal):
            name = rehearsal = None
    return Request(
        id=command_id,
        member=document["member"],
        epoch=document["epoch"],
        name=name if _is_word(name) else "",
        reply_to=reply_to,
        rehearsal=rehearsal,
    )


def read_notice(document: Mapping[str, Any], identity: Identity) -> tuple[str, int]:
    """Return the member's name and the epoch in a notice. Raises wire.Malformed if it is for
    another server."""
    try:
        _check_addressee(document, identity)
    except Refused as error:
        raise wire.Malformed("MALFORMED", error.message) from None
    return document["member"], document["epoch"]


def check_fresh(request: Request) -> None:
    """Raises `Refused` for a command whose sender no longer waits for it."""
    late = time.time() - request.sent_at - request.limit
    if late > SKEW:
        raise Refused(
            "REFUSED",
            f"The command came {late:.0f} s too late, by the agent's clock; the clocks may differ "
            f"by up to {SKEW:.0f} s.",
        )


def check_allowed(request: Request, commands: Mapping[str, CommandSpec]) -> CommandSpec:
    """Return the entry of the allow-list, in a rehearsal as it is rehearsed. Raises `Refused` if
    there is none or if the arguments do not match its declaration."""
    if request.ends_rehearsal and request.rehearsal is not None:
        return _END
    spec = commands.get(request.name)
    if spec is None:
        words = f"{request.name} is not on the member's allow-list."
        raise Refused(wire.UNKNOWN_COMMAND, words)
    values_of(request.arguments, spec)
    if request.rehearsal is None:
        return spec
    if spec.rehearse is None:
        raise Refused(
            wire.NOT_REHEARSABLE,
            f"{request.name} may not be rehearsed: its entry in the agent's file has no rehearse.",
        )
    return replace(spec, argv=spec.rehearse, check=None, lane=_REHEARSAL_LANE)


def values_of(arguments: Mapping[str, Any], spec: CommandSpec) -> dict[str, str]:
    """Return the arguments as words of a command line. Raises `Refused`."""
    unknown = sorted(arguments.keys() - spec.arguments.keys())
    if unknown:
        raise Refused("REFUSED", f"{spec.name} declares no argument {_shown(unknown[0])}.")
    values = {}
    for name, pattern in spec.arguments.items():
        if name not in arguments:
            raise Refused("REFUSED", f"{spec.name} needs the argument {name}.")
        text = _text_of(arguments[name])
        if text is None or not pattern.fullmatch(text):
            raise Refused("REFUSED", f"{spec.name} does not accept this value of {name}.")
        values[name] = text
    return values


# -- answers


def result(identity: Identity, request: Request, state: str, **values: Any) -> dict[str, Any]:
    """Return a result's document: ``state`` and its fields."""
    return {
        "id": request.id,
        "group_id": identity.group_id,
        "member": request.member,
        "server_id": identity.server_id,
        "epoch": request.epoch,
        "name": request.name,
        "state": state,
        **values,
    }


def recorded(
    identity: Identity, request: Request, row: JournalEntry, *, replayed: bool
) -> dict[str, Any]:
    """Return the result that the journal has of a command that is done or unknown."""
    if row.state != "done":
        why = row.said or "it began, and no end is recorded"
        return result(
            identity,
            request,
            "unknown",
            code="UNKNOWN_OUTCOME",
            message=f"It is unknown whether {request.name} took effect: {why}.",
        )
    keep = wire.MAX_SHOWN if row.rehearsal else None
    return result(
        identity,
        request,
        "done",
        exit_code=row.exit_code,
        stdout=_end_of(row.stdout, keep),
        stderr=_end_of(row.stderr or row.said, keep),
        seconds=row.seconds or 0.0,
        replayed=replayed,
        boot=row.boot_id,
    )


def seal_fitting(
    kind: wire.Kind, document: dict[str, Any], key: bytes
) -> tuple[bytes, dict[str, Any]]:
    """Seal a document; if its output is too long as JSON, keep the end of it."""
    keep = MAX_OUTPUT
    while True:
        try:
            return wire.seal(kind, document, key)
        except wire.Malformed:
            if keep == 0:
                raise
            keep //= 2
            document = {
                **document,
                "stdout": document.get("stdout", "")[-keep:] if keep else "",
                "stderr": document.get("stderr", "")[-keep:] if keep else "",
            }


# -- within


def _end_of(text: str, keep: int | None) -> str:
    """The end of a text, of at most so many bytes; None: all of it."""
    return text if keep is None else text.encode()[-keep:].decode(errors="ignore")


def _check_addressee(document: Mapping[str, Any], identity: Identity) -> None:
    if (document.get("group_id"), document.get("server_id")) != (
        identity.group_id,
        identity.server_id,
    ):
        raise Refused("REFUSED", "The message is for another group or server.")


def _is_word(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None and _is_utf8(value)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15


def _is_limit(value: Any) -> TypeGuard[float]:
    return _is_number(value) and 0 < value <= _LONGEST_LIMIT


def _shown(name: str) -> str:
    return repr(name[:64])


def _text_of(value: Any) -> str | None:
    """Return a JSON value as a word of a command line; None if that is impossible."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value if "\0" not in value and _is_utf8(value) else None
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    return None
