# SPDX-License-Identifier: Apache-2.0
"""Compute services: who may see and change them, and what Nova says of a host that is fenced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract.api import Api
from contract.conftest import Two
from contract.rig import Rig
from mistral_failover.cloud import hosts
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.hosts import ComputeService


@pytest.fixture
def operator(rig: Rig) -> Cloud:
    """The adapters with an administrator's token."""
    return rig.connect("admin", token=rig.api("admin").session.get_token())


@pytest.fixture
def service(rig: Rig, operator: Cloud, admin: Api) -> Iterator[ComputeService]:
    """The compute service of a host, up; it is up again afterwards."""
    found = hosts.compute_service(operator, rig.victim)
    assert found is not None
    yield found
    # As `openstack compute service set --up` does.
    answer = admin.nova("PUT", f"/os-services/{found.id}", {"forced_down": False})
    assert answer.status_code == 200, answer.text
    rig.until(lambda: rig.service(rig.victim) == "up")


def test_a_host_that_is_fenced_is_down_for_nova_though_its_service_reports(
    rig: Rig, operator: Cloud, service: ComputeService
) -> None:
    assert (service.host, service.up, service.forced_down) == (rig.victim, True, False)

    hosts.force_down(operator, service)

    found = hosts.compute_service(operator, rig.victim)
    assert found is not None
    assert found.forced_down
    assert found.down
    assert found.id == service.id
    steady = hosts.compute_service(operator, rig.steady)
    assert steady is not None
    assert not steady.down, "the other hosts are as before"


def test_a_repeat_changes_nothing(rig: Rig, operator: Cloud, service: ComputeService) -> None:
    hosts.force_down(operator, service)
    hosts.force_down(operator, service)

    found = hosts.compute_service(operator, rig.victim)
    assert found is not None
    assert found.forced_down


def test_a_service_that_does_not_exist_shows_the_right_and_changes_nothing(
    rig: Rig, operator: Cloud
) -> None:
    hosts.require_right_to_force_down(operator)

    assert rig.service(rig.victim) == "up"


def test_a_project_may_neither_see_compute_services_nor_force_one_down(
    rig: Rig, cloud: Cloud, operator: Cloud
) -> None:
    service = hosts.compute_service(operator, rig.victim)
    assert service is not None

    for refused in (
        lambda: hosts.compute_services(cloud),
        lambda: hosts.force_down(cloud, service),
        lambda: hosts.require_right_to_force_down(cloud),
    ):
        with pytest.raises(CloudError) as raised:
            refused()
        assert raised.value.code == "FORBIDDEN"
    assert rig.service(rig.victim) == "up"


def test_an_unknown_host_has_no_compute_service(operator: Cloud) -> None:
    assert hosts.compute_service(operator, "no-such-host") is None


def test_the_host_of_a_server_is_shown_to_operators_only(
    cloud: Cloud, operator: Cloud, admin: Api, two: Two
) -> None:
    shown = admin.server(two.a)
    assert shown is not None
    assert hosts.location_of(operator, two.a).host == shown["OS-EXT-SRV-ATTR:host"]

    with pytest.raises(CloudError) as raised:
        hosts.location_of(cloud, two.a)
    assert raised.value.code == "FORBIDDEN"
