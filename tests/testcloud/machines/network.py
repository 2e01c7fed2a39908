# SPDX-License-Identifier: Apache-2.0
"""The cables: network namespaces for the control plane and for each host.

Each host has two legs. ``management`` carries the control plane and the guests' own network, one
flat segment. ``storage`` leads to Ceph. Without the first one a host is partitioned: its guests
write on. Nothing of this is reachable from the machine itself, and nothing there from it.
"""

from __future__ import annotations

import ctypes
import os
from typing import Literal

from testcloud.errors import CloudError
from testcloud.machines.commands import run
from testcloud.machines.places import CONTROL, management, namespace, number, storage
from testcloud.settings import MANAGEMENT, STORAGE, Settings

Leg = Literal["management", "storage"]
GUESTS = "br-guest"
"""The bridge of a host's guests, which carries the host's own address, too."""
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


def up(settings: Settings) -> None:
    """Make the namespaces and the cables, unless they are there.

    :raises CloudError: COMMAND_FAILED.
    """
    if namespace(settings, settings.hosts[-1]).exists():
        return
    down(settings)
    try:
        _connect(settings)
    except CloudError:
        down(settings)
        raise


def _connect(settings: Settings) -> None:
    control = _add(settings, CONTROL)
    for bridge, net in (("management", MANAGEMENT), ("storage", STORAGE)):
        _ip(control, "link", "add", bridge, "type", "bridge", "forward_delay", "0")
        _ip(control, "addr", "add", f"{net}.1/24", "dev", bridge)
        _ip(control, "link", "set", bridge, "up")
    for host in settings.hosts:
        place = _add(settings, host)
        _ip(place, "link", "add", GUESTS, "type", "bridge", "forward_delay", "0")
        _ip(place, "addr", "add", f"{management(host)}/24", "dev", GUESTS)
        # Of its own the bridge takes its lowest tap's address, and neighbours know the old one.
        mac = f"02:00:00:00:00:{number(host)}"
        _ip(place, "link", "set", GUESTS, "address", mac, "up")
        for leg in ("management", "storage"):
            peer = _cable(host, leg)
            _ip(place, "link", "add", leg, "type", "veth", "peer", "name", peer, "netns", control)
            _ip(control, "link", "set", peer, "master", leg, "up")
        _ip(place, "link", "set", "management", "master", GUESTS, "up")
        _ip(place, "addr", "add", f"{storage(host)}/24", "dev", "storage")
        _ip(place, "link", "set", "storage", "up")


def down(settings: Settings) -> None:
    """Remove the namespaces, and with them everything in them."""
    for place in (*settings.hosts, CONTROL):
        if (path := namespace(settings, place)).exists():
            run("ip", "netns", "del", path.name)


def plug(settings: Settings, host: str, leg: Leg, *, connected: bool) -> None:
    """Connect or cut one leg of a host.

    :raises CloudError: COMMAND_FAILED.
    """
    control = namespace(settings, CONTROL).name
    _ip(control, "link", "set", _cable(host, leg), "up" if connected else "down")


def end_connections(settings: Settings, host: str) -> None:
    """End what a host without power has left: its network lives on, and with it what its processes
    wrote. A host that was cut off would deliver that minutes after its end.

    :raises CloudError: COMMAND_FAILED.
    """
    place = namespace(settings, host)
    if place.exists():
        run("ip", "netns", "exec", place.name, "ss", "--kill", "--all", "--tcp")


def enter(settings: Settings, place: str = CONTROL) -> None:
    """Have this thread, and every thread and process that it starts from now on, use the network
    of a place.

    :raises CloudError: NO_NETWORK.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = os.open(namespace(settings, place), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise CloudError(
            "NO_NETWORK", "The machines have no network yet.", "make machines-up"
        ) from None
    try:
        if libc.setns(descriptor, _NEW_NETWORK) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise CloudError("NO_NETWORK", f"{place}'s network: {reason}.", "Be root.")
    finally:
        os.close(descriptor)


def _add(settings: Settings, place: str) -> str:
    name = namespace(settings, place).name
    run("ip", "netns", "add", name)
    _ip(name, "link", "set", "lo", "up")
    return name


def _ip(place: str, *command: str) -> None:
    run("ip", "-n", place, *command)


def _cable(host: str, leg: str) -> str:
    return f"{leg[0]}-{host}"
