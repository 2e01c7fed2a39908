# SPDX-License-Identifier: Apache-2.0
"""How clients get in: clouds.yaml and connections of openstacksdk."""

from __future__ import annotations

from typing import Any

import openstack
import yaml
from openstack.config import OpenStackConfig

from testcloud.settings import PROJECTS, REGION, Settings, write_private


def write_clouds_yaml(settings: Settings) -> None:
    """Write the entries testcloud-admin, testcloud-demo and testcloud-other."""
    entries = {f"testcloud-{user}": _entry(settings, user) for user in ("admin", *PROJECTS)}
    write_private(settings.clouds_yaml, yaml.safe_dump({"clouds": entries}))


def connect(settings: Settings, user: str = "admin") -> Any:
    """A connection of openstacksdk as admin, demo or other; Nova at microversion 2.90."""
    config = OpenStackConfig(config_files=[str(settings.clouds_yaml)], load_envvars=False)
    return openstack.connection.Connection(config=config.get_one(cloud=f"testcloud-{user}"))


def _entry(settings: Settings, user: str) -> dict[str, Any]:
    return {
        "auth": {
            "auth_url": settings.auth_url,
            "username": user,
            "password": settings.secret(user),
            "project_name": user,
            "user_domain_id": "default",
            "project_domain_id": "default",
        },
        "region_name": REGION,
        "compute_default_microversion": "2.90",
    }
