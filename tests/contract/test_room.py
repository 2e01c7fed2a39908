# SPDX-License-Identifier: Apache-2.0
"""What Nova says of availability zones and of the project's quota, to every user."""

from __future__ import annotations

from contract.rig import Made, Rig
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.room import exhausted_by_one_more, lacking, zones
from mistral_failover.cloud.servers import server_state


def test_the_zone_of_a_server_is_one_of_those_that_nova_lists(cloud: Cloud, pair: Made) -> None:
    assert server_state(cloud, pair.ids["db_a"]).zone in zones(cloud)


def test_nova_says_what_the_quota_allows_and_what_a_flavor_takes(
    cloud: Cloud, rig: Rig, pair: Made
) -> None:
    shown = rig.api().nova("GET", "/limits").json()["limits"]["absolute"]
    counted = shown["maxTotalInstances"] != -1  # without quotas Nova counts nothing: -1
    full = 0 <= shown["maxTotalInstances"] <= shown["totalInstancesUsed"]

    found = exhausted_by_one_more(cloud, pair.ids["db_a"])

    assert any(each.startswith("servers: ") for each in found) == full
    assert not counted or shown["totalInstancesUsed"] >= 2
    assert not counted or shown["totalCoresUsed"] >= 2
    assert not counted or shown["totalRAMUsed"] > 0


def test_a_user_sees_the_quotas_of_the_own_project(cloud: Cloud, rig: Rig) -> None:
    api, path = rig.api(), f"/os-quota-sets/{cloud.project_id}"
    limits = api.nova("GET", "/limits").json()["limits"]["absolute"]

    compute = api.nova("GET", path).json()["quota_set"]
    storage = api.cinder("GET", path).json()["quota_set"]

    assert (compute["instances"], compute["cores"], compute["ram"]) == (
        limits["maxTotalInstances"],
        limits["maxTotalCores"],
        limits["maxTotalRAMSize"],
    )
    assert compute["id"] == storage["id"] == cloud.project_id
    assert {"volumes", "gigabytes", "snapshots"} <= storage.keys()


def test_only_an_administrator_changes_quotas(cloud: Cloud, rig: Rig) -> None:
    path, api = f"/os-quota-sets/{cloud.project_id}", rig.api()

    by_nova = api.nova("PUT", path, {"quota_set": {"instances": 100}})
    by_cinder = api.cinder("PUT", path, {"quota_set": {"volumes": 100}})

    assert (by_nova.status_code, by_cinder.status_code) == (403, 403)


def test_nova_still_has_the_flavor_and_the_image_of_a_server(cloud: Cloud, pair: Made) -> None:
    server = pair.ids["db_a"]

    assert lacking(cloud, pair.name, server) == exhausted_by_one_more(cloud, server)
