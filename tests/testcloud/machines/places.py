# SPDX-License-Identifier: Apache-2.0
"""What everything of the machines is called, and where it is."""

from __future__ import annotations

import hashlib
from pathlib import Path

from testcloud.settings import MANAGEMENT, STORAGE, Settings

CONTROL = "control"
"""The network of the control plane; the others are those of the hosts."""
CEPH = {"ceph-mon": "a", "ceph-osd": "0", "ceph-mgr": "x"}
"""Ceph's processes in the order of their start, and the id of each."""
CEPH_ADDRESS, CEPH_PORT = f"{STORAGE}.1", 3300
POOL = "volumes"
URI = "qemu:///system"
"""libvirt's, on each host."""
CEPH_KEY_ID = "6f1c1b1e-7a44-4a6b-9f0e-2b6f7c3d5e11"
"""libvirt's name of the key of Ceph's user ``cinder``; it is not secret."""
BOARD_USER = "fence"
_BOARDS = 26230


def namespace(settings: Settings, place: str) -> Path:
    """The network namespace of a place. Clouds in other folders have others."""
    tag = hashlib.sha256(str(settings.state).encode()).hexdigest()[:6]
    return Path("/run/netns") / f"failover-{tag}-{place}"


def management(host: str) -> str:
    """The address of a host in the management network."""
    return f"{MANAGEMENT}.{number(host)}"


def storage(host: str) -> str:
    """The address of a host in the storage network."""
    return f"{STORAGE}.{number(host)}"


def number(host: str) -> int:
    """The last number of a host's addresses."""
    return 10 + int(host.removeprefix("cmp"))


def bindings(settings: Settings) -> Path:
    """Debian's Python modules for libvirt and Ceph, for the services' environment."""
    return settings.shared / "bindings"


def ceph(settings: Settings) -> Path:
    """Where Ceph keeps everything."""
    return settings.data / "ceph"


def ceph_conf(settings: Settings) -> Path:
    """ceph.conf"""
    return ceph(settings) / "ceph.conf"


def keyring(settings: Settings, user: str) -> Path:
    """The keyring of a user of Ceph's."""
    return ceph(settings) / f"client.{user}.keyring"


def disk(settings: Settings, host: str) -> Path:
    """A host's disk: what survives a power loss."""
    return settings.data / "hosts" / host


def instances(settings: Settings, host: str) -> Path:
    """Where nova-compute of a host keeps the guests' disks and consoles."""
    return disk(settings, host) / "instances"


def process(host: str) -> str:
    """What a host is called among the cloud's processes."""
    return f"host-{host}"


def board(host: str) -> str:
    """What the board of a host is called among the cloud's processes."""
    return f"board-{host}"


def board_port(host: str) -> int:
    """Where the board listens, UDP, on the loopback of the control plane's network."""
    return _BOARDS + number(host)


def board_files(settings: Settings, host: str) -> Path:
    """The folder of a board."""
    return settings.etc / "boards" / host


def board_password(settings: Settings) -> Path:
    """The password of `BOARD_USER` on each board, one line, mode 0600."""
    return settings.etc / "boards" / "password"
