# SPDX-License-Identifier: Apache-2.0
"""The failure of a host on the emulated cloud: every group there fails over; and the storm guard,
which ends by itself when the evidence says that servers died."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext
from oslo_config import cfg

from mistral_failover import fault_points
from mistral_failover import settings as configuration
from mistral_failover.actions import alarms, recovery
from mistral_failover.agent.channel.emulated import EmulatedChannel
from mistral_failover.agent.channel.interface import Heartbeat
from mistral_failover.agent.wire import Address
from mistral_failover.alarms import storm
from mistral_failover.groups import project_view
from mistral_failover.orders import alarm_failovers
from mistral_failover.runtime import process
from mistral_failover.runtime.process import Runtime
from mistral_failover.store.tables import incidents
from support.alarm_bodies import HOST
from support.databases import new_store
from support.operators import Operator

_numbers = itertools.count(1)
PARAMETERS = {"parameters": {"active": {"get_param": "active"}}}
ROUTING = {"routing": {"type": "stack_parameters", "properties": PARAMETERS}}
OUTSIDE = ActionContext(SecurityContext(), ExecutionContext())


@pytest.fixture
def options() -> Iterator[Callable[..., None]]:
    """Set options of [failover] for this test."""
    former: dict[str, Any] = {}

    def put(**wanted: Any) -> None:
        for name, value in wanted.items():
            former.setdefault(name, cfg.CONF[configuration.GROUP][name])
            cfg.CONF.set_override(name, value, group=configuration.GROUP)

    yield put
    for name, value in former.items():
        cfg.CONF.set_override(name, value, group=configuration.GROUP)


@pytest.fixture
def alone(state: Runtime, options: Callable[..., None], tmp_path: Path) -> None:
    """A state store of this test's own: a host's failure concerns every group of the project."""
    options(database=new_store(tmp_path / "failover.sqlite"))


@pytest.fixture
def light(alone: None, protect: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group of little work, in service."""

    def make(**more: Any) -> Any:
        group = protect(ROUTING, fence=["stop"], **more)
        group.activate()
        return group

    return make


def host_of(group: Any, member: str = "db_a") -> str:
    """The host on which a member runs."""
    return str(group.cloud.guests()[group.server(member)]["host"])


def on(host: str, group: Any) -> str:
    """The member of a group that runs on a host."""
    return next(member for member in group.members if host_of(group, member) == host)


def event(host: str) -> dict[str, Any]:
    """Masakari's notification that a host stopped, each time another one."""
    said = {"hostname": host, "notification_uuid": f"n{next(_numbers)}"}
    return {**HOST["notification"], **said, "generated_time": "2099-01-01T00:00:00"}


def control_plane_fails(group: Any) -> None:
    """Let Keystone and Nova answer 503 until the faults are cleared."""
    for operation in ("token", "token_validate", "server_list", "server_show"):
        group.cloud.api_fault(operation, status=503, times=10_000)


def age(seconds: float, *names: str) -> None:
    """Have every incident happened that much earlier, or only these times of it."""
    of = names or ("decided_at", "first_at", "last_at")
    earlier = {name: incidents.c[name] - seconds for name in of}
    process.runtime().database.atomically(
        lambda tx: tx.execute(sa.update(incidents).values(**earlier))
    )


def held(group: Any) -> list[dict[str, Any]]:
    return list(alarms.Held(group.name).run(OUTSIDE)["held"])


def sweep(group: Any) -> dict[str, Any]:
    return dict(group.run("sweep").assert_succeeded().output["swept"])


def in_zones(template: dict[str, Any]) -> dict[str, Any]:
    """Put each member into a zone of its own; the emulated cloud names them as its hosts."""
    for member, zone in (("db_a", "cmp1"), ("db_b", "cmp2")):
        own = template["resources"][member]["properties"]
        template["resources"][member] = {
            "type": "OS::Nova::Server",
            "properties": {**own, "availability_zone": zone},
        }
    return template


def test_every_group_with_a_member_on_the_host_fails_over(light: Callable[..., Any]) -> None:
    groups = [light(), light()]
    host = host_of(groups[0])
    lost = [on(host, group) for group in groups]
    body = event(host)

    run = groups[0].run("on_event", body=body).assert_succeeded()

    assert [row["decision"] for row in run.output["admissions"]] == ["ADMITTED"] * 3
    assert {row["status"] for row in run.output["outcomes"]} == {"COMPLETE"}
    for group, member in zip(groups, lost, strict=True):
        assert group.status()["lost"] == [member]
        assert member not in group.status()["roles"].values()
    again = groups[0].run("on_event", body=body).assert_succeeded()
    assert {row["decision"] for row in again.output["admissions"]} == {"DUPLICATE"}
    assert [len(group.traversals()) for group in groups] == [2, 2]


def test_while_nova_does_not_answer_the_last_observation_says_where_members_run(
    light: Callable[..., Any],
) -> None:
    group = light()
    host, member = host_of(group), on(host_of(group), group)
    assert isinstance(recovery.Observe(group.name).run(OUTSIDE), list)
    group.run("pause", group=group.name, because="a test").assert_succeeded()
    group.cloud.api_fault("server_list", status=503, times=100)

    run = group.run("on_event", body=event(host)).assert_succeeded()

    parent, child = run.output["admissions"]
    assert "Nova could not be asked" in parent["sentence"]
    assert f"reports for host {host}" in child["sentence"]
    assert held(group)[0]["lost"] == [member]


def test_groups_that_only_nova_knows_to_be_there_follow_when_it_answers_again(
    light: Callable[..., Any],
) -> None:
    seen, other = light(), light()
    host = host_of(seen)
    assert isinstance(recovery.Observe(seen.name).run(OUTSIDE), list)
    for group in (seen, other):
        group.run("pause", group=group.name, because="a test").assert_succeeded()
    seen.cloud.api_fault("server_list", status=503, times=1000)
    seen.run("on_event", body=event(host)).assert_succeeded()
    while_away = len(held(other))
    seen.cloud.clear_api_faults()

    sweep(seen)
    sweep(seen)

    assert while_away == 0
    assert [(len(held(group)), held(group)[0]["heard"]) for group in (seen, other)] == [(1, 1)] * 2


def test_a_pause_holds_its_group_and_an_operator_admits_what_the_host_s_failure_left(
    light: Callable[..., Any],
) -> None:
    groups = [light(), light(priority=3)]
    for group in groups:
        group.run("pause", group=group.name, because="a test").assert_succeeded()
    host = host_of(groups[0])
    run = groups[0].run("on_event", body=event(host)).assert_succeeded()
    parent = run.output["admissions"][0]["incident"]

    first = groups[0].run("admit_held", because="it burned", incident=parent, limit=1)
    second = groups[0].run("admit_held", because="it burned", host=host)

    assert [len(held(group)) for group in groups] == [0, 0]
    assert [row["group"] for row in first.assert_succeeded().output["admitted"]] == [groups[1].name]
    assert first.output["left"] == 1
    assert [row["group"] for row in second.assert_succeeded().output["admitted"]] == [
        groups[0].name
    ]
    assert [len(group.status()["lost"]) for group in groups] == [1, 1]


def test_every_group_with_a_member_in_a_lost_zone_fails_over(light: Callable[..., Any]) -> None:
    groups = [light(template=in_zones), light(template=in_zones)]
    body = {"zone": "cmp1", "id": "z1", "reason": "its power failed"}

    run = groups[0].run("on_event", body=body).assert_succeeded()

    assert [row["decision"] for row in run.output["admissions"]] == ["ADMITTED"] * 3
    assert {row["status"] for row in run.output["outcomes"]} == {"COMPLETE"}
    assert [group.status()["lost"] for group in groups] == [["db_a"], ["db_a"]]
    again = groups[0].run("on_event", body=body).assert_succeeded()
    assert {row["decision"] for row in again.output["admissions"]} == {"DUPLICATE"}
    assert [len(group.traversals()) for group in groups] == [2, 2]


def test_an_operator_admits_the_alarms_of_a_zone_also_about_servers_that_are_gone(
    light: Callable[..., Any],
) -> None:
    there, gone, other = light(template=in_zones), light(template=in_zones), light()
    for group in (there, gone, other):
        assert isinstance(recovery.Observe(group.name).run(OUTSIDE), list)
        group.run("pause", group=group.name, because="a test").assert_succeeded()
        group.run("on_event", body=group.fails()).assert_succeeded()
    Operator(gone.cloud).delete_server(gone.server("db_a"))
    assert isinstance(recovery.Observe(gone.name).run(OUTSIDE), list)

    run = there.run("admit_held", because="the power failed", zone="cmp1").assert_succeeded()

    assert {row["group"] for row in run.output["admitted"]} == {there.name, gone.name}
    assert (run.output["refused"], run.output["passed_over"]) == ([], [])
    assert [each.status()["lost"] for each in (there, gone, other)] == [["db_a"], ["db_a"], []]
    assert len(held(other)) == 1


def test_the_storm_guard_lets_alarms_go_at_a_limited_rate_when_the_servers_died(
    light: Callable[..., Any], options: Callable[..., None]
) -> None:
    groups = [light(), light(priority=3)]
    options(storm_groups=1, storm_share=0.0, storm_release=1)
    host = host_of(groups[0])
    groups[0].run("on_event", body=event(host)).assert_succeeded()
    assert [held(group)[0]["rule"] for group in groups] == ["storm", "storm"]

    waiting = sweep(groups[0])
    for group in groups:
        Operator(group.cloud).stop_server(group.server(on(host, group)))
    first, at_once = sweep(groups[0]), sweep(groups[0])
    age(61)
    later = sweep(groups[0])

    assert (waiting["released"], waiting["started"]) == ([], [])
    assert "the storm guard still holds" in groups[0].told("guarded")[0]
    assert [row["group"] for row in first["released"]] == [groups[1].name]
    assert [row["group"] for row in first["started"]] == [groups[1].name]
    assert "SHUTOFF" in first["released"][0]["sentence"]
    assert at_once["released"] == []
    assert [row["group"] for row in later["released"]] == [groups[0].name]
    assert [len(group.status()["lost"]) for group in groups] == [1, 1]


def test_without_a_limit_of_the_operator_the_more_are_held_the_more_are_let_go(
    light: Callable[..., Any], options: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [light() for _ in range(4)]
    options(storm_groups=1, storm_share=0.0)
    monkeypatch.setattr(storm, "LEAST", 1)
    monkeypatch.setattr(storm, "WITHIN", 120.0)
    # What is let go does not wait for those that start other alarms.
    monkeypatch.setattr(alarm_failovers, "BATCH", 1)
    host = host_of(groups[0])
    groups[0].run("on_event", body=event(host)).assert_succeeded()
    for group in groups:
        Operator(group.cloud).stop_server(group.server(on(host, group)))

    first, at_once = sweep(groups[0]), sweep(groups[0])
    age(61)
    second = sweep(groups[0])

    assert [len(swept["released"]) for swept in (first, at_once, second)] == [2, 0, 2]
    assert [len(swept["started"]) for swept in (first, at_once, second)] == [2, 0, 2]


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> dict[str, float | None]:
    """By server, the age of the agent's last heartbeat; None: the channel has none."""
    ages: dict[str, float | None] = {}
    real = EmulatedChannel.heard

    def heard(channel: EmulatedChannel, to: Address) -> Heartbeat | None:
        found = real(channel, to)
        age = ages.get(to.server_id, 0.0)
        if age is None or found is None:
            return None
        return replace(found, ago=found.ago + age)

    monkeypatch.setattr(EmulatedChannel, "heard", heard)
    return ages


def test_an_agent_stays_silent_when_the_broker_has_dropped_its_last_heartbeat(
    alone: None,
    protect: Callable[..., Any],
    options: Callable[..., None],
    beats: dict[str, float | None],
) -> None:
    """The storm lasts longer than the broker remembers."""
    group = protect(fence=["stop"])
    group.activate()
    options(storm_groups=1, storm_share=0.0)
    server = group.server("db_a")
    beats[server] = 2 * 3600.0
    recovery.Observe(group.name).run(OUTSIDE)
    beats[server] = None
    group.run("on_event", body=event(host_of(group))).assert_succeeded()
    age(2 * 3600.0)

    swept = sweep(group)

    assert [row["group"] for row in swept["released"]] == [group.name]
    assert "the agents on its host are silent" in swept["released"][0]["sentence"]


def test_agents_that_do_not_answer_leave_time_to_hear_those_without_an_alarm(
    alone: None,
    protect: Callable[..., Any],
    options: Callable[..., None],
    beats: dict[str, float | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = [protect(fence=["stop"]) for _ in range(2)]
    for group in groups:
        group.activate()
        beats[group.server("db_a")] = 600.0
    options(storm_groups=1, storm_share=0.0)
    clock = [0.0]
    before = EmulatedChannel.heard

    def slow(channel: EmulatedChannel, to: Address) -> Heartbeat | None:
        clock[0] += 0.75 * project_view.LISTEN if to.server_id in beats else 0.0
        return before(channel, to)

    groups[0].run("on_event", body=event(host_of(groups[0]))).assert_succeeded()
    age(120)
    monkeypatch.setattr(EmulatedChannel, "heard", slow)
    monkeypatch.setattr(project_view, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    swept = sweep(groups[0])

    assert {row["group"] for row in swept["released"]} == {group.name for group in groups}


@pytest.mark.parametrize("before", [60.0, None], ids=["was heard lately", "was never heard"])
def test_no_heartbeat_at_all_is_no_silence_of_an_agent_that_may_be_well(
    alone: None,
    protect: Callable[..., Any],
    options: Callable[..., None],
    beats: dict[str, float | None],
    before: float | None,
) -> None:
    """The broker may have lost what it kept."""
    group = protect(fence=["stop"])
    server = group.server("db_a")
    beats[server] = before
    group.activate()
    options(storm_groups=1, storm_share=0.0)
    recovery.Observe(group.name).run(OUTSIDE)
    beats[server] = None
    group.run("on_event", body=event(host_of(group))).assert_succeeded()
    age(120)

    swept = sweep(group)

    assert (swept["released"], swept["dismissed"]) == ([], [])


def test_an_alarm_whose_cause_has_cleared_is_dismissed_with_the_reason(
    alone: None, protect: Callable[..., Any], options: Callable[..., None]
) -> None:
    group = protect()
    group.activate()
    options(storm_groups=1, storm_share=0.0)
    group.run("on_event", body=event(host_of(group))).assert_succeeded()
    early = sweep(group)
    age(120)

    late = sweep(group)

    assert (early["dismissed"], early["released"]) == ([], [])
    (row,) = late["dismissed"]
    assert row["group"] == group.name
    assert "its agent was heard since the alarm" in row["sentence"]
    assert held(group) == []
    assert group.told("dismissed") == [f"DISMISSED: {row['sentence']}"]


def test_an_admitted_alarm_that_could_not_start_is_dismissed_when_its_server_is_well_after_all(
    alone: None, protect: Callable[..., Any]
) -> None:
    """Without Nova no standby can be chosen. To start it when Nova is back would fence a server
    that runs."""
    group = protect()
    group.activate()
    control_plane_fails(group)
    run = group.run("on_event", body=group.cloud.alarm_body(group.server("db_a")))
    run.assert_failed_with("NO_ELIGIBLE_MEMBER")
    age(120)
    away = sweep(group)
    group.cloud.clear_api_faults()

    back = sweep(group)

    assert (away["dismissed"], back["started"]) == ([], [])
    (row,) = back["dismissed"]
    assert row["group"] == group.name
    assert "its agent was heard since the alarm" in row["sentence"]
    assert (len(group.traversals()), group.runs_on()) == (1, ["db_a"])


def test_an_admitted_alarm_that_could_not_start_does_so_if_its_server_died(
    alone: None, protect: Callable[..., Any]
) -> None:
    group = protect()
    group.activate()
    body = group.fails("crash")
    Operator(group.cloud).stop_server(group.server("db_a"))
    control_plane_fails(group)
    group.run("on_event", body=body).assert_failed_with("NO_ELIGIBLE_MEMBER")
    age(120)
    group.cloud.clear_api_faults()

    back = sweep(group)

    assert ([row["group"] for row in back["started"]], back["dismissed"]) == ([group.name], [])


def test_an_alarm_that_could_not_start_in_time_does_so_when_its_server_is_known_to_have_died(
    alone: None, protect: Callable[..., Any], beats: dict[str, float | None]
) -> None:
    group = protect()
    group.activate()
    body = group.fails("crash")
    Operator(group.cloud).stop_server(group.server("db_a"))
    control_plane_fails(group)
    group.run("on_event", body=body).assert_failed_with("NO_ELIGIBLE_MEMBER")
    age(700)
    beats[group.server("db_a")] = 700.0
    away = sweep(group)
    rules = [row["rule"] for row in held(group)]
    group.cloud.clear_api_faults()

    back = sweep(group)

    assert (len(away["held"]), away["released"], rules) == (1, [], ["too_late"])
    assert [row["group"] for row in back["released"]] == [group.name]
    assert [row["group"] for row in back["started"]] == [group.name]


def test_what_an_operator_admitted_starts_when_nova_is_back_whatever_the_agent_says(
    alone: None, protect: Callable[..., Any]
) -> None:
    group = protect()
    group.activate()
    group.run("pause", group=group.name, because="a test").assert_succeeded()
    group.run("on_event", body=group.cloud.alarm_body(group.server("db_a"))).assert_succeeded()
    control_plane_fails(group)
    run = group.run("admit_held", because="its disk is broken").assert_succeeded()
    age(120)
    group.cloud.clear_api_faults()

    back = sweep(group)

    assert len(run.output["refused"]) == 1
    assert ([row["group"] for row in back["started"]], back["dismissed"]) == ([group.name], [])


def test_of_two_sweeps_at_once_one_does_not_start_what_the_other_has_dismissed(
    alone: None, protect: Callable[..., Any]
) -> None:
    group = protect()
    group.activate()
    control_plane_fails(group)
    run = group.run("on_event", body=group.cloud.alarm_body(group.server("db_a")))
    run.assert_failed_with("NO_ELIGIBLE_MEMBER")
    others: list[dict[str, Any]] = []

    def other(point: str) -> None:
        if point == "start.before" and not others:
            others.append({})
            age(120)
            others.append(recovery.Sweep().run(OUTSIDE))

    group.cloud.clear_api_faults()
    fault_points.arm(other)
    try:
        swept = sweep(group)  # has read the alarm before the other sweep dismisses it
    finally:
        fault_points.disarm()

    assert [row["group"] for row in others[1]["dismissed"]] == [group.name]
    assert [row["error"]["code"] for row in swept["refused"]] == ["NOT_ADMITTED"]
    assert (len(group.traversals()), group.runs_on()) == (1, ["db_a"])


def lost_host(host: str) -> dict[str, Any]:
    """The inputs that ``failover host-lost`` sends, each time another body."""
    return {"body": {"host": host, "id": f"r{next(_numbers)}"}, "because": "its disks fail"}


def test_what_an_operator_says_of_a_host_is_not_taken_back_whatever_the_agents_say(
    alone: None, protect: Callable[..., Any]
) -> None:
    """The failovers start in batches, and the last ones start minutes later."""
    group = protect()
    group.activate()
    sweep(group)  # sees where the members run
    control_plane_fails(group)
    group.run("on_event", **lost_host(host_of(group))).assert_failed_with("NO_ELIGIBLE_MEMBER")
    age(120)
    group.cloud.clear_api_faults()

    back = sweep(group)

    assert ([row["group"] for row in back["started"]], back["dismissed"]) == ([group.name], [])


def test_an_operator_s_word_counts_for_an_alarm_that_a_monitor_sent_before(
    alone: None, protect: Callable[..., Any]
) -> None:
    group = protect()
    group.activate()
    sweep(group)
    control_plane_fails(group)
    host = host_of(group)
    group.run("on_event", body=event(host)).assert_failed_with("NO_ELIGIBLE_MEMBER")
    group.run("on_event", **lost_host(host)).assert_failed_with("NO_ELIGIBLE_MEMBER")
    age(120)
    group.cloud.clear_api_faults()

    back = sweep(group)

    assert ([row["group"] for row in back["started"]], back["dismissed"]) == ([group.name], [])


def test_what_an_operator_says_of_a_host_stays_held_until_an_operator_admits_it(
    alone: None, protect: Callable[..., Any], options: Callable[..., None]
) -> None:
    group = protect()
    group.activate()
    options(storm_groups=1, storm_share=0.0)
    group.run("on_event", **lost_host(host_of(group))).assert_succeeded()
    age(120)

    swept = sweep(group)
    rules = [row["rule"] for row in held(group)]
    group.run("admit_held", because="it is so", host=host_of(group)).assert_succeeded()

    assert (swept["dismissed"], swept["released"], rules) == ([], [], ["storm"])
    assert group.runs_on() == ["db_b"]


def test_a_signal_of_a_monitor_is_taken_back_as_any_other_alarm(
    alone: None, protect: Callable[..., Any], options: Callable[..., None]
) -> None:
    group = protect()
    group.activate()
    options(storm_groups=1, storm_share=0.0)
    group.run("on_event", body={"host": host_of(group), "reason": "no ping"}).assert_succeeded()
    age(120)

    assert [row["group"] for row in sweep(group)["dismissed"]] == [group.name]


@pytest.mark.drills
def test_a_false_storm_moves_nothing_and_a_true_one_after_it_needs_no_operator(
    alone: None, protect: Callable[..., Any], options: Callable[..., None]
) -> None:
    """Keystone and Nova are away while every guest is alive; later servers really die. The first
    alarm of each is admitted, because one group is no storm."""
    options(storm_groups=2, storm_release=1)
    groups = [protect() for _ in range(3)]
    cloud = groups[0].cloud
    for group in groups:
        group.activate()
    control_plane_fails(groups[0])
    for group in groups:
        group.run("on_event", body=cloud.alarm_body(group.server("db_a")))

    away = sweep(groups[0])
    age(180)
    still_away = sweep(groups[0])
    cloud.clear_api_faults()
    back = sweep(groups[0])

    for swept in (away, still_away):
        assert (swept["released"], swept["dismissed"], swept["started"]) == ([], [], [])
    assert "the storm guard still holds" in groups[2].told("guarded")[0]
    assert {row["group"] for row in back["dismissed"]} == {group.name for group in groups}
    assert all(
        "its agent was heard since the alarm" in row["sentence"] for row in back["dismissed"]
    )
    assert (back["released"], back["started"]) == ([], [])
    assert alarms.Held().run(OUTSIDE)["held"] == []
    for group in groups:
        assert (len(group.traversals()), group.runs_on()) == (1, ["db_a"])

    for group in groups:
        group.fails("crash")
        Operator(cloud).stop_server(group.server("db_a"))
        group.run("on_event", body=cloud.alarm_body(group.server("db_a")))
    waiting = [group.name for group in groups if held(group)]
    first, at_once = sweep(groups[0]), sweep(groups[0])
    age(61, "decided_at")
    later = sweep(groups[0])

    assert waiting == [group.name for group in groups[1:]]
    assert [row["group"] for row in first["released"]] == waiting[:1]
    assert at_once["released"] == []
    assert [row["group"] for row in later["released"]] == waiting[1:]
    for group in groups:
        assert (len(group.traversals()), group.runs_on()) == (2, ["db_b"])
        assert group.status()["status"] == "COMPLETE"
