# SPDX-License-Identifier: Apache-2.0
"""The isolation of a rehearsal: namespaces of its own for network, mounts, processes, IPC and host
name, made and entered by the tools of util-linux.

Only the loopback interface is there, and it is up. Mounts made inside exist only inside. The first
process (`keeper`) ends when the agent ends or dies, and everything else with it.
"""

from __future__ import annotations

import errno
import inspect
import logging
import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from mistral_failover.agent.daemon import keeper
from mistral_failover.agent.daemon.journal import ProcessIdentity
from mistral_failover.agent.daemon.limits import Limits, Unlimited, limits_for
from mistral_failover.agent.daemon.runner import process_identity
from mistral_failover.agent.daemon.settings import Account, RehearsalSettings

LOG = logging.getLogger(__name__)

TOOLS = ("unshare", "nsenter", "setpriv")
"""Programs of util-linux that are needed."""
BEGIN = 30.0
"""Seconds that it may take to make an isolation."""
_SPACES = ("net", "mnt", "ipc", "uts")
_PAUSE = 0.005
_READ_AND_RUN = "import os, sys; exec(os.read(0, int(sys.argv.pop(1))))"  # shorter in a list
_INSIDE = 'cd -- "$0" || exit 127; unset {names}; exec "$@"'


class NotIsolated(Exception):  # noqa: N818 - it names what happened
    """An isolation cannot be made; the text says why."""


class Isolation(Protocol):
    """What the commands of one rehearsal share."""

    @property
    def lives(self) -> bool:
        """Whether commands can run in it."""
        ...

    def kill(self) -> None:
        """Kill everything in it, without waiting."""
        ...

    def remains(self) -> str:
        """Return, in words, what is left of it after :meth:`kill`; empty: nothing."""
        ...


class Isolating(Protocol):
    """The way to isolate on one server."""

    def why_not(self) -> str | None:
        """Return why isolation is not possible, in words; None if it is."""
        ...

    def why_unlimited(self) -> str | None:
        """Return why memory and CPU cannot be limited, in words; None if they can."""
        ...

    def make(self, name: str, began: Callable[[ProcessIdentity], None]) -> Isolation:
        """Make an isolation. ``began`` records its first process. Raises `NotIsolated`."""
        ...

    def end_leftovers(self, process: ProcessIdentity) -> None:
        """End the isolation with this first process, which an earlier agent made."""
        ...


class NoIsolation:
    """There is none, because of ``why``."""

    def __init__(self, why: str) -> None:
        self._why = why

    def why_not(self) -> str | None:
        """See Isolating."""
        return self._why

    def why_unlimited(self) -> str | None:
        """See Isolating."""
        return self._why

    def make(self, name: str, began: Callable[[ProcessIdentity], None]) -> Isolation:
        """See Isolating."""
        raise NotIsolated(self._why)

    def end_leftovers(self, process: ProcessIdentity) -> None:
        """See Isolating."""


class Namespaces:
    """Isolation by namespaces of Linux, for an agent that runs as root."""

    def __init__(self, settings: RehearsalSettings) -> None:
        self._settings = settings
        self._why: str | None = "it was not tried yet"
        self._unlimited: str | None = None

    def try_it(self, rehearsable: Collection[str]) -> None:
        """Find out whether isolation is possible: make one, and end it, unless there is nothing to
        rehearse. ``rehearsable``: the names of the commands that may be rehearsed."""
        self._why = self._missing() if rehearsable else "no command of its file has rehearse"
        if self._why is not None:
            return
        try:
            trial = self._made(f"trial-{os.getpid()}", lambda _process: None)
        except NotIsolated as error:
            self._why = str(error)
            return
        limits = trial.limits
        self._unlimited = limits.why if isinstance(limits, Unlimited) else None
        trial.kill()
        end = time.monotonic() + BEGIN
        while (left := trial.remains()) and time.monotonic() < end:
            time.sleep(_PAUSE)
        self._why = left or None

    def why_not(self) -> str | None:
        """See Isolating."""
        return self._why

    def why_unlimited(self) -> str | None:
        """See Isolating."""
        return self._unlimited

    def make(self, name: str, began: Callable[[ProcessIdentity], None]) -> Namespace:
        """See Isolating."""
        if self._why is not None:
            raise NotIsolated(self._why)
        return self._made(name, began)

    def end_leftovers(self, process: ProcessIdentity) -> None:
        """See Isolating."""
        try:
            spaces = _spaces(process.pid)
            if process_identity(process.pid) != process:
                return
        except OSError:
            return
        LOG.warning("The isolation of an earlier rehearsal is still there: ending it")
        end = time.monotonic() + BEGIN
        while (left := _members(spaces)) and time.monotonic() < end:
            _kill(left)
            time.sleep(_PAUSE)

    @staticmethod
    def _missing() -> str | None:
        if not sys.platform.startswith("linux"):
            return "it needs Linux"
        if os.geteuid() != 0:
            return "the agent does not run as root"
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            return f"{', '.join(missing)} of util-linux is not installed"
        return None

    def _made(self, name: str, began: Callable[[ProcessIdentity], None]) -> Namespace:
        settings = self._settings
        limits = limits_for(name, settings.memory, settings.cpu)
        try:
            return Namespace(limits, settings.private, began)
        except BaseException:
            limits.remove()
            raise


class Namespace:
    """One isolation."""

    def __init__(
        self,
        limits: Limits,
        private: Sequence[str],
        began: Callable[[ProcessIdentity], None],
    ) -> None:
        """Raises `NotIsolated`."""
        self.limits = limits
        self._lock = threading.Lock()
        self._devices: dict[tuple[int, int], str] = {}
        self._killed = False
        self._over = False
        source = _source()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own words
                [
                    *limits.prefix(),
                    *("unshare", "--net", "--mount", "--pid", "--ipc", "--uts"),
                    *("--fork", "--kill-child", "--mount-proc", "--"),
                    *(sys.executable, "-I", "-S", "-c", _READ_AND_RUN, str(len(source))),
                    *private,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
                cwd="/",
            )
        except OSError as error:
            raise NotIsolated(f"no namespaces can be made: {error.strerror}") from None
        assert self._process.stdin is not None
        try:
            began(process_identity(self._process.pid))
            with suppress(BrokenPipeError):  # it says why it ended
                self._process.stdin.write(source)
            self._wait_until_ready()
            limits.began(self._process.pid)
            self._spaces = _spaces(self._process.pid)
        except BaseException as error:
            self._process.kill()
            self._process.wait()
            self._close()
            if isinstance(error, OSError):
                said = error.strerror or error
                raise NotIsolated(f"no namespaces can be made: {said}") from None
            raise

    def _wait_until_ready(self) -> None:
        process, said, end = self._process, b"", time.monotonic() + BEGIN
        assert process.stdout is not None
        assert process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not said.endswith(b"\n") and time.monotonic() < end:
                if selector.select(0.1):
                    data = os.read(process.stdout.fileno(), 4096)
                    if not data:
                        break
                    said += data
        if said == keeper.READY:
            return
        if not said and time.monotonic() < end:
            said = os.read(process.stderr.fileno(), 4096)
        words = said.decode("utf-8", "replace").strip() or f"not ready after {BEGIN:g} s"
        raise NotIsolated(f"no namespaces can be made: {words[-300:]}")

    @property
    def lives(self) -> bool:
        """See Isolation."""
        return not self._killed and not self._has_ended()

    def wrap(self, argv: Sequence[str], folder: str, account: Account, names: str) -> list[str]:
        """Return the command line that runs another one inside, in a folder and as a user.
        ``names``: variables of a shell that the program does not get."""
        place = f"/proc/{self._process.pid}/ns"
        words = ["nsenter", *(f"--{_option(each)}={place}/{each}" for each in _SPACES)]
        words += [f"--pid={place}/pid_for_children", "--"]
        words += ["/bin/sh", "-c", _INSIDE.format(names=names), folder]
        if account.uid != 0:
            groups = ",".join(map(str, account.groups))
            words += ["setpriv", f"--reuid={account.uid}", f"--regid={account.gid}"]
            words += [f"--groups={groups}" if groups else "--clear-groups", "--"]
        return [*words, *argv]

    def add(self, pid: int) -> None:
        """Let the limits hold for a process that will enter. Raises OSError."""
        self.limits.add(pid)

    def kill(self) -> None:
        """See Isolation."""
        with self._lock:
            if self._killed:
                return
            self._killed = True
            with suppress(OSError):
                self._devices = _devices(f"/proc/{self._process.pid}/mountinfo")
            # It has not been waited for, so the number is still its own. The kernel kills the
            # first process with it (--kill-child), and all others with that one.
            self._process.kill()
            self.limits.release()
            assert self._process.stdin is not None
            self._process.stdin.close()

    def remains(self) -> str:
        """See Isolation. Kills what has entered in the meantime."""
        with self._lock:
            if self._over:
                return ""
            members = _members(self._spaces)
            _kill(members)
            if not self._has_ended() or members:
                return f"{len(members) or 1} of its processes still run"
            if busy := [name for name in self._devices.values() if _is_held(name)]:
                return f"{', '.join(busy)} is still in use"
            self._process.wait()
            self._close()
            self.limits.remove()
            self._over = True
            return ""

    def _has_ended(self) -> bool:
        if self._process.returncode is not None:
            return True
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def _source() -> bytes:
    """The text of the first process's program, also where the agent is one file."""
    return inspect.getsource(keeper).encode()


def _option(space: str) -> str:
    return "mount" if space == "mnt" else space


def _spaces(pid: int) -> frozenset[str]:
    """The namespaces that tell who is inside. Raises OSError."""
    place = Path(f"/proc/{pid}/ns")
    return frozenset(str((place / each).readlink()) for each in ("net", "mnt", "pid_for_children"))


def _members(spaces: frozenset[str]) -> list[int]:
    """The processes inside."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - thousands of them, as fast as possible
        if name.isdigit():
            for space in ("net", "mnt", "pid"):
                try:
                    if os.readlink(f"/proc/{name}/ns/{space}") in spaces:  # noqa: PTH115 - as above
                        found.append(int(name))
                        break
                except OSError:
                    break
    return found


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _devices(mountinfo: str) -> dict[tuple[int, int], str]:
    """The block devices that are mounted inside and not outside, with their names."""
    outside = {number for number, _ in _mounted("/proc/self/mountinfo")}
    return {number: name for number, name in _mounted(mountinfo) if number not in outside}


def _mounted(mountinfo: str) -> list[tuple[tuple[int, int], str]]:
    found = []
    for line in Path(mountinfo).read_text(encoding="utf-8", errors="replace").splitlines():
        source = line.partition(" - ")[2].split(" ")[1]
        if source.startswith("/dev/"):
            with suppress(OSError):
                status = os.stat(source)  # noqa: PTH116 - a word of a line
                if stat.S_ISBLK(status.st_mode):
                    number = status.st_rdev
                    found.append(((os.major(number), os.minor(number)), source))
    return found


def _is_held(device: str) -> bool:
    """Return whether a block device is mounted somewhere."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY  # one that is gone is free
    return False
