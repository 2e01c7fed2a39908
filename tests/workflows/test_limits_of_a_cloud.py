# SPDX-License-Identifier: Apache-2.0
"""What the operator of a cloud has configured keeps a volume from the standby: zones, a number of
disks, keys of encrypted volumes. Another standby is taken and it is said why; without one the
failover fails with the reason, and goes on by an order once the cause has gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from mistral_failover.lab.emulator.state import CONFIG
from support.operators import Operator

pytestmark = pytest.mark.faults

THREE = ("db_a", "db_b", "db_c")
Template = dict[str, Any]


class Limit(NamedTuple):
    """``template`` changes the stack so that ``config`` keeps the volume from db_b alone; ``says``:
    why, as a person is told by a choice or by Nova."""

    template: Callable[[Template], None]
    config: Callable[[Any], Mapping[str, Any]]
    says: tuple[str, ...]


def _zones(template: Template) -> None:
    """The volume is in the zone of db_a and db_c; each host of the emulated cloud is a zone."""
    resources = template["resources"]
    for member, zone in (("db_a", "cmp1"), ("db_b", "cmp2"), ("db_c", "cmp1")):
        if member in resources:
            own = {**resources[member]["properties"], "availability_zone": zone}
            own.pop("scheduler_hints")
            resources[member] = {"type": "OS::Nova::Server", "properties": own}
    resources["data_volume"]["properties"]["availability_zone"] = "cmp1"


def _disks(template: Template) -> None:
    template["resources"]["logs"] = {"type": "OS::Cinder::Volume", "properties": {"size": 1}}


def _as_many_as_db_b_has(group: Any) -> dict[str, Any]:
    """The server of db_b has a disk more than that of db_c."""
    logs = group.cloud.resources(group.name)["logs"]["physical_resource_id"]
    Operator(group.cloud).attach(logs, group.server("db_b"))
    return {"max_disk_devices_to_attach": 2}


def _encrypted(template: Template) -> None:
    template["resources"]["data_volume"]["properties"]["volume_type"] = "encrypted"


def _keys_elsewhere(group: Any) -> dict[str, Any]:
    """The host of db_b may not read keys."""
    hosts = set(group.cloud.status()["hosts"])
    return {"keys_readable": sorted(hosts - {group.cloud.guests()[group.server("db_b")]["host"]})}


LIMITS = {
    "another zone": Limit(
        _zones,
        lambda _: {"cross_az_attach": False},
        (
            "volume data is in zone cmp1 and its server in cmp2",
            "not in the same availability_zone",
        ),
    ),
    "too many disks": Limit(
        _disks,
        _as_many_as_db_b_has,
        ("maximum allowed number of disk devices (2)",),
    ),
    "a key that its host may not read": Limit(
        _encrypted,
        _keys_elsewhere,
        ("accepted the attach 3 times and gave up each time",),
    ),
}


@pytest.fixture(autouse=True)
def as_before(cloud: Any) -> Iterator[None]:
    """The cloud has no limits afterwards."""
    yield
    cloud.configure(**CONFIG)


@pytest.fixture
def limited(protect: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group that serves on db_a, and a limit that keeps the volume from db_b."""

    def make(limit: Limit, servers: tuple[str, ...]) -> Any:
        def changed(template: Template) -> Template:
            limit.template(template)
            return template

        group = protect(servers=servers, template=changed, limits={"cooldown": 0})
        group.activate()
        group.cloud.configure(**limit.config(group))
        group.fails("crash")
        return group

    return make


def settled(group: Any, member: str) -> None:
    """The group serves on this member, which alone has the volume."""
    status = group.status()
    assert status["status"] == "COMPLETE", status["reason"]
    assert (group.holders(), group.runs_on()) == ([member], [member])
    assert group.cloud.violations() == []


@pytest.mark.parametrize("name", LIMITS)
def test_another_standby_is_taken_and_it_is_said_why(
    limited: Callable[..., Any], name: str
) -> None:
    limit = LIMITS[name]
    group = limited(limit, THREE)

    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()

    settled(group, "db_c")
    assert group.status()["lost"] == ["db_a"], "db_b lives and needs no fence"
    (cause,) = [each for each in group.traversals() if "db_b is passed over" in each]
    assert any(words in cause for words in limit.says)


@pytest.mark.parametrize("name", LIMITS)
def test_without_another_standby_the_failure_says_why_and_an_order_goes_on_later(
    limited: Callable[..., Any], name: str
) -> None:
    limit = LIMITS[name]
    group = limited(limit, THREE[:2])

    group.run("failover", group=group.name, lost=["db_a"]).assert_failed_with("FAILED")

    failure = group.status()["failure"]
    assert failure["code"] == "TARGET_DOWN"
    assert any(words in failure["message"] for words in limit.says)
    assert failure["remedy"]
    assert group.holders() == []

    group.cloud.configure(**CONFIG)
    group.run("failover", group=group.name, lost=[]).assert_succeeded()
    settled(group, "db_b")
