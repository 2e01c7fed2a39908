# SPDX-License-Identifier: Apache-2.0
"""ClusterLabs' own agents keep the contract that the simulated one has: ``fence_redfish`` against
the simulated board over TLS, ``fence_ipmilan`` against OpenIPMI's simulator.

Debian: fence-agents, and openipmi with ipmitool.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.resources.fence import agents, programs
from mistral_failover.resources.fence.agents import Power
from mistral_failover.resources.fence.devices import Device
from support.fencing import PASSWORD, SIMULATORS, Fencing, Machines, private
from testcloud.machines import fences

LIMIT = 30.0


def needs(*programs_: str) -> pytest.MarkDecorator:
    missing = [name for name in programs_ if programs.find(name) is None]
    reason = f"{' and '.join(missing)} not installed (Debian: fence-agents, openipmi, ipmitool)"
    return pytest.mark.skipif(bool(missing), reason=reason)


def permit(seconds: float) -> float:
    return seconds


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


@pytest.fixture
def secret(tmp_path: Path) -> Callable[[str], dict[str, Path]]:
    """Make the option password with a file."""
    return lambda text: {"password": private(tmp_path / f"secret-{text}", text)}


Secret = Callable[[str], dict[str, Path]]


def redfish(port: int, host: str, secrets: dict[str, Path], **more: Any) -> Device:
    options = {
        "ip": "127.0.0.1",
        "ipport": str(port),
        "username": "fence",
        "systems_uri": f"/redfish/v1/Systems/{host}",
        **more.pop("options", {"ssl_insecure": "1"}),
    }
    return Device("fence_redfish", options, secrets, limit=LIMIT, **more)


@needs("fence_redfish")
def test_fence_redfish_switches_off_and_reports_it(
    machines: Machines, certificate: Path, secret: Secret
) -> None:
    machines.add("cmp1")
    device = redfish(machines.board(certificate=certificate), "cmp1", secret(PASSWORD))

    assert agents.monitor(device, permit).ok
    assert agents.status(device, permit).power is Power.ON
    assert agents.off(device, permit).ok
    assert agents.status(device, permit).power is Power.OFF
    assert machines.power("cmp1") == "off"
    assert agents.off(device, permit).ok, "already off"


@needs("fence_redfish")
def test_fence_redfish_trusts_only_the_given_certificates(
    machines: Machines, certificate: Path, secret: Secret
) -> None:
    machines.add("cmp1")
    port = machines.board(certificate=certificate)
    verify: dict[str, Any] = {"options": {"ssl_secure": "1"}}
    unknown = redfish(port, "cmp1", secret(PASSWORD), **verify)
    known = redfish(port, "cmp1", secret(PASSWORD), ca_file=str(certificate), **verify)

    assert agents.status(unknown, permit).power is Power.UNKNOWN
    assert agents.status(known, permit).power is Power.ON


@needs("fence_redfish")
@pytest.mark.parametrize("mode", ["refuses", "hangs", "half-open"])
def test_fence_redfish_does_not_report_off_without_a_board_that_does_it(
    machines: Machines, certificate: Path, secret: Secret, mode: str
) -> None:
    machines.add("cmp1")
    port = machines.board(mode, certificate=certificate)
    more = redfish(port, "cmp1", secret(PASSWORD))
    device = Device(more.agent, more.options, more.secrets, limit=5.0)

    answer = agents.off(device, permit)

    assert not answer.ok
    assert PASSWORD not in answer.detail
    assert machines.power("cmp1") == "on"


@needs("fence_redfish")
def test_fence_redfish_with_a_wrong_password_fails_without_showing_it(
    machines: Machines, certificate: Path, secret: Secret
) -> None:
    machines.add("cmp1")
    device = redfish(machines.board(certificate=certificate), "cmp1", secret("wr0ng-pa55"))

    answer = agents.off(device, permit)

    assert not answer.ok
    assert "wr0ng-pa55" not in answer.detail
    assert agents.status(device, permit).power is Power.UNKNOWN


@needs("fence_redfish")
def test_a_dead_host_is_fenced_by_fence_redfish(fencing: Fencing, certificate: Path) -> None:
    fencing.dies()
    port = fencing.machines.board(certificate=certificate)
    device = {
        "agent": "fence_redfish",
        "limit": LIMIT,
        "options": {
            "ip": "127.0.0.1",
            "ipport": port,
            "username": "fence",
            "ssl_insecure": True,
            "systems_uri": f"/redfish/v1/Systems/{fencing.host}",
        },
        "secrets": {"password": fencing.secret()},
    }
    fencing.configure([device])

    evidence = fencing.prove(limit=60)

    assert evidence.proven, evidence.observed
    assert fencing.machines.power(fencing.host) == "off"


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def ipmi_board(folder: Path, power: Path) -> Iterator[int]:
    """Run an IPMI board for a machine; yield its port. The password is ``secret``."""
    port = free_port()
    control = f"{SIMULATORS / 'chassis.sh'} {power}"
    fences.write_board(folder, "cmp1", port, "secret", control)
    board = subprocess.Popen(
        fences.board_command(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(0.5)
        yield port
    finally:
        board.kill()
        board.wait()


def ipmilan(port: int, secrets: dict[str, Path], limit: float = LIMIT) -> Device:
    options = {
        "ip": "127.0.0.1",
        "ipport": str(port),
        "username": "fence",
        "lanplus": "1",
        "cipher": "3",
    }
    return Device("fence_ipmilan", options, secrets, limit=limit)


@needs("fence_ipmilan", "ipmi_sim", "ipmitool")
def test_fence_ipmilan_switches_off_and_reports_it(tmp_path: Path, secret: Secret) -> None:
    power = tmp_path / "cmp1"
    power.write_text("on", "utf-8")
    with ipmi_board(tmp_path, power) as port:
        device = ipmilan(port, secret("secret"))

        assert agents.status(device, permit).power is Power.ON
        assert agents.off(device, permit).ok
        assert agents.status(device, permit).power is Power.OFF
    assert power.read_text("utf-8") == "off"


@needs("fence_ipmilan", "ipmi_sim", "ipmitool")
def test_fence_ipmilan_with_a_wrong_password_or_without_a_board_proves_nothing(
    tmp_path: Path, secret: Secret
) -> None:
    power = tmp_path / "cmp1"
    power.write_text("on", "utf-8")
    with ipmi_board(tmp_path, power) as port:
        answer = agents.off(ipmilan(port, secret("wr0ng-pa55"), 10.0), permit)
        assert not answer.ok
        assert "wr0ng-pa55" not in answer.detail

    assert not agents.off(ipmilan(port, secret("secret"), 3.0), permit).ok
    assert power.read_text("utf-8") == "on"
