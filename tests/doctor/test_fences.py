# SPDX-License-Identifier: Apache-2.0
"""The doctor tries every fence device of the operator, and shows them to operators only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.cloud.clients import Cloud
from mistral_failover.doctor.checks import Examination, Finding
from mistral_failover.doctor.fences import fences
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.emulator.state import stable_hex
from mistral_failover.runtime.request import Request
from mistral_failover.store import host_fences
from support.emulated import Pair, cloud, connect, emulated, emulator, pair
from support.fencing import (
    PASSWORD,
    Fencing,
    Machines,
    clouds_of_an_operator,
    private,
    runtime_for,
)
from support.storage import SUSPECT, Stored, changes

__all__ = ["cloud", "connect", "emulated", "emulator", "pair"]


@pytest.fixture
def fencing(emulated: EmulatedCloud, cloud: Cloud, pair: Pair, tmp_path: Path) -> Iterator[Fencing]:
    """A host with fence devices."""
    machines = Machines(tmp_path)
    host = emulated.emulation.state.servers[pair.a].host
    machines.add(host)
    yield Fencing(emulated, cloud, runtime_for(tmp_path), pair.a, host, tmp_path, machines)
    machines.stop()


Check = Callable[..., list[Finding]]


@pytest.fixture
def check(fencing: Fencing) -> Check:
    """Run the check as a user."""

    def run(user: str = "admin", limit: float = 10.0) -> list[Finding]:
        security = SecurityContext(
            auth_uri=fencing.emulated.auth_url,
            auth_token=fencing.emulated.client.mint_token(user=user),
            project_id=stable_hex("project", user),
            region_name="RegionOne",
        )
        context = ActionContext(security, ExecutionContext(workflow_execution_id="e"))
        return list(fences(Examination(Request(fencing.runtime, context), limit)))

    return run


def levels(found: list[Finding]) -> list[str]:
    return sorted(each.level for each in found)


def test_a_device_that_answers_is_well_and_nothing_is_switched(
    fencing: Fencing, check: Check
) -> None:
    fencing.configure([fencing.device(fencing.machines.board())])

    found = check()

    assert "1 of 1 fence devices answer" in [each.sentence for each in found]
    assert fencing.actions() == ["monitor"]
    assert fencing.machines.power(fencing.host) == "on"


def test_each_device_that_fails_is_named_with_its_host_and_level(
    fencing: Fencing, check: Check
) -> None:
    wrong = fencing.secret("wr0ng", "wrong")
    port = fencing.machines.board()
    fencing.configure([fencing.device(port)], [fencing.device(port, secret=wrong)])

    (found,) = [each for each in check() if each.level == "error"]

    assert f"level 2 of {fencing.host}: fence_simulated" in found.sentence
    assert "401" in found.sentence
    assert "wr0ng" not in found.sentence
    assert PASSWORD not in found.sentence


def test_devices_are_tried_side_by_side(fencing: Fencing, check: Check) -> None:
    hanging = fencing.device(fencing.machines.board("hangs"), limit=1.5)
    fencing.configure(*[[hanging]] * 6)

    began = time.monotonic()
    found = check()

    assert levels(found).count("error") == 6
    assert time.monotonic() - began < 6


def test_a_compute_host_without_a_device_is_named(fencing: Fencing, check: Check) -> None:
    fencing.configure([fencing.device(fencing.machines.board())])
    others = set(fencing.emulated.emulation.state.hosts) - {fencing.host}

    (found,) = [each for each in check() if each.level == "warn"]

    assert all(host in found.sentence for host in others)


def test_a_host_that_was_fenced_and_is_not_back_is_named_with_what_helps(
    fencing: Fencing, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    clouds = clouds_of_an_operator(fencing.emulated, fencing.folder)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    fencing.by_hand()

    (found,) = [each for each in check() if each.sentence.startswith(f"{fencing.host}: ")]

    assert found.level == "warn"
    assert f"failover fence {fencing.host} --because" in found.remedy
    assert not check("demo")


def test_a_file_that_others_can_read_is_an_error_with_its_remedy(
    fencing: Fencing, check: Check
) -> None:
    fencing.configure([fencing.device(1)])
    fencing.file.chmod(0o644)

    (found,) = check()

    assert found.level == "error"
    assert "chmod 600" in found.sentence


def test_a_project_s_user_sees_nothing_of_the_devices(fencing: Fencing, check: Check) -> None:
    fencing.configure([fencing.device(fencing.machines.board())])

    assert check("demo") == []
    assert fencing.actions() == []


def test_a_cluster_that_does_not_answer_is_an_error(fencing: Fencing, check: Check) -> None:
    private(fencing.folder / "ceph.conf", "{}")
    fencing.configure(ceph={"pools": ["volumes"], "ceph": "/nowhere/ceph", "limit": 1})

    assert [each.sentence for each in check() if each.level == "error"] == [
        "Ceph: ceph is not installed on the executor"
    ]


def test_a_device_that_may_switch_another_system_is_named(fencing: Fencing, check: Check) -> None:
    fencing.configure([fencing.device(1, agent="fence_redfish", limit=1)])

    (found,) = [each for each in check() if "systems_uri" in each.sentence]

    assert found.level == "warn"
    assert f"hosts.{fencing.host}[0][0]" in found.sentence


@pytest.mark.parametrize(("left", "level"), [(None, "error"), (7200.0, "warn"), (1e8, None)])
def test_a_client_that_ceph_does_not_block_for_long_is_named(
    fencing: Fencing,
    pair: Pair,
    check: Check,
    tmp_path: Path,
    left: float | None,
    level: str | None,
) -> None:
    """A fence relies on it."""
    stored = Stored(fencing, pair, tmp_path)
    stored.cluster(until={} if left is None else {SUSPECT: time.time() + left})
    stored.configure()
    record = partial(host_fences.record_blocked, client=SUSPECT, volume_id=pair.volume)
    fencing.runtime.database.atomically(record)

    found = [each for each in check() if SUSPECT in each.sentence]

    assert [each.level for each in found] == ([level] if level else [])
    assert all("failover fence" in each.remedy for each in found)
    assert changes(stored) == []
