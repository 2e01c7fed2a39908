# SPDX-License-Identifier: Apache-2.0
"""Many waits for volumes with the same rights share a listing."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mistral_failover.cloud import waits
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.volume_holders import volume_of
from mistral_failover.cloud.waits import UNSTRETCHED, ProbeResult
from mistral_failover.lab.emulator.client import EmulatorClient
from support.emulated import PAIR

VOLUMES = UNSTRETCHED + 4
NOWHERE = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def volumes(emulator: EmulatorClient) -> list[str]:
    """The ids of the project's volumes."""
    names = [f"data_{number}" for number in range(VOLUMES)]
    volume = PAIR["resources"]["data"]  # type: ignore[index]
    emulator.create_stack("wide", {**PAIR, "resources": dict.fromkeys(names, volume)})
    return [row["physical_resource_id"] for row in emulator.resources("wide").values()]


@pytest.fixture
def asked(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often Cinder was asked for one volume (get), for all (list), and for their ids only."""
    counts: Counter[str] = Counter()
    ask = cloud.volumes.client.get

    def count(path: str, **named: Any) -> Any:
        listing = "list" if path.startswith("/volumes/detail") else "get"
        counts["ids" if path == "/volumes" else listing] += 1
        return ask(path, **named)

    monkeypatch.setattr(cloud.volumes.client, "get", count)
    return counts


def read_at_once(
    cloud: Cloud, ids: list[str], looks: int = 1, after: Callable[[], None] = lambda: None
) -> list[Any]:
    """Read each volume in a wait of its own, while the others wait; return what each saw. ``after``
    is called after each look of all."""
    everybody = threading.Barrier(len(ids))
    all_read = threading.Barrier(len(ids), after)

    def wait(volume_id: str) -> Any:
        rounds = iter(range(looks))

        def look() -> ProbeResult:
            everybody.wait(10)
            try:
                seen: Any = volume_of(cloud, volume_id).id
            except CloudError as error:
                seen = error.code
            all_read.wait(10)
            return ProbeResult("seen", done=next(rounds) == looks - 1, result=seen)

        return cloud.wait(look, what="all to be read", limit=20, for_volume=True)

    with ThreadPoolExecutor(len(ids)) as pool:
        return list(pool.map(wait, ids))


def test_each_gets_its_volume_from_a_listing(
    cloud: Cloud, volumes: list[str], asked: Counter[str]
) -> None:
    assert read_at_once(cloud, volumes) == volumes
    assert asked["get"] == 0
    assert asked["list"] < VOLUMES


def test_a_volume_that_is_not_listed_is_asked_for(
    cloud: Cloud, volumes: list[str], asked: Counter[str]
) -> None:
    seen = read_at_once(cloud, [*volumes, NOWHERE], looks=2)
    assert seen == [*volumes, "NOT_FOUND"]
    assert asked["get"] == asked["ids"] == 2, "it counts as absent only if it is not listed either"
    assert asked["list"] > 1, "the project has few volumes all the same"


def test_few_waits_ask_for_one_volume_each(
    cloud: Cloud, volumes: list[str], asked: Counter[str]
) -> None:
    assert read_at_once(cloud, volumes[: UNSTRETCHED - 1]) == volumes[: UNSTRETCHED - 1]
    assert asked == {"get": UNSTRETCHED - 1}


def test_a_project_with_many_other_volumes_is_listed_once_and_then_left_alone(
    cloud: Cloud,
    volumes: list[str],
    asked: Counter[str],
    emulator: EmulatorClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "_ROWS", 1)
    volume = PAIR["resources"]["data"]  # type: ignore[index]
    others = {f"other_{number}": volume for number in range(VOLUMES)}
    emulator.create_stack("others", {**PAIR, "resources": others})

    listings = []

    def noted() -> None:
        listings.append(asked["list"])

    assert read_at_once(cloud, volumes, looks=3, after=noted) == volumes
    assert listings[0] >= 1
    assert listings == listings[:1] * 3
