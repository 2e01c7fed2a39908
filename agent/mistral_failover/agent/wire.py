# SPDX-License-Identifier: Apache-2.0
"""What goes over the broker between the executors and the agents: names, keys, envelopes.

Agents import this module too, so it needs only the standard library.

**Names.** An agent is addressed by its group's id and its server's id, so a new server behind an
old name shares nothing with the former one. One queue holds the commands of one server and one
epoch. An agent reads ``notices`` (which epoch is current) and the commands of its epoch; it
writes to the exchanges RESULTS and HEARTBEATS, and nowhere else.

**Keys.** Everything is signed (HMAC-SHA256). The installation's secret yields a group's
key, that yields a member's key, and that a key for one server and one epoch::

secret -> group key -> member key -> server key (notices) -> epoch key (all else)

A server holds its member key, or the group key if its member's name is not known in advance (an
autoscaling group). The derivation cannot be reversed, so the keys of another group's servers are of
no use here. A signature for another epoch or another server is not valid.

**Envelopes.** The body is JSON; the headers name kind, member and epoch, from which the reader
derives the key. Nothing of the body is read before the signature is verified.

**Versions.** Each document has the version of the protocol that its sender speaks. Peers may differ
by one, so that executors and agents are upgraded one after the other: a reader ignores fields that
it does not know, and a field that is new in a version is optional. Peers that differ by more refuse
each other, except that an agent obeys every notice.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mistral_failover.model.documents import load_json
from mistral_failover.model.errors import InvalidDocument

if TYPE_CHECKING:
    from typing import TypeGuard  # Python 3.9 has none

PROTOCOL = 1
"""The version that is spoken here. A document without one is of version 0."""

COMMANDS = "failover.commands"
"""The exchange (direct) that executors publish commands and notices to; routing key: the queue."""
RESULTS = "failover.results"
"""The exchange (direct) that agents publish results to; routing key: the command's reply_to."""
HEARTBEATS = "failover.heartbeats"
"""The exchange (direct) that agents publish heartbeats to; routing key: the queue."""
DEAD = "failover.dead"
"""The fanout exchange, and its queue, for commands that no agent took in time."""

MAX_BYTES = 64 * 1024
"""Maximum size of a message's body in bytes; a larger one is refused unread."""
MAX_OUTPUT = 16 * 1024
"""Characters of a command's stdout, and of its stderr, that a result carries: the last ones."""
MAX_RUNNING = 16
"""Names of running commands that a heartbeat carries."""
MAX_KNOWN = 8 * 1024
"""Characters of the names of the commands that an agent knows, for its heartbeat to carry them."""
MAX_BOOT = 64
"""Characters of the identity of a boot."""
MAX_REASON = 500
"""Characters of the reason why an agent is not ready."""
MAX_NAME = 255
"""Characters of a name."""

UNKNOWN_COMMAND = "UNKNOWN_COMMAND"
"""The code of a refusal for a command that is not on the agent's allow-list."""
NOT_REHEARSABLE = "NOT_REHEARSABLE"
"""The code of a refusal for a command that may not be rehearsed, or not on this server."""
REHEARSAL_RUNNING = "REHEARSAL_RUNNING"
"""The code of a refusal for a command of a rehearsal while another one runs there."""
REHEARSAL_ENDED = "REHEARSAL_ENDED"
"""The code for a command of a rehearsal that was ended there; nothing of it is left."""

END_REHEARSAL = "failover/end-rehearsal"
"""The command that ends a rehearsal; no entry of an allow-list has a slash in its name."""
_REHEARSED = "rehearsal/"
MAX_SHOWN = 4 * 1024
"""Bytes of a rehearsed command's stdout, and of its stderr, that its result carries: the last."""

Kind = Literal["command", "notice", "result", "heartbeat"]

KIND = "failover-kind"
MEMBER = "failover-member"
EPOCH = "failover-epoch"
SIGNATURE = "failover-signature"

_MAX_EPOCH = 2**31 - 1
_MAX_NUMBER = 1e15


class Malformed(Exception):
    """A message that is not what it claims to be. ``code``: TOO_LARGE, NOT_SIGNED, BAD_SIGNATURE,
    or MALFORMED. The message never quotes the content."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"{code}: {message}")


@dataclass(frozen=True)
class Address:
    """One server as a member of one group. ``group`` and ``member`` are names, ``group_id`` and
    ``server_id`` UUIDs."""

    group_id: str
    group: str
    member: str
    server_id: str

    def commands(self, epoch: int) -> str:
        """Return the queue of the commands of one epoch."""
        return f"failover.{self.group_id}.{self.server_id}.{epoch}"

    @property
    def notices(self) -> str:
        """Return the queue that tells the agent the current epoch: the highest of the notices in
        it."""
        return f"failover.{self.group_id}.{self.server_id}.notices"

    @property
    def heartbeats(self) -> str:
        """Return the queue that keeps the agent's latest heartbeat."""
        return f"failover.{self.group_id}.{self.server_id}.heartbeats"


# -- keys


def group_key(secret: bytes, group_id: str) -> bytes:
    """Derive a group's key from the installation's secret."""
    return _derive(secret, "group", group_id)


def member_key(group_key: bytes, member: str) -> bytes:
    """Derive a member's key from its group's."""
    return _derive(group_key, "member", member)


def server_key(member_key: bytes, server_id: str) -> bytes:
    """Derive the key that signs notices to one server."""
    return _derive(member_key, "server", server_id)


def epoch_key(member_key: bytes, server_id: str, epoch: int) -> bytes:
    """Derive the key of everything else between one server's agent and the executors in one
    epoch."""
    return _derive(server_key(member_key, server_id), "epoch", str(epoch))


def message_key(kind: str, member_key: bytes, server_id: str, epoch: int) -> bytes:
    """Return the key that signs a kind of message."""
    if kind == "notice":
        return server_key(member_key, server_id)
    return epoch_key(member_key, server_id, epoch)


def _derive(key: bytes, purpose: str, name: str) -> bytes:
    text = json.dumps(["mistral-failover", 1, purpose, name]).encode()
    return hmac.new(key, text, hashlib.sha256).digest()


# -- envelopes


def seal(kind: Kind, document: Mapping[str, Any], key: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return body and headers of a message. ``document`` has ``member`` and ``epoch`` at least, and
    gets the version of the protocol; ``key`` is that of :func:`message_key`. Raises Malformed
    TOO_LARGE."""
    body = json.dumps({"protocol": PROTOCOL, **document}, allow_nan=False).encode()
    if len(body) > MAX_BYTES:
        raise Malformed("TOO_LARGE", f"{len(body)} bytes, more than the allowed {MAX_BYTES}")
    return body, {
        KIND: kind,
        MEMBER: document["member"],
        EPOCH: document["epoch"],
        SIGNATURE: _sign(kind, body, key),
    }


def unseal(
    kind: Kind,
    body: Any,
    headers: Any,
    key_for: Callable[[str, int], bytes],
) -> dict[str, Any]:
    """Return the document of a message after verifying its signature. ``key_for(member, epoch)``
    returns the expected key. Raises Malformed."""
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise Malformed("MALFORMED", "its body is not bytes")
    body = bytes(body)
    if len(body) > MAX_BYTES:
        raise Malformed("TOO_LARGE", f"{len(body)} bytes, more than the allowed {MAX_BYTES}")
    if not isinstance(headers, Mapping):
        raise Malformed("NOT_SIGNED", "it has no headers")
    member, epoch, signature = headers.get(MEMBER), headers.get(EPOCH), headers.get(SIGNATURE)
    if not isinstance(signature, str) or not isinstance(member, str) or not is_epoch(epoch):
        raise Malformed("NOT_SIGNED", "a header of its signature is missing or not valid")
    try:
        given = bytes.fromhex(signature)
        key = key_for(member, epoch)
    except (ValueError, UnicodeError):
        raise Malformed("NOT_SIGNED", "a header of its signature is not valid") from None
    if headers.get(KIND) != kind or not hmac.compare_digest(
        given, bytes.fromhex(_sign(kind, body, key))
    ):
        raise Malformed("BAD_SIGNATURE", "its signature does not match the sender's key")
    try:
        document = load_json(body, "body", MAX_BYTES)
    except InvalidDocument:
        raise Malformed("MALFORMED", "its body is not JSON") from None
    if (
        not isinstance(document, dict)
        or not is_epoch(document.get("epoch"))
        or (document.get("member"), document["epoch"]) != (member, epoch)
    ):
        raise Malformed("MALFORMED", "its body and its headers differ")
    return document


def not_understood(document: Mapping[str, Any], sender: str, reader: str) -> str | None:
    """Return why a document's sender and its reader refuse each other, and which of them to
    upgrade; None if their versions differ by one at most."""
    version = document.get("protocol", 0)
    if not is_epoch(version):
        return f"{sender} states no valid version of the protocol. Upgrade {sender}"
    if abs(version - PROTOCOL) <= 1:
        return None
    older = sender if version < PROTOCOL else reader
    return (
        f"{sender} speaks version {version} of the protocol and {reader} version {PROTOCOL}, and "
        f"they may differ by one. Upgrade {older}"
    )


def is_epoch(value: Any) -> TypeGuard[int]:
    """Return whether a value is the number of an epoch."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_EPOCH


# -- rehearsals


def name_sent(name: str, rehearsal: str | None) -> str:
    """Return the name under which a command is sent. In a rehearsal it is one that no allow-list
    has: an agent that does not know rehearsals must not run the command as a real one."""
    return name if rehearsal is None or name == END_REHEARSAL else _REHEARSED + name


def name_meant(sent: str) -> str | None:
    """Return the name of a command that was sent as one of a rehearsal; None for another one."""
    if sent == END_REHEARSAL:
        return sent
    return sent[len(_REHEARSED) :] if sent.startswith(_REHEARSED) else None


# -- values: a signed document only shows what its sender claims, and the sender may be compromised


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return whether a value is a number fit for arithmetic and display: finite, below 10^15."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and -_MAX_NUMBER
        < value
        < _MAX_NUMBER  # NaN fails both comparisons; an int may have any length
    )


def is_boot(value: Any) -> TypeGuard[str | None]:
    """Return whether a value is the identity of a boot, or None where it is not known."""
    return value is None or (is_text(value, MAX_BOOT) and value.isprintable() and value != "")


def is_exit_code(value: Any) -> TypeGuard[int]:
    """Return whether a value is a process's exit code: an integer of 32 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31


def is_text(value: Any, longest: int = MAX_OUTPUT) -> TypeGuard[str]:
    """Return whether a value is a text of at most so many characters that can be encoded: without
    the single surrogates that JSON allows."""
    if not isinstance(value, str) or len(value) > longest:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def are_names(value: Any) -> TypeGuard[list[str]]:
    """Return whether a value is a list of names."""
    return isinstance(value, list) and all(is_text(name, MAX_NAME) for name in value)


def _sign(kind: str, body: bytes, key: bytes) -> str:
    return hmac.new(key, kind.encode() + b"\0" + body, hashlib.sha256).hexdigest()
