# SPDX-License-Identifier: Apache-2.0
"""The addresses of a host, within a limit of time.

The system's resolver waits for each name server of ``resolv.conf`` in turn, half a minute by
default, and no limit of a socket, of urllib3, of kombu or of PyMySQL covers that. So everything of
this package that connects to a name asks here first, and connects to the addresses.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Optional


class NotResolved(socket.gaierror):
    """A name has no address, or none was found in time. Its text names the host."""

    def __init__(self, number: int, host: str, why: str) -> None:
        super().__init__(number, f"the name {host} {why}")
        self.host = host


_Question = tuple[str, Optional[int]]
_mutex = threading.Lock()
_running: dict[_Question, Future[list[str]]] = {}


def addresses(host: str, port: int | None, seconds: float | None) -> list[str]:
    """Return the IP addresses of a host, at least one, in the order in which to try them.

    ``seconds``: how long that may take; None: as long as the resolver takes. A question without an
    answer goes on in a thread, one for each name however many ask. Raises `NotResolved`.
    """
    if _is_address(host):
        return [host]
    with _mutex:
        answer = _running.get((host, port))
        if answer is None:
            answer = _running[host, port] = Future()
            asking = partial(_ask, (host, port), answer)
            try:
                threading.Thread(target=asking, name="lookup", daemon=True).start()
            except RuntimeError as error:  # no thread is left, so none would ever answer
                del _running[host, port]
                why = f"could not be looked up: {error}"
                raise NotResolved(socket.EAI_AGAIN, host, why) from error
    if not wait([answer], seconds).done:
        raise NotResolved(socket.EAI_AGAIN, host, f"was not resolved within {seconds:.3g} s")
    try:
        found = answer.result()
    except (socket.gaierror, UnicodeError) as error:  # what cannot be a name is a UnicodeError
        number = getattr(error, "errno", None) or socket.EAI_NONAME
        raise NotResolved(number, host, "cannot be resolved") from error
    if not found:
        raise NotResolved(socket.EAI_NONAME, host, "has no address")
    return found


def _ask(question: _Question, answer: Future[list[str]]) -> None:
    try:
        rows = socket.getaddrinfo(*question, type=socket.SOCK_STREAM)
        found = list(dict.fromkeys(str(row[4][0]) for row in rows))
    except BaseException as error:
        _end(question)
        answer.set_exception(error)
    else:
        _end(question)
        answer.set_result(found)


def _end(question: _Question) -> None:
    """The next one who asks gets an answer of its own."""
    with _mutex:
        _running.pop(question, None)


def shares(
    found: Sequence[str], rest: Callable[[], float | None]
) -> Iterator[tuple[str, float | None]]:
    """Yield the addresses with the seconds that each may take to connect, so that one that does not
    answer leaves time for the next ones. ``rest``: the seconds that are left for all; None: no
    limit."""
    for number, address in enumerate(found):
        left = rest()
        yield address, None if left is None else left / (len(found) - number)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _forget() -> None:
    """Forget the questions of the parent process, whose threads do not exist here."""
    global _mutex
    _mutex = threading.Lock()
    _running.clear()


os.register_at_fork(after_in_child=_forget)
