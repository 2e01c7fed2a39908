# SPDX-License-Identifier: Apache-2.0
"""Members of a load balancer's pool are enabled, drained and disabled, one at a time.

Measured:

Octavia 19

- A change is shown at once, with PENDING_UPDATE; ACTIVE says that the load balancer has it.
- Until then every other change on the load balancer: 409 "is immutable and cannot be updated."
- A pool of another project: 403. A pool that does not exist: 404, with two forms of the error.
- A member keeps its address and port: 400 "Unknown attribute".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

import testcloud.octavia
from bench import databases
from contract.api import Api
from contract.conftest import Two
from contract.emulated import EmulatedRig
from contract.rig import UNKNOWN_ID, Rig
from mistral_failover.cloud import load_balancers
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.project_listing import ProjectListing
from testcloud import settings

PORT = 5432


@dataclass(frozen=True)
class Balanced:
    """A pool, its load balancer, and the member of each server; both are disabled."""

    demo: Api
    load_balancer: str
    id: str
    a: str
    b: str

    @property
    def members(self) -> str:
        """Where Octavia has the members."""
        return f"/pools/{self.id}/members"

    def member(self, member_id: str) -> dict[str, Any]:
        """A member as Octavia shows it."""
        answer = self.demo.octavia("GET", f"{self.members}/{member_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["member"])

    def change(self, member_id: str, **values: Any) -> None:
        """Ask Octavia for a change of a member, and do not wait."""
        path = f"{self.members}/{member_id}"
        answer = self.demo.octavia("PUT", path, {"member": values})
        assert answer.status_code == 200, answer.text

    def settled(self, rig: Rig) -> None:
        """Wait until the load balancer has what Octavia shows."""
        _settled(rig, self.demo, f"/loadbalancers/{self.load_balancer}")


def _settled(rig: Rig, demo: Api, path: str) -> None:
    def active() -> bool:
        (shown,) = demo.octavia("GET", path).json().values()
        return bool(shown["provisioning_status"] == "ACTIVE")

    rig.until(active)


def _made(demo: Api, path: str, body: dict[str, Any]) -> str:
    answer = demo.octavia("POST", path, body)
    assert answer.status_code == 201, answer.text
    (made,) = answer.json().values()
    return str(made["id"])


@pytest.fixture(scope="module")
def octavia(
    request: pytest.FixtureRequest, rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A real Octavia, if it is asked for; else that of the emulated cloud."""
    if not request.config.getoption("--octavia"):
        if not isinstance(rig, EmulatedRig):
            pytest.skip("--octavia starts an Octavia")
        yield
        return
    folder = tmp_path_factory.mktemp("octavia")
    with databases.private(folder) as server:
        assert server is not None, "needs mariadbd"
        url = sa.engine.make_url(server)
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text("CREATE DATABASE octavia"))
        engine.dispose()
        text = url.set(database="octavia").render_as_string(hide_password=False)
        with testcloud.octavia.running(settings.load(), folder, text, rig.login("admin")) as place:
            rig.places["octavia"] = place
            yield
            del rig.places["octavia"]


@pytest.fixture(scope="module")
def cloud(rig: Rig, octavia: None) -> Cloud:
    """The adapters, with that Octavia."""
    return rig.connect()


@pytest.fixture(scope="module")
def balancer(rig: Rig, octavia: None) -> Iterator[str]:
    """A load balancer."""
    demo = rig.api()
    asked = {"name": rig.name(), "vip_subnet_id": UNKNOWN_ID, "vip_address": "192.0.2.10"}
    made = _made(demo, "/loadbalancers", {"loadbalancer": asked})
    _settled(rig, demo, f"/loadbalancers/{made}")
    yield made
    path = f"/loadbalancers/{made}"
    rig.until(lambda: demo.octavia("DELETE", f"{path}?cascade=true").status_code in (204, 404))
    rig.until(lambda: demo.octavia("GET", path).status_code == 404)


@pytest.fixture
def pool(rig: Rig, demo: Api, linked: Two, balancer: str) -> Iterator[Balanced]:
    """A pool of the test's own, with a member for each server; both are disabled."""
    path = f"/loadbalancers/{balancer}"
    asked = {"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "loadbalancer_id": balancer}
    made = _made(demo, "/pools", {"pool": asked})
    _settled(rig, demo, path)
    members = []
    for server in (linked.a, linked.b):
        port = demo.port(rig.port_of(server))
        assert port is not None
        address = port["fixed_ips"][0]["ip_address"]
        body = {"address": address, "protocol_port": PORT, "admin_state_up": False, "weight": 5}
        members.append(_made(demo, f"/pools/{made}/members", {"member": body}))
        _settled(rig, demo, path)
    yield Balanced(demo, balancer, made, *members)
    _settled(rig, demo, path)
    assert demo.octavia("DELETE", f"/pools/{made}").status_code in (204, 404)
    _settled(rig, demo, path)


def test_a_member_is_enabled_and_disabled(cloud: Cloud, linked: Two, pool: Balanced) -> None:
    found, made = load_balancers.enable(cloud, pool.id, linked.a, 30)

    shown = pool.member(pool.a)
    assert found == pool.a
    assert (shown["admin_state_up"], shown["provisioning_status"]) == (True, "ACTIVE")
    assert made == {
        "address": f"{shown['address']}:{PORT}",
        "pool_id": pool.id,
        "server_id": linked.a,
        "weight": 5,
    }
    assert load_balancers.enable(cloud, pool.id, linked.a, 30) == (found, made)

    for _ in range(2):
        load_balancers.disable(cloud, pool.id, pool.a, 30)
        shown = pool.member(pool.a)
        assert (shown["admin_state_up"], shown["provisioning_status"]) == (False, "ACTIVE")
        assert shown["weight"] == 5


def test_a_member_is_not_enabled_beside_another_one_unless_they_share_the_pool(
    cloud: Cloud, linked: Two, pool: Balanced
) -> None:
    load_balancers.enable(cloud, pool.id, linked.a, 30)

    with pytest.raises(CloudError) as caught:
        load_balancers.enable(cloud, pool.id, linked.b, 30)

    assert caught.value.code == "POOL_IN_USE"
    assert pool.a in caught.value.message
    assert pool.a in (caught.value.remedy or "")
    assert not pool.member(pool.b)["admin_state_up"]
    load_balancers.enable(cloud, pool.id, linked.b, 30, shared=True)
    assert pool.member(pool.b)["admin_state_up"]


def test_a_change_waits_for_the_change_of_another_client(
    cloud: Cloud, linked: Two, pool: Balanced
) -> None:
    pool.change(pool.b, weight=7)
    path = f"{pool.members}/{pool.a}"
    answer = pool.demo.octavia("PUT", path, {"member": {"weight": 7}})
    assert answer.status_code == 409
    assert answer.json()["faultstring"].endswith("is immutable and cannot be updated.")

    load_balancers.enable(cloud, pool.id, linked.a, 30)

    assert pool.member(pool.a)["admin_state_up"]


def test_a_member_drains_before_it_is_disabled(
    cloud: Cloud, rig: Rig, linked: Two, pool: Balanced
) -> None:
    """While it drains it is enabled with the weight 0; afterwards it has its own weight."""
    _, made = load_balancers.enable(cloud, pool.id, linked.a, 30)
    own = {"drain": 1, "weight": made["weight"]}
    begun = time.monotonic()
    going = threading.Thread(
        target=load_balancers.disable, args=(cloud, pool.id, pool.a, 30), kwargs=own
    )
    going.start()
    try:
        rig.until(lambda: pool.member(pool.a)["weight"] == 0)
        assert pool.member(pool.a)["admin_state_up"]
    finally:
        going.join(40)

    assert time.monotonic() - begun >= 1
    shown = pool.member(pool.a)
    assert (shown["admin_state_up"], shown["weight"]) == (False, 5)


def test_a_weight_that_a_drain_left_does_not_stay(
    cloud: Cloud, rig: Rig, linked: Two, pool: Balanced
) -> None:
    pool.change(pool.a, weight=0, admin_state_up=True)
    pool.settled(rig)

    _, made = load_balancers.enable(cloud, pool.id, linked.a, 30)

    assert made["weight"] == pool.member(pool.a)["weight"] == 1


def test_the_weight_of_a_member_is_kept(
    cloud: Cloud, rig: Rig, linked: Two, pool: Balanced
) -> None:
    """Of a drain that was left, the recorded one; else the one that an operator has set since."""
    _, made = load_balancers.enable(cloud, pool.id, linked.a, 30)
    pool.change(pool.a, weight=0)
    pool.settled(rig)

    load_balancers.enable(cloud, pool.id, linked.a, 30, weight=made["weight"])
    assert pool.member(pool.a)["weight"] == made["weight"] == 5

    pool.change(pool.a, weight=9)
    pool.settled(rig)
    load_balancers.disable(cloud, pool.id, pool.a, 30, drain=0.1, weight=made["weight"])
    shown = pool.member(pool.a)
    assert (shown["admin_state_up"], shown["weight"]) == (False, 9)


def test_a_drain_leaves_time_to_disable_the_member(
    cloud: Cloud, linked: Two, pool: Balanced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_balancers, "KEPT", 0.97)
    load_balancers.enable(cloud, pool.id, linked.a, 30)

    begun = time.monotonic()
    load_balancers.disable(cloud, pool.id, pool.a, 30, drain=30)

    assert time.monotonic() - begun < 30
    assert not pool.member(pool.a)["admin_state_up"]


def test_a_server_with_several_members_needs_the_port_of_one(
    cloud: Cloud, rig: Rig, linked: Two, pool: Balanced
) -> None:
    address = pool.member(pool.a)["address"]
    body = {"address": address, "protocol_port": 80, "admin_state_up": False}
    more = _made(pool.demo, pool.members, {"member": body})
    pool.settled(rig)

    with pytest.raises(CloudError) as caught:
        load_balancers.enable(cloud, pool.id, linked.a, 30)

    assert caught.value.code == "NO_POOL_MEMBER"
    assert "protocol_port" in (caught.value.remedy or "")
    assert load_balancers.enable(cloud, pool.id, linked.a, 30, 80)[0] == more


def test_what_the_pool_does_not_have_is_named(cloud: Cloud, two: Two, pool: Balanced) -> None:
    with pytest.raises(CloudError) as caught:
        load_balancers.enable(cloud, pool.id, two.a, 30)
    assert caught.value.code == "NO_POOL_MEMBER"
    assert two.a in caught.value.message

    with pytest.raises(CloudError) as caught:
        load_balancers.enable(cloud, UNKNOWN_ID, two.a, 30)
    assert caught.value.code == "NOT_FOUND"
    assert f"Pool {UNKNOWN_ID} not found" in caught.value.message


def test_what_does_not_exist_gets_no_connections(cloud: Cloud, pool: Balanced) -> None:
    load_balancers.disable(cloud, pool.id, UNKNOWN_ID, 30, drain=1)
    load_balancers.disable(cloud, UNKNOWN_ID, pool.a, 30)


def test_members_are_listed_page_by_page(
    cloud: Cloud, pool: Balanced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_balancers, "PAGE", 1)

    listing = ProjectListing(cloud)

    assert set(listing.pool_members(pool.id)) == {pool.a, pool.b}
    assert listing.pool_members(UNKNOWN_ID) == {}


def test_octavia_refuses_what_is_no_weight_and_what_a_member_keeps(pool: Balanced) -> None:
    for values in ({"weight": 300}, {"address": "192.0.2.1"}):
        answer = pool.demo.octavia("PUT", f"{pool.members}/{pool.a}", {"member": values})
        assert answer.status_code == 400, answer.text


def test_the_pool_of_another_project_is_refused(other: Api, pool: Balanced) -> None:
    for path in (f"/pools/{pool.id}", pool.members):
        assert other.octavia("GET", path).status_code == 403
