# SPDX-License-Identifier: Apache-2.0
"""The example group and stack, as large as a drill wants them."""

from __future__ import annotations

import copy
from importlib.resources import files
from typing import Any

import yaml


def load(name: str) -> dict[str, Any]:
    """An example file, parsed."""
    text = files("mistral_failover.examples").joinpath(name).read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def stack(volumes: int = 1) -> dict[str, Any]:
    """The example's template with so many volumes."""
    template = load("postgresql-stack.yaml")
    template["heat_template_version"] = str(template["heat_template_version"])
    for number in range(2, volumes + 1):
        template["resources"][f"data_volume_{number}"] = copy.deepcopy(
            template["resources"]["data_volume"]
        )
    return template


def group(
    volumes: int = 1, stack_name: str = "payments", file: str = "postgresql.yaml"
) -> dict[str, Any]:
    """An example's group file with so many volumes, of a stack of that name."""
    document = load(file)
    document["failover_template_version"] = str(document["failover_template_version"])
    document["stack"] = stack_name
    resources = document["resources"]
    more = [f"data_{number}" for number in range(2, volumes + 1)]
    for name in more:
        resources[name] = copy.deepcopy(resources["data"])
        resources[name]["properties"]["volume"] = name.replace("data", "data_volume")
    if more:
        first = "files" if "files" in resources else "database"
        resources[first]["depends_on"] = ["data", *more]
    return document
