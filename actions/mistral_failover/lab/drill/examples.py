# SPDX-License-Identifier: Apache-2.0
"""The example groups and stacks, with as many volumes as a drill needs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from mistral_failover.model.documents import load_yaml_1_1


@dataclass(frozen=True)
class Example:
    """A group file and its template. ``applications``: by name, the prefix of each application's
    commands, as in ``pg-start`` and ``pg-stop``. ``told``: each application receives its volumes
    and writes on no others."""

    group: str
    stack: str
    applications: Mapping[str, str]
    told: bool = False


ONE = Example("postgresql.yaml", "postgresql-stack.yaml", {"postgresql": "pg"})
"""One database, which one of two servers runs."""
TWO = Example(
    "active-active.yaml",
    "active-active-stack.yaml",
    {"orders": "orders", "reports": "reports"},
    told=True,
)
"""Two databases on two servers: active/active."""


ALONE = Example("single-server.yaml", "single-server-stack.yaml", {"postgresql": "pg"})
"""One database on one server, without a standby."""


def load(name: str) -> dict[str, Any]:
    """An example file, parsed."""
    text = files("mistral_failover.examples").joinpath(name).read_text(encoding="utf-8")
    return load_yaml_1_1(text, name)


def stack(volumes: int = 1, file: str = ONE.stack) -> dict[str, Any]:
    """Return an example's template with this many volumes in place of each one."""
    template = load(file)
    template["heat_template_version"] = str(template["heat_template_version"])
    resources = template["resources"]
    for name in [n for n, r in resources.items() if r["type"] == "OS::Cinder::Volume"]:
        for number in range(2, volumes + 1):
            resources[f"{name}_{number}"] = copy.deepcopy(resources[name])
    return template


def group(
    volumes: int = 1, stack_name: str = "payments", file: str = ONE.group, *, told: bool = False
) -> dict[str, Any]:
    """Return an example's group file with this many volumes in place of each one, for a stack of
    that name. ``told``: an application that receives a volume also receives its copies."""
    document = load(file)
    document["failover_template_version"] = str(document["failover_template_version"])
    document["stack"] = stack_name
    resources = document["resources"]
    for name in [n for n, r in resources.items() if r["type"] == "volume_attachment"]:
        volume = resources[name]["properties"]["volume"]
        users = [r for r in resources.values() if _needs(r, name)]
        more = [f"{name}_{number}" for number in range(2, volumes + 1)]
        for number, copied in enumerate(more, start=2):
            resources[copied] = copy.deepcopy(resources[name])
            resources[copied]["properties"]["volume"] = f"{volume}_{number}"
        for user in users if more else ():
            user["depends_on"] = [name, *more]
            if told:
                user["properties"] |= {copied: {"get_attr": [copied, "device"]} for copied in more}
    return document


def _needs(resource: dict[str, Any], name: str) -> bool:
    """Return whether a resource depends on the volume that another one attaches."""
    named = [
        value.get("get_attr", [""])[0] if "get_attr" in value else value.get("get_resource")
        for value in resource["properties"].values()
        if isinstance(value, dict)
    ]
    return resource.get("depends_on") == name or name in named
