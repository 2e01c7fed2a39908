# SPDX-License-Identifier: Apache-2.0
"""The doctor asks every service that the project's groups use, and says where it asked it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.doctor.checks import Examination, Finding
from mistral_failover.doctor.rights import services
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.model.types import installed_types
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from support.scaled_groups import emulated, shared, state

__all__ = ["emulated", "shared", "state"]


@pytest.fixture
def request_(state: Runtime, emulated: EmulatedCloud) -> Iterator[Request]:
    yield Request(state, ActionContext(SecurityContext(), ExecutionContext()))
    emulated.client.clear_api_faults()


def found(request: Request) -> dict[str, Finding]:
    """The findings by service."""
    return {each.sentence.split()[0]: each for each in services(Examination(request))}


@pytest.mark.parametrize(
    ("kind", "service", "listing"),
    [
        ("floating_ip", "Neutron", "port_list"),
        ("load_balancer_member", "Octavia", "pool_list"),
        ("dns_record", "Designate", "zone_list"),
        ("alarm", "Aodh", "alarm_list"),
    ],
)
def test_a_service_is_asked_once_a_group_uses_it(
    request_: Request, emulated: EmulatedCloud, kind: str, service: str, listing: str
) -> None:
    assert service not in found(request_)

    definition = {"document": {}, "types": [installed_types()[kind].to_dict()]}
    request_.store.atomically(lambda tx: groups.define(tx, kind, definition))
    assert found(request_)[service].level == "ok"

    emulated.client.api_fault(listing, status=403, times=1)
    refused = found(request_)[service]
    assert (refused.level, "[FORBIDDEN]" in refused.sentence) == ("error", True)
    assert "role" in refused.remedy


def test_the_endpoint_and_the_region_are_named(request_: Request, emulated: EmulatedCloud) -> None:
    emulated.client.api_fault("volume_list", status=503, times=9)

    told = found(request_)

    assert f"{emulated.url}/" in told["Nova"].sentence
    assert told["Nova"].sentence.endswith("in region RegionOne")
    assert told["Cinder"].level == "error"
    assert f"{emulated.url}/" in told["Cinder"].sentence
    assert "in region RegionOne" in told["Cinder"].sentence
