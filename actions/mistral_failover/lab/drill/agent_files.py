# SPDX-License-Identifier: Apache-2.0
"""The files of a drill's guest for its agent: key, configuration, allow-list."""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from mistral_failover.agent import wire
from mistral_failover.agent.channel.keys import read_secret
from mistral_failover.lab.drill.guest import ADDRESSES
from mistral_failover.lab.drill.guest_init import CONFIG

GROUP_FILE = "postgresql-on-a-volume/group.yaml"
"""The example's group whose commands the guests have."""
JOURNAL = "journal"
"""The agent's journal, a folder in the guest's."""
KEY, _BROKER = "key", "broker-url"
SECRETS = (KEY, f"{KEY}.new", _BROKER, f"{_BROKER}.new")
"""The guest's files that only its agent may read."""


@dataclass(frozen=True)
class Installation:
    """What all guests share. ``broker``: its URL; ``key_file``: the installation's secret, see
    :func:`make_secret`."""

    broker: str
    project: str
    key_file: Path


@dataclass(frozen=True)
class Member:
    """The identity of a guest."""

    group_id: str
    group: str
    name: str


def make_secret(path: Path) -> Path:
    """Create the installation's secret, unless it exists; return its path."""
    if not path.exists():
        aside = path.with_suffix(".new")
        aside.touch(mode=0o600)
        aside.write_text(secrets.token_hex(32), encoding="ascii")
        aside.rename(path)
    return path


def write(guest: Path, installation: Installation, member: Member, *, own_disk: bool) -> None:
    """Write the agent's files into a guest's folder, whose name is the server's id.

    ``own_disk``: its application writes there, in ``own``, instead of on a volume."""
    secret = read_secret(str(installation.key_file))
    key = wire.member_key(wire.group_key(secret, member.group_id), member.name)
    _private(guest / KEY, key.hex())
    _private(guest / _BROKER, installation.broker)
    document = {
        "failover_agent_version": "2026-11-21",
        "broker_file": str(guest / _BROKER),
        "project": installation.project,
        "group": member.group,
        "member": member.name,
        "key_file": str(guest / KEY),
        "server": guest.name,
        "journal": str(guest / JOURNAL),
        "heartbeat": 1,
        "on_deposed": ["pg-stop", "volume-down"],
        "commands": _commands(guest, own_disk),
    }
    _private(guest / CONFIG, yaml.safe_dump(document))


def _commands(guest: Path, own_disk: bool) -> dict[str, Any]:
    """Return the example's allow-list, with directories for volumes and a simpler application, and
    with addresses, each a file."""
    example = Path(str(files("mistral_failover.agent.examples"))) / "postgresql-on-a-volume"
    volume = [sys.executable, str(example / "volume.py")]
    application = [sys.executable, "-m", "mistral_failover.lab.drill.application"]
    environment = {
        "VOLUME_MODE": "directory",
        "VOLUME_DEVICES": str(guest / "devices"),
        "VOLUME_MOUNT": str(guest / "data"),
        "VOLUME_WAIT": "20",
        "VOLUME_KILL": "yes",
        "DRILL_GUEST": str(guest),
    }
    written = {"VOLUME_MOUNT": str(guest / "own")} if own_disk else {}
    common = {"repeatable": True, "limit": 60, "environment": environment}
    of_application = {**common, "environment": environment | written}
    which = ["{volume}", "{data_device}"]
    address = [str(guest / ADDRESSES), "{address}"]
    of_addresses = {**common, "arguments": {"address": "[0-9a-f.:]+"}}
    return {
        "volume-up": {
            "argv": [*volume, "up", *which],
            "check": [*volume, "is-up", *which],
            "rehearse": "same",
            "arguments": {"volume": "[0-9a-f-]{36}", "data_device": "/dev/[a-z]+"},
            **common,
        },
        "volume-down": {
            "argv": [*volume, "down"],
            "check": [*volume, "is-down"],
            "rehearse": "same",
            **common,
        },
        "pg-start": {
            "argv": [*application, "start"],
            "check": [*application, "is-running"],
            "rehearse": "same",
            **of_application,
        },
        "pg-stop": {
            "argv": [*application, "stop"],
            "check": [*application, "is-stopped"],
            "rehearse": "same",
            **of_application,
        },
        "pg-check": {
            "argv": [*application, "is-running"],
            "rehearse": "same",
            **of_application,
        },
        "address-up": {
            "argv": ["/bin/sh", "-c", 'mkdir -p "$0" && : > "$0/$1"', *address],
            **of_addresses,
        },
        "address-down": {"argv": ["/bin/sh", "-c", 'rm -f "$0/$1"', *address], **of_addresses},
    }


def _private(path: Path, text: str) -> None:
    """Write a file completely or not at all: an agent that outlived a killed drill may be reading
    it."""
    aside = path.with_name(f"{path.name}.new")
    aside.touch(mode=0o600)
    aside.write_text(text, encoding="utf-8")
    aside.rename(path)
