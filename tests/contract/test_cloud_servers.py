# SPDX-License-Identifier: Apache-2.0
"""Stopping and deleting prove something only when a compute service did it."""

import pytest

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import delete_server, deletion, server_state, stop
from mistral_failover.fault_points import arm, disarm


def host_of(emulator, server_id):
    return emulator.nodes()[server_id]["host"]


def test_a_running_server_is_active(cloud, pair):
    state = server_state(cloud, pair.a)
    assert (state.exists, state.status, state.task_state) == (True, "ACTIVE", None)
    assert not state.off


def test_a_server_of_another_project_does_not_exist(connect, pair):
    assert not server_state(connect("other"), pair.a).exists


def test_a_stop_through_a_live_compute_service_is_proof(cloud, pair, emulator):
    emulator.set_latency(stop=0.2)
    evidence = stop(cloud, pair.a, 10)
    assert (evidence.proven, evidence.rung) == (True, "stop")
    assert "SHUTOFF" in evidence.observed
    assert not emulator.nodes()[pair.a]["running"]


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_guest_that_does_not_answer_can_be_stopped(cloud, pair, emulator, fault):
    emulator.fault("server", pair.a, fault)
    assert stop(cloud, pair.a, 10).proven


def test_a_server_that_is_off_already_is_proven_without_a_request(cloud, pair, emulator):
    stop(cloud, pair.a, 10)
    assert stop(cloud, pair.a, 10).proven
    assert len([row for row in emulator.critical() if row["kind"] == "stop"]) == 1


def test_a_stop_whose_process_died_after_the_request_is_waited_for(cloud, pair, emulator):
    emulator.set_latency(stop=0.2)
    cloud.compute.stop_server(pair.a)
    assert stop(cloud, pair.a, 10).proven
    assert len([row for row in emulator.critical() if row["kind"] == "stop"]) == 1


@pytest.mark.parametrize(
    ("verb", "point"), [(stop, "stop.before"), (delete_server, "delete.before")]
)
def test_a_repeat_that_was_overtaken_by_the_first_is_proof_as_well(
    connect, pair, emulator, verb, point
):
    """Between the look and the request the server is stopped: Nova refuses the second request."""
    first, second, reached = connect(), connect(), []

    def overtake(name):
        if name == point and not reached:
            reached.append(name)
            assert verb(first, pair.a, 10).proven

    arm(overtake)
    try:
        evidence = verb(second, pair.a, 10)
    finally:
        disarm()
    assert evidence.proven, evidence.observed
    assert reached


@pytest.mark.parametrize("fault", ["compute_down", "power_off"])
def test_with_a_dead_host_a_stop_proves_nothing(cloud, pair, emulator, fault):
    emulator.fault("host", host_of(emulator, pair.a), fault)
    evidence = stop(cloud, pair.a, 0.3)
    assert not evidence.proven
    assert evidence.observed


def test_a_server_that_stays_powering_off_proves_nothing(cloud, pair, emulator):
    emulator.api_fault("stop", "stuck")
    evidence = stop(cloud, pair.a, 0.3)
    assert not evidence.proven
    assert "powering-off" in evidence.observed


def test_a_delete_through_a_live_compute_service_is_proof(cloud, pair, emulator):
    emulator.set_latency(delete_server=0.2)
    evidence = delete_server(cloud, pair.a, 10)
    assert (evidence.proven, evidence.rung) == (True, "delete"), evidence
    assert not server_state(cloud, pair.a).exists


def test_a_delete_whose_process_died_is_proven_by_its_record(cloud, connect, pair, emulator):
    cloud.compute.delete_server(pair.a)
    evidence = delete_server(connect(), pair.a, 10)
    assert evidence.proven
    assert "compute_terminate_instance" in evidence.observed
    assert not deletion(connect("other"), pair.a).proven, "nobody else may read it"


@pytest.mark.parametrize("fault", ["compute_down", "power_off"])
def test_a_delete_on_a_dead_host_is_no_proof(cloud, pair, emulator, fault):
    emulator.fault("host", host_of(emulator, pair.a), fault)
    evidence = delete_server(cloud, pair.a, 10)
    assert not evidence.proven
    assert "may be running" in evidence.observed
    assert not server_state(cloud, pair.a).exists


def test_a_delete_that_takes_too_long_is_no_proof(cloud, pair, emulator):
    emulator.set_latency(delete_server=30)
    evidence = delete_server(cloud, pair.a, 0.2)
    assert not evidence.proven
    assert "deleting" in evidence.observed


def test_an_expired_token_is_an_error_and_no_evidence(connect, pair, emulated):
    cloud = connect()
    emulated.emulation.state.tokens.clear()
    with pytest.raises(CloudError) as raised:
        stop(cloud, pair.a, 5)
    assert raised.value.code == "TOKEN_EXPIRED"
    assert cloud.session.get_token() not in str(raised.value)


def test_a_server_that_is_just_being_started_does_not_count_as_off(cloud, pair, emulator):
    stop(cloud, pair.a, 10)
    emulator.set_latency(start=30)
    cloud.compute.start_server(pair.a)
    state = server_state(cloud, pair.a)
    assert (state.status, state.task_state) == ("SHUTOFF", "powering-on")
    assert not state.off
    assert not stop(cloud, pair.a, 0.2).proven
