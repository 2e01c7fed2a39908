# SPDX-License-Identifier: Apache-2.0
"""Stopping and deleting when guests hang, services stall, or a host loses its power."""

import pytest

from mistral_failover.cloud import servers
from mistral_failover.cloud.servers import delete_server, off_proof, server_state, stop
from support.nova import nova_of
from support.waiting import until


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


def test_a_start_between_the_look_and_the_proof_is_seen(cloud, pair, emulator, monkeypatch):
    """It is seen off, and a person starts it before its list of actions is read."""
    stop(cloud, pair.a, 10)
    read, starts = servers._actions, ["once"]

    def started_first(*given):
        if starts:
            starts.pop()
            nova_of(cloud).start_server(pair.a)
        return read(*given)

    monkeypatch.setattr(servers, "_actions", started_first)
    assert off_proof(cloud, pair.a, server_state(cloud, pair.a)) is None
    assert stop(cloud, pair.a, 10).proven
    assert server_state(cloud, pair.a).off


def test_a_server_that_went_off_by_itself_after_a_start_is_off(cloud, pair, emulator, monkeypatch):
    """Its guest has shut down: the latest that Nova was asked for is the start."""
    stop(cloud, pair.a, 10)
    nova_of(cloud).start_server(pair.a)
    until(lambda: server_state(cloud, pair.a).status == "ACTIVE")
    actions = servers._actions(cloud, pair.a)
    assert actions[0]["action"] == "start"
    stop(cloud, pair.a, 10)
    monkeypatch.setattr(servers, "_actions", lambda *_: actions)
    assert off_proof(cloud, pair.a, server_state(cloud, pair.a)).proven


def test_a_server_that_no_host_ever_had_is_off(cloud, pair, emulator):
    emulator.api_fault("boot", "unplaced")
    server = nova_of(cloud).create_server(
        name="nowhere", flavor_id="m1.tiny", image_id="tiny", networks="none"
    )
    nova_of(cloud).wait_for_server(server, status="ERROR", failures=[], interval=0.02)

    assert server_state(cloud, server.id).never_ran
    assert stop(cloud, server.id, 5).proven
    assert not server_state(cloud, pair.a).never_ran


@pytest.mark.parametrize("hidden", ["hostId", "OS-SRV-USG:launched_at"])
def test_a_field_that_nova_does_not_show_is_no_proof_that_it_never_ran(
    cloud, pair, emulator, hidden
):
    emulator.api_fault("boot", "unplaced")
    server = nova_of(cloud).create_server(
        name="nowhere", flavor_id="m1.tiny", image_id="tiny", networks="none"
    )
    nova_of(cloud).wait_for_server(server, status="ERROR", failures=[], interval=0.02)
    emulator.offer("compute", without=[hidden])

    assert not server_state(cloud, server.id).never_ran
    assert not stop(cloud, server.id, 0.5).proven


def test_a_server_in_error_that_ran_is_not_taken_for_one_that_did_not(cloud, pair, emulator):
    emulator.api_fault("boot", "fail")
    server = nova_of(cloud).create_server(
        name="failed", flavor_id="m1.tiny", image_id="tiny", networks="none"
    )
    nova_of(cloud).wait_for_server(server, status="ERROR", failures=[], interval=0.02)

    assert not server_state(cloud, server.id).never_ran, "a host has it"
