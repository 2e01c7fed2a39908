# SPDX-License-Identifier: Apache-2.0
"""How clients of OpenStack find the emulated cloud: a clouds.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

STATE_KEY = "failover_server_state"
"""In an entry of clouds.yaml: the state directory of the ``failover server`` that acts in this
cloud. Its Mistral is not in the catalog, because no Keystone is in front of it."""


def write_clouds_yaml(path: Path, name: str, url: str, *, server_state: Path | None = None) -> None:
    """Write a clouds.yaml whose one entry, ``name``, is the emulator's demo user.

    ``url``: the emulator's own, without a path; ``server_state``: that of a ``failover server``
    whose Mistral clients of this entry use. Readable by its owner only, as such files are.
    """
    auth = {
        "auth_url": f"{url}/identity/v3",
        "username": "demo",
        "password": "demo",
        "project_name": "demo",
        "user_domain_id": "default",
        "project_domain_id": "default",
    }
    path.touch(mode=0o600)
    entry: dict[str, Any] = {"auth": auth, "region_name": "RegionOne"}
    if server_state is not None:
        entry[STATE_KEY] = str(server_state)
    path.write_text(yaml.safe_dump({"clouds": {name: entry}}), encoding="utf-8")
