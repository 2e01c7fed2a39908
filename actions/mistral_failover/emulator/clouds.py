# SPDX-License-Identifier: Apache-2.0
"""How clients of OpenStack find the emulated cloud: a clouds.yaml."""

from __future__ import annotations

from pathlib import Path

import yaml


def write_clouds_yaml(path: Path, name: str, url: str) -> None:
    """Write a clouds.yaml whose one entry, ``name``, is the emulator's demo user.

    ``url``: the emulator's own, without a path. Readable by its owner only, as such files are.
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
    path.write_text(
        yaml.safe_dump({"clouds": {name: {"auth": auth, "region_name": "RegionOne"}}}),
        encoding="utf-8",
    )
