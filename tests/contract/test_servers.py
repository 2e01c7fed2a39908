# SPDX-License-Identifier: Apache-2.0
"""Servers whose compute service lives: their state, and what proves that one is off or gone.

Measured on Nova 34, Cinder 29, Heat 27, Keystone 30 and Mistral 23:

stop

- 202, then SHUTOFF, power state 4.
- On a dead host also 202, and ``powering-off`` forever, which then blocks detach, attach and stop
  (409, task_state).

rebuild

- Rebuild: 202, REBUILD, then ACTIVE, or SHUTOFF if it was off before. The volumes stay.
"""

import pytest

from contract.rig import UNKNOWN_ID
from mistral_failover.cloud.boot_disks import release_boot_disk
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import delete_server, deletion_proof, server_state, start, stop
from mistral_failover.fault_points import arm, disarm


def actions_of(api, server_id):
    """Each action on a server, newest first, with its events."""
    path = f"/servers/{server_id}/os-instance-actions"
    found = []
    for row in api.nova("GET", path).json()["instanceActions"]:
        shown = api.nova("GET", f"{path}/{row['request_id']}").json()["instanceAction"]
        found.append((row["action"], shown["events"]))
    return found


def deletions_of(api, server_id):
    """The events of each deletion."""
    return [events for action, events in actions_of(api, server_id) if action == "delete"]


def test_a_running_server_is_active(cloud, two):
    state = server_state(cloud, two.a)
    assert (state.exists, state.status, state.task_state, state.power_state) == (
        True,
        "ACTIVE",
        None,
        1,
    )
    assert not state.off


def test_the_state_of_the_host_is_shown_to_administrators_alone(cloud, demo, admin, two):
    hidden = ("host_status", "OS-EXT-SRV-ATTR:host", "OS-EXT-SRV-ATTR:hypervisor_hostname")
    assert [name for name in hidden if name in demo.server(two.a)] == []
    assert server_state(cloud, two.a).host_status is None
    shown = admin.server(two.a)
    assert shown["host_status"] == "UP"
    assert shown["OS-EXT-SRV-ATTR:host"]


def test_only_an_administrator_sees_the_compute_services_and_names_a_host(demo, rig):
    answer = demo.nova("GET", "/os-services")
    assert answer.status_code == 403
    assert answer.json()["forbidden"]["message"] == (
        "Policy doesn't allow os_compute_api:os-services:list to be performed."
    )
    asked = {
        "name": rig.name(),
        "flavorRef": rig.flavor_id,
        "imageRef": rig.image_id,
        "networks": "none",
        "availability_zone": f"nova:{rig.victim}",
    }
    answer = demo.nova("POST", "/servers", {"server": asked})
    assert answer.status_code == 403
    assert "forced_host" in answer.json()["forbidden"]["message"]


@pytest.mark.parametrize("known", [True, False], ids=["another project's", "an unknown"])
@pytest.mark.parametrize("verb", [stop, delete_server])
def test_a_server_out_of_reach_does_not_exist_and_proves_nothing(connect, rig, two, known, verb):
    cloud = connect("other")
    server_id = two.a if known else UNKNOWN_ID
    assert not server_state(cloud, server_id).exists
    evidence = verb(cloud, server_id, 10)
    assert not evidence.proven
    assert "nothing shows" in evidence.observed
    assert rig.state(two.a) == ("ACTIVE", None)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/action", {"os-stop": None}),
        ("GET", "/os-instance-actions", None),
        ("GET", f"/os-volume_attachments/{UNKNOWN_ID}", None),
        ("DELETE", f"/os-volume_attachments/{UNKNOWN_ID}", None),
    ],
)
def test_what_is_not_there_is_a_404_in_nova(demo, other, two, method, path, body):
    foreign = other.nova(method, f"/servers/{two.a}{path}", body)
    unknown = demo.nova(method, f"/servers/{UNKNOWN_ID}{path}", body)
    for answer in (foreign, unknown):
        assert answer.status_code == 404
    # Two answers have words of their own: an action's, and a volume's that is looked for first.
    known = foreign.json()["itemNotFound"]["message"]
    assert known in (f"Instance {two.a} could not be found.",)
    words = unknown.json()["itemNotFound"]["message"]
    tail = "has no mapping to a cell." if path == "/action" else "could not be found."
    assert words == f"Instance {UNKNOWN_ID} {tail}"


def test_a_stop_through_a_live_compute_service_is_proof(cloud, rig, server):
    evidence = stop(cloud, server, 30)
    assert (evidence.proven, evidence.rung) == (True, "stop"), evidence
    assert "SHUTOFF" in evidence.observed
    state = server_state(cloud, server)
    assert (state.status, state.task_state, state.power_state) == ("SHUTOFF", None, 4)
    assert state.off

    again = stop(cloud, server, 30)
    assert again.proven, again
    assert [action for action, _ in actions_of(rig.api(), server)].count("stop") <= 1

    # What is being started does not count as off; and a stop must wait for that.
    assert rig.api().act(server, os_start=None).status_code == 202
    state = server_state(cloud, server)
    if state.task_state is not None:
        assert (state.status, state.task_state) == ("SHUTOFF", "powering-on")
        assert not state.off
    assert stop(cloud, server, 30).proven


def test_a_stop_whose_process_died_after_the_request_is_waited_for(cloud, demo, server):
    assert demo.act(server, os_stop=None).status_code == 202
    assert stop(cloud, server, 30).proven


def test_a_server_that_is_off_is_started_once_however_often_it_is_asked_for(cloud, rig, server):
    assert stop(cloud, server, 30).proven

    for _ in range(2):
        started = start(cloud, server, 30)
        assert (started.proven, started.rung) == (True, "start"), started
    assert rig.state(server) == ("ACTIVE", None)
    assert [action for action, _ in actions_of(rig.api(), server)].count("start") == 1


def test_what_is_neither_off_nor_active_is_not_started(cloud, demo, server):
    assert demo.act(server, pause=None).status_code == 202
    seen = start(cloud, server, 30)
    assert not seen.proven
    assert "PAUSED" in seen.observed
    assert not start(cloud, UNKNOWN_ID, 10).proven


def test_nova_refuses_an_action_in_the_wrong_state(demo, rig, server):
    answer = demo.act(server, os_start=None)
    words = f"Cannot 'start' instance {server} while it is in vm_state active"
    assert (answer.status_code, answer.json()["conflictingRequest"]["message"]) == (409, words)
    assert demo.act(server, os_stop=None).status_code == 202
    rig.until(lambda: rig.state(server) == ("SHUTOFF", None))
    answer = demo.act(server, os_stop=None)
    words = f"Cannot 'stop' instance {server} while it is in vm_state stopped"
    assert (answer.status_code, answer.json()["conflictingRequest"]["message"]) == (409, words)


@pytest.mark.parametrize(
    ("verb", "point"), [(stop, "stop.before"), (delete_server, "delete.before")]
)
def test_a_repeat_that_was_overtaken_by_the_first_is_proof_as_well(connect, server, verb, point):
    """Between the look and the request the server is stopped: Nova refuses the second request."""
    first, second, reached = connect(), connect(), []

    def overtake(name):
        if name == point and not reached:
            reached.append(name)
            assert verb(first, server, 30).proven

    arm(overtake)
    try:
        evidence = verb(second, server, 30)
    finally:
        disarm()
    assert evidence.proven, evidence.observed
    assert reached


def test_a_server_in_error_can_be_stopped_and_administrators_alone_call_it_so(
    cloud, demo, admin, rig, server
):
    state = {"state": "error"}
    assert demo.act(server, os_resetState=state).status_code == 403
    assert admin.act(server, os_resetState=state).status_code == 202
    assert rig.state(server) == ("ERROR", None)
    assert not server_state(cloud, server).off
    assert stop(cloud, server, 30).proven


def test_a_delete_through_a_live_compute_service_is_proof(cloud, connect, demo, rig, server):
    evidence = delete_server(cloud, server, 30)
    assert (evidence.proven, evidence.rung) == (True, "delete"), evidence
    assert "compute_terminate_instance" in evidence.observed
    assert not server_state(cloud, server).exists

    # The compute service's own record outlives the server, and is its owner's alone to read.
    (events,) = deletions_of(demo, server)
    assert [(event["event"], event["result"]) for event in events] == [
        ("compute_terminate_instance", "Success")
    ]
    assert all(event["start_time"] and event["finish_time"] for event in events)
    path = f"/servers/{server}/os-instance-actions"
    assert demo.nova("GET", path, version="2.20").status_code == 404
    assert deletion_proof(connect(), server).proven
    assert not deletion_proof(connect("other"), server).proven, "no other project may read it"

    # A repeat is proven by the record, whatever deleted it.
    assert delete_server(connect(), server, 30).proven
    assert demo.nova("DELETE", f"/servers/{server}").status_code == 404


def test_a_delete_whose_process_died_is_proven_by_its_record(connect, demo, server):
    assert demo.nova("DELETE", f"/servers/{server}").status_code == 204
    evidence = delete_server(connect(), server, 30)
    assert evidence.proven, evidence


def test_a_microversion_above_the_newest_is_refused_and_not_answered_by_an_older_one(demo, two):
    answer = demo.nova("GET", f"/servers/{two.a}", version="2.999")
    assert answer.status_code == 406
    assert "2.999 is not supported" in answer.json()["computeFault"]["message"]


def test_an_unknown_action_of_a_server_is_a_404(demo, two):
    path = f"/servers/{two.a}/os-instance-actions/req-{UNKNOWN_ID}"
    answer = demo.nova("GET", path)
    assert answer.status_code == 404
    assert answer.json()["itemNotFound"]["message"] == f"Action req-{UNKNOWN_ID} not found"


def test_an_expired_token_is_an_error_and_no_evidence(connect, rig, two):
    token = rig.token()
    cloud = connect(token=token)
    rig.revoke(token)
    for verb in (stop, delete_server):
        with pytest.raises(CloudError) as raised:
            verb(cloud, two.a, 5)
        assert raised.value.code == "TOKEN_EXPIRED"
    assert rig.state(two.a) == ("ACTIVE", None)


@pytest.mark.parametrize("status", ["ACTIVE", "SHUTOFF"])
def test_a_server_that_is_rebuilt_keeps_its_volumes_and_whether_it_runs(
    demo, rig, server, volume, status
):
    rig.attach(server, volume)
    if status == "SHUTOFF":
        assert demo.act(server, os_stop=None).status_code == 202
        rig.until(lambda: rig.state(server) == (status, None))

    answer = demo.nova("POST", f"/servers/{server}/action", {"rebuild": {"imageRef": rig.image_id}})

    assert answer.status_code == 202, answer.text
    shown = answer.json()["server"]
    assert (shown["id"], shown["status"]) == (server, "REBUILD")
    rig.until(lambda: rig.state(server) == (status, None))
    rig.until(lambda: rig.volume_status(volume) == "in-use")
    assert rig.holders(volume) == [server]
    path = f"/servers/{server}/os-volume_attachments"
    rows = demo.nova("GET", path).json()["volumeAttachments"]
    assert [row["volumeId"] for row in rows] == [volume]


def test_a_server_that_does_not_exist_is_not_rebuilt(demo, rig):
    path = f"/servers/{UNKNOWN_ID}/action"
    assert demo.nova("POST", path, {"rebuild": {"imageRef": rig.image_id}}).status_code == 404


def test_a_server_that_no_host_has_room_for_never_ran_and_its_deletion_frees_its_disk(
    cloud, demo, rig, server
):
    disk = rig.make_volume(bootable=True)
    nowhere = rig.boot_nowhere(disk)
    rig.until(lambda: rig.state(nowhere) == ("ERROR", None))
    shown = demo.server(nowhere)
    assert (shown["hostId"], shown["OS-SRV-USG:launched_at"]) == ("", None)
    assert demo.act(nowhere, os_stop=None).status_code == 409

    assert stop(cloud, nowhere, 30).proven
    assert server_state(cloud, nowhere).never_ran
    assert not server_state(cloud, server).never_ran

    release_boot_disk(cloud, disk, nowhere, off=lambda: "It never ran.", limit=90)
    assert rig.volume_status(disk) == "available"
    rig.remove_volume(disk)
