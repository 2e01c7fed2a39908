# SPDX-License-Identifier: Apache-2.0
"""Limits for the memory and the CPU time of a rehearsal.

Where systemd runs, a transient scope has them; else a control group that the agent makes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

SYSTEMD = Path("/run/systemd/system")
_PERIOD = 100_000  # microseconds, in which the CPU time is counted
_NAME = "failover-rehearsal-"


class Limits(Protocol):
    """A place of processes that are limited together."""

    def prefix(self) -> list[str]:
        """Return the words before the command line of the first process."""
        ...

    def began(self, pid: int) -> None:
        """The first process runs. Raises OSError."""
        ...

    def add(self, pid: int) -> None:
        """Add a process. Raises OSError."""
        ...

    def release(self) -> None:
        """Let what was killed use the CPU, so that it ends at once."""
        ...

    def remove(self) -> None:
        """Remove it, once no process is in it."""
        ...


class Unlimited:
    """No limits, because of ``why``."""

    def __init__(self, why: str) -> None:
        self.why = why

    def prefix(self) -> list[str]:
        """See Limits."""
        return []

    def began(self, pid: int) -> None:
        """See Limits."""

    def add(self, pid: int) -> None:
        """See Limits."""

    def release(self) -> None:
        """See Limits."""

    def remove(self) -> None:
        """See Limits."""


class Scope:
    """A transient scope of systemd."""

    def __init__(self, name: str, memory: int, cpus: float) -> None:
        self._name = name
        self._properties = [f"MemoryMax={memory}", f"CPUQuota={cpus * 100:.0f}%", "Delegate=yes"]
        self._groups: list[Path] = []

    def prefix(self) -> list[str]:
        """See Limits."""
        properties = [word for each in self._properties for word in ("--property", each)]
        unit = f"--unit={_NAME}{self._name}.scope"
        return ["systemd-run", "--scope", "--quiet", "--collect", unit, *properties, "--"]

    def began(self, pid: int) -> None:
        """See Limits."""
        self._groups = list(_groups_of(pid))

    def add(self, pid: int) -> None:
        """See Limits."""
        _add(self._groups, pid)

    def release(self) -> None:
        """See Limits."""
        _release(self._groups)

    def remove(self) -> None:
        """Nothing: systemd removes it."""


class ControlGroup:
    """A control group for each controller, or one for both, made by the agent."""

    def __init__(self, name: str, memory: int, cpus: float) -> None:
        """Raises OSError if it cannot be made or limited."""
        self._groups: list[Path] = []
        quota = max(1000, int(cpus * _PERIOD))
        try:
            if (one := _unified()) is not None:
                group = self._make(one / (_NAME + name))
                _write(group / "memory.max", str(memory))
                with suppress(OSError):
                    _write(group / "memory.swap.max", "0")
                _write(group / "cpu.max", f"{quota} {_PERIOD}")
                return
            group = self._make(_controller("memory") / (_NAME + name))
            _write(group / "memory.limit_in_bytes", str(memory))
            group = self._make(_controller("cpu") / (_NAME + name))
            _write(group / "cpu.cfs_period_us", str(_PERIOD))
            _write(group / "cpu.cfs_quota_us", str(quota))
        except OSError:
            self.remove()
            raise

    def prefix(self) -> list[str]:
        """See Limits."""
        return []

    def began(self, pid: int) -> None:
        """Nothing: the first process only waits, and must not end for want of memory."""

    def add(self, pid: int) -> None:
        """See Limits."""
        _add(self._groups, pid)

    def release(self) -> None:
        """See Limits."""
        _release(self._groups)

    def remove(self) -> None:
        """See Limits."""
        for group in self._groups:
            with suppress(OSError):
                group.rmdir()

    def _make(self, group: Path) -> Path:
        with suppress(FileExistsError):
            group.mkdir()
        self._groups.append(group)
        return group


def limits_for(name: str, memory: float, cpu: float) -> Limits:
    """Return the limits of a rehearsal: ``memory`` percent of the server's, ``cpu`` percent of all
    of its CPUs. Where none can be set, they say why."""
    size = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * memory / 100)
    cpus = (os.cpu_count() or 1) * cpu / 100
    if SYSTEMD.is_dir() and shutil.which("systemd-run"):
        return Scope(name, size, cpus)
    try:
        return ControlGroup(name, size, cpus)
    except OSError as error:
        return Unlimited(f"no systemd, and no control group can be made: {error.strerror or error}")


def _unified() -> Path | None:
    """Return where control groups of version 2 can be made that limit both; None: nowhere."""
    for kind, _, place in _mounts():
        if kind == "cgroup2":
            with suppress(OSError):
                if {"memory", "cpu"} <= set(_read(place / "cgroup.controllers").split()):
                    _write(place / "cgroup.subtree_control", "+memory +cpu")
                    return place
    return None


def _controller(name: str) -> Path:
    for kind, options, place in _mounts():
        if kind == "cgroup" and name in options:
            return place
    raise OSError(0, f"this server has no controller for {name}")


def _groups_of(pid: int) -> Iterator[Path]:
    """The folders of the control groups that a process is in, of those that can limit it."""
    mounts = list(_mounts())
    for line in _read(Path(f"/proc/{pid}/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        for kind, options, place in mounts:
            is_it = kind == "cgroup2" if not names else set(names.split(",")) <= set(options)
            if is_it and (place / path.lstrip("/")).is_dir():
                yield place / path.lstrip("/")
                break


def _mounts() -> Iterator[tuple[str, list[str], Path]]:
    """Kind, options and place of each mounted file system."""
    for line in _read(Path("/proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        yield kind, options.split(","), Path(before.split(" ")[4])


def _add(groups: list[Path], pid: int) -> None:
    for group in groups:
        _write(group / "cgroup.procs", str(pid))


def _release(groups: list[Path]) -> None:
    for group in groups:
        for file, text in (("cpu.max", "max"), ("cpu.cfs_quota_us", "-1")):
            if (group / file).exists():
                with suppress(OSError):
                    _write(group / file, text)


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _write(file: Path, text: str) -> None:
    with file.open("r+", encoding="ascii") as stream:
        stream.write(text)
