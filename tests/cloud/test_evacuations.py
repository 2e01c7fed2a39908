# SPDX-License-Identifier: Apache-2.0
"""After an evacuation Nova shows the new host only; on the old one the guest may run on.

Here nova-compute of the first host has died and its guest writes, unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.cloud.servers import (
    delete_server,
    deletion_proof,
    left_behind,
    server_state,
    stop,
)
from mistral_failover.cloud.volume_holders import _off
from mistral_failover.cloud.volumes import attach, detach
from support.operators import Operator
from support.waiting import until


class Site:
    """Server a of the pair, its host, and an operator."""

    def __init__(self, cloud: Any, pair: Any, emulator: Any) -> None:
        self.cloud, self.server, self.emulator = cloud, pair.a, emulator
        self.operator = Operator(emulator)
        emulator.add_application("db", start="start", stop="stop", stack="payments")
        attach(cloud, pair.volume, pair.a, 5)
        emulator.run_command(pair.a, "start", command_id="s1")
        self.volume = pair.volume
        self.home = self.host

    @property
    def host(self) -> str:
        return str(self.emulator.guests()[self.server]["host"])

    def is_off(self) -> None:
        until(lambda: server_state(self.cloud, self.server).status == "SHUTOFF")

    def partitioned(self) -> None:
        self.emulator.fault("host", self.host, "compute_down")

    def evacuated(self) -> None:
        self.partitioned()
        self.operator.evacuate(self.server)

    def evacuated_running(self) -> None:
        self.partitioned()
        self.operator.evacuate(self.server, "2.94")

    def evacuated_during_the_stop(self) -> None:
        self.partitioned()
        self.operator.stop_server(self.server)
        self.operator.evacuate(self.server)

    def evacuated_twice(self) -> None:
        self.evacuated()
        self.emulator.fault("host", self.home, "revive")
        self.evacuated()

    def started_there_and_stopped(self) -> None:
        self.evacuated()
        self.operator.start_server(self.server)
        until(lambda: server_state(self.cloud, self.server).status == "ACTIVE")

    def stopped(self) -> None:
        self.operator.stop_server(self.server)
        self.is_off()

    def stopped_before(self) -> None:
        self.stopped()
        detach(self.cloud, self.volume, self.server, 5)
        self.evacuated()

    def stopped_started_and_evacuated(self) -> None:
        self.stopped()
        self.operator.start_server(self.server)
        until(lambda: server_state(self.cloud, self.server).status == "ACTIVE")
        self.evacuated()

    def rebuilt_in_place(self) -> None:
        self.operator.rebuild_server(self.server)
        until(lambda: server_state(self.cloud, self.server).status == "ACTIVE")


@pytest.fixture
def site(cloud: Any, pair: Any, emulator: Any) -> Site:
    return Site(cloud, pair, emulator)


PASTS: list[tuple[Callable[[Site], None], bool]] = [
    (Site.evacuated, False),
    (Site.evacuated_running, False),
    (Site.evacuated_during_the_stop, False),
    (Site.evacuated_twice, False),
    (Site.started_there_and_stopped, False),
    (Site.stopped_started_and_evacuated, False),
    (Site.stopped_before, True),
    (Site.stopped, True),
    (Site.rebuilt_in_place, True),
]
each_past = pytest.mark.parametrize(
    ("past", "proven"), PASTS, ids=[past.__name__ for past, _ in PASTS]
)


@each_past
def test_an_evacuation_while_the_guest_ran_takes_the_worth_of_every_stop(
    site: Site, past: Callable[[Site], None], proven: bool
) -> None:
    past(site)

    evidence = stop(site.cloud, site.server, 10)

    assert server_state(site.cloud, site.server).off
    assert evidence.proven is proven, evidence.observed
    assert (left_behind(site.cloud, site.server) is None) is proven
    assert (_off(site.cloud, site.server) is not None) is proven
    if not proven:
        assert "Nova evacuated it at " in evidence.observed


@each_past
def test_and_of_every_deletion(site: Site, past: Callable[[Site], None], proven: bool) -> None:
    past(site)

    evidence = delete_server(site.cloud, site.server, 10)

    assert not server_state(site.cloud, site.server).exists
    assert evidence.proven is proven, evidence.observed
    assert deletion_proof(site.cloud, site.server).proven is proven
    assert stop(site.cloud, site.server, 5).proven is proven


def test_what_it_would_cost_to_believe_it_is_two_writers(
    site: Site, pair: Any, emulator: Any
) -> None:
    site.evacuated()
    assert server_state(site.cloud, site.server).off
    assert emulator.writers(site.volume) == [site.server]
    detach(site.cloud, site.volume, site.server, 5)
    attach(site.cloud, site.volume, pair.b, 5)

    emulator.run_command(pair.b, "start", command_id="s2")

    assert "two_writers" in {event["rule"] for event in emulator.violations()}
    emulator.fault("host", site.home, "revive")
    assert emulator.writers(site.volume) == [pair.b], "Nova removes the old guest when it is back"


@pytest.mark.parametrize("rung", [stop, delete_server])
def test_where_the_project_may_not_see_that_nothing_is_proven_and_the_policy_is_named(
    site: Site, emulator: Any, rung: Callable[..., Any]
) -> None:
    emulator.api_fault("server_actions", "error", status=403, times=99)

    evidence = rung(site.cloud, site.server, 10)

    assert not evidence.proven
    assert "os_compute_api:os-instance-actions:list" in evidence.observed
