# SPDX-License-Identifier: Apache-2.0
"""How executors and agents connect to the broker, and what they declare there.

Agents import this module too, so it needs only the standard library, kombu and :mod:`.wire`.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from amqp.exceptions import MessageNacked
from amqp.transport import SSLTransport, TCPTransport
from kombu.connection import Connection
from kombu.exceptions import ChannelError, ConnectionError, OperationalError
from kombu.message import Message
from kombu.messaging import Producer
from kombu.transport import pyamqp

from mistral_failover import lookups
from mistral_failover.agent import wire
from mistral_failover.agent.local import FileTransport, MemoryTransport

HEARTBEAT = 10.0
"""Seconds; a connection that receives nothing for twice as long counts as broken."""
CONNECT = 5.0
"""Seconds that connecting may take; a TLS handshake may take as long again."""
CALL = 10.0
"""Seconds that one call over the broker may take."""

_LEAST = 0.1  # seconds for an address when the time is over: none would mean that it never ends

COMMAND_TTL = 3600.0
"""Seconds after which a command that no agent took becomes a dead letter."""
UNUSED = 7 * 86400.0
"""Seconds after which the broker deletes a queue that was neither used nor declared again."""
NOTICES = 16
"""Notices that the broker keeps for an agent that is offline."""
DEAD_TTL = 7 * 86400.0
DEAD_LENGTH = 10_000

ERRORS: tuple[type[BaseException], ...] = (
    OSError,
    OperationalError,
    ConnectionError,
    ChannelError,
    MessageNacked,
    # py-amqp raises these while it tears down a connection that has just been lost.
    AttributeError,
    KeyError,
)
"""What a call over the broker raises when the broker is unreachable, refuses, or times out."""


class BadUrl(ValueError):
    """The broker's URL is not usable; the message never quotes the password."""


class Unroutable(Exception):
    """The broker has no queue for a message that must have one."""


class Broker:
    """One broker, named by a URL.

    ``amqp://user:password@host[:port]/vhost``, or ``amqps://...[?cafile=PATH]``: the broker's
    certificate is verified against the system's authorities, or against those in a named file.
    ``memory://NAME`` and ``filesystem:///FOLDER`` are for drills and tests.

    ``real``: the broker honours queue arguments. ``shown``: the URL without user and password, for
    messages.
    """

    def __init__(self, url: str) -> None:
        """Raises `BadUrl`."""
        try:
            parts = urlsplit(url)
            port = parts.port
            query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=False))
        except ValueError:
            raise BadUrl("The broker's URL is not valid.") from None
        self.real = parts.scheme in ("amqp", "amqps")
        self._options: dict[str, Any]
        if self.real:
            self._options, self.shown = _amqp(parts, port, query)
        elif query or parts.username or port or parts.scheme not in ("memory", "filesystem"):
            raise BadUrl(
                "The broker's URL must be amqp://, amqps://, memory://NAME or filesystem:///FOLDER."
            )
        else:
            self._options, self.shown = _local(parts.scheme, parts.netloc, unquote(parts.path))

    def __repr__(self) -> str:
        """The URL without user and password."""
        return f"Broker({self.shown!r})"

    def connection(self, seconds: float = CONNECT) -> Connection:
        """Return a new connection that is not established yet; establishing it may take
        ``seconds``. Only one thread at a time may use it."""
        options = dict(self._options, connect_timeout=min(seconds, CONNECT))
        # Connections modify the options they receive.
        options["transport_options"] = dict(options["transport_options"])
        if isinstance(options.get("ssl"), dict):
            options["ssl"] = dict(options["ssl"])
        return Connection(**options)

    def connect(self, seconds: float = CONNECT) -> Connection:
        """Return a new connection, established at the first attempt within about ``seconds``.
        Raises :data:`ERRORS`."""
        connection = self.connection(seconds)
        try:
            connection.ensure_connection(max_retries=0)
        except BaseException:
            forget(connection)
            raise
        return connection

    # -- declarations

    def declare_exchanges(self, channel: Any) -> None:
        """Declare the exchanges and the queue of dead letters. Only executors call this."""
        for name in (wire.COMMANDS, wire.RESULTS, wire.HEARTBEATS):
            channel.exchange_declare(exchange=name, type="direct", durable=True, auto_delete=False)
        channel.exchange_declare(exchange=wire.DEAD, type="fanout", durable=True, auto_delete=False)
        self._queue(
            channel,
            wire.DEAD,
            {
                "x-max-length": DEAD_LENGTH,
                "x-overflow": "drop-head",
                "x-message-ttl": _milliseconds(DEAD_TTL),
            },
        )
        channel.queue_bind(queue=wire.DEAD, exchange=wire.DEAD, routing_key="")

    def declare_commands(self, channel: Any, address: wire.Address, epoch: int) -> str:
        """Declare the queue of one epoch's commands and return its name. Only executors call this:
        the queue's existence tells the agent that the epoch is current."""
        name = address.commands(epoch)
        self._queue(
            channel,
            name,
            {
                "x-dead-letter-exchange": wire.DEAD,
                "x-expires": _milliseconds(UNUSED),
                "x-message-ttl": _milliseconds(COMMAND_TTL),
            },
        )
        channel.queue_bind(queue=name, exchange=wire.COMMANDS, routing_key=name)
        return name

    def declare_notices(self, channel: Any, address: wire.Address, *, bind: bool = False) -> str:
        """Declare the queue of the latest notices and return its name; the highest epoch in it
        counts. It keeps more than one notice: an executor that lost its lock may still publish one
        of an older epoch, which must not displace the current one. ``bind``: executors do, agents
        may not."""
        name = address.notices
        self._queue(channel, name, {"x-max-length": NOTICES, "x-overflow": "drop-head"})
        if bind:
            channel.queue_bind(queue=name, exchange=wire.COMMANDS, routing_key=name)
        return name

    def declare_heartbeats(self, channel: Any, address: wire.Address, *, bind: bool = False) -> str:
        """The queue of the latest heartbeat; return its name. ``bind``: executors do, agents may
        not. A declaration renews the queue's life."""
        name = address.heartbeats
        self._queue(
            channel,
            name,
            {
                "x-max-length": 1,
                "x-overflow": "drop-head",
                "x-message-ttl": _milliseconds(COMMAND_TTL),
                "x-expires": _milliseconds(UNUSED),
            },
        )
        if bind:
            channel.queue_bind(queue=name, exchange=wire.HEARTBEATS, routing_key=name)
        return name

    def declare_replies(self, channel: Any, name: str, most: int) -> None:
        """Declare a queue of this connection's replies, which keeps the latest ``most``."""
        self._queue(channel, name, {"x-max-length": most, "x-overflow": "drop-head"}, passing=True)

    def keep_latest(self, channel: Any, queue: str) -> None:
        """Make room before publishing to a queue of the latest message, where the broker does not
        do so by itself."""
        if not self.real:
            channel.queue_purge(queue=queue)

    def queue_exists(self, connection: Connection, name: str) -> bool:
        """Ask the broker, in one round trip, whether a queue exists. Raises :data:`ERRORS` when it
        does not answer.

        This uses a channel of its own, because the broker closes the channel if there is no such
        queue.
        """
        _still_there(connection)
        channel = connection.channel()
        try:
            channel.queue_declare(queue=name, passive=True)
        except ChannelError as error:
            # A queue on a cluster node that is down is reported as "not found" as well.
            if _code(error) != "404" or "no queue" not in str(error):
                raise
            return False
        finally:
            connection.maybe_close_channel(channel)
        return True

    def delete_queue(self, channel: Any, name: str) -> None:
        """Delete a queue and its messages; a missing queue is fine. Deleted messages do not become
        dead letters."""
        channel.queue_delete(queue=name)

    # -- messages

    def publish(
        self,
        channel: Any,
        exchange: str,
        routing_key: str,
        sealed: tuple[bytes, dict[str, Any]],
        *,
        mandatory: bool = False,
        expiration: float | None = None,
        timeout: float = CALL,
    ) -> None:
        """Publish what ``wire.seal`` made, persistent; return once the broker has confirmed it.

        ``expiration``: seconds after which the message becomes a dead letter; None: as long as its
        queue keeps it. While this waits for the confirmation, the channel's consumers may be
        called. Raises :data:`ERRORS`, after which the broker may or may not have the message, and,
        where ``mandatory``, `Unroutable`.
        """
        body, headers = sealed
        returned: list[Any] = []
        listeners = channel.events["basic_return"] if self.real else set()

        def on_return(*what: Any) -> None:
            returned.append(what)

        listeners.add(on_return)
        try:
            Producer(channel, auto_declare=False).publish(
                body,
                exchange=exchange,
                routing_key=routing_key,
                headers=headers,
                content_type="application/octet-stream",
                content_encoding="binary",
                delivery_mode=2,
                expiration=expiration,
                mandatory=mandatory,
                timeout=timeout,
                retry=False,
            )
        finally:
            listeners.discard(on_return)
        if returned:
            raise Unroutable(f"{exchange} has no queue {routing_key}")

    @staticmethod
    def _queue(
        channel: Any, name: str, arguments: Mapping[str, Any], *, passing: bool = False
    ) -> None:
        """Declare a queue. ``passing``: it is for this connection only."""
        channel.queue_declare(
            queue=name,
            durable=not passing,
            exclusive=passing,
            auto_delete=passing,
            # The virtual host's default may be a type that has no such queues.
            arguments={"x-queue-type": "classic", **arguments},
        )


# -- reading


def reading_channel(connection: Connection) -> Any:
    """Return a new channel that delivers messages as raw bytes. Any client that may write to a
    queue chooses the headers, content type and encoding; nothing may be decompressed, decoded or
    unpickled before the signature is verified. Read everything over such a channel. Raises
    :data:`ERRORS`."""
    channel = connection.channel()
    channel.Message = _raw_message(channel.Message)
    channel.auto_decode = False  # py-amqp's, of content_encoding
    return channel


def take(channel: Any, queue: str) -> Any:
    """Return the next message of a queue, to be acknowledged; None if the queue is empty. Raises
    :data:`ERRORS`."""
    with _readable():
        raw = channel.basic_get(queue=queue)
        return None if raw is None else channel.message_to_python(raw)


class _RawMessage(Message):
    """A message kept as raw bytes. kombu itself would decompress it at once if a header says so."""

    def __init__(self, body: Any = None, headers: Any = None, **more: Any) -> None:
        kept = {name: value for name, value in (headers or {}).items() if name != "compression"}
        super().__init__(body=body, headers=kept, **(more | {"postencode": None}))  # type: ignore[no-untyped-call]

    def _decode(self) -> Any:
        return self.body


@lru_cache(maxsize=8)
def _raw_message(kind: type[Message]) -> type[Message]:
    """The transport's message class, which passes the raw data to ours."""
    return type("UntouchedMessage", (kind, _RawMessage), {})


@contextmanager
def _readable() -> Iterator[None]:
    """py-amqp fails on malformed fields, and the connection is then unusable."""
    try:
        yield
    except (ValueError, ArithmeticError, TypeError, IndexError, struct.error) as error:
        raise ConnectionResetError(f"a message cannot be read ({type(error).__name__})") from None


def wait(connection: Connection, seconds: float) -> bool:
    """Process one event of the connection's consumers; return whether one came within ``seconds``.
    Call it every few seconds: it keeps the connection alive. Raises :data:`ERRORS`, among them
    ConsumerCancelled when a queue with a consumer was deleted."""
    _still_there(connection)
    came = True
    try:
        with _readable():
            connection.drain_events(timeout=seconds)
    except (TimeoutError, socket.timeout) as error:  # two classes before Python 3.10
        if (
            error.errno is not None
        ):  # the kernel reports that the peer is gone; the connection is lost
            raise
        came = False
    connection.heartbeat_check()
    return came


def forget(connection: Connection) -> None:
    """Close a connection at once, without telling the broker: for one that may be broken."""
    connection.collect(socket_timeout=0.1)


def _still_there(connection: Connection) -> None:
    """kombu would reconnect, but without the channels and consumers of the lost connection."""
    if not connection.connected:
        raise ConnectionResetError("The connection to the broker was lost.")


def _amqp(parts: Any, port: int | None, query: dict[str, str]) -> tuple[dict[str, Any], str]:
    secure = parts.scheme == "amqps"
    cafile = query.pop("cafile", None)
    if query or (cafile and not secure):
        raise BadUrl(
            "The broker's URL accepts only the parameter ?cafile=PATH, and only with amqps."
        )
    if not parts.hostname:
        raise BadUrl("The broker's URL has no host.")
    if cafile is not None and not Path(cafile).is_file():
        raise BadUrl(f"The file {cafile} with the broker's certificate authorities does not exist.")
    port = port or (5671 if secure else 5672)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    vhost = unquote(parts.path[1:]) or "/"
    options: dict[str, Any] = {
        "hostname": host,
        "port": port,
        "userid": unquote(parts.username or "guest"),
        "password": unquote(parts.password or "guest"),
        "virtual_host": vhost,
        "transport": _Amqp,
        "login_method": "PLAIN",
        "heartbeat": HEARTBEAT,
        "transport_options": {
            "confirm_publish": True,
            "read_timeout": CALL,
            "write_timeout": CALL,
            "client_properties": {"connection_name": "mistral-failover"},
        },
    }
    if secure:
        options["ssl"] = {
            "cert_reqs": ssl.CERT_REQUIRED,
            "ca_certs": cafile,
            "server_hostname": parts.hostname,
        }
    return options, f"{parts.scheme}://{host}:{port}/{parts.path[1:]}"


class _Bounded:
    """Looks up the broker's name, and tries its addresses, within the limit of connecting."""

    __slots__ = ()

    def _connect(self, host: str, port: int, timeout: float) -> None:
        end = time.monotonic() + timeout

        def rest() -> float:
            return max(_LEAST, end - time.monotonic())

        failure: OSError | None = None
        for address, seconds in lookups.shares(lookups.addresses(host, port, timeout), rest):
            try:
                super()._connect(address, port, seconds)  # type: ignore[misc]  # py-amqp's
            except OSError as error:
                failure = error
            else:
                return
        assert failure is not None  # a host has an address
        raise failure


class _Plain(_Bounded, TCPTransport):  # type: ignore[misc]  # it is not typed
    __slots__ = ()


class _Secure(_Bounded, SSLTransport):  # type: ignore[misc]  # nor is this
    __slots__ = ()


class _Connection(pyamqp.Connection):
    def Transport(  # noqa: N802 - py-amqp's name
        self,
        host: str,
        connect_timeout: float,
        ssl: Any = False,
        read_timeout: float | None = None,
        write_timeout: float | None = None,
        **options: Any,
    ) -> Any:
        return (_Secure if ssl else _Plain)(
            host,
            connect_timeout=connect_timeout,
            ssl=ssl,
            read_timeout=read_timeout,
            write_timeout=write_timeout,
            **options,
        )


class _Amqp(pyamqp.Transport):
    Connection = _Connection


def _local(scheme: str, name: str, folder: str) -> tuple[dict[str, Any], str]:
    options: dict[str, Any] = {"hostname": name, "transport_options": {}}
    if scheme == "memory":
        options["transport"] = MemoryTransport
        options["transport_options"]["polling_interval"] = 0.01
        return options, f"memory://{name}"
    if name or not folder.strip("/"):
        raise BadUrl("The URL of a folder is filesystem:///FOLDER.")
    options["transport"] = FileTransport
    options["transport_options"].update(polling_interval=0.02, folder=folder)
    return options, f"filesystem://{folder}"


def _code(error: ChannelError) -> str:
    """AMQP's reply code: a number with py-amqp, text with kombu's virtual transports."""
    return str(error.reply_code)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
