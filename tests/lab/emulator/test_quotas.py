# SPDX-License-Identifier: Apache-2.0
"""The quotas of a project: an administrator sets them, everyone of the project sees them, and Nova,
Cinder and Heat make nothing beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openstack.connection
import pytest
from openstack.exceptions import ForbiddenException, HttpException

from lab.emulator.emulated_clients import PAIR, Clients, clients_of
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.waiting import until


@pytest.fixture
def admin(cloud: EmulatedCloud) -> Any:
    return connection(clients_of(cloud.url, "admin"))


@pytest.fixture
def user(demo: Clients) -> Any:
    return connection(demo)


def connection(clients: Clients) -> Any:
    return openstack.connection.Connection(session=clients.session, region_name="RegionOne")


@pytest.fixture
def project(admin: Any, user: Any) -> Iterator[str]:
    """The user's project, which has a server and a volume of 1 GiB, and no quota afterwards."""
    found = admin.identity.find_project("demo").id
    server = user.compute.create_server(name="one", flavor_id="m1.tiny", networks="none")
    volume = user.block_storage.create_volume(name="one", size=1)
    yield str(found)
    admin.compute.revert_quota_set(found)
    admin.block_storage.revert_quota_set(found)
    user.compute.delete_server(server)
    until(lambda: user.block_storage.get_volume(volume).status == "available")
    user.block_storage.delete_volume(volume)


def test_what_an_administrator_sets_the_user_sees(admin: Any, user: Any, project: str) -> None:
    admin.compute.update_quota_set(project, instances=3, cores=4)
    admin.block_storage.update_quota_set(project, volumes=5, gigabytes=6, snapshots=7)

    compute, storage = (
        user.compute.get_quota_set(project),
        user.block_storage.get_quota_set(project),
    )

    assert (compute.instances, compute.cores, compute.ram) == (3, 4, -1)
    assert (storage.volumes, storage.gigabytes, storage.snapshots) == (5, 6, 7)
    limits = user.compute.get_limits().absolute
    assert (limits.instances, limits.total_cores, limits.instances_used) == (3, 4, 1)


def test_only_an_administrator_sets_them_and_no_other_project_sees_them(
    cloud: EmulatedCloud, user: Any, project: str
) -> None:
    with pytest.raises(ForbiddenException, match="os_compute_api:os-quota-sets:update"):
        user.compute.update_quota_set(project, instances=100)
    with pytest.raises(ForbiddenException, match="volume_extension:quotas:update"):
        user.block_storage.update_quota_set(project, volumes=100)

    other = connection(clients_of(cloud.url, "other"))
    with pytest.raises(ForbiddenException):
        other.compute.get_quota_set(project)


@pytest.mark.parametrize(
    ("quota", "words"),
    [
        ({"instances": 1}, "Quota exceeded for instances: Requested 1, but already used 1 of 1"),
        ({"cores": 1}, "Quota exceeded for cores: Requested 1, but already used 1 of 1 cores"),
        ({"ram": 1000}, "Quota exceeded for ram: Requested 512, but already used 512 of 1000 ram"),
    ],
)
def test_nova_makes_no_server_beyond_a_quota(
    admin: Any, user: Any, project: str, quota: dict[str, int], words: str
) -> None:
    admin.compute.update_quota_set(project, **quota)

    with pytest.raises(ForbiddenException, match=words):
        user.compute.create_server(name="two", flavor_id="m1.tiny", networks="none")


@pytest.mark.parametrize(
    ("quota", "words"),
    [
        ({"volumes": 1}, "VolumeLimitExceeded"),
        ({"gigabytes": 2}, "Requested 2G, quota is 2G and 1G"),
    ],
)
def test_cinder_makes_no_volume_beyond_a_quota(
    admin: Any, user: Any, project: str, quota: dict[str, int], words: str
) -> None:
    admin.block_storage.update_quota_set(project, **quota)

    with pytest.raises(HttpException, match=words) as refused:
        user.block_storage.create_volume(name="two", size=2)
    assert refused.value.status_code == 413


def test_cinder_makes_no_snapshot_beyond_a_quota(admin: Any, user: Any, project: str) -> None:
    (volume,) = user.block_storage.volumes(name="one")
    until(lambda: user.block_storage.get_volume(volume).status == "available")
    admin.block_storage.update_quota_set(project, snapshots=0)

    with pytest.raises(HttpException, match="SnapshotLimitExceeded") as refused:
        user.block_storage.create_snapshot(name="one", volume_id=volume.id)
    assert refused.value.status_code == 413


@pytest.mark.parametrize(
    ("service", "quota", "words"),
    [
        ("compute", {"instances": 2}, "Quota exceeded for instances"),
        ("block_storage", {"volumes": 1}, "Maximum number of volumes allowed"),
    ],
)
def test_heat_says_why_a_quota_makes_a_stack_fail(
    admin: Any,
    demo: Clients,
    project: str,
    emulator: EmulatorClient,
    service: str,
    quota: dict[str, int],
    words: str,
) -> None:
    getattr(admin, service).update_quota_set(project, **quota)
    made = demo.heat.stacks.create(stack_name=f"full-{service}", template=PAIR)["stack"]["id"]

    until(lambda: demo.heat.stacks.get(made).stack_status == "CREATE_FAILED")

    assert words in demo.heat.stacks.get(made).stack_status_reason
    demo.heat.stacks.delete(made)
    until(lambda: demo.heat.stacks.get(made).stack_status == "DELETE_COMPLETE")
