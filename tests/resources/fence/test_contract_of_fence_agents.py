# SPDX-License-Identifier: Apache-2.0
"""What a fence by ClusterLabs' own agents proves: the same for each of them.

``fence_redfish`` speaks to the simulated board over TLS, ``fence_ipmilan`` to OpenIPMI's simulator
over UDP. Debian: fence-agents, openipmi, ipmitool (``python -m support.fence_agents``).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.cloud.servers import Evidence
from mistral_failover.resources.fence import agents, programs
from mistral_failover.resources.fence.agents import Power
from mistral_failover.resources.fence.devices import Device, load
from support.fencing import PASSWORD, SIMULATORS, Fencing
from testcloud.machines import fences

pytestmark = pytest.mark.faults

LIMIT = 30.0
LOOKS = 4
"""Seconds for which an agent looks, once a second, whether the host is off."""
SHORT = 2.0
"""Seconds for a call that is to fail by its limit."""
WRONG = "wr0ng-pa55"

Described = dict[str, Any]


class Boards(ABC):
    """Boards of one kind, and the agent that speaks to them."""

    agent: str
    needs: tuple[str, ...] = ()
    password: str

    def __init__(self, fencing: Fencing, certificate: Path) -> None:
        self.fencing = fencing
        self.certificate = certificate
        self.ends = ExitStack()

    @property
    def folder(self) -> Path:
        """Where the boards have their files."""
        return self.fencing.folder

    def device(self, mode: str = "works", limit: float = LIMIT, password: str = "") -> Described:
        """Start a board of a mode, and describe the device for the operator's file."""
        secret = password or self.password
        return {
            "agent": self.agent,
            "limit": limit,
            "options": {
                **{"ip": "127.0.0.1", "username": "fence", "power_timeout": LOOKS},
                **self.options(mode),
            },
            "secrets": {"password": self.fencing.secret(secret, f"secret-{secret}")},
        }

    @abstractmethod
    def options(self, mode: str) -> Described:
        """Start a board; return the agent's options for it. Modes: those of bmc.py, and
        ``unreachable``."""


class Redfish(Boards):
    """The simulated board of bmc.py, over TLS."""

    agent = "fence_redfish"
    password = PASSWORD

    def options(self, mode: str) -> Described:
        if mode == "unreachable":
            port = free_port(socket.SOCK_STREAM)
        else:
            port = self.fencing.machines.board(mode, certificate=self.certificate)
        system = f"/redfish/v1/Systems/{self.fencing.host}"
        return {"ipport": port, "ssl_insecure": True, "systems_uri": system}


class Ipmi(Boards):
    """OpenIPMI's simulator, with a chassis of our own."""

    agent = "fence_ipmilan"
    needs = ("ipmi_sim", "ipmitool")
    password = "secret"

    def options(self, mode: str) -> Described:
        if mode == "unreachable":
            port = free_port()
        elif mode in ("half-open", "garbage"):
            port = self._socket(b"<html>" if mode == "garbage" else b"")
        else:
            port = self._board(mode)
        return {"ipport": port, "lanplus": True, "cipher": 3, "power_wait": 0}

    def _board(self, mode: str) -> int:
        port = free_port()
        folder = self.folder / f"board-{port}"
        folder.mkdir()
        power = self.fencing.machines.file(self.fencing.host)
        control = f"{SIMULATORS / 'chassis.sh'} {power} {mode}"
        fences.write_board(folder, self.fencing.host, port, self.password, control)
        board = subprocess.Popen(
            fences.board_command(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        power.with_name(f"{power.name}.pid").write_text(str(board.pid), "utf-8")
        self.ends.callback(board.wait)
        self.ends.callback(os.killpg, board.pid, signal.SIGKILL)  # with a chassis that hangs
        wait_for_udp(port)
        return port

    def _socket(self, answer: bytes) -> int:
        """Return the port of a socket that takes all, and says always the same or nothing."""
        held = self.ends.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        held.bind(("127.0.0.1", 0))
        port = int(held.getsockname()[1])
        if answer:

            def serve() -> None:
                while (got := held.recvfrom(4096))[0] != b"end":
                    held.sendto(answer, got[1])

            thread = threading.Thread(target=serve)
            thread.start()
            self.ends.callback(thread.join)
            self.ends.callback(held.sendto, b"end", ("127.0.0.1", port))
        return port


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    with socket.socket(socket.AF_INET, kind) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for_udp(port: int) -> None:
    """Wait until a process is bound to a port of UDP."""
    end = time.monotonic() + 10
    while f":{port:04X} " not in Path("/proc/net/udp").read_text("utf-8"):
        assert time.monotonic() < end, "the board did not start"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 with its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext"
    where = ["subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *where], check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text(cert.read_text("utf-8") + key.read_text("utf-8"), "utf-8")
    return both


@pytest.fixture(params=[Redfish, Ipmi], ids=lambda kind: kind.agent)
def boards(request: pytest.FixtureRequest, fencing: Fencing, certificate: Path) -> Iterator[Boards]:
    """Boards of each kind."""
    kind = request.param
    missing = [name for name in (kind.agent, *kind.needs) if programs.find(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed (python -m support.fence_agents)")
    made: Boards = kind(fencing, certificate)
    with made.ends:
        yield made


def fence(boards: Boards, *levels: Described, guest_runs: bool = False) -> Evidence:
    """Fence the host by these devices, each one a level. Its compute service is dead; with
    ``guest_runs``, the member's agent on it is not."""
    if guest_runs:
        boards.fencing.compute_dies()
    else:
        boards.fencing.dies()
    listen = 3 if guest_runs else 0
    boards.fencing.configure(*([device] for device in levels), listen=listen)
    evidence = boards.fencing.prove(limit=60.0)
    for secret in (boards.password, WRONG):
        assert f"{secret} " not in evidence.observed
    return evidence


def power(boards: Boards) -> str:
    return boards.fencing.machines.power(boards.fencing.host)


def described(boards: Boards, device: Described) -> Device:
    """Return the device as the operator's file gives it."""
    boards.fencing.configure([device])
    return load(boards.fencing.runtime.settings).hosts[boards.fencing.host][0][0]


def permit(seconds: float) -> float:
    return seconds


# -- what proves


def test_a_host_is_switched_off_and_reported_off_by_a_call_of_its_own(boards: Boards) -> None:
    device = boards.device()
    told = described(boards, device)
    assert agents.monitor(told, permit).ok
    assert agents.status(told, permit).power is Power.ON

    evidence = fence(boards, device)

    assert evidence.proven, evidence.observed
    assert power(boards) == "off"


def test_a_host_that_is_already_off_is_proven_off(boards: Boards) -> None:
    boards.fencing.machines.add(boards.fencing.host, "off")

    assert fence(boards, boards.device()).proven


# What each level's board does, and how long its device may take.
PROVING: dict[str, tuple[tuple[Any, ...], ...]] = {
    "a board that needs several looks until the host is off": (("slow",),),
    "a second level where the first one refuses": (("refuses",), ()),
    "a second level where the first one is unreachable": (("unreachable", SHORT), ()),
    "a power switch where the board lost its power with the host": (("dies", 5.0), ()),
}


@pytest.mark.parametrize("levels", PROVING.values(), ids=PROVING)
def test_it_is_proven_by(boards: Boards, levels: tuple[tuple[Any, ...], ...]) -> None:
    evidence = fence(boards, *(boards.device(*level) for level in levels))

    assert evidence.proven, evidence.observed
    assert power(boards) == "off"


# -- what proves nothing


@pytest.mark.parametrize("mode", ["hangs", "late", "half-open", "unreachable", "garbage"])
def test_a_board_that_gives_no_usable_answer_in_time_proves_nothing(
    boards: Boards, mode: str
) -> None:
    evidence = fence(boards, boards.device(mode, SHORT))

    assert not evidence.proven
    assert power(boards) == "on"
    assert boards.fencing.seconds < 3 * SHORT
    assert not boards.fencing.forced_down()


@pytest.mark.parametrize(
    ("mode", "limit", "left"),
    [
        ("refuses", 6.0, "on"),
        ("dies", 5.0, "off"),  # with its host: it can say so no more
        ("returns", LIMIT, "on"),  # after the agent has looked
    ],
)
def test_a_board_that_does_not_keep_the_host_off_or_say_so_proves_nothing(
    boards: Boards, mode: str, limit: float, left: str
) -> None:
    assert not fence(boards, boards.device(mode, limit)).proven
    assert power(boards) == left


def test_a_wrong_password_proves_nothing_and_is_not_shown(
    boards: Boards, caplog: pytest.LogCaptureFixture
) -> None:
    evidence = fence(boards, boards.device(limit=6.0, password=WRONG))

    assert not evidence.proven
    assert power(boards) == "on"
    assert WRONG not in caplog.text


# -- what is contradicted


@pytest.mark.parametrize(
    ("first", "guest_runs", "said"),
    [
        ([], True, "contradicted"),
        ([("refuses", 6.0)], False, "level 2: contradicted"),
        ([("unreachable", SHORT)], True, "level 2: contradicted"),
    ],
    ids=["by the member's agent", "by a board that refused", "by the agent beside a dead board"],
)
def test_a_board_that_lies_is_contradicted(
    boards: Boards, first: list[tuple[str, float]], guest_runs: bool, said: str
) -> None:
    levels = [*(boards.device(*level) for level in first), boards.device("lies")]

    evidence = fence(boards, *levels, guest_runs=guest_runs)

    assert not evidence.proven
    assert said in evidence.observed
    assert power(boards) == "on"


# -- of one kind


@pytest.mark.parametrize("boards", [Redfish], indirect=True, ids=["fence_redfish"])
def test_fence_redfish_trusts_only_the_given_certificates(boards: Boards) -> None:
    device = boards.device()
    options = {**device["options"], "ssl_secure": True}
    options.pop("ssl_insecure")
    verifying = {**device, "options": options}

    unknown = described(boards, verifying)
    known = described(boards, {**verifying, "ca_file": str(boards.certificate)})

    assert agents.status(unknown, permit).power is Power.UNKNOWN
    assert agents.status(known, permit).power is Power.ON
