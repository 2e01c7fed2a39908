# SPDX-License-Identifier: Apache-2.0
"""HTTP for what this package serves itself: one request a connection, bounded in size, time and
number.

A `Face` answers requests; `HttpServer` serves it from threads. The rule that bounds its connections
is `Places`, and `Listener` accepts within it; a server that reads HTTP by itself, such as that of
the web page, uses these two alone.

It is always either the client's turn (its request arrives, or it takes the answer) or ours. A
client without a secret can stretch only its own turn. So a turn of the client has an end, however
it sends, and when all places are taken a new connection takes that of the client whose turn lasts
longest. During our turn a connection keeps its place.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import select
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from mistral_failover.defects import defect
from mistral_failover.loopback import foreign

LOG = logging.getLogger(__name__)
CONNECTIONS = 128
"""Connections that may be open at once. While all are in use, further ones wait in the kernel."""
SLOWEST = 10.0
"""Seconds that a whole request may take to arrive, including the TLS handshake."""
ANSWER = 60.0
"""Seconds that a client may take to receive the answer."""
DRAIN = 3.0
"""Seconds for which the rest of a refused request is read, so that its sender reads the answer."""
GRACE = 0.2
"""Seconds for which a connection keeps its place in any case. Without them a client that connects
again and again would push out others before their request is read, and would keep this process
busy."""
POLL = 0.2
"""Seconds between two checks for clients whose turn lasts too long."""
BACKLOG = 128
"""Connections that may wait in the kernel. On a unix socket, Linux refuses further ones at once."""
REFUSAL_EACH = 60.0
"""Seconds between two lines with the same reason."""
REFUSAL_REASONS = 100
"""Different reasons at most; further ones count as one."""
_FURTHER = "another reason"
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*\r?\n")  # of a head: RFC 9112
_HEAD = 64 * 1024  # bytes of a request line and its headers
_DRAINED = 4 * 1024 * 1024  # bytes
_PAUSE = 0.1  # seconds before it tries again to accept, if this process has too many files open
_TELL = 60.0  # seconds between two messages about that
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Gone(Exception):  # noqa: N818 - what happened, not that it is an error
    """The client has no connection any more: an answer would reach no client."""


class Refused(Exception):  # noqa: N818 - it is the answer to a request
    """A request is refused: the HTTP ``status``, a stable ``code``, the reason, and the remedy;
    ``more``: further facts for programs."""

    def __init__(self, status: int, code: str, message: str, remedy: str, **more: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.remedy = remedy
        self.more = more

    @property
    def body(self) -> dict[str, Any]:
        """The refusal as a document."""
        said = {"code": self.code, "message": self.message, "remedy": self.remedy}
        return {"error": said | self.more}


@dataclass(frozen=True)
class Request:
    """A request whose head has arrived. ``target``: as it was sent, path and query. ``read``
    returns the body; it waits until that has arrived, and raises `Gone` and `Refused`. ``peer``:
    who sent it, as `Places` tells clients apart."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    read: Callable[[], bytes] = lambda: b""
    peer: str = ""

    @property
    def path(self) -> str:
        """The path, encoded as it was sent."""
        return urlsplit(self.target).path

    def is_foreign(self, names: Collection[str]) -> bool:
        """Return whether it may come from a web page of another site: see `loopback.foreign`."""
        sent = {name.lower(): value for name, value in self.headers}
        hosts = [value for name, value in self.headers if name.lower() == "host"]
        site = sent.get("sec-fetch-site")
        return foreign(hosts, names, origin=sent.get("origin"), site=site) is not None

    @property
    def query(self) -> str:
        """What follows the question mark."""
        return urlsplit(self.target).query


@dataclass(frozen=True)
class Response:
    """An answer; the server adds the headers about the connection and the body's length."""

    status: int
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = ()


class Face(Protocol):
    """What answers. ``name`` is for the log, and names the thread; ``largest`` is the maximum size
    of a body in bytes."""

    name: str
    largest: int

    def answer(self, request: Request) -> Response:
        """Answer a request. Its body is read only if this asks for it. May raise `Refused`."""

    def refusal(self, refused: Refused, peer: str) -> Response:
        """Show a refusal as this face shows errors. ``peer``: as of `Request`."""


def respond(face: Face, request: Request) -> Response:
    """Return the face's answer, also if that is a refusal or an error of ours. Raises `Gone`."""
    try:
        return face.answer(request)
    except Refused as refused:
        return face.refusal(refused, request.peer)
    except Gone:
        raise
    except Exception as error:
        defect(error, f"the {face.name} answered a request")
        failed = Refused(500, "INTERNAL", "the server failed to answer", "See the server's log.")
        return face.refusal(failed, request.peer)


# -- the rule of places


@dataclass
class _Place:
    peer: str
    began: float = field(default_factory=time.monotonic)
    until: float | None = None
    """When the client's turn ends; None: it is ours."""


class Places:
    """Who is connected, whose turn it is, and who must leave; for any number of threads."""

    def __init__(self) -> None:
        self._taken: dict[socket.socket, _Place] = {}
        self._changed = threading.Condition()

    def enter(self, connection: socket.socket, peer: str, seconds: float) -> None:
        """Give a connection a place. It is the client's turn, for at most ``seconds``."""
        with self._changed:
            now = time.monotonic()
            self._taken[connection] = _Place(peer, now, now + seconds)

    def clients_turn(self, connection: socket.socket, seconds: float) -> None:
        """Let the client have its turn, for at most ``seconds``. Raises `Gone`."""
        with self._changed:
            place = self._place(connection)
            place.began = time.monotonic()
            place.until = place.began + seconds
            self._changed.notify_all()

    def our_turn(self, connection: socket.socket) -> None:
        """Let the connection keep its place until the client has its turn again. Raises `Gone`."""
        with self._changed:
            self._place(connection).until = None

    def _place(self, connection: socket.socket) -> _Place:
        try:
            return self._taken[connection]
        except KeyError:
            raise Gone("the connection was closed") from None

    def leave(self, connection: socket.socket) -> None:
        """Give the place back, if the connection still has it."""
        with self._changed:
            self._taken.pop(connection, None)
            self._changed.notify_all()

    def make_room(self, seconds: float) -> bool:
        """Wait until there is a place for one more connection, for at most ``seconds``, and
        disconnect the client that is worth least if necessary. Return whether there is a place."""
        end = time.monotonic() + seconds
        with self._changed:
            while len(self._taken) >= CONNECTIONS:
                now = time.monotonic()
                least = self._least_worth()
                if least is not None and self._taken[least].began + GRACE <= now:
                    self._cut_off(least)
                    break
                if now >= end:
                    return False
                young = end if least is None else self._taken[least].began + GRACE
                self._changed.wait(max(0.0, min(end, young) - now))
            return True

    def end_late(self) -> None:
        """Disconnect the clients whose turn has lasted too long: a limit per read would let a slow
        sender stay forever."""
        now = time.monotonic()
        with self._changed:
            for connection, place in list(self._taken.items()):
                if place.until is not None and place.until < now:
                    self._cut_off(connection)

    def end_one(self) -> None:
        """Disconnect the client that is worth least, to free its descriptor."""
        with self._changed:
            if (least := self._least_worth()) is not None:
                self._cut_off(least)

    def end_all(self, seconds: float) -> None:
        """Disconnect all clients that have their turn; wait for the others, at most so long."""
        with self._changed:
            for connection, place in list(self._taken.items()):
                if place.until is not None:
                    self._cut_off(connection)
            self._changed.wait_for(lambda: not self._taken, seconds)

    def _least_worth(self) -> socket.socket | None:
        """Of the peer that has most clients' turns, the connection whose turn began first. So one
        peer cannot keep others out, nor can many peers for longer than a whole request takes."""
        turns = [(each, place) for each, place in self._taken.items() if place.until is not None]
        held = Counter(place.peer for _, place in turns)
        found = max(turns, key=lambda row: (held[row[1].peer], -row[1].began), default=None)
        return None if found is None else found[0]

    def _cut_off(self, connection: socket.socket) -> None:
        del self._taken[connection]
        self._changed.notify_all()
        with contextlib.suppress(OSError):
            # Of the socket itself: another thread uses the TLS object. That thread closes it.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)


class Listener:
    """Accepts connections while its block lasts, each if there is a place for it; a context
    manager, which closes the listening socket.

    :param begin: is given each connection and its peer. It may raise OSError or RuntimeError: then
        the connection is closed.
    :param slowest: seconds for the client's first turn.
    :param tls: returns the context of the next connection; the handshake is part of the first turn.
    """

    def __init__(
        self,
        listening: socket.socket,
        places: Places,
        begin: Callable[[socket.socket, str], None],
        *,
        name: str,
        slowest: float = SLOWEST,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._listening = listening
        self._places = places
        self._begin = begin
        self._name = name
        self._slowest = slowest
        self._tls = tls
        self._tell_at = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._accept_all, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._listening.setblocking(False)
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._listening.close()

    def _accept_all(self) -> None:
        ready = select.poll()
        ready.register(self._listening, select.POLLIN)
        while not self._stopped.is_set():
            try:
                waiting = ready.poll(POLL * 1000)
                self._places.end_late()
                if waiting and self._places.make_room(POLL):
                    self._accept()
            except Exception as error:  # without this thread no request would be answered
                defect(error, f"the {self._name} accepted a connection")
                self._stopped.wait(_PAUSE)

    def _accept(self) -> None:
        try:
            connection, address = self._listening.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._exhausted(error)
            return  # otherwise the client has gone already
        try:
            peer = _peer(connection, address)
            if self._tls is not None:
                connection = self._tls().wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
        except OSError:  # the same
            connection.close()
            return
        self._places.enter(connection, peer, self._slowest)
        try:
            self._begin(connection, peer)
        except (OSError, RuntimeError) as error:  # RuntimeError: no further thread
            connection.close()
            self._places.leave(connection)
            self._exhausted(error)

    def _exhausted(self, error: Exception) -> None:
        """The connection waits in the kernel, which reports it again at once."""
        self._places.end_one()
        if (now := time.monotonic()) >= self._tell_at:
            self._tell_at = now + _TELL
            LOG.error(
                "The %s cannot accept connections: %s. Raise the limits of this process: "
                "LimitNOFILE and TasksMax of its systemd unit.",
                self._name,
                error,
            )
        self._stopped.wait(_PAUSE)


def _peer(connection: socket.socket, address: Any) -> str:
    """Who connects: the address, or the process at the other end of a unix socket."""
    if connection.family != socket.AF_UNIX:
        return str(address[0])
    said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return f"pid {struct.unpack('3i', said)[0]}"


# -- a server from threads


class HttpServer:
    """Serves a face on a listening socket, from a thread for each connection, while its block
    lasts; the parameters are those of `Listener`."""

    def __init__(
        self,
        listening: socket.socket,
        face: Face,
        *,
        slowest: float = SLOWEST,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._face = face
        self._places = Places()
        self._listener = Listener(
            listening, self._places, self._begin, name=face.name, slowest=slowest, tls=tls
        )

    def __enter__(self) -> Self:
        self._listener.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.__exit__(*exc)
        self._places.end_all(DRAIN)

    def _begin(self, connection: socket.socket, peer: str) -> None:
        threading.Thread(
            target=self._converse, args=(connection, peer), name=self._face.name, daemon=True
        ).start()

    def _converse(self, connection: socket.socket, peer: str) -> None:
        try:
            _Conversation(connection, peer, self._face, self._places)
        except (OSError, Gone):
            # A client that disconnects, or speaks no TLS, is not an error here.
            LOG.debug("A client of the %s has gone.", self._face.name, exc_info=True)
        except Exception as error:
            defect(error, f"the {self._face.name} held a connection")
        finally:
            connection.close()
            self._places.leave(connection)


class _Conversation(BaseHTTPRequestHandler):
    """One request and its answer. Nothing of it is logged: it may hold a secret."""

    protocol_version = "HTTP/1.1"
    server_version = "failover"
    sys_version = ""

    def __init__(self, connection: socket.socket, peer: str, face: Face, places: Places) -> None:
        self._face, self._places = face, places
        self._rest = True  # part of the request was not read
        self._length = 0
        self._expected = False  # the client waits for "100 Continue"
        self._peer = peer
        super().__init__(connection, (peer, 0), None)  # type: ignore[arg-type]  # no server of it

    def handle(self) -> None:
        """Read a request and answer it."""
        stream = self.rfile
        self.rfile = _Head(stream)  # type: ignore[assignment]  # has what is needed of it
        try:
            if not self._read_head():
                return
            self.rfile = stream
            response = respond(self._face, self._request())
        except Refused as refused:
            self.rfile = stream
            response = self._face.refusal(refused, self._peer)
        self._send(response)
        if self._rest:
            self._drain()

    def _read_head(self) -> bool:
        """Return whether there is a request. Raises Refused."""
        self.command = ""
        self.raw_requestline = self.rfile.readline(_HEAD + 1)
        if not self.raw_requestline:
            return False
        if not self.parse_request():
            raise _malformed(HTTPStatus.BAD_REQUEST, "no HTTP request")
        if self.request_version == "HTTP/0.9":
            raise _malformed(HTTPStatus.BAD_REQUEST, "no request of HTTP/1")
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is not HTTP; the base class calls this. Raises Refused."""
        raise _malformed(code, HTTPStatus(code).phrase.lower())

    def handle_expect_100(self) -> bool:
        """Wait until the body is asked for: it may be refused by its head."""
        self._expected = True
        return True

    def _request(self) -> Request:
        """Return the request, whose body may still arrive. Raises Refused."""
        try:
            urlsplit(self.path)
        except ValueError:
            raise _malformed(HTTPStatus.BAD_REQUEST, "the path is not valid") from None
        self._length = self._length_of_body()
        if not self._length:
            self._arrived()
        headers = list(self.headers.items())
        return Request(self.command, self.path, headers, self._read, self._peer)

    def _length_of_body(self) -> int:
        lengths = self.headers.get_all("Content-Length", [])
        chunked = "Transfer-Encoding" in self.headers
        if len(lengths) > 1 or (lengths and chunked):
            # A proxy in front might understand the other one.
            raise Refused(
                HTTPStatus.BAD_REQUEST,
                "BAD_REQUEST",
                "the request gives the length of its body twice",
                "Send one Content-Length, and no Transfer-Encoding.",
            )
        if not lengths and not chunked and self.command not in ("POST", "PUT", "PATCH"):
            return 0
        length = lengths[0] if lengths else ""
        if not length.isascii() or not length.isdigit():
            raise Refused(
                HTTPStatus.LENGTH_REQUIRED,
                "LENGTH_REQUIRED",
                "the request has no Content-Length",
                "Send it with its length.",
            )
        if len(length) > 10 or int(length) > self._face.largest:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "TOO_LARGE",
                f"the body has more than {self._face.largest} bytes",
                "Send less at once.",
            )
        return int(length)

    def _read(self) -> bytes:
        """Return the body once it has arrived. Raises Gone."""
        if not self._rest:
            return b""
        try:
            if self._expected:
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = self.rfile.read(self._length)
        except OSError as error:
            raise Gone(str(error)) from None
        if len(body) < self._length:
            raise Gone("the client disconnected")
        self._arrived()
        return body

    def _arrived(self) -> None:
        self._rest = False
        self._places.our_turn(self.connection)

    def _send(self, response: Response) -> None:
        self._places.clients_turn(self.connection, ANSWER)
        try:
            phrase = HTTPStatus(response.status).phrase
        except ValueError:
            phrase = ""
        own = {"content-length", "connection", "date", "server", "transfer-encoding"}
        lines = [
            f"HTTP/1.1 {response.status} {phrase}",
            f"Date: {self.date_time_string()}",
            f"Server: {self.server_version}",
            *(f"{name}: {value}" for name, value in response.headers if name.lower() not in own),
            f"Content-Length: {len(response.body)}",
            "Connection: close",
        ]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self.wfile.write(head if self.command == "HEAD" else head + response.body)

    def _drain(self) -> None:
        """Read the unread rest, within limits of size and time: closing the connection earlier
        would lose the answer."""
        self._places.clients_turn(self.connection, DRAIN)
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_WR)
            left = _DRAINED
            while left > 0 and (some := self.rfile.read1(65536)):
                left -= len(some)


class _Head:
    """Reads lines of a request's head, which is bounded as a whole."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = _HEAD
        self._began = False

    def readline(self, limit: int = -1) -> bytes:
        """Return a line. Raises Refused."""
        line: bytes = self._stream.readline(limit)
        if self._began and line.strip(b"\r\n") and not _FIELD.fullmatch(line):
            # A folded one, for example: a proxy in front might read it in another way.
            raise _malformed(HTTPStatus.BAD_REQUEST, "a line of the head is no header")
        self._began = True
        self._left -= len(line)
        if self._left < 0:
            raise _malformed(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's head is too large"
            )
        return line

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


def _malformed(status: int, what: str) -> Refused:
    return Refused(status, "BAD_REQUEST", what, "Send a request of HTTP/1.1.")


class RefusalLog:
    """Logs refused requests: for each reason one line in `REFUSAL_EACH` seconds, which says how
    many there were since the one before. Their number is the sender's choice: otherwise a flood
    without any token would fill the disk. Errors of our own are logged elsewhere, and all of them.
    Thread-safe.

    :param log: where the lines go, as warnings. :param what: what refuses, the line's beginning.
    :param clock: in seconds.
    """

    def __init__(
        self, log: logging.Logger, what: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._what = what
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, int]] = {}  # when a line was logged, and how many since

    def refused(self, reason: str, peer: str = "") -> None:
        """Note that a request was refused. ``reason``: a code or a constant text, never a text of
        the sender. ``peer``: the sender's address, if known."""
        if (since := self.due(reason)) is not None:
            sender = f" from {peer}" if peer else ""
            more = f" ({since} more since the last such line)" if since else ""
            self._log.warning("%s refused a request%s: %s%s", self._what, sender, reason, more)

    def due(self, reason: str) -> int | None:
        """Note a refusal; return how many were left out since the last line with this reason if a
        line is due now, None if not."""
        now = self._clock()
        with self._lock:
            if reason not in self._last and len(self._last) >= REFUSAL_REASONS:
                reason = _FURTHER
            at, since = self._last.get(reason, (now - REFUSAL_EACH, 0))
            if now - at < REFUSAL_EACH:
                self._last[reason] = (at, since + 1)
                return None
            self._last[reason] = (now, 0)
            return since
