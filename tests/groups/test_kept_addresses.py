# SPDX-License-Identifier: Apache-2.0
"""Which ports and floating IPs no other template may take from a group."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.convergence.records import Record
from mistral_failover.groups.kept_parts import addresses_of
from mistral_failover.model.types import installed_types


def record(kind: str, physical_id: str | None = None, **attributes: Any) -> Record:
    """The record of a resource ``entry`` of this type."""
    return Record(
        id="r",
        group_id="g",
        name="entry",
        type=kind,
        physical_id=physical_id,
        attributes=attributes,
    )


@pytest.mark.parametrize(
    ("one", "kept"),
    [
        (record("port", "p-1", port_id="p-1"), {"p-1"}),
        (record("floating_ip", "f-1", port_id="p-a"), {"f-1", "p-a"}),
        (record("virtual_ip", "p-1", port_id="p-a"), {"p-1", "p-a"}),
        (record("load_balancer_member", "m-1", pool_id="l-1"), {"m-1", "l-1"}),
        (record("dns_record", "n-1", zone_id="z-1"), {"n-1", "z-1"}),
        (record("floating_ip"), set()),
        (record("volume_attachment", "v-1", port_id="p-a"), set()),
    ],
    ids=[
        "a port",
        "a floating IP",
        "a virtual IP",
        "a pool",
        "a DNS name",
        "not made yet",
        "no address",
    ],
)
def test_an_address_and_the_member_s_port_that_has_it_are_kept(one: Record, kept: set[str]) -> None:
    assert addresses_of([one], installed_types()) == dict.fromkeys(kept, "entry")
