# SPDX-License-Identifier: Apache-2.0
"""What a group file without a stack names is found by its name, its id and its tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from contract.rig import Rig
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.named import ProjectThings
from mistral_failover.model.named import By, Named, Thing


def found(cloud: Any, thing: Thing, by: By, value: str) -> str:
    return ProjectThings(cloud).identity(Named("path", thing, by, value))["id"]


@pytest.fixture
def server(rig: Rig) -> Iterator[tuple[str, str]]:
    """A server with a tag and an item of metadata; its id and its name."""
    name = rig.name()
    asked = {
        "name": name,
        "flavorRef": rig.flavor_id,
        "imageRef": rig.image_id,
        "networks": "none",
        "tags": [f"role={name}"],
        "metadata": {"kept": name},
    }
    made = rig.api().nova("POST", "/servers", {"server": asked})
    assert made.status_code == 202, made.text
    identity = str(made.json()["server"]["id"])
    rig.active(identity)
    yield identity, name
    rig.remove_servers([identity])


def test_a_server_has_a_name_tags_metadata_and_a_time(cloud: Any, server: tuple[str, str]) -> None:
    identity, name = server

    assert found(cloud, Thing.SERVER, "name", name) == identity
    assert found(cloud, Thing.SERVER, "tag", f"role={name}") == identity
    assert found(cloud, Thing.SERVER, "tag", f"kept={name}") == identity
    one = ProjectThings(cloud).identity(Named("path", Thing.SERVER, "id", identity))
    assert one["created_at"] is not None


def test_another_name_of_a_server_is_seen(rig: Rig, cloud: Any, server: tuple[str, str]) -> None:
    identity, name = server
    answer = rig.api().nova("PUT", f"/servers/{identity}", {"server": {"name": f"{name}-other"}})
    assert answer.status_code == 200, answer.text

    assert found(cloud, Thing.SERVER, "name", f"{name}-other") == identity
    with pytest.raises(CloudError) as raised:
        found(cloud, Thing.SERVER, "name", name)
    assert raised.value.code == "NOT_FOUND"
    assert f"{name}-other" in f"{raised.value.message} {raised.value.remedy}"


def test_a_volume_has_a_name_and_metadata(rig: Rig, cloud: Any) -> None:
    name = rig.name()
    volume, twin = rig.make_volume(name=name, metadata={"role": name}), rig.make_volume(name=name)
    try:
        assert found(cloud, Thing.VOLUME, "tag", f"role={name}") == volume
        with pytest.raises(CloudError) as raised:
            found(cloud, Thing.VOLUME, "name", name)
        assert raised.value.code == "BAD_REQUEST"
        assert volume in raised.value.message
        assert twin in raised.value.message
    finally:
        for each in (volume, twin):
            rig.remove_volume(each)


@pytest.mark.parametrize("kind", ["ports", "floatingips"])
def test_what_neutron_has_is_found_by_tag(rig: Rig, cloud: Any, kind: str) -> None:
    ports = kind == "ports"
    identity = rig.make_port() if ports else rig.make_floating_ip()
    thing, tag = (Thing.PORT if ports else Thing.FLOATING_IP), f"role={rig.name()}"
    try:
        answer = rig.api().neutron("PUT", f"/{kind}/{identity}/tags", {"tags": [tag]})
        assert answer.status_code == 200, answer.text
        shown = rig.api().port(identity) if ports else rig.api().floating_ip(identity)
        assert shown is not None
        name = str(shown["name" if ports else "floating_ip_address"])

        assert found(cloud, thing, "tag", tag) == identity
        assert found(cloud, thing, "name", name) == identity
    finally:
        rig.remove_of_neutron(kind, identity)


def test_what_a_tool_asks_before_it_makes_or_changes_a_server(
    rig: Rig, server: tuple[str, str]
) -> None:
    """Ansible's modules do; a group does not."""
    flavor = rig.api().nova("GET", f"/flavors/{rig.flavor_id}").json()["flavor"]
    assert flavor["id"] == rig.flavor_id
    groups = rig.api().nova("GET", f"/servers/{server[0]}/os-security-groups").json()
    assert isinstance(groups["security_groups"], list)
    extensions = rig.api().neutron("GET", "/extensions").json()["extensions"]
    assert {"standard-attr-tag", "port-security"} <= {each["alias"] for each in extensions}


def test_a_server_shows_the_addresses_of_its_ports(rig: Rig) -> None:
    server = rig.boot(network=rig.network_id)
    rig.active(server)
    try:
        shown = rig.api().server(server)
        port = rig.api().port(rig.port_of(server))
        assert shown is not None
        assert port is not None
        (addresses,) = shown["addresses"].values()
        assert [each["addr"] for each in addresses] == [
            each["ip_address"] for each in port["fixed_ips"]
        ]
    finally:
        rig.remove_servers([server])
