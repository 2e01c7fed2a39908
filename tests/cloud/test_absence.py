# SPDX-License-Identifier: Apache-2.0
"""A 404 alone is not absence: what the service lists is not let go, deleted or given up."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.cloud import networks, volume_holders
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.hosts import location_of
from mistral_failover.cloud.project_listing import ProjectListing
from mistral_failover.cloud.servers import (
    attachment_shown,
    delete_server,
    server_state,
    volumes_deleted_with,
)
from mistral_failover.cloud.stack_updates import patch_parameters
from mistral_failover.cloud.stacks import stack_map, stack_shown
from mistral_failover.cloud.volumes import attach, detach
from mistral_failover.lab.emulator.client import EmulatorClient
from support.pages import MODULES

LISTED_BEFORE = {"cloud/project_listing.py", "cloud/networks.py:shown_alone"}
"""Where a listing without the thing was the first way, and a read of it alone is the second."""
NO_ABSENCE = {"cloud/absence.py", "cloud/clients.py:newest"}
Read = Callable[[Cloud, Any], Any]
READS: dict[str, tuple[str, Read]] = {
    "a server": ("server_show", lambda cloud, pair: server_state(cloud, pair.a)),
    "its host": ("server_show", lambda cloud, pair: location_of(cloud, pair.a)),
    "what is deleted with it": (
        "server_show",
        lambda cloud, pair: volumes_deleted_with(cloud, pair.a),
    ),
    "its volumes": (
        "attachment_list",
        lambda cloud, pair: volume_holders.listed_by_nova(cloud, pair.a, pair.volume),
    ),
    "a volume on it": (
        "attachment_show",
        lambda cloud, pair: attachment_shown(cloud, pair.a, pair.volume),
    ),
    "a volume": ("volume_show", lambda cloud, pair: volume_holders.volume_of(cloud, pair.volume)),
    "a volume that may be gone": (
        "volume_show",
        lambda cloud, pair: volume_holders.volume_if_there(cloud, pair.volume),
    ),
    "a stack": ("stack_show", lambda cloud, pair: stack_shown(cloud, pair.name)),
    "the resources of a stack": ("resource_list", lambda cloud, pair: stack_map(cloud, pair.name)),
}


def not_found(emulator: EmulatorClient, operation: str, times: int = 50) -> None:
    """The service answers 404, in its own form, to these requests."""
    emulator.api_fault(operation, status=404, times=times)


@pytest.mark.parametrize("what", READS)
def test_what_a_service_lists_is_not_absent(
    cloud: Cloud, pair: Any, emulator: EmulatorClient, what: str
) -> None:
    attach(cloud, pair.volume, pair.a, 20)
    operation, read = READS[what]
    not_found(emulator, operation)
    with pytest.raises(CloudError) as raised:
        read(cloud, pair)
    assert (raised.value.code, raised.value.transient) == ("UNREACHABLE", True)
    assert "lists it" in raised.value.message


def test_a_listing_that_can_not_be_read_leaves_it_unknown(
    cloud: Cloud, pair: Any, emulator: EmulatorClient
) -> None:
    not_found(emulator, "server_show")
    emulator.api_fault("server_list", status=503, times=50)
    with pytest.raises(CloudError) as raised:
        server_state(cloud, pair.a)
    assert raised.value.transient


def test_a_volume_is_detached_only_when_it_is(
    cloud: Cloud, pair: Any, emulator: EmulatorClient
) -> None:
    attach(cloud, pair.volume, pair.a, 20)
    not_found(emulator, "volume_show", times=3)
    detach(cloud, pair.volume, pair.a, 20)
    assert cloud.volume(pair.volume).status == "available"


def test_a_server_that_nova_calls_gone_for_a_moment_is_deleted_all_the_same(
    cloud: Cloud, pair: Any, emulator: EmulatorClient
) -> None:
    not_found(emulator, "server_show", times=2)
    assert delete_server(cloud, pair.a, 20).proven
    assert not server_state(cloud, pair.a).exists


def test_a_change_that_is_answered_by_a_404_is_requested_again(
    cloud: Cloud, pair: Any, emulator: EmulatorClient
) -> None:
    not_found(emulator, "attach", times=2)
    assert attach(cloud, pair.volume, pair.a, 20)["server_id"] == pair.a
    not_found(emulator, "stack_patch", times=2)
    assert patch_parameters(cloud, pair.name, {"active": "db_b"}, 20).status == "UPDATE_COMPLETE"


def test_an_observation_asks_alone_for_what_a_listing_lacks(
    cloud: Cloud, pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = networks.port_of(cloud, pair.a).id if networks.ports_of(cloud, pair.a) else None
    monkeypatch.setattr(ProjectListing, "_stacks", lambda _: {})
    monkeypatch.setattr(networks, "listed", lambda *_: [])
    listing = ProjectListing(cloud)
    found = listing.stack(pair.name)
    assert found is not None
    assert found == listing.stack(found.id)
    assert port is None or listing.port(port) is not None


def test_no_read_takes_a_404_for_absence_by_itself() -> None:
    """Each call of ``if_there`` answers a DELETE, or has a reason to be here."""
    found = set()
    for name, path in MODULES.items():
        text = path.read_text(encoding="utf-8")
        if "if_there(" not in text or name in LISTED_BEFORE | NO_ABSENCE:
            continue
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "if_there":
                    deletes = "DELETE" in ast.unparse(call) or ".delete(" in ast.unparse(call)
                    place = f"{name}:{function.name}"
                    if not deletes and place not in LISTED_BEFORE | NO_ABSENCE:
                        found.add(place)
    assert found == set(), "read it by absence.unless_absent"
