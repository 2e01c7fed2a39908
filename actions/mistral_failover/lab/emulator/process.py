# SPDX-License-Identifier: Apache-2.0
"""The emulated cloud as a process beside its user. It outlives a killed user: the next one on the
same folder finds it in its former state."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import requests

from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.model.documents import load_json

_START = 30.0  # seconds within which it must answer
_END = 15.0


class EmulatorDied(Exception):
    """The emulated cloud did not start."""


@contextlib.contextmanager
def running(
    folder: Path,
    *,
    latency: str = "measured",
    overrides: Mapping[str, float] | None = None,
    idle_exit: float = 60.0,
    save_every: float = 0.0,
) -> Iterator[EmulatorClient]:
    """The cloud whose state is in ``folder``: the one that runs there, or a new one; ended with the
    block. ``overrides``: single times of the profile ``latency``, in seconds. Without a user it
    ends by itself after ``idle_exit`` seconds without a request. ``save_every``: see `Emulation`.

    Raises EmulatorDied.
    """
    announced = folder / "emulator.json"
    folder.mkdir(parents=True, exist_ok=True)
    client = _answering(announced)
    process = None
    if client is None:
        client, process = _start(
            announced, lambda: _launch(folder, latency, overrides or {}, idle_exit, save_every)
        )
    try:
        yield client
    finally:
        _end(announced, process)


def _start(
    announced: Path, launch: Callable[[], subprocess.Popen[bytes]]
) -> tuple[EmulatorClient, subprocess.Popen[bytes] | None]:
    """Yield the cloud as soon as it answers, with its process if this process started it."""
    log = announced.with_name("emulator.log")
    process = None
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline:
        if process is None and _forget(announced):
            process = launch()
        client = _answering(announced)
        if client is not None:
            return client, process
        if process is not None and process.poll() is not None:
            if _forget(announced):
                raise EmulatorDied(f"the emulated cloud ended with {process.returncode}; see {log}")
            process = None  # because another one runs there
        time.sleep(0.02)
    if process is not None:
        process.kill()
        process.wait(timeout=_END)
    raise EmulatorDied(f"the emulated cloud did not start within {_START:g} s; see {log}")


def _forget(announced: Path) -> bool:
    """Remove the announcement of a cloud that has ended; return False when one runs on the folder:
    a process that was killed right afterwards may have started it, so it may not be announced."""
    with (announced.parent / "lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        announced.unlink(missing_ok=True)
        return True


def _launch(
    folder: Path,
    latency: str,
    overrides: Mapping[str, float],
    idle_exit: float,
    save_every: float,
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "mistral_failover.lab.emulator"]
    command += ["--state-dir", str(folder), "--latency", latency]
    command += ["--idle-exit", f"{idle_exit:g}", "--save-every", f"{save_every:g}"]
    for name, seconds in overrides.items():
        command += ["--latency-set", f"{name}={seconds}"]
    with (folder / "emulator.log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own module, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a cloud does not die with its user
        )


def _answering(announced: Path) -> EmulatorClient | None:
    try:
        client = EmulatorClient(load_json(announced.read_bytes(), "file")["url"])
        client.status()
    except (OSError, ValueError, KeyError, requests.RequestException):
        return None
    return client


def _end(announced: Path, process: subprocess.Popen[bytes] | None) -> None:
    with contextlib.suppress(OSError, ValueError, KeyError, ProcessLookupError):
        os.kill(load_json(announced.read_bytes(), "file")["pid"], 15)
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        process.wait(timeout=_END)
