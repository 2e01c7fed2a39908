# SPDX-License-Identifier: Apache-2.0
"""The emulated cloud beside a server: its example stack, and what to do next."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from mistral_failover.errors import CodedError
from mistral_failover.lab.drill import examples
from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError, write_clouds_yaml

CLOUD = "emulated"
"""Its entry in the clouds.yaml that this module writes."""
CLOUDS_FILE = "clouds.yaml"
GROUP = "payments"
GROUP_FILE = f"{GROUP}.yaml"
_LEFT_BEHIND = 900.0  # seconds that it waits for the next server after one was killed


@contextlib.contextmanager
def cloud(folder: Path) -> Iterator[EmulatorClient]:
    """Run the emulated cloud of a state directory, with the example's stack and a clouds.yaml that
    this process uses, while the block lasts.

    Raises CodedError NO_EMULATOR.
    """
    try:
        from mistral_failover.lab.emulator.process import EmulatorDied, running
    except ImportError:
        raise _missing("the emulated cloud is not installed") from None
    with contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(running(folder / "cloud", idle_exit=_LEFT_BEHIND))
        except EmulatorDied as error:
            raise _missing(str(error)) from None
        clouds = folder / CLOUDS_FILE
        write_clouds_yaml(clouds, CLOUD, client.url, server_state=folder)
        os.environ["OS_CLIENT_CONFIG_FILE"] = str(clouds)
        _furnish(client, folder)
        yield client


def _furnish(client: EmulatorClient, folder: Path) -> None:
    """Create the stack, install the database on its servers, and write the group's file; what an
    earlier server has done stays."""
    try:
        client.resources(GROUP)
    except EmulatorError as error:
        if error.http_status != 404:
            raise
        _create_stack(client)
    client.add_application(
        f"postgresql-{GROUP}", start="pg-start", stop="pg-stop", needs_volume=True, stack=GROUP
    )
    file = folder / GROUP_FILE
    if not file.exists():
        text = files("mistral_failover.examples").joinpath("postgresql.yaml").read_text("utf-8")
        file.write_text(text, encoding="utf-8")


def _create_stack(client: EmulatorClient) -> None:
    """Without the usual delays: no user is waiting to see them."""
    times = client.status()["latency"]
    client.set_latency(**dict.fromkeys(times, 0.0))
    try:
        client.create_stack(GROUP, examples.stack())
    finally:
        client.set_latency(**times)


def _missing(message: str) -> CodedError:
    return CodedError(
        "NO_EMULATOR",
        message,
        ("Run: pip install 'mistral-failover[drill]'. Otherwise see cloud/emulator.log."),
    )
