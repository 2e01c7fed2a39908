# SPDX-License-Identifier: Apache-2.0
"""The way ``evacuate``: the host of the only server dies, and the same server serves on another
host. Its group belongs to an administrator.

On the real engine with an emulated cloud; the host is switched off by a simulated board, or an
operator confirms that it is off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.runtime.process import Runtime
from support.fencing import AGENT, Machines, private, shown_up
from support.operators import Operator
from support.storage import SUSPECT, simulate
from support.waiting import patiently

ACTIVE = {"get_param": "active"}
MEMBERS = {"servers": ["db_a"], "replace": "lost", "restart": ["evacuate", "replace"]}
FENCE = [{"kind": "host_power", "limit": 30}, "confirm"]
STOPS = [{"kind": "stop", "limit": 1}, *FENCE]
STARTS = {"start": "start", "stop": "stop", "device": {"get_attr": ["data", "device"]}}


def resources(**more: str) -> dict[str, Any]:
    """A volume and the application."""
    data = {"volume": "data_volume", "server": ACTIVE, **more}
    return {
        "data": {"type": "volume_attachment", "properties": data},
        "database": {
            "type": "activation",
            "depends_on": "data",
            "properties": {"member": ACTIVE, **STARTS},
        },
    }


ASKS = resources()
DELETES = resources(when_host_is_down="delete_server")


@pytest.fixture
def administrator(emulated: EmulatedCloud, clouds: Path) -> None:
    """The groups' user is an administrator in their project."""
    emulated.client.add_user("chief", project="demo", admin=True)
    document = yaml.safe_load(clouds.read_text("utf-8"))
    document["clouds"]["emulated"]["auth"] |= {"username": "chief", "password": "chief"}
    private(clouds, yaml.safe_dump(document))


@pytest.fixture
def boards(
    emulated: EmulatedCloud,
    state: Runtime,
    clouds: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """Each host has a board that switches it off."""
    file = tmp_path / "fence-devices.yaml"
    monkeypatch.setattr(state, "settings", replace(state.settings, fence_devices_file=str(file)))
    machines = Machines(tmp_path)
    hosts = emulated.emulation.state.hosts
    for host in hosts:
        machines.add(host)
    port, secret = machines.board(), private(tmp_path / "secret", "s3cret-of-the-board")
    common = {"agent": AGENT, "secrets": {"password": str(secret)}, "limit": 10}
    options = {"ipport": port, "username": "fence"}
    devices = {host: [[{**common, "options": {**options, "plug": host}}]] for host in hosts}
    document = {"projects": ["*"], "cloud": "operator", "listen": 1.5, "hosts": devices}
    private(file, json.dumps(document))
    yield
    for host in hosts.values():
        host.forced_down = False
        emulated.client.fault("host", host.name, "revive")
        state.database.atomically(partial(shown_up, host=host.name))
    machines.stop()


@pytest.fixture
def single(protect: Callable[..., Any], clouds: Path) -> Callable[..., Any]:
    """Make a group of one server, up."""

    def make(resources: dict[str, Any] = ASKS, **more: Any) -> Any:
        wanted = {"members": MEMBERS, "fence": FENCE, "limits": {"cooldown": 0}, **more}
        group = protect(resources, servers=("db_a",), **wanted)
        group.activate()
        return group

    return make


def place(group: Any) -> str:
    return str(group.cloud.guests()[group.server("db_a")]["host"])


def evacuations(group: Any) -> int:
    """How often Nova was asked to evacuate the server, and accepted it."""
    actions = group.emulation.state.server_actions.values()
    return sum((a.server_id, a.action) == (group.server("db_a"), "evacuate") for a in actions)


@pytest.mark.usefixtures("administrator", "boards")
def test_a_server_without_a_stack_serves_on_another_host(loose: Callable[..., Any]) -> None:
    group = loose(("db_a",))
    members = {"servers": group.file()["members"]["servers"], "when_no_standby": "replace"}
    ways = {"restart": ["start", "evacuate"]}
    answer = group.define(group.file(members={**members, **ways}, fence=FENCE))
    assert "created" in answer, answer
    group.activate()
    home = place(group)

    patiently(group, "on_alarm", **group.fails("power_off", "db_a")).assert_succeeded()

    assert place(group) != home
    assert (group.runs_on(), group.holders()) == (["db_a"], ["db_a"])


@pytest.mark.usefixtures("administrator", "boards")
def test_the_same_server_serves_on_another_host(
    single: Callable[..., Any], emulated: EmulatedCloud
) -> None:
    group = single()
    group.emulation = emulated.emulation
    former, home = group.server("db_a"), place(group)

    patiently(group, "on_alarm", **group.fails("power_off")).assert_succeeded()

    assert group.server("db_a") == former
    assert place(group) != home
    assert (group.holders(), group.runs_on()) == (["db_a"], ["db_a"])
    status = group.status()
    assert (status["status"], status["roles"], status["lost"]) == (
        "COMPLETE",
        {"active": "db_a"},
        [],
    )
    assert [each["found"] for each in status["restarts"]] == ["evacuate"]
    assert evacuations(group) == 1

    group.cloud.fault("host", home, "revive")

    volume = group.cloud.resources(group.name)["data_volume"]["physical_resource_id"]
    assert group.cloud.writers(volume) == [former], "and the former host does not write"
    assert group.runs_on() == ["db_a"]
    assert group.cloud.violations() == []


@pytest.mark.usefixtures("administrator", "boards")
def test_another_way_that_may_delete_the_server_comes_after_it(single: Callable[..., Any]) -> None:
    group = single(DELETES)
    former = group.server("db_a")

    patiently(group, "on_alarm", **group.fails("power_off")).assert_succeeded()

    assert group.server("db_a") == former
    assert group.runs_on() == group.holders() == ["db_a"]
    assert group.cloud.violations() == []


@pytest.mark.usefixtures("boards")
def test_without_the_right_the_next_way_is_taken(single: Callable[..., Any]) -> None:
    group = single(DELETES)
    former = group.server("db_a")
    assert any("will not be tried" in each["sentence"] for each in group.examined_all("restart"))

    patiently(group, "on_alarm", **group.fails("power_off")).assert_succeeded()

    assert group.server("db_a") != former
    assert group.runs_on() == group.holders() == ["db_a"]
    assert [each["found"] for each in group.status()["restarts"]] == ["replace"]
    assert group.cloud.violations() == []


@pytest.mark.usefixtures("boards")
def test_what_blocks_says_why_it_was_not_evacuated(single: Callable[..., Any]) -> None:
    group = single(ASKS)

    run = patiently(group, "on_alarm", **group.fails("power_off"))

    run.assert_failed_with("BLOCKED")
    assert "It was not evacuated: " in group.status()["reason"]


def without_a_host(group: Any) -> None:
    home = place(group)
    for host in group.emulation.state.hosts:
        if host != home:
            group.cloud.fault("host", host, "compute_down")


def forbidden_by_its_server_group(group: Any) -> None:
    """Nova sees that late, and leaves the server as it was."""
    group.cloud.api_fault("evacuate", "fail")


@pytest.mark.parametrize("trouble", [without_a_host, forbidden_by_its_server_group])
@pytest.mark.usefixtures("administrator", "boards")
def test_an_evacuation_that_fails_is_named(
    single: Callable[..., Any], emulated: EmulatedCloud, trouble: Callable[[Any], None]
) -> None:
    group = single()
    group.emulation = emulated.emulation
    alarm = group.fails("power_off")
    trouble(group)

    patiently(group, "on_alarm", **alarm).assert_failed_with("BLOCKED")

    assert evacuations(group) == 1
    assert "It was not evacuated: Nova was asked to evacuate server" in group.status()["reason"]


STORAGE = [{"kind": "storage", "limit": 10}]
OF_SYSTEM, OF_ANOTHER = "172.31.251.11:0/22", "172.31.251.11:0/33"
"""The clients of a guest's other disks: QEMU has one for each."""


def volume_of(group: Any, name: str = "data_volume") -> str:
    return str(group.cloud.resources(group.name)[name]["physical_resource_id"])


def blocked(ceph: Path) -> list[str]:
    found: list[str] = json.loads((ceph / "ceph.conf").read_text("utf-8"))["blocklist"]
    return sorted(found)


@pytest.mark.usefixtures("administrator")
def test_a_member_that_its_storage_has_cut_off_is_evacuated_too(
    single: Callable[..., Any], emulated: EmulatedCloud, ceph: Path
) -> None:
    """Nova keeps the disks of systems in the same Ceph."""
    group = single(ASKS, fence=STORAGE)
    group.emulation = emulated.emulation
    former, home = group.server("db_a"), place(group)
    images = {f"volumes/volume-{volume_of(group)}": [SUSPECT]}
    simulate(ceph, {**images, f"images/{former}_disk": [OF_SYSTEM]})

    patiently(group, "on_alarm", **group.fails("power_off")).assert_succeeded()

    assert group.server("db_a") == former
    assert place(group) != home
    assert evacuations(group) == 1
    assert blocked(ceph) == sorted([SUSPECT, OF_SYSTEM])
    assert group.runs_on() == group.holders() == ["db_a"]
    assert [each["found"] for each in group.status()["restarts"]] == ["evacuate"]
    assert group.cloud.violations() == []


@pytest.mark.usefixtures("administrator")
def test_a_server_whose_system_the_storage_does_not_block_is_not_evacuated(
    single: Callable[..., Any], emulated: EmulatedCloud, ceph: Path
) -> None:
    """Behind a partition its guest runs on. Where Nova keeps that disk is not known: on storage
    that the hosts share, two guests would write to it."""
    group = single(ASKS, fence=STORAGE)
    group.emulation = emulated.emulation
    simulate(ceph, {f"volumes/volume-{volume_of(group)}": [SUSPECT]})
    said = [each["sentence"] for each in group.examined_all("restart")]
    assert any(f"{group.server('db_a')}_disk: db_a boots from no volume" in each for each in said)

    patiently(group, "on_alarm", **group.fails("power_off")).assert_failed_with("BLOCKED")

    assert evacuations(group) == 0
    reason = group.status()["reason"]
    why = "It was not evacuated: its fence (storage) does not keep its guest from the disk of its"
    assert why in reason
    assert f"confirm it: failover confirm-fenced {group.name} db_a" in reason

    said = {"group": group.name, "member": "db_a", "because": "its power is off"}
    patiently(group, "confirm_fenced", **said).assert_succeeded()

    assert evacuations(group) == 1
    assert group.runs_on() == group.holders() == ["db_a"]
    assert group.cloud.violations() == []


@pytest.mark.usefixtures("administrator")
def test_a_server_with_a_volume_in_another_storage_is_not_evacuated(
    single: Callable[..., Any], emulated: EmulatedCloud, ceph: Path
) -> None:
    group = single(DELETES, fence=STORAGE)
    group.emulation = emulated.emulation
    former, operator = group.server("db_a"), Operator(group.cloud)
    operator.attach(other := operator.make_volume(), former)
    images = {f"volumes/volume-{volume_of(group)}": [SUSPECT]}
    simulate(ceph, {**images, f"images/{former}_disk": [OF_SYSTEM]})

    patiently(group, "on_alarm", **group.fails("power_off")).assert_succeeded()

    assert evacuations(group) == 0
    assert group.server("db_a") != former, "the next way was taken"
    assert group.holders() == ["db_a"]
    assert other not in group.cloud.guests()[group.server("db_a")]["volumes"]


@pytest.mark.usefixtures("administrator")
def test_a_stop_proves_nothing_about_the_host(
    single: Callable[..., Any], emulated: EmulatedCloud
) -> None:
    group = single(ASKS, fence=STOPS)
    group.emulation = emulated.emulation
    former = group.server("db_a")

    patiently(group, "on_alarm", **group.fails("crash")).assert_succeeded()

    assert group.server("db_a") != former
    assert evacuations(group) == 0
    assert group.runs_on() == group.holders() == ["db_a"]
    assert [each["found"] for each in group.status()["restarts"]] == ["replace"]


@pytest.mark.usefixtures("administrator", "boards")
def test_a_server_that_its_dead_host_was_asked_to_stop_is_not_evacuated(
    single: Callable[..., Any], emulated: EmulatedCloud
) -> None:
    """That request is carried out when the host comes back, wherever the server is then."""
    group = single(DELETES, fence=STOPS)
    group.emulation = emulated.emulation
    former = group.server("db_a")
    assert any("will not be tried" in each["sentence"] for each in group.examined_all("restart"))

    patiently(group, "on_alarm", **group.fails("power_off")).assert_succeeded()

    assert group.server("db_a") != former
    assert evacuations(group) == 0
    assert group.runs_on() == group.holders() == ["db_a"]


@pytest.mark.usefixtures("administrator")
def test_an_operator_may_confirm_that_the_host_is_off(
    single: Callable[..., Any], emulated: EmulatedCloud
) -> None:
    group = single(ASKS)
    group.emulation = emulated.emulation
    former = group.server("db_a")
    patiently(group, "on_alarm", **group.fails("power_off")).assert_failed_with("BLOCKED")
    assert evacuations(group) == 0, "nothing proves it yet"

    said = {"group": group.name, "member": "db_a", "because": "its power is off"}
    patiently(group, "confirm_fenced", **said).assert_succeeded()

    assert group.server("db_a") == former
    assert evacuations(group) == 1
    assert group.runs_on() == group.holders() == ["db_a"]
    assert group.cloud.violations() == []


@pytest.mark.usefixtures("administrator", "boards")
def test_a_guest_that_does_not_come_up_there_gets_a_successor(
    single: Callable[..., Any],
) -> None:
    group = single(ASKS, limits={"cooldown": 0, "boot": 3})
    former = group.server("db_a")
    alarm = group.fails("power_off")
    group.cloud.api_fault("start", "hang")

    patiently(group, "on_alarm", **alarm).assert_succeeded()

    assert group.server("db_a") != former
    assert group.runs_on() == group.holders() == ["db_a"]
    assert group.cloud.violations() == []


@pytest.mark.usefixtures("administrator", "boards")
def test_two_volumes_have_it_evacuated_once(
    single: Callable[..., Any], emulated: EmulatedCloud
) -> None:
    def with_another(stack: dict[str, Any]) -> dict[str, Any]:
        logs = {"type": "OS::Cinder::Volume", "properties": {"size": 1}}
        return {**stack, "resources": {**stack["resources"], "log_volume": logs}}

    on = {"volume": "log_volume", "server": ACTIVE}
    both = {**ASKS, "logs": {"type": "volume_attachment", "properties": on}}
    group = single(both, template=with_another)
    group.emulation = emulated.emulation
    former = group.server("db_a")

    patiently(group, "on_alarm", **group.fails("power_off")).assert_succeeded()

    assert group.server("db_a") == former
    assert evacuations(group) == 1
    assert group.runs_on() == group.holders() == ["db_a"]
