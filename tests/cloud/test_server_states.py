# SPDX-License-Identifier: Apache-2.0
"""The table of a server's states: complete, and each row names what ends it or leaves it open."""

from __future__ import annotations

import pytest

from mistral_failover.cloud.server_states import STATES, hindrance_of, keeps_ports, keeps_volumes

NOVA_34 = (
    *("ACTIVE", "BUILD", "DELETED", "ERROR", "HARD_REBOOT", "MIGRATING", "PASSWORD", "PAUSED"),
    *("REBOOT", "REBUILD", "RESCUE", "RESIZE", "REVERT_RESIZE", "SHELVED", "SHELVED_OFFLOADED"),
    *("SHUTOFF", "SOFT_DELETED", "SUSPENDED", "UNKNOWN", "VERIFY_RESIZE"),
)
"""What ``_STATE_MAP`` of ``nova.api.openstack.common`` makes of a server, and UNKNOWN."""


@pytest.mark.parametrize("status", NOVA_34)
def test_each_state_of_nova_but_active_hinders(status: str) -> None:
    assert (hindrance_of(status, None) is None) == (status == "ACTIVE")
    assert (status in STATES) == (status != "ACTIVE")


@pytest.mark.parametrize("status", ["SHUTOFF", "VERIFY_RESIZE", "SHELVED_OFFLOADED"])
def test_what_nova_detaches_from_keeps_nothing_unless_it_is_locked_or_has_a_task(
    status: str,
) -> None:
    assert keeps_volumes(status, None) is None
    assert keeps_volumes(status, None, locked=True) is not None
    assert keeps_volumes(status, "image_uploading") is not None


@pytest.mark.parametrize("status", ["VERIFY_RESIZE", "SHELVED", "SHELVED_OFFLOADED"])
def test_what_gives_a_volume_away_may_still_keep_its_ports(status: str) -> None:
    assert keeps_volumes(status, None) is None
    assert keeps_ports(status, None) is not None


@pytest.mark.parametrize("status", ["ACTIVE", "PAUSED", "SHUTOFF"])
def test_where_nova_detaches_ports_only_a_lock_or_a_task_keeps_them(status: str) -> None:
    assert keeps_ports(status, None) is None
    assert keeps_ports(status, None, locked=True) is not None
    assert keeps_ports(status, "image_uploading") is not None


def test_a_paused_guest_takes_no_part_in_a_detach() -> None:
    assert keeps_volumes("PAUSED", None) is not None


def test_of_several_hindrances_the_one_that_keeps_the_guest_from_running_counts() -> None:
    worst = hindrance_of("PAUSED", None, locked=True)
    assert worst is not None
    assert worst.sentence("s") == "To end that: openstack server unpause s."
