# SPDX-License-Identifier: Apache-2.0
"""Running a program of the operator: in a process group of its own, with limited time and output.

No shell reads its arguments. Secrets go to its standard input only, never into its arguments or its
environment, and never into what is returned.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mistral_failover.model.text import clean

MAX_OUTPUT = 256 * 1024
"""Bytes of each stream that are kept; what a program writes beyond is read and dropped."""
WORDS = 300
"""Characters of a program's output in a sentence."""
PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_LINGER = 1.0
_CHUNK = 65536
_HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a program. ``code``: its exit code; None if it has none: a signal ended it, it was
    killed at its limit, or it was not started. ``why``: says so then, as a clause. ``stdout``: as
    written, without secrets. ``said``: a line for people, what it wrote on standard error, or else
    on standard output, without secrets and control characters."""

    code: int | None
    why: str
    stdout: str
    said: str
    seconds: float

    @property
    def words(self) -> str:
        """Describe the end as a clause."""
        end = self.why if self.code is None else f"exit code {self.code}"
        return f"{end}: {self.said}" if self.said else end


def run(
    argv: Sequence[str],
    *,
    limit: float,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    secrets: Iterable[str] = (),
    going: Callable[[], None] = lambda: None,
) -> Ended:
    """Run a program to its end, at most ``limit`` seconds; then its process group is killed.
    ``going`` is called several times a second; if it raises, that ends the program, too, and is
    passed on.

    ``environment``: variables besides PATH, HOME and the locale. ``secrets``: texts that are
    removed from what the program wrote. Processes that the program leaves behind are killed too.
    """
    began = _elapsed()
    if limit <= 0:
        return Ended(None, "no time was left for it", "", "", 0.0)
    variables = {"PATH": PATH, "HOME": "/", "LC_ALL": "C.UTF-8", **(environment or {})}
    try:
        process = subprocess.Popen(  # noqa: S603 - a list, by the operator's file
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            cwd="/",
            start_new_session=True,
            umask=0o077,
            bufsize=0,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        return Ended(None, f"it cannot be run ({reason})", "", "", _elapsed() - began)
    try:
        late, out, err = _converse(process, stdin, began + limit, going)
    finally:
        # Its group, whatever became of its leader; the leader is not reaped yet, so the number
        # belongs to no other group.
        _kill(process.pid)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
    hidden = _longest_first(secrets)
    text = _without(out, hidden)
    said = _line(_without(err, hidden)) or _line(text)
    seconds = _elapsed() - began
    if late:
        why = f"it did not end within {limit:.0f} s" if limit >= 1 else "it did not end in time"
        return Ended(None, why, text, said, seconds)
    if process.returncode < 0:
        return Ended(None, f"signal {-process.returncode} ended it", text, said, seconds)
    return Ended(process.returncode, "", text, said, seconds)


def find(name: str) -> str | None:
    """Return the path of a program, given by its name or path; None if there is none that this user
    may run, or if other users than its owner can change it."""
    candidates = [name] if name.startswith("/") else [f"{each}/{name}" for each in PATH.split(":")]
    for path in candidates:
        with suppress(OSError):
            found = os.stat(path)  # noqa: PTH116 - a word of a command line
            private = found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022
            if private and os.access(path, os.X_OK) and not os.path.isdir(path):  # noqa: PTH112
                return path
    return None


def interpreter(path: str) -> list[str] | None:
    """Return the words that run the Python of a program in Python, by its first line; None if the
    program is no such one, or if other users can change that Python."""
    with suppress(OSError), open(path, "rb") as program:  # noqa: PTH123 - as in find
        first = program.readline(WORDS)
        words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
        named = [word.rpartition("/")[2] for word in words]
        if any(name.startswith("python") for name in named) and find(words[0]) is not None:
            return words
    return None


def _converse(
    process: subprocess.Popen[bytes], stdin: bytes, deadline: float, going: Callable[[], None]
) -> tuple[bool, bytes, bytes]:
    """Write the input and read the output until the program ends. Return whether it is late, and
    the beginning of both streams."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    kept = {process.stdout: bytearray(), process.stderr: bytearray()}
    rest = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for pipe in kept:
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        open_pipes, ended = len(kept), False
        while open_pipes:
            going()
            now = _elapsed()
            if not ended and _has_ended(process.pid):
                # A process that it left behind may hold its output open.
                ended, deadline = True, min(deadline, now + _LINGER)
            if now >= deadline:
                return not ended, bytes(kept[process.stdout]), bytes(kept[process.stderr])
            for key, _ in selector.select(min(0.1, deadline - now)):
                if key.fileobj is process.stdin:
                    rest = _write(process.stdin.fileno(), rest)
                    if not rest:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                elif not _read(key.fd, kept[key.fileobj]):  # type: ignore[index]
                    selector.unregister(key.fileobj)
                    open_pipes -= 1
    while not _has_ended(process.pid):  # it closed its output
        going()
        if _elapsed() >= deadline:
            return True, bytes(kept[process.stdout]), bytes(kept[process.stderr])
        time.sleep(0.01)
    return False, bytes(kept[process.stdout]), bytes(kept[process.stderr])


def _has_ended(pid: int) -> bool:
    """Return whether the program has ended. It is not reaped, so its group keeps its number."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, flags) is not None


def _write(descriptor: int, rest: memoryview) -> memoryview:
    """Write what fits; return the rest. A program that does not read its input gets no more."""
    try:
        return rest[os.write(descriptor, rest[:4096]) :] if rest else rest
    except BlockingIOError:
        return rest
    except OSError:
        return rest[:0]


def _read(descriptor: int, kept: bytearray) -> bool:
    """Keep the beginning of what comes. Return whether more may come."""
    try:
        data = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    kept += data[: MAX_OUTPUT - len(kept)]
    return bool(data)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _longest_first(secrets: Iterable[str]) -> list[str]:
    """Return the texts to hide. Of a secret with several lines each line is one."""
    parts = {part for secret in secrets for part in (secret, *secret.splitlines()) if part.strip()}
    return sorted(parts, key=len, reverse=True)


def _without(data: bytes, secrets: Sequence[str]) -> str:
    """Return an output as text without secrets. Of one that was cut off, the end may be a part of a
    secret, so it goes too."""
    text = data.decode("utf-8", "replace")
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    if secrets and len(data) >= MAX_OUTPUT:
        text = text[: -len(secrets[0])]
    return text


def _line(text: str) -> str:
    """Return the end of a text in one line: the last words say what failed."""
    words = clean(" ".join(text[-8 * WORDS :].split()))
    return words if len(words) <= WORDS else f"...{words[-WORDS:]}"


def _elapsed() -> float:
    """Return the seconds on a clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
