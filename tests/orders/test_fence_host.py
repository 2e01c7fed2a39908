# SPDX-License-Identifier: Apache-2.0
"""``failover fence``: an operator switches a compute host off, or has Ceph block its clients, or
asks what would be done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions.hosts import FenceHost
from mistral_failover.cloud import volumes
from mistral_failover.cloud.clients import Cloud
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.emulator.state import stable_hex
from mistral_failover.store import groups, host_fences
from support.emulated import Pair, cloud, connect, emulated, emulator, pair
from support.fencing import PASSWORD, Fencing, fencing_actions
from support.storage import STANDBY, SUSPECT, Stored, changes

__all__ = ["cloud", "connect", "emulated", "emulator", "pair"]


@pytest.fixture
def fencing(
    emulated: EmulatedCloud,
    cloud: Cloud,
    pair: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Fencing]:
    """A host with fence devices, and actions on its state store."""
    with fencing_actions(emulated, cloud, pair.a, tmp_path, monkeypatch) as found:
        yield found


Run = Callable[..., Any]


@pytest.fixture
def run(fencing: Fencing) -> Run:
    """Run the action as a user; return its answer or its error."""

    def run(user: str = "admin", **inputs: Any) -> Any:
        security = SecurityContext(
            auth_uri=fencing.emulated.auth_url,
            auth_token=fencing.emulated.client.mint_token(user=user),
            project_id=stable_hex("project", user),
            region_name="RegionOne",
        )
        context = ActionContext(security, ExecutionContext(workflow_execution_id="e"))
        answer = FenceHost(**inputs).run(context)
        return answer.error if isinstance(answer, Result) else answer

    return run


def test_a_dry_run_asks_the_devices_and_switches_nothing(fencing: Fencing, run: Run) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())], [fencing.device(1)])

    found = run(host=fencing.host, dry_run=True)

    assert (found["fenced"], found["proof"], found["compute_service"]) == (False, None, "down")
    powers = [[device["power"] for device in level] for level in found["levels"]]
    assert powers == [["on"], ["unknown"]]
    assert f"would switch {fencing.host} off" in found["sentence"]
    assert set(fencing.actions()) == {"status"}
    assert fencing.machines.power(fencing.host) == "on"


def test_a_host_is_switched_off_with_a_reason_and_nova_is_told(fencing: Fencing, run: Run) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])

    found = run(host=fencing.host, because="it burns")

    assert found["fenced"] is True, found
    assert "reports the power off" in found["proof"]
    assert fencing.machines.power(fencing.host) == "off"
    assert fencing.forced_down()


def test_a_member_stands_for_its_host(fencing: Fencing, run: Run) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    admin = stable_hex("project", "admin")
    definition = {
        "document": {
            "failover_template_version": "2026-11-21",
            "stack": "payments",
            "members": {"servers": ["db_a", "db_b"]},
            "resources": {},
        },
        "types": [],
    }
    seen = [("db_a", fencing.server, 1.0)]

    def define(tx: Any) -> None:
        identity = groups.define(tx, "payments", definition)
        groups.record_members(tx, identity, seen)

    fencing.runtime.database.for_project(admin).atomically(define)

    assert run(group="payments", member="db_a", dry_run=True)["host"] == fencing.host
    assert run(group="payments", member="db_x", dry_run=True)["code"] == "UNKNOWN_MEMBER"
    assert run(group="shop", member="db_a", dry_run=True)["code"] == "UNKNOWN_GROUP"


def test_only_a_user_who_sees_compute_services_may_do_it(fencing: Fencing, run: Run) -> None:
    """A host serves many projects."""
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])

    found = run("demo", host=fencing.host, because="I want to")

    assert found["code"] == "FORBIDDEN"
    assert fencing.actions() == []


def test_a_host_that_nova_reports_up_is_switched_off_only_if_told_so(
    fencing: Fencing, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistral_failover.orders.host_orders.LIMIT", 11.0)
    fencing.configure([fencing.device(fencing.machines.board())])

    assert "Refused as long as" in run(host=fencing.host, dry_run=True)["sentence"]
    refused = run(host=fencing.host, because="maintenance")
    assert refused["code"] == "FENCE_UNPROVEN"
    assert "is up" in refused["message"]
    assert fencing.machines.power(fencing.host) == "on"

    assert run(host=fencing.host, because="maintenance", even_if_up=True)["fenced"]


def test_a_host_that_reports_again_is_up_for_an_operator_though_a_fence_forced_it_down(
    fencing: Fencing, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistral_failover.orders.host_orders.LIMIT", 11.0)
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    assert run(host=fencing.host, because="it burns")["fenced"]
    planned = run(host=fencing.host, dry_run=True)["sentence"]
    assert "no project has it switched off again before that" in planned
    assert run(host=fencing.host, because="it burns on")["fenced"], "an operator may do so again"

    def looked(tx: Any) -> bool:
        return host_fences.record_nova_report(tx, fencing.host, "", "2026-01-01T00:00:00Z")

    fencing.runtime.database.atomically(looked)  # as a sweep, before the host returned
    fencing.is_switched_on()
    fencing.emulated.client.fault("host", fencing.host, "revive")
    assert fencing.forced_down()

    assert "Refused as long as" in run(host=fencing.host, dry_run=True)["sentence"]
    refused = run(host=fencing.host, because="maintenance")
    assert "reports, although a fence has forced it down" in refused["message"]
    assert fencing.machines.power(fencing.host) == "on"
    assert run(host=fencing.host, because="maintenance", even_if_up=True)["fenced"]


def test_a_device_that_hangs_does_not_take_the_time_of_the_next_level(
    fencing: Fencing, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistral_failover.orders.host_orders.LIMIT", 14.0)
    fencing.dies()
    hangs = fencing.device(fencing.machines.board("hangs"), limit=4)
    fencing.configure([hangs], [fencing.device(fencing.machines.board(), limit=4)])

    assert run(host=fencing.host, because="it burns")["fenced"]


def test_a_user_who_may_only_read_compute_services_gets_a_dry_run_and_no_fence(
    fencing: Fencing, run: Run
) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    fencing.emulated.client.api_fault("service_update", status=403)

    assert run(host=fencing.host, because="it burns")["code"] == "FORBIDDEN"
    assert run(host=fencing.host, dry_run=True)["compute_service"] == "down"
    assert set(fencing.actions()) == {"status"}
    assert fencing.machines.power(fencing.host) == "on"


def test_without_a_proof_it_fails_and_says_why_without_the_password(
    fencing: Fencing, run: Run
) -> None:
    fencing.dies()
    device = fencing.device(fencing.machines.board(), behaviour="tells")
    fencing.configure([device])

    found = run(host=fencing.host, because="it burns")

    assert found["code"] == "FENCE_UNPROVEN"
    assert "failed with password" in found["message"], "the operator sees the agent's words"
    assert PASSWORD not in str(found)
    assert not fencing.forced_down()


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({}, "BAD_INPUT"),
        ({"host": "cmp1"}, "BAD_INPUT"),
        ({"host": "cmp1", "dry_run": True, "because": "x"}, "BAD_INPUT"),
        ({"dry_run": True}, "BAD_INPUT"),
        ({"host": "cmp1", "group": "payments", "dry_run": True}, "BAD_INPUT"),
        ({"host": "another", "dry_run": True}, "CONFIG"),
        ({"host": "another", "dry_run": True, "rung": "storage"}, "CONFIG"),
        ({"host": "cmp1", "dry_run": True, "rung": "quiesce"}, "BAD_INPUT"),
        ({"host": "cmp1", "dry_run": True, "rung": "storage", "even_if_up": True}, "BAD_INPUT"),
    ],
)
def test_what_is_not_clear_is_refused(
    fencing: Fencing, run: Run, inputs: dict[str, Any], code: str
) -> None:
    fencing.configure([fencing.device(1)])

    assert run(**inputs)["code"] == code


def test_without_a_file_of_fence_devices_it_says_which_option_is_missing(
    fencing: Fencing, run: Run
) -> None:
    found = run(host=fencing.host, dry_run=True)

    assert found["code"] == "CONFIG"
    assert "fence_devices_file" in found["remedy"]


@pytest.fixture
def stored(fencing: Fencing, pair: Pair, tmp_path: Path) -> Stored:
    """A volume of a server on the host, in a simulated Ceph cluster."""
    volumes.attach(fencing.cloud, pair.volume, pair.a, 10)
    stored = Stored(fencing, pair, tmp_path)
    stored.configure(addresses={fencing.host: ["172.31.251.11"], "another": ["172.31.251.12"]})
    return stored


def test_a_dry_run_shows_the_clients_that_would_be_blocked(stored: Stored, run: Run) -> None:
    stored.cluster(SUSPECT, STANDBY)

    found = run(host=stored.fencing.host, rung="storage", dry_run=True)

    assert found["clients"] == [
        {"client": SUSPECT, "volume": stored.pair.volume, "server": stored.pair.a}
    ]
    assert (found["rung"], found["fenced"], found["levels"]) == ("storage", False, [])
    assert "would have Ceph block 1 client" in found["sentence"]
    assert stored.state["blocklist"] == []


def test_ceph_blocks_the_clients_on_the_host_and_no_others(stored: Stored, run: Run) -> None:
    """The power switch of a host behind a partition may be out of reach, too."""
    stored.cluster(SUSPECT, STANDBY)

    found = run(host=stored.fencing.host, rung="storage", because="its rack is cut off")

    assert found["fenced"] is True, found
    assert found["proof"] == "Ceph blocks 1 client"
    assert stored.state["blocklist"] == [SUSPECT]
    assert stored.state["watchers"][stored.image] == [STANDBY]
    recorded = stored.fencing.runtime.database.reading(host_fences.all_blocked)
    assert [(each.client, each.volume_id) for each in recorded] == [(SUSPECT, stored.pair.volume)]
    assert not stored.fencing.forced_down(), "the host may live; only its clients are blocked"


def test_clients_of_a_volume_that_was_migrated_in_use_are_blocked(stored: Stored, run: Run) -> None:
    stored.migrated()
    stored.cluster(SUSPECT)

    found = run(host=stored.fencing.host, rung="storage", because="its rack is cut off")

    assert found["fenced"] is True, found
    assert stored.state["blocklist"] == [SUSPECT]


def test_a_cinder_that_does_not_answer_leaves_the_images_of_the_volumes_own_ids(
    stored: Stored, run: Run
) -> None:
    stored.cluster(SUSPECT)
    stored.fencing.emulated.client.api_fault("volume_show", status=503, times=100)

    assert run(host=stored.fencing.host, rung="storage", because="its rack is cut off")["fenced"]


def test_a_repeat_goes_on_with_the_clients_that_are_not_blocked_yet(
    stored: Stored, run: Run
) -> None:
    """The time of one order may not be enough for all clients of a host. The lock of an image names
    its owner after that was blocked."""
    other = SUSPECT.replace("1234567", "1234568")
    stored.cluster(SUSPECT, locks=(SUSPECT, other))
    stored.prove(volumes=(stored.pair.volume,))
    before = len(stored.state["calls"])
    stored.cluster(locks=(SUSPECT, other), blocklist=[SUSPECT], calls=stored.state["calls"])

    found = run(host=stored.fencing.host, rung="storage", because="once more")

    assert found["proof"] == "Ceph blocks 2 clients"
    added = [
        call[4]
        for call in stored.state["calls"][before:]
        if call[1:4] == ["osd", "blocklist", "add"]
    ]
    assert added == [other]


@pytest.mark.parametrize("elsewhere", [(), (STANDBY,)])
def test_an_entry_that_ends_soon_is_replaced_unless_a_client_elsewhere_has_the_volume_open(
    stored: Stored, run: Run, elsewhere: tuple[str, ...]
) -> None:
    """It may rely on the entry. The operator is told how to remove it."""
    stored.cluster(*elsewhere, locks=(SUSPECT,), until={SUSPECT: time.time() + 60})

    found = run(host=stored.fencing.host, rung="storage", because="its rack is cut off")

    if elsewhere:
        assert found["code"] == "FENCE_UNPROVEN"
        assert f"ceph osd blocklist rm {SUSPECT}" in found["message"]
    else:
        assert found["fenced"] is True, found
    assert changes(stored) == ([] if elsewhere else ["rm", "add"])


def test_the_time_of_an_order_is_enough_for_many_volumes(
    stored: Stored, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistral_failover.orders.host_orders.LIMIT", 23.0)
    cinder = stored.fencing.cloud.volumes.volumes
    for number in range(7):
        made = cinder.create(1, name=f"more-{number}").id
        volumes.attach(stored.fencing.cloud, made, stored.pair.a, 10)
    attached = [each.id for each in cinder.list() if each.status == "in-use"]
    clients = {each: f"{SUSPECT}{number}" for number, each in enumerate(attached)}
    watchers = {f"volumes/volume-{each}": [client] for each, client in clients.items()}
    stored.configure(
        pools=["volumes"], limit=10, addresses={stored.fencing.host: ["172.31.251.11"]}
    )
    stored.cluster(modes=("slow",), watchers=watchers)

    found = run(host=stored.fencing.host, rung="storage", because="its rack is cut off")

    assert found.get("proof") == "Ceph blocks 8 clients", found


def test_a_client_that_still_watches_is_a_contradiction(
    stored: Stored, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistral_failover.orders.host_orders.LIMIT", 14.0)
    stored.cluster(SUSPECT, modes=("stubborn",))

    found = run(host=stored.fencing.host, rung="storage", because="its rack is cut off")

    assert found["code"] == "FENCE_UNPROVEN"
    assert f"still watched by {SUSPECT}" in found["message"]


def test_where_no_client_has_a_volume_open_nothing_is_proven(stored: Stored, run: Run) -> None:
    """One that comes back later would not be blocked."""
    stored.cluster(STANDBY)

    planned = run(host=stored.fencing.host, rung="storage", dry_run=True)
    found = run(host=stored.fencing.host, rung="storage", because="its rack is cut off")

    assert planned["sentence"].startswith("Refused: no client")
    assert found["code"] == "FENCE_UNPROVEN"
    assert stored.state["blocklist"] == []


def test_a_volume_that_ceph_does_not_have_is_named(
    stored: Stored, run: Run, fencing: Fencing, pair: Pair
) -> None:
    stored.cluster(SUSPECT)
    other = fencing.cloud.volumes.volumes.create(1, name="elsewhere").id
    volumes.attach(fencing.cloud, other, pair.a, 10)

    found = run(host=fencing.host, rung="storage", because="its rack is cut off")

    assert found["fenced"] is True, found
    assert found["sentence"].endswith(f"not in Ceph, so not covered: volume {other}")
