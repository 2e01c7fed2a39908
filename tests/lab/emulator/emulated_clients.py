# SPDX-License-Identifier: Apache-2.0
"""What the tests of the emulated cloud share: templates, the real clients, waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cinderclient.client
import heatclient.client
import openstack.connection
from keystoneauth1 import session as keystone_session
from keystoneauth1.identity import v3

SERVER: dict[str, Any] = {
    "type": "OS::Nova::Server",
    "properties": {"image": "tiny", "flavor": "m1.tiny"},
}
PAIR = {
    "heat_template_version": "2021-04-16",
    "parameters": {
        "active": {"type": "string", "default": "a"},
        "password": {"type": "string", "default": "hush", "hidden": True},
    },
    "resources": {
        "a": {**SERVER, "properties": {**SERVER["properties"], "availability_zone": "cmp1"}},
        "b": {**SERVER, "properties": {**SERVER["properties"], "availability_zone": "cmp2"}},
        "data": {"type": "OS::Cinder::Volume", "properties": {"size": 1}},
    },
    "outputs": {"active": {"value": {"get_param": "active"}}},
}
GROUP = {
    "heat_template_version": "2021-04-16",
    "parameters": {"size": {"type": "number", "default": 2}},
    "resources": {
        "members": {
            "type": "OS::Heat::AutoScalingGroup",
            "properties": {
                "min_size": 1,
                "max_size": 4,
                "desired_capacity": {"get_param": "size"},
                "resource": SERVER,
            },
        }
    },
    "outputs": {"refs": {"value": {"get_attr": ["members", "refs"]}}},
}


@dataclass
class Clients:
    """One user's clients, as an application would make them."""

    session: Any
    compute: Any
    volumes: Any
    heat: Any


def clients_of(url: str, user: str = "demo") -> Clients:
    """The real clients of a user whose password and project carry the user's name."""
    session = keystone_session.Session(
        v3.Password(
            f"{url}/identity/v3",
            username=user,
            password=user,
            project_name=user,
            user_domain_id="default",
            project_domain_id="default",
        )
    )
    connection = openstack.connection.Connection(session=session, region_name="RegionOne")
    return Clients(
        session,
        connection.compute,
        cinderclient.client.Client("3.59", session=session, region_name="RegionOne"),
        heatclient.client.Client("1", session=session, region_name="RegionOne"),
    )


@dataclass
class Pair:
    """Server a on cmp1, server b on cmp2, a volume `data`, an application `pg`."""

    stack: str
    a: str
    b: str
    data: str
    application: str
