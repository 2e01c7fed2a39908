# SPDX-License-Identifier: Apache-2.0
"""The states of a server in which a failover cannot use it: what Nova refuses in each, what the
adapters say of it, and that the command that they name ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from contract.api import Api
from contract.rig import Rig
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.server_states import PLUGS
from mistral_failover.cloud.servers import delete_server, server_state, stop
from mistral_failover.cloud.volume_holders import volume_fingerprint
from mistral_failover.cloud.volumes import Release, attach, detach

OFF = Release(off="a person confirmed it", fenced=True)


@dataclass(frozen=True)
class State:
    """``begin``, ``end``: the actions that begin and end it; ``verb``: what ends it, as the
    command line has it; ``by``: who may begin it."""

    status: str
    begin: dict[str, Any]
    end: dict[str, Any]
    verb: str
    by: str = "demo"


STATES = {
    "locked": State("ACTIVE", {"lock": None}, {"unlock": None}, "unlock"),
    "off": State("SHUTOFF", {"os_stop": None}, {"os_start": None}, "start"),
    "paused": State("PAUSED", {"pause": None}, {"unpause": None}, "unpause"),
    "suspended": State("SUSPENDED", {"suspend": None}, {"resume": None}, "resume"),
    "rescued": State("RESCUE", {"rescue": None}, {"unrescue": None}, "unrescue"),
    "migrated": State(
        "VERIFY_RESIZE", {"migrate": None}, {"confirmResize": None}, "resize confirm", by="admin"
    ),
    "shelved": State("SHELVED_OFFLOADED", {"shelve": None}, {"unshelve": None}, "unshelve"),
}
MAY_RUN = ("locked", "migrated")


@pytest.fixture
def enter(rig: Rig, server: str) -> Iterator[Callable[[State], None]]:
    """Brings the server into a state, and ends a lock afterwards: it is to be deleted."""

    def begin(state: State) -> None:
        answer = rig.api(state.by).act(server, **state.begin)
        assert answer.ok, answer.text
        rig.until(lambda: rig.state(server) == (state.status, None))

    yield begin
    rig.api("admin").act(server, unlock=None)


def leave(rig: Rig, server: str, state: State) -> None:
    answer = rig.api().act(server, **state.end)
    assert answer.ok, answer.text
    rig.until(lambda: rig.state(server) == ("ACTIVE", None))


def refused(action: Callable[..., Any], *given: Any) -> CloudError:
    with pytest.raises(CloudError) as raised:
        action(*given)
    return raised.value


@pytest.mark.parametrize("name", STATES)
def test_a_server_in_the_state_says_so_and_what_ends_it(
    rig: Rig, cloud: Cloud, server: str, enter: Callable[[State], None], name: str
) -> None:
    state = STATES[name]
    enter(state)

    seen = server_state(cloud, server)

    assert seen.locked == (name == "locked")
    said = seen.hindered if name in MAY_RUN else seen.unfit
    assert f"openstack server {state.verb} {server}" in str(said)
    assert (seen.unfit is None) == (name in MAY_RUN)
    leave(rig, server, state)
    after = server_state(cloud, server)
    assert (after.unfit, after.hindered) == (None, None)


@pytest.mark.parametrize("name", STATES)
def test_no_volume_is_given_to_it_until_the_state_has_ended(
    rig: Rig,
    cloud: Cloud,
    demo: Api,
    server: str,
    volume: str,
    enter: Callable[[State], None],
    name: str,
) -> None:
    state = STATES[name]
    enter(state)
    accepted = name != "locked" and state.status in PLUGS
    if not accepted:
        answer = demo.attach(server, volume)
        assert answer.status_code == 409, answer.text
    if name != "migrated":
        error = refused(attach, cloud, volume, server, rig.seconds(20))

        assert (error.code, error.transient, error.unknown) == ("TARGET_DOWN", True, False)
        assert f"openstack server {state.verb} {server}" in error.remedy
        assert rig.holders(volume) == []
        leave(rig, server, state)
    assert attach(cloud, volume, server, 60)["server_id"] == server


@pytest.mark.parametrize("name", STATES)
def test_a_volume_leaves_it_as_soon_as_nova_allows_it(
    rig: Rig,
    cloud: Cloud,
    demo: Api,
    server: str,
    volume: str,
    enter: Callable[[State], None],
    name: str,
) -> None:
    state = STATES[name]
    rig.attach(server, volume)
    enter(state)
    if name == "locked" or state.status not in PLUGS:
        answer = demo.detach(server, volume)
        assert answer.status_code == 409, answer.text
        error = refused(detach, cloud, volume, server, rig.seconds(20), OFF)

        assert (error.code, error.blocked) == ("SERVER_BUSY", True)
        assert f"openstack server {state.verb} {server}" in error.remedy
        assert rig.holders(volume) == [server]
        leave(rig, server, state)
        assert volume_fingerprint(cloud, volume, server) != (error.about or {})["sight"]
    elif name in ("paused", "shelved"):
        leave(rig, server, state)  # whether a guest that does not run takes part: its driver's say
    detach(cloud, volume, server, 60, OFF)
    assert rig.holders(volume) == []


@pytest.mark.parametrize("rung", [stop, delete_server])
def test_a_locked_server_is_fenced_once_it_is_unlocked(
    rig: Rig, cloud: Cloud, server: str, enter: Callable[[State], None], rung: Callable[..., Any]
) -> None:
    enter(STATES["locked"])

    unproven = rung(cloud, server, rig.seconds(20))

    assert not unproven.proven
    assert f"openstack server unlock {server}" in unproven.observed
    assert rig.state(server) == ("ACTIVE", None)
    rig.api().act(server, unlock=None)
    assert rung(cloud, server, 60).proven


@pytest.mark.parametrize("name", ["paused", "suspended", "rescued"])
def test_a_server_that_nova_does_not_stop_is_not_proven_off(
    rig: Rig, cloud: Cloud, server: str, enter: Callable[[State], None], name: str
) -> None:
    enter(STATES[name])

    unproven = stop(cloud, server, rig.seconds(20))

    assert not unproven.proven
    assert f"openstack server {STATES[name].verb} {server}" in unproven.observed


def test_an_administrator_s_request_minds_no_lock(
    rig: Rig, admin: Api, server: str, volume: str, enter: Callable[[State], None]
) -> None:
    enter(STATES["locked"])

    assert admin.attach(server, volume).status_code == 200
    rig.until(lambda: rig.volume_status(volume) == "in-use")
    assert admin.detach(server, volume).status_code == 202
    rig.until(lambda: rig.volume_status(volume) == "available")
