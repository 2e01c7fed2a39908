# SPDX-License-Identifier: Apache-2.0
"""Neutron's networks, their subnets, and the routers between these. What a network carries is in
`ports`."""

from __future__ import annotations

import ipaddress
import itertools

from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.state import Network, Port, Router, Subnet, new_id

_FIRST = 10  # addresses of a subnet that are left to what is not a server
_WITHOUT_SUBNET = "10.97.0.0/16"


def make_network(emulation: Emulation, project_id: str, name: str) -> Network:
    """Makes a network of a project."""
    made = Network(new_id(), project_id, name)
    emulation.state.networks[made.id] = made
    emulation.changed()
    return made


def make_subnet(
    emulation: Emulation, on: Network, cidr: str, *, name: str = "", gateway: str | None = None
) -> Subnet:
    """Makes a subnet; its gateway has the first address unless another one is named."""
    first = str(next(ipaddress.ip_network(cidr, strict=False).hosts()))
    made = Subnet(new_id(), on.project_id, on.id, cidr, name, gateway or first)
    emulation.state.subnets[made.id] = made
    emulation.changed()
    return made


def make_router(
    emulation: Emulation, project_id: str, name: str = "", external: Network | None = None
) -> Router:
    """Makes a router, which leads to an external network if one is named."""
    made = Router(new_id(), project_id, name, external.id if external else "")
    emulation.state.routers[made.id] = made
    emulation.changed()
    return made


def subnets_of(emulation: Emulation, network_id: str) -> list[Subnet]:
    """The subnets of a network."""
    return [each for each in emulation.state.subnets.values() if each.network_id == network_id]


def subnet_id(emulation: Emulation, port: Port) -> str:
    """The id of the subnet that a port's address is of."""
    return next((each.id for each in subnets_of(emulation, port.network_id)), port.network_id)


def free_address(emulation: Emulation, on: Network, taken: set[str]) -> str:
    """The next free address of a network. Raises StopIteration if it has none."""
    cidr = next((each.cidr for each in subnets_of(emulation, on.id)), _WITHOUT_SUBNET)
    hosts = itertools.islice(ipaddress.ip_network(cidr, strict=False).hosts(), _FIRST, None)
    return next(found for each in hosts if (found := str(each)) not in taken)


def remove(emulation: Emulation, identity: str) -> None:
    """Removes a network, a subnet, a router or a router's interface, if there is one with this
    id."""
    state = emulation.state
    router_id, _, subnet_id = identity.partition(":subnet_id=")
    if subnet_id and (router := state.routers.get(router_id)) and subnet_id in router.subnets:
        router.subnets.remove(subnet_id)
    state.routers.pop(identity, None)
    state.subnets.pop(identity, None)
    if state.networks.pop(identity, None) is not None:
        for each in subnets_of(emulation, identity):
            del state.subnets[each.id]
    emulation.changed()
