# SPDX-License-Identifier: Apache-2.0
"""Running one program: in its own process group, with limited time and output.

No shell reads its arguments, nothing is on its standard input, and its environment is its own.
Processes that the program leaves behind when it ends in time may stay: a start command may leave
the application.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Protocol

from mistral_failover.agent.daemon.journal import ProcessIdentity, boot_id
from mistral_failover.agent.daemon.settings import Account
from mistral_failover.agent.wire import MAX_OUTPUT
from mistral_failover.fault_points import reach

COMMAND_ID = "FAILOVER_COMMAND_ID"
"""The environment variable that holds the id of a program's command."""
REHEARSAL = "FAILOVER_REHEARSAL"
"""The environment variable that is ``yes`` for a program that runs in a rehearsal."""

GRACE = 5.0
"""Seconds between asking a process group to end and killing it."""
UNKILLABLE = 10.0
"""Seconds after which a killed process that still exists is left alone: it hangs in the kernel and
will do nothing any more."""
LINGER = 1.0
"""Seconds to wait for output after the program ended: processes that it left may hold it open."""
LONGEST_END = GRACE + UNKILLABLE + 2 * LINGER
"""Seconds after which a program that is being killed is not waited for any more."""

# The kernel closes the agent's end of the pipe when the agent dies: then nothing is run. A shell
# sets variables of its own; the program gets only those that it is given.
_GATE = 'read -r FAILOVER_GATE || exit 127; unset FAILOVER_GATE {names}; exec "$@" </dev/null'
_OF_THE_SHELL = ("PWD", "OLDPWD", "SHLVL")

TIMED_OUT, NOT_RUN, STOPPED = 124, 127, 130
"""Exit codes, as of timeout(1) and of shells: killed at its limit; not started; stopped."""


@dataclass(frozen=True)
class ProgramExit:
    """The end of a program. ``exit_code``: 128 + n if signal n ended it. ``held``: a process that
    it left behind still has its output open. ``stopped``: it was killed on request."""

    exit_code: int
    stdout: str
    stderr: str
    seconds: float
    held: bool = False
    stopped: bool = False


class Enclosure(Protocol):
    """A place of its own for programs."""

    def wrap(self, argv: Sequence[str], folder: str, account: Account, names: str) -> list[str]:
        """Return the command line that runs another one inside, in a folder and as a user.
        ``names``: variables of a shell that the program does not get."""
        ...

    def add(self, pid: int) -> None:
        """Let the limits hold for a process that will enter. Raises OSError."""
        ...


class _Tail:
    """The end of a stream, whatever its length."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        self._bytes += data
        # Four bytes at most make a character.
        if len(self._bytes) > 8 * MAX_OUTPUT:
            del self._bytes[: -4 * MAX_OUTPUT]

    def text(self) -> str:
        return bytes(self._bytes[-4 * MAX_OUTPUT :]).decode("utf-8", "replace")[-MAX_OUTPUT:]


def run(
    argv: Sequence[str],
    *,
    limit: float,
    environment: Mapping[str, str],
    folder: str = "/",
    account: Account | None = None,
    stop: threading.Event | None = None,
    began: Callable[[ProcessIdentity], None] | None = None,
    inside: Enclosure | None = None,
) -> ProgramExit:
    """Run a program to its end, or to its limit in seconds.

    ``account``: the user to run it as; None: as the agent. ``stop``, once set, kills it. ``began``
    is called from this thread before the first instruction of the program: an agent that dies
    earlier has run nothing, and one that dies later has recorded which process it is. A program
    that cannot be started ends with NOT_RUN. ``inside``: where it runs; None: on the server.
    """
    started = _elapsed()
    if reason := _unusable(argv[0]):
        return ProgramExit(
            NOT_RUN, "", f"{argv[0]} is not usable: {reason}\n", _elapsed() - started
        )
    is_root = account is not None and os.geteuid() == 0  # only root can become another user
    if inside is not None:
        assert account is not None
        argv, folder = inside.wrap(argv, folder, account, _names_to_unset(environment)), "/"
        is_root = False  # it becomes the user once it is inside
    try:
        process = subprocess.Popen(  # noqa: S603 - a list from the allow-list
            list(argv) if began is None else _gated(argv, environment),
            stdin=subprocess.DEVNULL if began is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd=folder,
            user=account.uid if account and is_root else None,
            group=account.gid if account and is_root else None,
            extra_groups=account.groups if account and is_root else None,
            start_new_session=True,
            bufsize=0,
            umask=0o022,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        what = getattr(error, "filename", None) or argv[0]
        return ProgramExit(NOT_RUN, "", f"{what} is not usable: {reason}\n", _elapsed() - started)
    try:
        if began is not None:
            began(process_identity(process.pid))
            if inside is not None:
                inside.add(process.pid)
            _let_go(process)
            reach("agent.running")
        return _RunningProcess(process, started, limit, stop or threading.Event()).to_the_end()
    except BaseException:
        _kill_group(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _unusable(program: str) -> str:
    """Return why a file cannot be run; empty: it can."""
    try:
        mode = os.stat(program).st_mode  # noqa: PTH116 - a word of a command line
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or type(error).__name__
    runs = stat.S_ISREG(mode) and os.access(program, os.X_OK)
    return "" if runs else os.strerror(errno.EACCES)


def _gated(argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command line that waits for :func:`_let_go` and then becomes the program. The
    words of the program are arguments of a fixed script, so no shell reads them."""
    names = _names_to_unset(environment)
    return ["/bin/sh", "-c", _GATE.format(names=names), "sh", *argv]


def _names_to_unset(environment: Mapping[str, str]) -> str:
    """The variables that a shell sets and a program with this environment does not get."""
    return " ".join(name for name in _OF_THE_SHELL if name not in environment)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it was killed
        process.stdin.write(b"\n")
    process.stdin.close()


class _RunningProcess:
    """One process from its begin to its end."""

    def __init__(
        self, process: subprocess.Popen[bytes], started: float, limit: float, stop: threading.Event
    ) -> None:
        self._process = process
        self._started = started
        self._limit = limit
        self._stop = stop
        self._why: Literal["limit", "stopped"] | None = None  # it was killed
        self._asked = 0.0  # when the group received the first signal
        self._ended: float | None = None
        self._tails: dict[str, _Tail] = {"stdout": _Tail(), "stderr": _Tail()}

    def to_the_end(self) -> ProgramExit:
        with selectors.DefaultSelector() as selector:
            for name in self._tails:
                pipe: IO[bytes] = getattr(self._process, name)
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, name)
            pause = 0.002
            while not self._is_over(selector):
                read = self._read(selector, pause)
                pause = 0.002 if read else min(0.05, pause * 1.5)
            held = bool(selector.get_map())
        if self._why is not None:
            # Processes of the group that ignored the first signal.
            _kill_group(self._process.pid, signal.SIGKILL)
        return self._outcome(held)

    def _is_over(self, selector: selectors.BaseSelector) -> bool:
        """Return whether the wait is over; kill the program when its time has come."""
        now = _elapsed()
        if self._ended is None and self._has_ended():
            self._ended = now
        if self._ended is not None:
            return not selector.get_map() or now - self._ended > LINGER
        if self._why is None:
            if self._stop.is_set():
                self._why = "stopped"
            elif now - self._started >= self._limit:
                self._why = "limit"
            else:
                return False
            self._asked = now
            _kill_group(self._process.pid, signal.SIGTERM)
        elif now - self._asked > GRACE:
            _kill_group(self._process.pid, signal.SIGKILL)
            if now - self._asked > GRACE + UNKILLABLE:
                self._ended = now
                return True
        return False

    def _read(self, selector: selectors.BaseSelector, pause: float) -> bool:
        """Read what is there, for at most ``pause`` seconds; return whether there was something."""
        if not selector.get_map():
            time.sleep(pause)
            return False
        events = selector.select(pause)
        for key, _ in events:
            try:
                data = os.read(key.fd, 65536)
            except BlockingIOError:
                continue
            if data:
                self._tails[key.data].add(data)
            else:
                selector.unregister(key.fileobj)
        return bool(events)

    def _has_ended(self) -> bool:
        """Without reaping it: until then, no other process gets its number."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _outcome(self, held: bool) -> ProgramExit:
        status = self._process.wait() if self._has_ended() else -signal.SIGKILL
        code = 128 - status if status < 0 else status
        stderr = self._tails["stderr"].text()
        if self._why == "limit":
            code = TIMED_OUT
            stderr += f"\nkilled after {self._limit:g} s, its limit\n"
        elif self._why == "stopped":
            code = STOPPED
            stderr += "\nstopped\n"
        assert self._ended is not None
        return ProgramExit(
            exit_code=code,
            stdout=self._tails["stdout"].text(),
            stderr=stderr[-MAX_OUTPUT:],
            seconds=self._ended - self._started,
            held=held,
            stopped=self._why == "stopped",
        )


# -- what a former agent left


def process_identity(pid: int) -> ProcessIdentity:
    """Return how to recognise a process of this server later. Raises OSError if there is none."""
    return ProcessIdentity(pid, _start_ticks(pid), boot_id())


def kill_leftovers(identity: ProcessIdentity, grace: float = GRACE) -> bool:
    """Kill the process group that a former agent left, and the rest of its session, if its first
    process still runs; return once all of them are gone. Return False if it does not run; processes
    that it left behind may stay."""
    if not _runs(identity):
        return False
    asked: set[tuple[int, int]] = set()
    number, deadline = signal.SIGTERM, _elapsed() + grace
    # No other group gets this number before its last process is gone.
    while members := _members(identity):
        if _elapsed() > deadline:
            if number == signal.SIGKILL:
                break
            number, deadline = signal.SIGKILL, _elapsed() + UNKILLABLE
            asked.clear()
        for pid, ticks in members - asked:
            _send(pid, ticks, number)
        asked |= members
        time.sleep(0.02)
    return True


def _members(identity: ProcessIdentity) -> set[tuple[int, int]]:
    """Number and start time of each process of a group and session that still runs."""
    found = set()
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with suppress(OSError):
            fields = _stat(int(place.name))
            started = int(fields[19])
            if (
                str(identity.pid) in fields[2:4]  # its group, its session
                and started >= identity.start_ticks
                and fields[0] not in "ZX"
            ):
                found.add((int(place.name), started))
    return found


def _send(pid: int, ticks: int, number: signal.Signals) -> None:
    """Send a signal to this very process, and not to a later one with the same number."""
    with suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if _start_ticks(pid) == ticks:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _runs(identity: ProcessIdentity) -> bool:
    try:
        return process_identity(identity.pid) == identity and _state(identity.pid) not in "ZX"
    except OSError:
        return False


def _start_ticks(pid: int) -> int:
    return int(_stat(pid)[19])


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; the name before may hold anything."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()


def _kill_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _elapsed() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
