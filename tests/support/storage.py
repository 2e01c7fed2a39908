# SPDX-License-Identifier: Apache-2.0
"""A volume of a member in a simulated Ceph cluster, and the rung ``storage`` over it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mistral_failover.cloud.servers import Evidence
from mistral_failover.resources.fence.storage import Storage
from support.emulated import Pair
from support.fencing import LIMIT, PROJECT, SIMULATORS, Fencing

SUSPECT, STANDBY = "172.31.251.11:0/1234567", "172.31.251.12:0/7654321"


@dataclass
class Stored:
    """A volume of the member in a simulated cluster."""

    fencing: Fencing
    pair: Pair
    folder: Path
    seconds: float = 0.0

    @property
    def image(self) -> str:
        """The volume's image."""
        volume = self.fencing.emulated.emulation.state.volumes[self.pair.volume]
        return f"volumes/volume-{volume.name_id or volume.id}"

    def migrated(self) -> None:
        """Cinder has migrated the volume in use: its image has the name of another volume."""
        volume = self.fencing.emulated.emulation.state.volumes[self.pair.volume]
        volume.name_id = "5d0c0f4e-8f0e-4f53-9d63-3b1c7f5a9e21"

    @property
    def state(self) -> dict[str, Any]:
        """The state of the cluster."""
        found: dict[str, Any] = json.loads((self.folder / "ceph.conf").read_text("utf-8"))
        return found

    def cluster(
        self, *watchers: str, locks: tuple[str, ...] = (), modes: tuple[str, ...] = (), **more: Any
    ) -> None:
        """Make the cluster, in which these clients have the volume open."""
        more = {"locks": {self.image: list(locks)}, "modes": list(modes), **more}
        simulate(self.folder, {self.image: list(watchers)}, **more)

    def configure(
        self, levels: Sequence[Any] = (), projects: Sequence[str] = (PROJECT,), **more: Any
    ) -> None:
        """Write the operator's file."""
        ceph = {**commands(self.folder), **more}
        self.fencing.configure(*levels, ceph=ceph, projects=list(projects))

    def prove(self, limit: float = LIMIT, **more: Any) -> Evidence:
        """Climb the rung once."""
        facts = {"volumes": (self.pair.volume,), **more}
        began = time.monotonic()
        try:
            attempt = self.fencing.attempt(**facts)
            return Storage("storage").prove(attempt, {"kind": "storage", "limit": limit})
        finally:
            self.seconds = time.monotonic() - began


def simulate(folder: Path, opened: Mapping[str, Sequence[str]], **more: Any) -> None:
    """Make a simulated cluster, in which these clients have these images open."""
    state = {
        "watchers": dict(opened),
        "locks": {image: [] for image in opened},
        "blocklist": list(more.get("until", ())),
        "until": {},
        "modes": [],
        "calls": [],
        **more,
    }
    (folder / "ceph.conf").write_text(json.dumps(state), "utf-8")


def commands(folder: Path) -> dict[str, Any]:
    """Install the commands of the simulated cluster; return its entry in an operator's file."""
    for name in ("ceph", "rbd"):
        shutil.copy(SIMULATORS / "ceph_simulated", folder / name)
    return {
        "pools": ["images", "volumes"],
        "conf": str(folder / "ceph.conf"),
        "name": "client.fence",
        "limit": 10,
        "ceph": str(folder / "ceph"),
        "rbd": str(folder / "rbd"),
    }


def can_ask(folder: Path) -> None:
    """Give the commands of the simulated cluster a Python that has its ``rados``."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={SIMULATORS / "rados"} exec python3 "$@"\n', "utf-8")
    python.chmod(0o755)
    program = folder / "ceph"
    _, _, rest = program.read_text("utf-8").partition("\n")
    program.write_text(f"#!{python}\n{rest}", "utf-8")


def changes(stored: Stored) -> list[str]:
    """Return what the cluster was asked to do about its blocklist, in order."""
    calls = [call for call in stored.state["calls"] if call[1:3] == ["osd", "blocklist"]]
    return [call[3] for call in calls]
