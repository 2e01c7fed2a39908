# SPDX-License-Identifier: Apache-2.0
"""Volumes that neither come free nor arrive: what is repaired, what is refused, and that the
command that is asked of an operator helps."""

from __future__ import annotations

from typing import Any

import pytest

from contract.api import Api
from contract.conftest import Two, made_brisk
from contract.rig import UNKNOWN_ID, Rig
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.volume_holders import holders_of, volume_fingerprint
from mistral_failover.cloud.volume_states import STATES, TAKEN
from mistral_failover.cloud.volumes import Release, attach, detach

OFF = Release(off="a person confirmed it", fenced=True)


def refused(action: Any, *given: Any) -> CloudError:
    with pytest.raises(CloudError) as raised:
        action(*given)
    return raised.value


def blocked(action: Any, *given: Any) -> CloudError:
    """The error of what waits for a person; it says what a look has to find changed."""
    error = refused(action, *given)
    assert error.blocked, error
    assert error.about is not None
    cloud, volume, server = given[:3]
    assert error.about == {
        "volume": volume,
        "server": server,
        "sight": volume_fingerprint(cloud, volume, server),
    }
    return error


def limit(rig: Rig) -> float:
    """Seconds that are enough for everything that ends by itself."""
    return max(2.0, rig.seconds(60))


@pytest.fixture(scope="module")
def cloud(brisk: Cloud) -> Cloud:
    """Nothing moves in most of these tests, and they wait until that is looked into."""
    return brisk


@pytest.fixture
def held(rig: Rig, two: Two, volume: str) -> str:
    """A volume that `two.a` has."""
    rig.attach(two.a, volume)
    return volume


@pytest.fixture
def own(rig: Rig) -> Cloud:
    """The adapters with demo's own token."""
    return made_brisk(rig.connect(trust=False))


BUSY = sorted(set(STATES) - TAKEN - {"reverting", "deleting", "managing", "error_managing"})
"""The states that an administrator may give a volume, in which Nova moves nothing. (Cinder shows
the last two as creating and error.)"""


# -- what no server has


@pytest.mark.parametrize("whose", ["other", "own", "unknown"])
def test_a_reservation_that_nova_does_not_know_is_given_back(
    rig: Rig, cloud: Cloud, demo: Api, two: Two, volume: str, whose: str
) -> None:
    server = {"other": two.b, "own": two.a, "unknown": UNKNOWN_ID}[whose]
    orphan = demo.claim(volume, server, connected=False)

    attach(cloud, volume, two.a, limit(rig))

    assert rig.holders(volume) == [two.a]
    assert orphan not in [each.id for each in holders_of(cloud, volume)] or whose == "own"
    detach(cloud, volume, two.a, limit(rig))
    assert attach(cloud, volume, two.b, limit(rig))["server_id"] == two.b


def test_an_attachment_of_an_unknown_server_waits_for_an_operator(
    rig: Rig, cloud: Cloud, demo: Api, two: Two, volume: str
) -> None:
    orphan = demo.claim(volume, UNKNOWN_ID, connected=True)

    error = blocked(attach, cloud, volume, two.a, limit(rig))

    assert error.code == "VOLUME_DISPUTED"
    assert "gone from Nova" in error.message
    assert f"volume attachment delete {orphan}" in error.remedy
    assert [each.id for each in holders_of(cloud, volume)] == [orphan]
    assert demo.cinder("DELETE", f"/attachments/{orphan}").ok
    assert volume_fingerprint(cloud, volume, two.a) != (error.about or {})["sight"]
    assert attach(cloud, volume, two.a, limit(rig))["server_id"] == two.a


def test_an_attachment_of_a_server_that_runs_is_given_back_when_it_is_seen_off(
    rig: Rig, own: Cloud, demo: Api, two: Two, server: str, volume: str
) -> None:
    demo.claim(volume, server, connected=True)

    error = blocked(attach, own, volume, two.a, limit(rig))

    assert error.code == "VOLUME_DISPUTED"
    assert f"openstack server stop {server}" in error.remedy
    demo.act(server, os_stop=None)
    rig.until(lambda: rig.state(server) == ("SHUTOFF", None))
    assert attach(own, volume, two.a, limit(rig))["server_id"] == two.a


def test_what_cinder_alone_calls_attached_to_the_right_server_is_attached_anew(
    rig: Rig, own: Cloud, demo: Api, two: Two, volume: str
) -> None:
    orphan = demo.claim(volume, two.a, connected=True)

    made = attach(own, volume, two.a, limit(rig))

    assert made["attachment_id"] not in ("", orphan)
    listed = demo.nova("GET", f"/servers/{two.a}/os-volume_attachments/{volume}")
    assert listed.status_code == 200


def test_what_a_lost_server_has_left_in_cinder_goes_with_the_proof_alone(
    rig: Rig, own: Cloud, demo: Api, volume: str
) -> None:
    orphan = demo.claim(volume, UNKNOWN_ID, connected=True)

    error = blocked(detach, own, volume, UNKNOWN_ID, limit(rig))

    assert error.code == "VOLUME_DISPUTED"
    assert orphan in error.remedy
    detach(own, volume, UNKNOWN_ID, limit(rig), OFF)
    assert holders_of(own, volume) == []
    assert rig.volume_status(volume) == "available"


def test_a_trust_s_token_is_none_that_cinder_can_ask_nova_with(
    rig: Rig, cloud: Cloud, demo: Api, two: Two, volume: str
) -> None:
    orphan = demo.claim(volume, UNKNOWN_ID, connected=True)

    error = blocked(detach, cloud, volume, UNKNOWN_ID, limit(rig), OFF)

    assert error.code == "VOLUME_DISPUTED"
    assert "With a token of your own" in error.remedy
    assert f"volume attachment delete {orphan}" in error.remedy
    assert demo.cinder("DELETE", f"/attachments/{orphan}").ok
    detach(cloud, volume, UNKNOWN_ID, limit(rig), OFF)


# -- what Nova has, and Cinder does not


def test_what_nova_lists_is_not_free_whatever_cinder_says(
    rig: Rig, cloud: Cloud, admin: Api, demo: Api, two: Two, server: str, volume: str
) -> None:
    rig.attach(server, volume)
    admin.reset_volume(volume, "available", attach_status="detached")

    leaving = blocked(detach, cloud, volume, server, limit(rig), OFF)
    coming = blocked(attach, cloud, volume, two.a, limit(rig))

    for error in (leaving, coming):
        assert error.code == "VOLUME_DISPUTED"
        assert f"nova-manage volume_attachment refresh {server} {volume}" in error.remedy
        assert f"openstack server delete {server}" in error.remedy
    assert rig.holders(volume) == []
    rig.remove_servers([server])
    detach(cloud, volume, server, limit(rig), OFF)
    assert attach(cloud, volume, two.a, limit(rig))["server_id"] == two.a


# -- what was called something by force


def test_a_volume_that_is_called_free_and_is_not_stays_where_it_is(
    rig: Rig, cloud: Cloud, admin: Api, two: Two, held: str
) -> None:
    admin.reset_volume(held, "available")

    leaving = blocked(detach, cloud, held, two.a, limit(rig))
    coming = blocked(attach, cloud, held, two.b, limit(rig))

    assert {leaving.code, coming.code} == {"VOLUME_DISPUTED"}
    assert f"openstack volume set --state in-use {held}" in leaving.remedy
    assert coming.remedy == leaving.remedy
    assert rig.holders(held) == [two.a]
    admin.reset_volume(held, "in-use")
    detach(cloud, held, two.a, limit(rig))
    assert rig.holders(held) == []


def test_a_volume_in_error_waits_for_an_administrator(
    rig: Rig, cloud: Cloud, admin: Api, two: Two, volume: str
) -> None:
    admin.reset_volume(volume, "error")

    coming = blocked(attach, cloud, volume, two.a, limit(rig))

    assert coming.code == "VOLUME_ERROR"
    assert f"openstack volume set --state available {volume}" in coming.remedy
    admin.reset_volume(volume, "available")
    attach(cloud, volume, two.a, limit(rig))
    admin.reset_volume(volume, "error")
    leaving = blocked(detach, cloud, volume, two.a, limit(rig))
    assert leaving.code == "VOLUME_ERROR"
    assert f"openstack volume set --state in-use {volume}" in leaving.remedy
    admin.reset_volume(volume, "in-use")
    detach(cloud, volume, two.a, limit(rig))


def test_a_volume_whose_deletion_failed_is_looked_at_for_its_data(
    rig: Rig, cloud: Cloud, admin: Api, two: Two, volume: str
) -> None:
    admin.reset_volume(volume, "error_deleting")

    error = blocked(attach, cloud, volume, two.a, limit(rig))

    assert error.code == "VOLUME_ERROR"
    assert "whether its data still exists" in error.remedy


@pytest.mark.parametrize("status", ["reserved", "attaching", "detaching"])
def test_a_volume_on_its_way_to_no_server_is_stuck(
    rig: Rig, cloud: Cloud, admin: Api, two: Two, volume: str, status: str
) -> None:
    admin.reset_volume(volume, status)

    error = blocked(attach, cloud, volume, two.a, limit(rig))

    assert error.code == "VOLUME_STUCK"
    assert f"openstack volume set --state available --detached {volume}" in error.remedy
    admin.reset_volume(volume, "available", attach_status="detached")
    assert attach(cloud, volume, two.a, limit(rig))["server_id"] == two.a


def test_a_detach_on_which_no_compute_service_works_is_requested_again(
    rig: Rig, cloud: Cloud, admin: Api, two: Two, held: str
) -> None:
    admin.reset_volume(held, "detaching")

    detach(cloud, held, two.a, limit(rig))

    assert rig.holders(held) == []


# -- what Cinder is doing with it, each state with what ends it


@pytest.mark.parametrize("status", BUSY)
def test_a_volume_with_which_cinder_is_busy_is_not_attached(
    rig: Rig, cloud: Cloud, admin: Api, demo: Api, two: Two, volume: str, status: str
) -> None:
    assert admin.reset_volume(volume, status).status_code == 202

    if status != "downloading":  # Cinder reserves that one: it is waited for all the same
        asked = {"volumeAttachment": {"volumeId": volume}}
        answer = demo.nova("POST", f"/servers/{two.a}/os-volume_attachments", asked)
        assert answer.status_code == 400, answer.text
    error = blocked(attach, cloud, volume, two.a, limit(rig))

    assert error.code == ("VOLUME_ERROR" if STATES[status].broken else "VOLUME_BUSY")
    assert status in error.message
    assert STATES[status].remedy.format(volume=volume) in error.remedy
    assert ("--state available" in error.remedy) == STATES[status].broken
    assert holders_of(cloud, volume) == []
    admin.reset_volume(volume, "available")
    assert volume_fingerprint(cloud, volume, two.a) != (error.about or {})["sight"]


@pytest.mark.parametrize("status", BUSY)
def test_a_volume_with_which_cinder_is_busy_stays_attached_and_is_not_called_free(
    rig: Rig, cloud: Cloud, admin: Api, demo: Api, two: Two, held: str, status: str
) -> None:
    assert admin.reset_volume(held, status).status_code == 202

    answer = demo.nova("DELETE", f"/servers/{two.a}/os-volume_attachments/{held}")
    assert answer.status_code == 400, answer.text
    error = blocked(detach, cloud, held, two.a, limit(rig), OFF)

    assert error.code == ("VOLUME_ERROR" if STATES[status].broken else "VOLUME_BUSY")
    assert status in error.message
    assert "--state available" not in error.remedy
    assert ("--state in-use" in error.remedy) == STATES[status].broken
    assert rig.holders(held) == [two.a]
    if not STATES[status].broken:  # the guest has it, whatever Cinder does with it
        assert attach(cloud, held, two.a, limit(rig))["server_id"] == two.a
    admin.reset_volume(held, "in-use")
    detach(cloud, held, two.a, limit(rig))


# -- the disk that a server boots from
