# SPDX-License-Identifier: Apache-2.0
"""Volumes are found, attached and detached once, and what Nova and Cinder say when they refuse.

Measured on Nova 34, Cinder 29, Heat 27, Keystone 30 and Mistral 23:

attach

- 200 with the device, without the attachment's id. The volume is ``reserved``, shows no holder
  yet, and Nova lists it.
- If a server holds it, this one or another: 400 "is already attached to instances: ID", whatever
  Cinder says. Otherwise Cinder's own 400, with "(HTTP 400) (Request-ID: ...)" at the end.
- On a dead host: Nova waits 60 s for the compute service, then 500, without effect.
- Multi-attach, the same server again: 400 "already attached".

detach

- 202, ``detaching``; only if Cinder calls the volume ``in-use``, else 400.
- The root disk: 400 "Cannot detach a root device volume". A server in error: 409, vm_state.
- On a dead host: 409 "Service is unavailable at this time.", before the volume's state is
  checked. A detach that was accepted before Nova noticed stays ``detaching``, and is done when
  the host is back.
- Cinder's detach, force-detach, ``DELETE`` of an attachment: 409 "ConflictNovaUsingAttachment"
  for every user while Nova has it; with the token of a trust, 500. Its times have whole seconds;
  ``host_name`` is null except for administrators.

extend

- Cinder extends a volume that is available or in use; else 400.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
import requests

from contract.rig import UNKNOWN_ID, Made, Rig
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.stacks import VOLUME
from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.cloud.volumes import attach, detach, name_id, resolve_volume
from mistral_failover.fault_points import arm, disarm
from support.nova import nova_of

NOT_ATTACHED = (
    "Unable to detach volume. Volume status must be 'in-use' and attach_status must be 'attached' "
    "to detach."
)


def refusal(answer: requests.Response) -> tuple[int, str]:
    """An error's status and words."""
    ((body,),) = (answer.json().values(),)
    return answer.status_code, str(body["message"])


class Counter:
    """A guard that lets everything through and counts the calls that change something."""

    request_id = None

    def __init__(self) -> None:
        self.changes: list[str] = []

    def permit(self, method: str) -> float:
        if method not in ("GET", "HEAD"):
            self.changes.append(method)
        return 60.0


@pytest.fixture
def counted(connect: Any) -> Any:
    """The adapters, and what they asked to be changed."""
    guard = Counter()
    cloud = connect(guard=guard)
    guard.changes.clear()
    return cloud, guard.changes


def test_a_volume_is_attached_confirmed_and_detached_once(counted, rig, demo, two, volume):
    cloud, changes = counted
    result = attach(cloud, volume, two.a, 60)
    assert result["server_id"] == two.a
    assert result["device"].startswith("/dev/")
    shown = demo.volume(volume)
    (held,) = shown["attachments"]
    assert (held["attachment_id"], held["device"]) == (result["attachment_id"], result["device"])
    assert (shown["status"], held["host_name"]) == ("in-use", None)
    (listed,) = demo.nova("GET", f"/servers/{two.a}/os-volume_attachments").json()[
        "volumeAttachments"
    ]
    assert (listed["volumeId"], listed["attachment_id"], listed["device"]) == (
        volume,
        result["attachment_id"],
        result["device"],
    )

    assert attach(cloud, volume, two.a, 60) == result, "attaching again adopts what is there"
    assert changes == ["POST"]

    detach(cloud, volume, two.b, 60)
    assert changes == ["POST"], "the other server does not hold it"
    detach(cloud, volume, two.a, 60)
    assert rig.holders(volume) == []
    assert rig.volume_status(volume) == "available"
    detach(cloud, volume, two.a, 60)
    assert changes == ["POST", "DELETE"]


def test_the_answer_to_an_attach_names_the_device_and_not_the_attachment(rig, demo, two, volume):
    answer = demo.attach(two.a, volume)
    assert answer.status_code == 200
    body = answer.json()["volumeAttachment"]
    assert set(body) == {"id", "serverId", "volumeId", "device", "tag", "delete_on_termination"}
    assert body["id"] == body["volumeId"] == volume
    # What a server's row shows since 2.3, that of its attachment shows since 2.79.
    key, rows = "delete_on_termination", f"/servers/{two.a}/os-volume_attachments"
    for version, of_server, of_attachment in (
        ("2.2", False, False),
        ("2.3", True, False),
        ("2.78", True, False),
        ("2.79", True, True),
    ):
        server = demo.nova("GET", f"/servers/{two.a}", version=version).json()["server"]
        (row,) = server["os-extended-volumes:volumes_attached"]
        (attachment,) = demo.nova("GET", rows, version=version).json()["volumeAttachments"]
        assert (key in row, key in attachment) == (of_server, of_attachment), version
    # On its way: Cinder shows no holder yet, Nova lists it.
    path = f"/servers/{two.a}/os-volume_attachments/{volume}"
    assert demo.nova("GET", path).json()["volumeAttachment"]["attachment_id"]
    rig.until(lambda: rig.volume_status(volume) == "in-use")


def test_only_an_operator_is_shown_which_name_a_volume_has_in_its_backend(
    rig, cloud, demo, admin, volume
):
    key = "os-vol-mig-status-attr:name_id"
    shown = admin.cinder("GET", f"/volumes/{volume}").json()["volume"]
    assert (key in shown, shown.get(key)) == (True, None), "it was not migrated in use"
    assert key not in demo.volume(volume)

    operator = rig.connect("admin", token=admin.session.get_token())
    assert name_id(operator, volume) == name_id(cloud, volume) == volume


def test_an_attach_whose_process_died_after_the_request_is_adopted(counted, demo, two, volume):
    cloud, changes = counted
    assert demo.attach(two.a, volume).status_code == 200
    assert attach(cloud, volume, two.a, 60)["server_id"] == two.a
    assert changes == []


def test_nova_shows_the_owner_that_a_compute_service_took_a_detach_up(rig, demo, two, volume):
    rig.attach(two.a, volume)
    answer = demo.detach(two.a, volume)
    path = f"/servers/{two.a}/os-instance-actions/{answer.headers['x-openstack-request-id']}"

    def event() -> Any:
        action = demo.nova("GET", path).json()["instanceAction"]
        assert action["action"] == "detach_volume"
        return action["events"][0] if action["events"] else None

    rig.until(event)
    rig.until(lambda: rig.volume_status(volume) == "available")
    rig.until(lambda: event()["result"] == "Success")
    assert event()["event"] == "compute_detach_volume"


def test_a_detach_whose_process_died_after_the_request_is_adopted(counted, rig, demo, two, volume):
    cloud, changes = counted
    rig.attach(two.a, volume)
    assert demo.detach(two.a, volume).status_code == 202
    detach(cloud, volume, two.a, 60)
    assert changes == []
    assert rig.holders(volume) == []


@pytest.mark.parametrize("verb", [attach, detach])
def test_a_request_whose_answer_got_lost_is_adopted(connect, rig, two, volume, verb):
    """The answer arrives, and the connection breaks before anybody has read it."""
    if verb is detach:
        rig.attach(two.a, volume)
    lost = []

    def lose(name: str) -> None:
        if name == "call.after" and not lost:
            lost.append(name)
            raise requests.ConnectionError("the answer got lost")

    cloud = connect()
    cloud.project_id  # noqa: B018 - the session's own calls come before
    arm(lose)
    try:
        verb(cloud, volume, two.a, 60)
    finally:
        disarm()
    assert lost
    assert rig.holders(volume) == ([two.a] if verb is attach else [])


def test_a_volume_that_another_server_holds_is_not_taken_away(rig, cloud, demo, two, volume):
    rig.attach(two.a, volume)
    words = f"Invalid volume: volume {volume} is already attached to instances: {two.a}"
    assert refusal(demo.attach(two.b, volume)) == (400, words)
    assert refusal(demo.attach(two.a, volume)) == (400, words)
    with pytest.raises(CloudError) as raised:
        attach(cloud, volume, two.b, 60)
    assert raised.value.code == "VOLUME_IN_USE"
    assert two.a in raised.value.message
    assert rig.holders(volume) == [two.a]


def test_a_volume_on_its_way_out_of_another_server_is_waited_for(rig, cloud, demo, two, volume):
    rig.attach(two.a, volume)
    assert demo.detach(two.a, volume).status_code == 202
    status, words = refusal(demo.detach(two.a, volume))
    assert (status, NOT_ATTACHED in words or "not attached" in words) in ((400, True), (404, True))
    assert attach(cloud, volume, two.b, 60)["server_id"] == two.b


def test_detaching_waits_for_an_attach_that_is_still_arriving(rig, cloud, demo, two, volume):
    assert demo.attach(two.a, volume).status_code == 200
    detach(cloud, volume, two.a, 60)
    assert rig.holders(volume) == []
    assert rig.volume_status(volume) == "available"


def test_two_processes_that_attach_the_same_agree(connect, rig, two, volume):
    results: list[dict[str, str]] = []
    threads = [
        threading.Thread(target=lambda: results.append(attach(connect(), volume, two.a, 60)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert all(result == results[0] for result in results)
    assert rig.holders(volume) == [two.a]


def test_nothing_is_attached_once_the_lease_is_lost(connect, rig, two, volume):
    class Ending:
        """Lets the reads through that come before the request."""

        request_id = None

        def permit(self, method: str) -> float:
            if method == "POST":
                raise LeaseLost("The lease has ended.")
            return 60.0

    with pytest.raises(LeaseLost):
        attach(connect(guard=Ending()), volume, two.a, 60)
    assert rig.volume_status(volume) == "available"


@pytest.mark.parametrize("verb", [attach, detach])
def test_what_does_not_exist_for_a_project_is_reported(connect, cloud, demo, two, volume, verb):
    for action in (
        lambda: verb(cloud, UNKNOWN_ID, two.a, 10),
        lambda: verb(connect("other"), volume, two.a, 10),
    ):
        with pytest.raises(CloudError) as raised:
            action()
        assert raised.value.code == "NOT_FOUND"
    if verb is attach:
        with pytest.raises(CloudError) as raised:
            attach(cloud, volume, UNKNOWN_ID, 10)
        assert raised.value.code == "TARGET_DOWN", "another server may take its place"
    else:
        detach(cloud, volume, UNKNOWN_ID, 10)
    missing = f"Volume {UNKNOWN_ID} could not be found."
    assert refusal(demo.attach(two.a, UNKNOWN_ID)) == (404, missing)
    assert refusal(demo.detach(two.a, UNKNOWN_ID)) == (404, missing)
    assert refusal(demo.cinder("GET", f"/volumes/{UNKNOWN_ID}")) == (404, missing)
    elsewhere = f"Instance {two.a} is not attached to volume {volume}"
    assert refusal(demo.detach(two.a, volume)) == (404, elsewhere)
    for wanted in (volume, UNKNOWN_ID):
        path = f"/servers/{two.a}/os-volume_attachments/{wanted}"
        words = f"Instance {two.a} is not attached to volume {wanted}"
        assert refusal(demo.nova("GET", path)) == (404, words)
    assert refusal(demo.attach(two.a, "data"))[0] == 400


def test_the_volumes_of_a_deleted_server_are_free(rig, cloud, demo, two, server, volume):
    rig.attach(server, volume)
    rig.remove_servers([server])
    detach(cloud, volume, server, 60)
    assert rig.volume_status(volume) == "available"
    assert attach(cloud, volume, two.a, 60)["server_id"] == two.a


def test_a_server_that_is_off_gives_a_volume(rig, cloud, demo, server, volume):
    assert demo.act(server, os_stop=None).status_code == 202
    rig.until(lambda: rig.state(server) == ("SHUTOFF", None))
    rig.attach(server, volume)
    detach(cloud, volume, server, 60)
    assert rig.holders(volume) == []


def test_a_server_in_error_gives_nothing_away(rig, cloud, demo, admin, two, volume):
    rig.attach(two.a, volume)
    assert admin.act(two.a, os_resetState={"state": "error"}).status_code == 202
    try:
        words = f"Cannot 'detach_volume' instance {two.a} while it is in vm_state error"
        assert refusal(demo.detach(two.a, volume)) == (409, words)
        with pytest.raises(CloudError) as raised:
            detach(cloud, volume, two.a, rig.seconds(10))
        assert raised.value.code == "SERVER_IN_ERROR"
        assert rig.holders(volume) == [two.a]
    finally:
        assert admin.act(two.a, os_resetState={"state": "active"}).status_code == 202
    assert rig.state(two.a) == ("ACTIVE", None), "the other tests find it as it was"


def test_nova_hands_on_why_cinder_does_not_give_a_volume(demo, admin, rig, two, volume):
    taken = "status must be available or downloading to reserve, but the current status"
    compute = nova_of(rig.connect())
    for status, words in (
        ("reserved", taken),
        ("attaching", taken),
        ("detaching", taken),
        ("maintenance", "status must be available or downloading to reserve"),
        ("error", "can not be created if the volume is in an error state"),
    ):
        assert demo.reset_volume(volume, status).status_code == 403, status
        assert admin.reset_volume(volume, status).status_code == 202, status
        code, said = refusal(demo.attach(two.a, volume))
        assert code == 400, (status, said)
        assert said.startswith("Invalid input received: Invalid volume: "), (status, said)
        assert words in said, (status, said)
        assert status in said, (status, said)
        assert "(HTTP 400) (Request-ID: req-" in said, (status, said)
        with pytest.raises(CloudError) as raised:
            compute.create_volume_attachment(two.a, volume_id=volume)
        expected = "BAD_REQUEST" if status == "error" else "VOLUME_IN_USE"
        assert raised.value.code == expected, status
        assert admin.reset_volume(volume, "available").status_code == 202, status


def test_nova_detaches_only_what_cinder_calls_in_use(rig, demo, admin, two, volume):
    rig.attach(two.a, volume)
    taken = f"Invalid volume: volume {volume} is already attached to instances: {two.a}"
    for status in ("available", "reserved", "attaching", "detaching", "error"):
        assert admin.reset_volume(volume, status).status_code == 202, status
        assert rig.holders(volume) == [two.a], status
        code, said = refusal(demo.detach(two.a, volume))
        assert code == 400, (status, said)
        assert said.startswith(
            f"Invalid volume: Invalid input received: Invalid volume: {NOT_ATTACHED}"
        ), (status, said)
        assert refusal(demo.attach(two.b, volume)) == (400, taken), status
        assert admin.reset_volume(volume, "in-use").status_code == 202, status


def test_only_nova_ends_an_attachment_of_a_server(rig, demo, admin, two, volume):
    rig.attach(two.a, volume)
    (row,) = demo.cinder("GET", f"/attachments?volume_id={volume}").json()["attachments"]
    held = {"instance": two.a, "volume_id": volume, "status": "attached", "id": row["id"]}
    assert row == held
    words = (
        f"ConflictNovaUsingAttachment: Detach volume from instance {two.a} using the Compute API"
    )
    for api in (demo, admin):
        assert refusal(api.cinder("DELETE", f"/attachments/{row['id']}")) == (409, words)
        action = {"os-detach": {"attachment_id": row["id"]}}
        assert refusal(api.cinder("POST", f"/volumes/{volume}/action", action)) == (409, words)
    action = {"os-force_detach": {"attachment_id": row["id"]}}
    path = f"/volumes/{volume}/action"
    assert refusal(admin.cinder("POST", path, action)) == (409, words)
    assert demo.cinder("POST", path, action).status_code == 403
    code, said = refusal(demo.cinder("DELETE", f"/volumes/{volume}"))
    assert (code, "status must be available or error" in said) == (400, True)
    assert demo.cinder("GET", f"/attachments/{UNKNOWN_ID}").status_code == 404
    with pytest.raises(CloudError) as raised, translated("end it"):
        # Asked with the token of a trust Cinder fails with a 500: it scopes it anew to ask Nova.
        rig.connect(trust=False).volumes.attachments.delete(row["id"])
    assert raised.value.code == "VOLUME_IN_USE"


def test_an_attachment_that_connects_nothing_is_its_project_s_to_complete_and_to_delete(
    rig, cloud, demo, two, volume
):
    """Also with a trust's token: Cinder asks Nova only of what a host was connected to."""
    made = cloud.volumes.attachments.create(volume, None, two.a)["id"]
    assert rig.volume_status(volume) == "reserved"
    cloud.volumes.attachments.complete(made)
    shown = demo.volume(volume)
    (held,) = shown["attachments"]
    assert (shown["status"], held["server_id"], held["device"] or "") == ("in-use", two.a, "")
    elsewhere = f"Instance {two.a} is not attached to volume {volume}"
    assert refusal(demo.detach(two.a, volume)) == (404, elsewhere)
    cloud.volumes.attachments.delete(made)
    assert rig.volume_status(volume) == "available"


def test_a_multiattach_volume_is_held_by_two_and_let_go_by_one(rig, cloud, demo, two):
    volume = rig.make_volume(volume_type="multiattach")
    try:
        assert demo.volume(volume)["multiattach"] is True
        for server in (two.a, two.b):
            assert attach(cloud, volume, server, 60)["server_id"] == server
        assert sorted(rig.holders(volume)) == sorted((two.a, two.b))
        words = f"Invalid volume: volume {volume} already attached"
        assert refusal(demo.attach(two.a, volume)) == (400, words)
        detach(cloud, volume, two.a, 60)
        assert rig.holders(volume) == [two.b]
        assert rig.volume_status(volume) == "in-use"
        detach(cloud, volume, two.b, 60)
        assert rig.volume_status(volume) == "available"
    finally:
        rig.remove_volume(volume)


def test_the_disk_that_a_server_boots_from_stays(rig, cloud, demo, two):
    volume, plain = rig.make_volume(bootable=True), rig.make_volume()
    server = rig.boot(root=volume)
    try:
        rig.active(server)
        shown = demo.volume(volume)
        assert (shown["status"], shown["bootable"]) == ("in-use", "true")
        assert shown["attachments"][0]["device"] in ("/dev/vda", "/dev/sda")
        assert demo.server(server)["image"] == ""
        words = "Cannot detach a root device volume"
        assert refusal(demo.detach(server, volume)) == (400, words)
        for verb, where in ((detach, server), (attach, server), (attach, two.a)):
            with pytest.raises(CloudError) as raised:
                verb(cloud, volume, where, 60)
            assert (raised.value.code, raised.value.blocked) == ("VOLUME_IS_ROOT", False)
        assert rig.holders(volume) == [server]
        mapping = {"boot_index": 0, "uuid": plain, "source_type": "volume"}
        asked = {
            "name": rig.name(),
            "flavorRef": rig.flavor_id,
            "networks": "none",
            "block_device_mapping_v2": [{**mapping, "destination_type": "volume"}],
        }
        words = f"Block Device {plain} is not bootable."
        assert refusal(demo.nova("POST", "/servers", {"server": asked})) == (400, words)
    finally:
        rig.remove_servers([server])
        rig.remove_volume(volume)
        rig.remove_volume(plain)


def test_a_volume_is_found_by_its_name_in_the_stack_or_by_its_id(
    rig: Rig, cloud: Any, pair: Made, volume: str
) -> None:
    assert resolve_volume(cloud, pair.name, "data") == pair.ids["data"]
    assert resolve_volume(cloud, pair.name, pair.ids["data"]) == pair.ids["data"]
    assert resolve_volume(cloud, pair.name, volume) == volume
    for name in ("nothing", UNKNOWN_ID):
        with pytest.raises(CloudError) as raised:
            resolve_volume(cloud, pair.name, name)
        assert raised.value.code == "NOT_FOUND"
    with pytest.raises(CloudError) as raised:
        resolve_volume(cloud, pair.name, "db_a")
    assert raised.value.code == "BAD_REQUEST"
    assert "is not a volume" in raised.value.message
    assert VOLUME not in raised.value.message


def test_an_administrator_finds_no_volume_of_another_project(
    rig: Rig, pair: Made, volume: str
) -> None:
    body = {"volume": {"size": 1, "name": rig.name()}}
    foreign = rig.api("other").cinder("POST", "/volumes", body).json()["volume"]["id"]
    administrator = rig.within_demo("admin")
    assert resolve_volume(administrator, pair.name, volume) == volume
    with pytest.raises(CloudError) as raised:
        resolve_volume(administrator, pair.name, foreign)
    assert raised.value.code == "FORBIDDEN"
    rig.until(
        lambda: rig.api("other").cinder("DELETE", f"/volumes/{foreign}").status_code in (202, 404)
    )


def extend(api: Any, volume: str, size: int) -> requests.Response:
    """The answer to a request for another size, in GiB."""
    return api.cinder("POST", f"/volumes/{volume}/action", {"os-extend": {"new_size": size}})


@pytest.mark.parametrize("status", ["available", "in-use"])
def test_a_volume_grows_where_it_is(demo, rig, two, volume, status):
    if status == "in-use":
        rig.attach(two.a, volume)

    assert extend(demo, volume, 2).status_code == 202

    rig.until(lambda: (demo.volume(volume)["size"], rig.volume_status(volume)) == (2, status))
    assert rig.holders(volume) == ([two.a] if status == "in-use" else [])


def test_cinder_refuses_what_is_no_growth_and_what_is_in_trouble(demo, admin, other, volume):
    words = (
        "Invalid input received: New size for extend must be greater than current size. "
        "(current: 1, extended: 1)."
    )
    assert refusal(extend(demo, volume, 1)) == (400, words)
    assert extend(other, volume, 2).status_code == 404
    admin.reset_volume(volume, "error")
    words = (
        f"Invalid volume: Volume {volume} status must be '{{'status': 'available'}}' to extend, "
        "currently error."
    )
    assert refusal(extend(demo, volume, 2)) == (400, words)
    admin.reset_volume(volume, "available")
    assert demo.volume(volume)["size"] == 1
