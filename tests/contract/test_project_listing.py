# SPDX-License-Identifier: Apache-2.0
"""What a project's servers, volumes and stacks are, by one list call for each kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contract.rig import UNKNOWN_ID, Made, Rig
from mistral_failover.cloud import absence
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.project_listing import ProjectListing
from mistral_failover.cloud.servers import attachment_shown, server_state
from mistral_failover.cloud.stacks import stack_shown
from mistral_failover.cloud.volume_holders import listed_by_nova, volume_if_there
from mistral_failover.cloud.volumes import attach, detach


def test_a_listed_server_is_as_it_is_by_itself(cloud: Any, two: Any) -> None:
    listing = ProjectListing(cloud)
    assert listing.server(two.a) == server_state(cloud, two.a)
    assert listing.server(two.b).status == "ACTIVE"


def test_a_server_s_host_is_known_by_its_name_without_an_administrator_s_rights(
    cloud: Any, admin: Any, two: Any
) -> None:
    """Nova shows everyone its digest of project and host name."""
    shown = admin.nova("GET", f"/servers/{two.a}").json()["server"]
    host = shown["OS-EXT-SRV-ATTR:host"]

    found = replace(ProjectListing(cloud).hosts()[two.a], name="")

    assert found.host_id == shown["hostId"]
    assert found.is_called(host)
    assert found.is_called(f"{host}.example.org")
    assert not found.is_called(f"{host}0")


def test_a_server_s_zone_is_known_without_an_administrator_s_rights(
    cloud: Any, admin: Any, two: Any
) -> None:
    shown = admin.nova("GET", f"/servers/{two.a}").json()["server"]

    zones = ProjectListing(cloud).zones()

    assert zones[two.a] == shown["OS-EXT-AZ:availability_zone"] == "nova"
    assert server_state(cloud, two.a).zone == zones[two.a]


def test_hosts_and_zones_of_all_servers_are_made_once(cloud: Any, two: Any) -> None:
    listing = ProjectListing(cloud)

    assert two.a in listing.hosts()
    assert listing.hosts() is listing.hosts(), "a look at all groups asks for each member"
    assert listing.zones() is listing.zones()


def test_what_does_not_exist_is_no_error(cloud: Any) -> None:
    listing = ProjectListing(cloud)
    assert not listing.server(UNKNOWN_ID).exists
    assert listing.volume(UNKNOWN_ID) is None
    assert listing.stack("no-such-stack") is None


def test_what_is_gone_is_called_absent_and_is_not_listed_either(rig: Rig, cloud: Any) -> None:
    """Absence is asked for in two ways. Nova ignores the filter ``uuid`` of a project."""
    volume, server = rig.make_volume(), rig.boot()
    rig.active(server)
    assert server in absence.SERVER.listed(cloud, server)
    assert volume in absence.VOLUME.listed(cloud, volume)
    assert server_state(cloud, server).exists
    assert volume_if_there(cloud, volume) is not None
    rig.remove_servers([server])
    rig.remove_volume(volume)

    assert not server_state(cloud, server).exists
    assert volume_if_there(cloud, volume) is None
    assert not listed_by_nova(cloud, server, volume)
    assert attachment_shown(cloud, server, volume) is None
    for kind in (absence.PORT, absence.FLOATING_IP):
        assert absence.unless_absent(cloud, kind, UNKNOWN_ID, lambda: None) is None
    with pytest.raises(CloudError) as raised:
        stack_shown(cloud, UNKNOWN_ID)
    assert raised.value.code == "NOT_FOUND"


def test_a_volume_names_the_servers_that_it_is_attached_to(
    cloud: Any, two: Any, volume: str
) -> None:
    found = ProjectListing(cloud).volume(volume)
    assert found is not None
    assert (found.status, found.servers) == ("available", frozenset())

    attach(cloud, volume, two.a, 60)
    found = ProjectListing(cloud).volume(volume)
    assert found is not None
    assert (found.status, found.servers) == ("in-use", {two.a})

    detach(cloud, volume, two.a, 60)
    found = ProjectListing(cloud).volume(volume)
    assert found is not None
    assert found.servers == frozenset()


def test_a_stack_is_found_by_name_and_by_id(cloud: Any, pair: Made) -> None:
    listing = ProjectListing(cloud)
    by_name = listing.stack(pair.name)
    assert by_name is not None
    assert by_name == listing.stack(by_name.id)
    assert by_name.status.endswith("_COMPLETE")


def test_an_update_gives_a_stack_another_version(cloud: Any, pair: Made) -> None:
    before = ProjectListing(cloud).stack(pair.name)
    cloud.heat.stacks.update(pair.name, existing=True)
    cloud.wait(
        lambda: _updated(cloud, pair.name, before.version if before else ""),
        what="the update to end",
        limit=120,
    )


def _updated(cloud: Any, name: str, before: str) -> Any:
    from mistral_failover.cloud.waits import ProbeResult

    now = ProjectListing(cloud).stack(name)
    assert now is not None
    done = now.status == "UPDATE_COMPLETE" and now.version != before
    return ProbeResult(now.status, done=done)


@pytest.mark.parametrize("kind", ["server", "volume", "stack"])
def test_each_kind_is_listed_once(cloud: Any, two: Any, volume: str, kind: str) -> None:
    listing = ProjectListing(cloud)
    known = {"server": two.a, "volume": volume, "stack": "no-such-stack"}[kind]
    first = getattr(listing, kind)(known)
    assert getattr(listing, kind)(known) is first
