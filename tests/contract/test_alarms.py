# SPDX-License-Identifier: Apache-2.0
"""An alarm of Aodh is pointed to one server after the other, and stays what it was besides.

Measured:

Aodh 23

- A change takes the alarm as a whole: what it lacks gets its default, also the actions.
- An action by a trust is shown without the trust. A change with what was shown keeps the trust,
  so the token of a trust is enough for it. A URL with a trust's id: 400.
- A threshold is checked with Gnocchi at each change.
- Another project's alarm: 404 "not found". Several alarms may have one name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract.api import Api
from contract.rig import UNKNOWN_ID, Rig
from mistral_failover.cloud import event_alarms
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.project_listing import ProjectListing
from mistral_failover.cloud.transport import LeaseLost, Unguarded

FIRST, SECOND = "5e5b7e52-6f0d-4c1f-8f57-2d7a1c3e9b01", "5e5b7e52-6f0d-4c1f-8f57-2d7a1c3e9b02"
CHANGING = {"event_rule", "timestamp"}
"""What a move changes."""


def condition(field: str, value: str) -> dict[str, str]:
    """A condition of an event alarm."""
    return {"field": f"traits.{field}", "op": "eq", "type": "string", "value": value}


class Alarms:
    """The alarms of a test."""

    def __init__(self, rig: Rig, user: str = "demo") -> None:
        self._rig, self._made = rig, list[str]()
        self.demo: Api = rig.api(user)

    def make(self, server: str | None = FIRST, name: str | None = None, **more: Any) -> str:
        """Create an alarm that signals the stack ``shop`` by a trust; its id."""
        state = condition("state", "error")
        query = [state] if server is None else [state, condition("instance_id", server)]
        signal = "heat.example.org/v1/p/stacks/shop/4711/resources/on_lost/signal"
        body = {
            "name": name or self._rig.name(),
            "type": "event",
            "severity": "critical",
            "repeat_actions": True,
            "alarm_actions": [f"trust+http://{signal}", f"trust+https://{signal}"],
            "ok_actions": ["http://example.org/ok"],
            "event_rule": {"event_type": "compute.instance.update", "query": query},
        }
        answer = self.demo.aodh("POST", "/alarms", body | more)
        assert answer.status_code == 201, answer.text
        self._made.append(str(answer.json()["alarm_id"]))
        return self._made[-1]

    def shown(self, alarm: str) -> dict[str, Any]:
        """An alarm as Aodh shows it."""
        answer = self.demo.aodh("GET", f"/alarms/{alarm}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def change(self, alarm: str, **values: Any) -> None:
        """Change an alarm by hand."""
        answer = self.demo.aodh("PUT", f"/alarms/{alarm}", self.shown(alarm) | values)
        assert answer.status_code == 200, answer.text

    def remove(self) -> None:
        """Delete them."""
        for alarm in self._made:
            self.demo.aodh("DELETE", f"/alarms/{alarm}")


@pytest.fixture
def alarms(rig: Rig) -> Iterator[Alarms]:
    """Makes alarms."""
    made = Alarms(rig)
    yield made
    made.remove()


def trusts(rig: Rig, user: str) -> set[str]:
    """The trusts that a user has given."""
    path = f"/OS-TRUST/trusts?trustor_user_id={rig.user_id(user)}"
    answer = rig.keystone("GET", path, rig.token(user))
    assert answer.status_code == 200, answer.text
    return {row["id"] for row in answer.json()["trusts"]}


@pytest.fixture
def newcomer(rig: Rig) -> Iterator[str]:
    """A user whose trusts no other test makes."""
    with rig.newcomer() as name:
        yield name


def test_an_alarm_is_pointed_elsewhere_and_nothing_else_of_it_changes(
    rig: Rig, newcomer: str
) -> None:
    """Also with the token of a trust, which can make none: the alarm keeps the trust that it has,
    though Aodh shows its actions without it."""
    cloud, alarms = rig.connect(newcomer), Alarms(rig, newcomer)
    alarm = alarms.make()
    before, given = alarms.shown(alarm), trusts(rig, newcomer)
    assert all(action.startswith("trust+http") for action in before["alarm_actions"])
    assert not any("@" in action for action in before["alarm_actions"])

    found = event_alarms.watch(cloud, alarm, SECOND, 30)

    assert (found.id, found.servers, found.enabled) == (alarm, {SECOND}, True)
    after = alarms.shown(alarm)
    assert {key for key in before if before[key] != after[key]} <= CHANGING
    assert after["event_rule"] == {
        "event_type": "compute.instance.update",
        "query": [condition("state", "error"), condition("instance_id", SECOND)],
    }
    assert trusts(rig, newcomer) == given

    assert event_alarms.watch(cloud, alarm, SECOND, 30) == found
    assert alarms.shown(alarm) == after, "nothing was sent"
    alarms.remove()


def test_without_the_lease_nothing_is_changed(
    connect: Callable[..., Cloud], alarms: Alarms
) -> None:
    """The lease is looked at right before the change."""

    class Lost(Unguarded):
        def permit(self, method: str) -> float:
            if method == "PUT":
                raise LeaseLost("another worker has it")
            return super().permit(method)

    alarm = alarms.make()
    before = alarms.shown(alarm)

    error = refused(lambda: event_alarms.watch(connect(guard=Lost()), alarm, SECOND, 30))

    assert error.code == "LEASE_LOST"
    assert alarms.shown(alarm) == before


def test_what_fired_for_the_former_server_can_fire_for_the_new_one(
    cloud: Cloud, alarms: Alarms
) -> None:
    fired, well = alarms.make(), alarms.make()
    alarms.change(fired, state="alarm")
    alarms.change(well, state="ok")
    for alarm in (fired, well):
        event_alarms.watch(cloud, alarm, SECOND, 30)

    assert alarms.shown(fired)["state"] == "insufficient data"
    assert alarms.shown(well)["state"] == "ok"


def test_an_alarm_that_names_no_server_is_left_alone(cloud: Cloud, alarms: Alarms) -> None:
    alarm = alarms.make(None)
    before = alarms.shown(alarm)

    found = event_alarms.watch(cloud, alarm, SECOND, 30)

    assert found.watches(SECOND)
    assert alarms.shown(alarm) == before


@pytest.mark.only_on("emulated", reason="Aodh asks Gnocchi, which is not there")
def test_a_threshold_of_an_instance_is_pointed_elsewhere(cloud: Cloud, alarms: Alarms) -> None:
    kind = "gnocchi_resources_threshold"
    rule = {
        "metric": "cpu",
        "aggregation_method": "rate:mean",
        "threshold": 1.0,
        "resource_type": "instance",
        "resource_id": FIRST,
    }
    alarm = alarms.make(type=kind, **{f"{kind}_rule": rule, "event_rule": None})

    assert event_alarms.watch(cloud, alarm, SECOND, 30).servers == {SECOND}

    assert alarms.shown(alarm)[f"{kind}_rule"] == {**rule, "resource_id": SECOND}


def test_an_alarm_is_found_by_the_name_that_only_it_has(
    rig: Rig, cloud: Cloud, alarms: Alarms
) -> None:
    name = rig.name()
    alarm = alarms.make(name=name)

    assert event_alarms.alarm(cloud, name) == event_alarms.alarm(cloud, alarm)
    assert refused(lambda: event_alarms.alarm(cloud, name[:-1])).code == "NOT_FOUND"
    alarms.make(name=name)
    error = refused(lambda: event_alarms.watch(cloud, name, SECOND, 30))
    assert (error.code, "2 alarms" in error.message) == ("BAD_REQUEST", True)
    assert event_alarms.alarm(cloud, alarm).servers == {FIRST}


def test_the_alarm_of_another_project_does_not_exist(
    rig: Rig, connect: Callable[..., Cloud], alarms: Alarms
) -> None:
    name = rig.name()
    alarm = alarms.make(name=name)
    foreign = connect("other", trust=False)
    for named in (alarm, name, UNKNOWN_ID):
        error = refused(lambda named=named: event_alarms.watch(foreign, named, SECOND, 30))
        assert error.code == "NOT_FOUND"
        assert named in error.message
    assert event_alarms.alarm(connect(), alarm).servers == {FIRST}


def test_an_administrator_is_given_no_alarm_of_another_project(
    rig: Rig, connect: Callable[..., Cloud], alarms: Alarms
) -> None:
    name = rig.name()
    alarm = alarms.make(name=name)
    others = Alarms(rig, "other")
    foreign = others.make(name=name)
    administrator = rig.within_demo("admin")

    assert event_alarms.watch(administrator, name, SECOND, 30).id == alarm
    error = refused(lambda: event_alarms.watch(administrator, foreign, SECOND, 30))
    listed = {each.id for each in event_alarms.watching_alarms(administrator)}

    assert error.code == "FORBIDDEN"
    assert alarm in listed
    assert foreign not in listed
    assert event_alarms.alarm(connect("other", trust=False), name).servers == {FIRST}
    others.remove()


def refused(call: Callable[[], Any]) -> CloudError:
    """The error that a call ends with."""
    with pytest.raises(CloudError) as caught:
        call()
    return caught.value


def test_aodh_takes_an_alarm_as_a_whole(demo: Api, alarms: Alarms) -> None:
    """What a change lacks is reset, and what is shown of an action by a trust is what it takes."""
    alarm = alarms.make()
    shown = alarms.shown(alarm)
    part = {key: shown[key] for key in ("name", "type", "event_rule")}
    assert demo.aodh("PUT", f"/alarms/{alarm}", part).status_code == 200
    now = alarms.shown(alarm)
    reset = ("severity", "repeat_actions", "alarm_actions", "ok_actions")
    assert [now[key] for key in reset] == ["low", False, [], []]

    mandatory = "Invalid input for field/attribute {}. Value: 'None'. Mandatory field missing."
    with_trust = {**shown, "alarm_actions": ["trust+http://4711:delete@heat.example.org/"]}
    for body, words in (
        (without(shown, "name"), mandatory.format("name")),
        (without(shown, "type"), mandatory.format("type")),
        (without(shown, "event_rule"), "event_rule must be set for event type alarm"),
        (with_trust, "trust URL cannot contain a trust ID."),
        ({**shown, "colour": "red"}, "Unknown attribute for argument data: colour"),
    ):
        answer = demo.aodh("PUT", f"/alarms/{alarm}", body)
        assert answer.status_code == 400
        assert answer.json()["error_message"]["faultstring"] == words


def without(row: dict[str, Any], key: str) -> dict[str, Any]:
    """A row without a key."""
    return {name: value for name, value in row.items() if name != key}


def test_a_listing_has_disabled_alarms_too_but_they_signal_nothing(
    rig: Rig, cloud: Cloud, alarms: Alarms
) -> None:
    name = rig.name()
    alarm, disabled = alarms.make(), alarms.make(name=name, enabled=False)
    listing = ProjectListing(cloud)

    signalling = {each.id for each in listing.alarms("shop")}
    assert signalling & {alarm, disabled} == {alarm}
    found = listing.alarm(name)
    assert found == listing.alarm(disabled)
    assert (found and found.enabled) is False
    assert listing.alarm(UNKNOWN_ID) is None
