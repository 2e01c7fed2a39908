# SPDX-License-Identifier: Apache-2.0
"""What is known of a member before an operator confirms that it is fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import base
from mistral_failover.actions.members import Evidence
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.servers import stop
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.emulator.state import stable_hex
from mistral_failover.store import groups
from support.emulated import Pair, cloud, connect, emulated, emulator, pair
from support.fencing import Fencing, Machines, clouds_of_an_operator, runtime_for

__all__ = ["cloud", "connect", "emulated", "emulator", "pair"]
PROJECT = stable_hex("project", "demo")
DEFINITION = {
    "document": {
        "failover_template_version": "2026-11-21",
        "stack": "payments",
        "members": {"servers": ["db_a", "db_b"]},
        "resources": {},
    },
    "types": [],
}


@pytest.fixture
def fencing(
    emulated: EmulatedCloud,
    cloud: Cloud,
    pair: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Fencing]:
    """A group whose member ``db_a`` is on a host with a fence device."""
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds_of_an_operator(emulated, tmp_path)))
    machines = Machines(tmp_path)
    host = emulated.emulation.state.servers[pair.a].host
    machines.add(host)
    runtime = runtime_for(tmp_path)
    monkeypatch.setattr(base, "runtime", lambda: runtime)

    def define(tx: Any) -> None:
        identity = groups.define(tx, "payments", DEFINITION)
        groups.record_members(tx, identity, [("db_a", pair.a, 1.0)])

    runtime.database.for_project(PROJECT).atomically(define)
    yield Fencing(emulated, cloud, runtime, pair.a, host, tmp_path, machines)
    machines.stop()


@pytest.fixture
def known(fencing: Fencing) -> Callable[..., Any]:
    """What is said of a member, by what it is about; or the error."""

    def known(member: str = "db_a") -> Any:
        security = SecurityContext(
            auth_uri=fencing.emulated.auth_url,
            auth_token=fencing.emulated.client.mint_token(),
            project_id=PROJECT,
            region_name="RegionOne",
        )
        context = ActionContext(security, ExecutionContext(workflow_execution_id="e"))
        answer = Evidence("payments", member).run(context)
        if isinstance(answer, Result):
            return answer.error
        assert len(answer["sentence"].split()) <= 40
        return {each["about"]: each for each in answer["signs"]}

    return known


def test_a_project_without_fence_devices_sees_its_server_and_since_when(
    fencing: Fencing, known: Callable[..., Any]
) -> None:
    alive = known()["server"]
    assert stop(fencing.cloud, fencing.server, 20.0).proven
    dead = known()["server"]

    assert (alive["says"], alive["alive"]) == ("Nova says ACTIVE", True)
    assert alive["ago"] >= 0.0
    assert (dead["says"], dead["alive"]) == ("Nova says SHUTOFF", None)


def test_the_operators_devices_and_nova_are_asked_about_its_host(
    fencing: Fencing, known: Callable[..., Any]
) -> None:
    fencing.configure([fencing.device(fencing.machines.board())], projects=[PROJECT])
    before = known()
    fencing.compute_dies()
    fencing.machines.add(fencing.host, "off")
    after = known()

    assert (before["host"]["alive"], before["power"]["alive"]) == (True, True)
    assert (after["host"]["alive"], after["power"]["alive"]) == (None, None)
    assert "compute service is down" in after["host"]["says"]
    assert fencing.host not in str(after)  # the host's name is not for the project
    assert set(fencing.actions()) == {"status"}


def test_what_does_not_answer_is_not_known(fencing: Fencing, known: Callable[..., Any]) -> None:
    fencing.configure([fencing.device(1)], projects=[PROJECT])
    fencing.emulated.client.api_fault("server_show", times=100)

    found = known()

    assert found["server"]["says"].startswith("not known: ")
    assert found["server"]["alive"] is None
    assert found["host"]["says"].startswith("not known: ")


def test_a_member_that_was_never_used_is_named(known: Callable[..., Any]) -> None:
    assert known("db_x")["code"] == "UNKNOWN_MEMBER"
