# SPDX-License-Identifier: Apache-2.0
"""Stopping and deleting when guests hang, services stall, or a host loses its power."""

import pytest

from mistral_failover.cloud.servers import delete_server, server_state, stop
from support.nova import nova_of


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_guest_that_does_not_answer_can_be_stopped(cloud, pair, emulator, fault):
    emulator.fault("server", pair.a, fault)
    assert stop(cloud, pair.a, 10).proven


def test_a_server_that_stays_powering_off_proves_nothing(cloud, pair, emulator):
    emulator.api_fault("stop", "stuck")
    evidence = stop(cloud, pair.a, 0.3)
    assert not evidence.proven
    assert "powering-off" in evidence.observed


def test_a_delete_that_takes_too_long_is_no_proof(cloud, pair, emulator):
    emulator.set_latency(delete_server=30)
    evidence = delete_server(cloud, pair.a, 0.2)
    assert not evidence.proven
    assert "deleting" in evidence.observed


def test_a_server_that_is_just_being_started_does_not_count_as_off(cloud, pair, emulator):
    stop(cloud, pair.a, 10)
    emulator.set_latency(start=30)
    nova_of(cloud).start_server(pair.a)
    state = server_state(cloud, pair.a)
    assert (state.status, state.task_state) == ("SHUTOFF", "powering-on")
    assert not state.off
    assert not stop(cloud, pair.a, 0.2).proven
