# SPDX-License-Identifier: Apache-2.0
"""A real Mistral with the pack, in a process of its own, over an emulated cloud of this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mistral_failover.workflows
from mistral_failover.embedded.settings import LOCAL_HTTP
from mistral_failover.lab.drill import examples
from mistral_failover.lab.emulator.client import EmulatorClient, write_clouds_yaml
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.databases import new_store
from support.mistral_of_cloud import in_front_of
from support.mistral_process import MistralProcess


@contextmanager
def deployed(
    folder: Path, *, sweep: bool = False, **more: object
) -> Iterator[tuple[MistralProcess, EmulatorClient]]:
    """Run both while the block lasts; all that they keep is in ``folder``. ``sweep``: the Mistral
    looks by itself for stalled work, and at its groups. ``more``: options of [failover]."""
    with EmulatedCloud() as cloud:
        clouds = folder / "clouds.yaml"
        write_clouds_yaml(clouds, "emulated", cloud.url)
        options = {
            "database": new_store(folder / "failover.sqlite"),
            "cloud": "emulated",
            "auth_url": cloud.auth_url,
            "command_channel": f"emulator+{cloud.url}",
            **more,
        }
        with (
            MistralProcess(
                folder / "mistral",
                sweep=sweep,
                workflows=mistral_failover.workflows.paths(),
                overrides={f"failover.{name}": value for name, value in options.items()}
                | LOCAL_HTTP,
                env=os.environ | {"OS_CLIENT_CONFIG_FILE": str(clouds)},
            ) as mistral,
            in_front_of(mistral.url, mistral.token) as url,
        ):
            cloud.offer_mistral(url)
            yield mistral, cloud.client


def create_example(
    cloud: EmulatorClient,
    name: str,
    file: str = "postgresql.yaml",
    template: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> None:
    """Create an example's stack and teach its servers the database, and an address of its own; no
    group is defined yet. ``file``: the example's group file; ``template``: what
    is made of its template."""
    cloud.create_stack(name, template(examples.stack(1, file.replace(".yaml", "-stack.yaml"))))
    cloud.add_application(
        f"postgresql-{name}", start="pg-start", stop="pg-stop", needs_volume=True, stack=name
    )
    if file == "addresses.yaml":
        cloud.add_application(
            f"address-{name}", start="address-up", stop="address-down", stack=name
        )
