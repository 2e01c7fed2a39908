# SPDX-License-Identifier: Apache-2.0
"""Where the server listens; addresses that would not be safe are refused."""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from mistral_failover.embedded import unix_socket
from mistral_failover.errors import CodedError
from mistral_failover.http_server import BACKLOG
from mistral_failover.loopback import is_loopback
from mistral_failover.mistral.unix_transport import SCHEME, socket_of


@dataclass(frozen=True)
class Address:
    """A host, by its IP address, and a port; port 0 takes a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read HOST:PORT or [HOST]:PORT. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        found = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        if not colon or not 0 <= int(port) < 65536:
            raise ValueError(text)
        return cls(str(found), int(port))

    def within(self, _folder: Path) -> Address:
        """Return itself; see `UnixSocket`."""
        return self

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def family(self) -> socket.AddressFamily:
        """IPv4 or IPv6."""
        six = ipaddress.ip_address(self.host).version == 6
        return socket.AF_INET6 if six else socket.AF_INET

    def __str__(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{shown}:{self.port}"


@dataclass(frozen=True)
class UnixSocket:
    """A unix socket; a relative ``path`` is in the state directory."""

    path: Path

    def within(self, folder: Path) -> UnixSocket:
        """Return it with an absolute path."""
        return UnixSocket(folder / self.path)

    def __str__(self) -> str:
        return f"{SCHEME}{self.path}"


def parse_api(text: str) -> Address | UnixSocket:
    """Read HOST:PORT or unix:PATH. Raises ValueError."""
    path = socket_of(text)
    if path is None:
        return Address.parse(text)
    if not path.name:
        raise ValueError(text)
    return UnixSocket(path)


def check_api(address: Address | UnixSocket) -> None:
    """Mistral's API has no users and no TLS here: it stays on this machine.

    Raises CodedError LOOPBACK_ONLY.
    """
    if isinstance(address, UnixSocket):
        return
    if not address.loopback or ":" in address.host:
        raise CodedError(
            "LOOPBACK_ONLY",
            f"the API has no users and no TLS here, and does not listen on {address}",
            "--listen 127.0.0.1:PORT. From elsewhere: ssh -L PORT:127.0.0.1:PORT, then failover "
            "--mistral-url http://127.0.0.1:PORT/v2 --mistral-token-file FILE. Alarms come in by "
            "--webhook-listen.",
        )


def check_webhook(address: Address, *, tls: bool, secret: bool) -> None:
    """Refuse a webhook that other machines can reach without TLS and a secret chosen by the
    operator.

    Raises CodedError TLS_AND_SECRET_NEEDED.
    """
    if address.loopback or (tls and secret):
        return
    missing = [
        words
        for words, given in (
            ("TLS (--tls-cert, --tls-key)", tls),
            ("a secret (--webhook-secret-file)", secret),
        )
        if not given
    ]
    raise CodedError(
        "TLS_AND_SECRET_NEEDED",
        f"the webhook does not listen on {address} without {' and '.join(missing)}",
        "Make a secret with (umask 077; openssl rand -hex 32 > FILE), and give --tls-cert CERT "
        "--tls-key KEY --webhook-secret-file FILE; or use 127.0.0.1.",
    )


def bound(address: Address, option: str = "") -> socket.socket:
    """Return a socket that listens there; ``option``: the command-line option of the address.
    Raises CodedError PORT_TAKEN, ADDRESS_UNUSABLE."""
    listening = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.listen(BACKLOG)
    except OverflowError:
        listening.close()
        raise CodedError(
            "ADDRESS_UNUSABLE",
            (f"{address.port} is not a valid port"),
            "Choose a port from 1024 to 65535.",
        ) from None
    except OSError as error:
        listening.close()
        raise _unusable(address, error, option) from None
    return listening


def check_free(address: Address | UnixSocket, option: str = "") -> None:
    """Check that the address can be listened on. Raises as :func:`bound`, or of a unix socket as
    ``unix_socket.bound``."""
    if isinstance(address, UnixSocket):
        unix_socket.check_free(address.path)
    else:
        bound(address, option).close()


def _unusable(address: Address, error: OSError, option: str) -> CodedError:
    if error.errno == errno.EADDRINUSE:
        return CodedError(
            "PORT_TAKEN",
            f"another process already listens on {address}",
            f"Find the process: ss -ltnp 'sport = :{address.port}'. Or choose another port"
            + (f" with {option}." if option else "."),
        )
    return CodedError(
        "ADDRESS_UNUSABLE",
        f"cannot listen on {address}: {error.strerror}",
        "Choose an address of this machine, and a port above 1023.",
    )
