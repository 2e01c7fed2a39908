# SPDX-License-Identifier: Apache-2.0
"""The operator's file of fence devices: no two hosts with the same system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.resources.fence import devices
from support.fencing import private

IP = "10.9.0.1"
REDFISH, IPMI, APC = "fence_redfish", "fence_ipmilan", "fence_apc"


def device(agent: str, **options: Any) -> dict[str, Any]:
    return {"agent": agent, "options": {"ip": IP, **options}}


def read(folder: Path, *levels: list[list[dict[str, Any]]]) -> devices.Devices:
    """Read a file with one host for each argument: compute-1, compute-2."""
    hosts = {f"compute-{number}": each for number, each in enumerate(levels, 1)}
    text = json.dumps({"projects": ["*"], "hosts": hosts})
    return devices.read(private(folder / "devices.yaml", text))


SAME = {
    "a board with several systems": (device(REDFISH), device(REDFISH), "systems_uri"),
    "a board that lists one of them last": (
        device(REDFISH, systems_uri="/redfish/v1/Systems/1"),
        device(REDFISH),
        "systems_uri",
    ),
    "an option that the agent does not know": (
        device(REDFISH, system_uri="/redfish/v1/Systems/1"),
        device(REDFISH, system_uri="/redfish/v1/Systems/2"),
        "systems_uri",
    ),
    "two forms of one path": (
        device(REDFISH, systems_uri="/redfish/v1/Systems/1"),
        device(REDFISH, **{"systems-uri": "/redfish/v1/systems/1/"}),
        "systems_uri",
    ),
    "a port in the address": (
        device(REDFISH, ip=f"{IP}:8000"),
        device(REDFISH, ipport=8000),
        "systems_uri",
    ),
    "another login": (device(IPMI, username="a"), device(IPMI, login="b", lanplus=True), "ip"),
    "a plug that a board does not have": (device(IPMI, plug=1), device(IPMI, plug=2), "ip"),
    "copies of one agent": (device(IPMI), device("/usr/sbin/fence_idrac"), "ip"),
    "the default port, stated": (device(IPMI, ipport=623), device(IPMI), "ip"),
    "the plug as address": (
        {"agent": IPMI, "options": {"plug": IP, "port_as_ip": True}},
        device(IPMI),
        "ip",
    ),
    "an old name of the address": (
        {"agent": IPMI, "options": {"ipaddr": "2001:DB8:0::1"}},
        device(IPMI, ip="2001:db8::1"),
        "ip",
    ),
    "one name in two cases": (device(IPMI, ip="bmc1.test."), device(IPMI, ip="BMC1.test"), "ip"),
    "an outlet": (device(APC, plug=4, power_timeout=9), device(APC, port="4"), "plug"),
}  # fmt: skip


@pytest.mark.parametrize(("one", "two", "option"), SAME.values(), ids=SAME)
def test_two_hosts_with_the_same_system_are_refused(
    tmp_path: Path, one: dict[str, Any], two: dict[str, Any], option: str
) -> None:
    """One would be switched off for the other."""
    with pytest.raises(devices.NoDevices) as refused:
        read(tmp_path, [[one]], [[device("fence_other", plug=1)], [two]])

    assert f"hosts.compute-2[1][0].options.{option}" in refused.value.detail
    assert "hosts.compute-1[0][0]" in refused.value.detail
    assert "compute" not in refused.value.message
    read(tmp_path, [[one], [two]])  # of one host they are two ways to the same system


APART = [
    (device(REDFISH, systems_uri="/Systems/1"), device(REDFISH, systems_uri="/Systems/2")),
    (device(IPMI, ipport=6230), device(IPMI, ipport=6231)),
    (device(IPMI), device(IPMI, ip="10.9.0.2")),
    (device(APC, plug=4), device(APC, plug=5)),
    (device(APC, plug=4), device("fence_raritan", plug=4)),
    (device("fence_vmware_rest", plug="a", filter="x"), device("fence_vmware_rest", plug="b")),
]


@pytest.mark.parametrize(("one", "two"), APART)
def test_two_hosts_with_systems_of_their_own_are_accepted(
    tmp_path: Path, one: dict[str, Any], two: dict[str, Any]
) -> None:
    assert set(read(tmp_path, [[one]], [[two]]).hosts) == {"compute-1", "compute-2"}


def test_one_outlet_twice_in_a_level_is_refused(tmp_path: Path) -> None:
    """The second power supply would stay on, and both devices would report off."""
    with pytest.raises(devices.NoDevices) as refused:
        read(tmp_path, [[device(APC, plug=4), device(APC, plug=4)]])

    assert "hosts.compute-1[0][1].options.plug" in refused.value.detail


@pytest.mark.parametrize(
    "options", [{"missing_as_off": True}, {"missing-as-off": "yes"}, {"ipaddr": "10.9.0.2"}]
)
def test_an_option_that_leaves_open_what_is_off_is_refused(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """An outlet that does not exist would be off; of two addresses the agent takes the last."""
    with pytest.raises(devices.NoDevices) as refused:
        read(tmp_path, [[device(APC, plug=4, **options)]])

    assert next(iter(options)).replace("-", "_") in refused.value.detail.replace("-", "_")


@pytest.mark.parametrize(("options", "unclear"), [({}, True), ({"systems-uri": "/S/1"}, False)])
def test_a_board_whose_system_is_not_named_is_unclear(
    tmp_path: Path, options: dict[str, Any], unclear: bool
) -> None:
    known = read(tmp_path, [[device(IPMI)], [device(REDFISH, **options)]])

    assert [path for path, _ in known.unclear()] == (["hosts.compute-1[1][0]"] if unclear else [])
