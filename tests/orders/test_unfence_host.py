# SPDX-License-Identifier: Apache-2.0
"""What fences leave behind is lifted when it is safe: by an operator, and by the sweep."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import base
from mistral_failover.actions.hosts import FenceHost, UnfenceHost
from mistral_failover.actions.recovery import Sweep
from mistral_failover.cloud import hosts, volumes
from mistral_failover.cloud.clients import Cloud
from mistral_failover.embedded import background_sweep
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.emulator.state import stable_hex
from mistral_failover.orders import unfence_host
from mistral_failover.recovery import lift_fences
from mistral_failover.resources.fence import lifting, power
from mistral_failover.resources.fence.ceph import Cluster
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import host_fences
from mistral_failover.store.tables import host_fences as table
from support.emulated import Pair, cloud, connect, emulated, emulator, pair
from support.fencing import PROJECT, Fencing, Machines, clouds_of_an_operator, runtime_for
from support.storage import STANDBY, SUSPECT, Stored, changes

__all__ = ["cloud", "connect", "emulated", "emulator", "pair"]

ADDRESS = "172.31.251.11"
DEMO = stable_hex("project", "demo")


@pytest.fixture
def stored(
    emulated: EmulatedCloud,
    cloud: Cloud,
    pair: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stored]:
    """A volume of a member whose host has a board, with the host's address in the cluster; and
    actions on its state store."""
    clouds = clouds_of_an_operator(emulated, tmp_path)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    monkeypatch.setattr(lift_fences, "EVERY", 0.0)
    monkeypatch.setattr(lifting, "BACKLOG", 1.0)
    monkeypatch.setattr(unfence_host, "REPORTS", 2.0)
    monkeypatch.setattr(unfence_host, "_PAUSE", 0.1)
    machines = Machines(tmp_path)
    host = emulated.emulation.state.servers[pair.a].host
    machines.add(host)
    runtime = runtime_for(tmp_path)
    monkeypatch.setattr(base, "runtime", lambda: runtime)
    fencing = Fencing(emulated, cloud, runtime, pair.a, host, tmp_path, machines)
    volumes.attach(cloud, pair.volume, pair.a, 10)
    made = Stored(fencing, pair, tmp_path)
    configure(made)
    yield made
    machines.stop()


def configure(stored: Stored, **ceph: Any) -> None:
    """Write the operator's file."""
    fencing = stored.fencing
    device = fencing.device(fencing.machines.board())
    more = {"addresses": {fencing.host: [ADDRESS]}, **ceph}
    stored.configure(**{"levels": [[device]], "projects": [PROJECT, DEMO], **more})


def context_of(stored: Stored, user: str) -> ActionContext:
    """A request of a user."""
    security = SecurityContext(
        auth_uri=stored.fencing.emulated.auth_url,
        auth_token=stored.fencing.emulated.client.mint_token(user=user),
        project_id=stable_hex("project", user),
        region_name="RegionOne",
    )
    return ActionContext(security, ExecutionContext(workflow_execution_id="e"))


Run = Callable[..., Any]


@pytest.fixture
def unfence(stored: Stored) -> Run:
    """Run the action as a user; return its answer or its error."""

    def run(user: str = "admin", **inputs: Any) -> Any:
        answer = UnfenceHost(host=stored.fencing.host, **inputs).run(context_of(stored, user))
        return answer.error if isinstance(answer, Result) else answer

    return run


def dies(stored: Stored, ago: float = 60.0) -> None:
    """The host loses its power; its compute service reported last so many seconds ago."""
    stored.fencing.dies()
    stored.fencing.emulated.emulation.state.hosts[stored.fencing.host].reported -= ago


def fence(stored: Stored, nova_away: str = "") -> str:
    """Switch the host off, as an operator does; return the proof. ``nova_away``: the call that Nova
    does not answer once the host is off."""
    client, tell_nova = stored.fencing.emulated.client, power.tell_nova

    def away(switch: power.Switch, host: str) -> str:
        client.api_fault(nova_away, times=100)
        try:
            return tell_nova(switch, host)
        finally:
            client.clear_api_faults()

    with pytest.MonkeyPatch.context() as patch:
        if nova_away:
            patch.setattr(power, "tell_nova", away)
        answer = FenceHost(host=stored.fencing.host, because="it burns", even_if_up=True).run(
            context_of(stored, "admin")
        )
    assert not isinstance(answer, Result), answer.error
    return str(answer["proof"])


def sweep(stored: Stored, user: str = "demo") -> Any:
    """A sweep of a project."""
    answer = Sweep().run(context_of(stored, user))
    assert not isinstance(answer, Result), answer.error
    return answer


def returns(stored: Stored) -> None:
    """The host is on again, and its compute service reports, a minute after the fence."""
    stored.fencing.emulated.client.fault("host", stored.fencing.host, "revive")
    stored.fencing.emulated.emulation.state.hosts[stored.fencing.host].changed = time.time() + 60


def blocked(stored: Stored) -> list[str]:
    """What the cluster refuses."""
    return list(stored.state["blocklist"])


def test_a_block_is_refused_to_be_lifted_until_the_host_was_proven_off(
    stored: Stored, unfence: Run
) -> None:
    stored.cluster(SUSPECT)
    assert stored.prove().proven

    assert "Refused: 1 client of" in unfence(dry_run=True)["sentence"]
    refused = unfence(because="it is on again")
    assert refused["code"] == "FENCE_UNPROVEN"
    assert "failover fence" in refused["remedy"]
    sweep(stored)
    assert blocked(stored) == [SUSPECT]

    fence(stored)
    assert blocked(stored) == [SUSPECT]
    shown = unfence(dry_run=True)
    assert [each["safe"] for each in shown["clients"]] == [True]
    assert blocked(stored) == [SUSPECT]
    assert unfence(because="it is on again")["lifted"] == 1
    assert blocked(stored) == []
    assert unfence(because="again")["sentence"] == f"Nothing to lift on {stored.fencing.host}"


def test_the_word_of_the_operator_counts(stored: Stored, unfence: Run) -> None:
    stored.cluster(SUSPECT)
    stored.prove()

    assert unfence(because="I pulled the plug", power_cycled=True)["lifted"] == 1
    assert blocked(stored) == []


def test_clients_of_another_host_stay_blocked(stored: Stored, unfence: Run) -> None:
    """The server was evacuated, and its old guest may run on there."""
    stored.cluster(SUSPECT, STANDBY)
    stored.prove()
    fence(stored)

    found = unfence(because="it is on again")

    assert [each["client"] for each in found["clients"]] == [SUSPECT]
    assert "also blocks 1 client at an address of no host" in found["sentence"]
    assert blocked(stored) == [STANDBY]


def test_a_client_is_recorded_before_the_cluster_blocks_it(stored: Stored) -> None:
    """So a process that dies in between leaves nothing that is never lifted."""
    stored.cluster(SUSPECT)
    seen: list[list[str]] = []
    recorded = host_fences.record_blocked

    def record(tx: Any, client: str, volume_id: str) -> None:
        seen.append(blocked(stored))
        recorded(tx, client, volume_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_fences, "record_blocked", record)
        assert stored.prove().proven

    assert seen == [[]]


def test_a_client_that_is_not_on_the_list_any_more_is_forgotten(
    stored: Stored, unfence: Run
) -> None:
    """An operator has lifted it by hand, or the process died before it was blocked."""
    stored.cluster(SUSPECT)
    stored.prove()
    stored.cluster()

    assert unfence(because="it is on again", power_cycled=True)["lifted"] == 1
    assert unfence(dry_run=True)["clients"] == []


def test_a_cluster_that_refuses_is_an_error_and_a_repeat_continues(
    stored: Stored, unfence: Run
) -> None:
    stored.cluster(SUSPECT)
    stored.prove()
    fence(stored)
    stored.cluster(modes=("denied",), blocklist=[SUSPECT])

    found = unfence(because="it is on again")
    assert found["code"] == "CONFIG"
    assert "exit code 13" in found["message"]
    assert "secret" not in str(found)

    stored.cluster(blocklist=[SUSPECT])
    assert unfence(because="it is on again")["lifted"] == 1
    assert blocked(stored) == []


def test_nova_is_told_that_the_host_is_back_when_its_service_reports_again(
    stored: Stored, unfence: Run
) -> None:
    dies(stored)
    fence(stored)
    assert stored.fencing.forced_down()

    early = unfence(because="it is on again")
    assert early["down_in_nova"] is True
    assert "until its compute service reports" in early["sentence"]
    assert stored.fencing.forced_down()

    returns(stored)
    late = unfence(because="it is on again")
    assert (late["down_in_nova"], late["compute_service"]) == (False, "up")
    assert not stored.fencing.forced_down()


def test_nova_refuses_until_an_evacuated_host_has_tidied_up_and_is_told_later(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    dies(stored)
    fence(stored)
    sweep(stored)
    returns(stored)
    client = stored.fencing.emulated.client
    client.api_fault("service_update", status=400)

    sweep(stored)
    assert stored.fencing.forced_down()
    assert "is not lifted" not in caplog.text

    sweep(stored)
    assert not stored.fencing.forced_down()


@pytest.mark.parametrize("away", [{}, {"nova_away": "service_list"}], ids=["asked", "away"])
def test_a_host_that_is_fenced_again_before_nova_learned_of_its_return_stays_down(
    stored: Stored, away: dict[str, str]
) -> None:
    """It reported in between, but that was before the second fence."""
    dies(stored)
    fence(stored)
    sweep(stored)
    returns(stored)
    dies(stored, ago=0)
    fence(stored, **away)

    for _ in range(2):
        sweep(stored)

    assert stored.fencing.forced_down()


def test_a_fence_that_begins_while_nova_is_told_of_the_return_stays_in_nova(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies(stored)
    fence(stored)
    sweep(stored)
    returns(stored)
    told = hosts.force_down

    def fenced_meanwhile(cloud: Cloud, service: hosts.ComputeService, *, down: bool = True) -> None:
        monkeypatch.setattr(hosts, "force_down", told)
        dies(stored)
        fence(stored)
        told(cloud, service, down=down)

    monkeypatch.setattr(hosts, "force_down", fenced_meanwhile)
    for _ in range(3):
        sweep(stored)

    assert stored.fencing.forced_down()


def test_nova_is_not_told_of_a_return_while_the_host_is_fenced_again(stored: Stored) -> None:
    dies(stored)
    fence(stored)
    sweep(stored)
    returns(stored)
    store = stored.fencing.runtime.database
    claimed = store.atomically(
        lambda tx: host_fences.claim(tx, stored.fencing.host, "another process", 30.0)
    )
    assert claimed is not None

    sweep(stored)
    assert stored.fencing.forced_down()

    store.atomically(lambda tx: host_fences.release(tx, claimed))
    sweep(stored)
    assert not stored.fencing.forced_down()


def test_nova_is_told_again_of_a_fence_that_it_does_not_know(stored: Stored) -> None:
    """The fence could not tell it, or a sweep that died told it of the return from the last one."""
    dies(stored)
    fence(stored)
    stored.fencing.emulated.emulation.state.hosts[stored.fencing.host].forced_down = False

    sweep(stored)

    assert stored.fencing.forced_down()


@pytest.mark.parametrize("operation", ["service_list", "service_update"])
def test_nova_is_told_later_of_a_fence_if_it_was_away(stored: Stored, operation: str) -> None:
    dies(stored)
    proof = fence(stored, nova_away=operation)
    assert "Nova did not accept that (" in proof
    assert not stored.fencing.forced_down()

    sweep(stored)
    assert stored.fencing.forced_down()

    sweep(stored)
    returns(stored)
    sweep(stored)
    assert not stored.fencing.forced_down()


@pytest.mark.parametrize("operation", ["service_list", "service_update"])
def test_a_host_that_is_back_before_nova_could_be_told_is_not_forced_down(
    stored: Stored, operation: str
) -> None:
    dies(stored)
    fence(stored, nova_away=operation)
    returns(stored)
    earlier = table.update().values(proven_at=table.c.proven_at - 600)
    stored.fencing.runtime.database.atomically(lambda tx: tx.execute(earlier))

    for _ in range(2):
        sweep(stored)
        assert not stored.fencing.forced_down()

    kept = stored.fencing.runtime.database.reading(host_fences.not_back)
    assert kept == [], "there is nothing left to tell"


def test_a_report_that_waited_in_the_broker_is_no_return(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a host that was cut off. It arrives soon after the fence."""
    monkeypatch.setattr(lifting, "BACKLOG", 30.0)
    dies(stored)
    fence(stored)
    sweep(stored)
    stored.fencing.emulated.emulation.state.hosts[stored.fencing.host].reported += 9

    for _ in range(2):
        sweep(stored)

    assert stored.fencing.forced_down()


def test_a_change_by_an_operator_is_no_return(stored: Stored) -> None:
    """An operator who repairs a host disables it in Nova. That moves Nova's `updated_at`."""
    dies(stored)
    fence(stored)
    sweep(stored)
    host = stored.fencing.emulated.emulation.state.hosts[stored.fencing.host]
    host.disabled, host.changed = True, time.time() + 30

    sweep(stored)

    assert stored.fencing.forced_down()
    assert not_back(stored)


@pytest.mark.parametrize("by_operator", [False, True])
def test_a_host_is_back_only_when_nova_shows_it_up(stored: Stored, by_operator: bool) -> None:
    """An operator lifts the mark before nova-compute runs."""
    dies(stored)
    host = stored.fencing.emulated.emulation.state.hosts[stored.fencing.host]
    host.forced_down = by_operator
    fence(stored)
    sweep(stored)
    host.forced_down = False
    earlier = table.update().values(proven_at=table.c.proven_at - 600)
    stored.fencing.runtime.database.atomically(lambda tx: tx.execute(earlier))

    sweep(stored)
    assert not host.forced_down, "the operator's word stays"
    assert not_back(stored)

    returns(stored)
    for _ in range(2):
        sweep(stored)
    assert not not_back(stored)


def not_back(stored: Stored) -> list[str]:
    """The hosts that no project has switched off again."""
    return stored.fencing.runtime.database.reading(host_fences.not_back)


@pytest.mark.parametrize("nova_away", ["", "service_list"])
@pytest.mark.parametrize("fences", [1, 2])
def test_a_host_that_an_operator_has_forced_down_stays_so(
    stored: Stored, unfence: Run, nova_away: str, fences: int
) -> None:
    stored.fencing.emulated.emulation.state.hosts[stored.fencing.host].forced_down = True

    for _ in range(fences):
        fence(stored, nova_away=nova_away)
    unfence(because="it is on again")
    sweep(stored)

    assert stored.fencing.forced_down()


def test_a_sweep_lifts_what_is_safe_and_tells_the_project_nothing(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.cluster(SUSPECT)
    stored.prove()
    dies(stored)
    fence(stored)

    for _ in range(3):
        answer = sweep(stored)
    assert blocked(stored) == []
    assert stored.fencing.forced_down(), "the host has not come back"
    assert stored.fencing.host not in str(answer)

    returns(stored)
    sweep(stored)
    assert not stored.fencing.forced_down()


DAY = 86_400.0
KEPT = {
    "it is not there any more": (None, ["add"], True),
    "it ends in ten minutes": (600.0, ["rm", "add"], True),
    "it ends in a month": (30 * DAY, [], False),
    "it lasts": (5 * 365 * DAY, [], False),
}


@pytest.mark.parametrize(("left", "asked", "anew"), KEPT.values(), ids=KEPT)
def test_a_sweep_keeps_a_client_blocked_until_its_host_was_off(
    stored: Stored, left: float | None, asked: list[str], anew: bool
) -> None:
    """An operator has removed its entry, or replaced it by one that ends."""
    stored.cluster(SUSPECT, STANDBY)
    assert stored.prove().proven
    until = {STANDBY: time.time() + 5 * 365 * DAY}
    stored.cluster(until=until if left is None else {SUSPECT: time.time() + left, **until})

    sweep(stored)

    assert changes(stored) == asked
    assert sorted(blocked(stored)) == [SUSPECT, STANDBY]
    assert (stored.state["until"][SUSPECT] - time.time() > 9 * 365 * DAY) is anew

    fence(stored)
    sweep(stored)
    assert blocked(stored) == [STANDBY]
    sweep(stored)
    assert blocked(stored) == [STANDBY], "its host was off, and it stays lifted"


def test_a_block_that_is_lifted_while_the_sweep_looks_stays_lifted(
    stored: Stored, unfence: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.cluster(SUSPECT)
    assert stored.prove().proven
    look = Cluster.blocked

    def and_then(cluster: Cluster) -> dict[str, float]:
        assert unfence(because="I pulled the plug", power_cycled=True)["lifted"] == 1
        return look(cluster)

    monkeypatch.setattr(Cluster, "blocked", and_then)
    sweep(stored)

    assert blocked(stored) == []


def test_a_client_that_a_fence_blocks_while_its_block_is_lifted_stays_blocked(
    stored: Stored, unfence: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.cluster(SUSPECT)
    assert stored.prove().proven
    lift = Cluster.unblock

    def and_a_fence(cluster: Cluster, client: str) -> None:
        record = partial(host_fences.record_blocked, client=client, volume_id="another")
        stored.fencing.runtime.database.atomically(record)
        lift(cluster, client)

    monkeypatch.setattr(Cluster, "unblock", and_a_fence)
    unfence(because="I pulled the plug", power_cycled=True)

    assert blocked(stored) == [SUSPECT]


def test_nova_is_told_of_a_return_while_ceph_hangs(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lift_fences, "LIMIT", 1.0)  # less than that of a command of Ceph
    stored.cluster(SUSPECT)
    stored.prove()
    dies(stored)
    fence(stored)
    stored.cluster(modes=("hangs",), blocklist=[SUSPECT])
    sweep(stored)
    returns(stored)

    sweep(stored)
    assert not stored.fencing.forced_down()
    assert blocked(stored) == [SUSPECT]

    stored.cluster(blocklist=[SUSPECT])
    sweep(stored)
    assert blocked(stored) == []


def test_a_block_is_lifted_while_nova_hangs(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lift_fences, "LIMIT", 1.0)
    stored.cluster(SUSPECT)
    stored.prove()
    fence(stored)
    stored.fencing.emulated.client.api_fault("service_list", "hold", seconds=5)

    sweep(stored)

    assert blocked(stored) == []
    assert stored.fencing.forced_down()


def test_a_sweep_goes_on_with_the_host_after_the_one_that_took_its_time(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = [f"host-{number}" for number in range(5)]
    looked: list[str] = []

    def slow(_request: object, _known: object, host: str, _guard: object) -> None:
        looked.append(host)

    monkeypatch.setattr(lifting, "hosts_with_leftovers", lambda *_: hosts)
    monkeypatch.setattr(lifting, "leftovers", lambda _store, _known, host: host)
    monkeypatch.setattr(lift_fences, "_unblock", lambda *_: None)
    monkeypatch.setattr(lift_fences, "_tell_nova_back", slow)
    monkeypatch.setattr(lift_fences, "_keep", lambda *_: None)
    monkeypatch.setitem(lift_fences._last, stored.fencing.runtime.database, "host-3")

    sweep(stored)

    assert looked == ["host-3", "host-4", "host-0", "host-1", "host-2"]


def test_a_project_that_may_not_use_the_devices_lifts_nothing_and_takes_no_turn_of_another(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each project sweeps every minute, one always right before the other."""
    monkeypatch.setattr(lift_fences, "EVERY", 60.0)
    stored.cluster(SUSPECT)
    stored.prove()
    fence(stored)

    sweep(stored, "other")
    assert blocked(stored) == [SUSPECT]
    sweep(stored)

    assert blocked(stored) == []


def test_a_proof_from_before_the_block_lifts_nothing_though_the_clock_was_set_back(
    stored: Stored, unfence: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state store moved to a server whose clock is behind, and the client lives."""
    fence(stored)
    returns(stored)
    stored.fencing.machines.add(stored.fencing.host, "on")
    behind = stored.fencing.now() - 600
    monkeypatch.setattr(stored.fencing.runtime.database, "_clock", lambda: behind)
    stored.cluster(SUSPECT)
    assert stored.prove().proven

    assert unfence(because="it is on again")["code"] == "FENCE_UNPROVEN"
    sweep(stored)
    assert blocked(stored) == [SUSPECT]

    fence(stored)
    assert unfence(because="it is on again")["lifted"] == 1


def test_an_address_of_two_hosts_is_refused(stored: Stored, unfence: Run) -> None:
    """The proof that one of them was off would lift the block of a client on the other."""
    configure(stored, addresses={stored.fencing.host: [ADDRESS], "another": [ADDRESS]})

    found = unfence(dry_run=True)

    assert found["code"] == "CONFIG"
    assert f"{ADDRESS} is also an address of" in found["message"]


def test_a_server_that_sweeps_by_itself_lifts_what_is_safe(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While all is well, it starts no workflow of a sweep."""
    monkeypatch.setattr(background_sweep.process, "runtime", lambda: stored.fencing.runtime)
    runtime = stored.fencing.runtime
    monkeypatch.setattr(runtime, "settings", replace(runtime.settings, sweep_interval=0.5))
    configure(stored, projects=[PROJECT, DEFAULT_PROJECT])
    stored.cluster(SUSPECT)
    assert stored.prove().proven
    mistral: Any = None

    with background_sweep.BackgroundSweep(mistral):
        fence(stored)
        until = time.monotonic() + 30
        while blocked(stored) and time.monotonic() < until:
            time.sleep(0.1)

    assert blocked(stored) == []


def test_only_a_user_who_may_change_compute_services_may_do_it(
    stored: Stored, unfence: Run
) -> None:
    stored.cluster(SUSPECT)
    stored.prove()
    fence(stored)

    assert unfence("demo", dry_run=True)["code"] == "FORBIDDEN"
    stored.fencing.emulated.client.api_fault("service_update", status=403)
    assert unfence(because="it is on again")["code"] == "FORBIDDEN"
    assert unfence(dry_run=True)["compute_service"] == "down"
    assert blocked(stored) == [SUSPECT]


@pytest.mark.parametrize("inputs", [{}, {"dry_run": True, "because": "x"}, {"group": "payments"}])
def test_what_is_not_clear_is_refused(unfence: Run, inputs: dict[str, Any]) -> None:
    assert unfence(**inputs)["code"] == "BAD_INPUT"
