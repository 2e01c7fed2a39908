# SPDX-License-Identifier: Apache-2.0
"""Security groups belong to ports; Nova adds and takes them on all ports of a server, also on one
that was attached later.

Measured on Nova 34 and Neutron 29: a tool that takes a group from the server that holds a moved
port takes it from that port, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from contract.api import Api
from contract.conftest import Two
from contract.rig import Rig
from mistral_failover.cloud import networks
from mistral_failover.cloud.clients import Cloud


@pytest.fixture
def port(rig: Rig, demo: Api, cloud: Cloud, linked: Two) -> Iterator[str]:
    """A port of the test's own, attached to a server beside the server's own port."""
    made = rig.make_port()
    networks.attach_port(cloud, made, linked.a, 60)
    yield made
    networks.detach_port(cloud, made, linked.a, 60, off=True)
    rig.remove_of_neutron("ports", made)


def default(rig: Rig, demo: Api) -> str:
    """The id of the project's default group."""
    query = f"?name=default&project_id={rig.project_id()}"
    (found,) = demo.neutron("GET", f"/security-groups{query}").json()["security_groups"]
    shown = demo.neutron("GET", f"/security-groups/{found['id']}").json()["security_group"]
    assert shown["name"] == "default"
    return str(found["id"])


def groups(demo: Api, port: str) -> list[str]:
    """The ids of a port's groups."""
    shown = demo.port(port)
    assert shown is not None
    return list(shown["security_groups"])


def of_server(demo: Api, server: str) -> list[Any]:
    """The groups of a server, as Nova shows them."""
    answer = demo.nova("GET", f"/servers/{server}/os-security-groups")
    return [row["name"] for row in answer.json()["security_groups"]]


def test_a_servers_groups_are_those_of_its_ports(
    rig: Rig, demo: Api, linked: Two, port: str
) -> None:
    mine, group = rig.port_of(linked.a), default(rig, demo)
    assert groups(demo, port) == groups(demo, mine) == [group]
    assert of_server(demo, linked.a) == ["default", "default"], "one for each port"

    taken = demo.act(linked.a, removeSecurityGroup={"name": group})

    assert taken.status_code == 202, taken.text
    rig.until(lambda: groups(demo, port) == groups(demo, mine) == [])
    assert of_server(demo, linked.a) == []
    assert demo.act(linked.a, addSecurityGroup={"name": "default"}).status_code == 202
    rig.until(lambda: groups(demo, port) == groups(demo, mine) == [group])


def test_a_port_may_have_other_groups(rig: Rig, demo: Api, port: str) -> None:
    body = {"security_group": {"name": rig.name(), "description": "of a test"}}
    made = demo.neutron("POST", "/security-groups", body).json()["security_group"]["id"]

    changed = demo.neutron("PUT", f"/ports/{port}", {"port": {"security_groups": [made]}})

    assert changed.status_code == 200, changed.text
    assert groups(demo, port) == [made]
    assert demo.neutron("DELETE", f"/security-groups/{made}").status_code == 409
    demo.neutron("PUT", f"/ports/{port}", {"port": {"security_groups": []}})
    assert demo.neutron("DELETE", f"/security-groups/{made}").status_code == 204
    gone = demo.neutron("GET", f"/security-groups/{made}")
    assert gone.status_code == 404
