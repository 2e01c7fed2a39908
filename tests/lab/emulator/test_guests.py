# SPDX-License-Identifier: Apache-2.0
"""Guests: commands, faults, and what the audit says about harm."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from lab.emulator.emulated_clients import Clients, Pair
from mistral_failover.agent.wire import END_REHEARSAL
from mistral_failover.lab.drill.audit import rehearsals_end
from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.waiting import until


@pytest.fixture
def serving(demo: Clients, emulator: EmulatorClient, pair: Pair) -> Pair:
    """The pair with its volume on a and its application running there."""
    demo.compute.create_volume_attachment(pair.a, volume_id=pair.data)
    until(lambda: demo.volumes.volumes.get(pair.data).status == "in-use")
    assert emulator.run_command(pair.a, "start", command_id="s1")["exit_code"] == 0
    return pair


def rules(emulator: EmulatorClient, pair: Pair) -> set[str]:
    mine = {pair.a, pair.b, pair.data, pair.application}
    return {
        event["rule"]
        for event in emulator.violations()
        if mine & {event.get("volume"), event.get("server"), event.get("application")}
    }


def refusal(emulator: EmulatorClient, *args: Any, **options: Any) -> EmulatorError:
    with pytest.raises(EmulatorError) as refused:
        emulator.run_command(*args, **options)
    return refused.value


def test_an_application_starts_writes_and_stops(emulator: EmulatorClient, serving: Pair) -> None:
    assert emulator.writers(serving.data) == [serving.a]
    assert emulator.run_command(serving.a, "status", command_id="q1")["exit_code"] == 0
    stopped = emulator.run_command(serving.a, "stop", command_id="p1")
    assert (stopped["exit_code"], stopped["replayed"]) == (0, False)
    assert emulator.writers(serving.data) == []
    assert emulator.run_command(serving.a, "status", command_id="q2")["exit_code"] == 3


def test_what_is_told_of_its_devices_writes_on_no_others(
    emulator: EmulatorClient, serving: Pair
) -> None:
    told = f"told-{serving.application}"
    emulator.add_application(told, start="begin", stop="end", told_only=True)
    emulator.run_command(serving.a, "stop", command_id="p1")

    emulator.run_command(serving.a, "begin", command_id="b1")
    assert emulator.writers(serving.data) == []
    emulator.run_command(serving.a, "end", command_id="e1")
    emulator.run_command(serving.a, "begin", command_id="b2", arguments={"data_device": "/dev/vdb"})

    assert emulator.writers(serving.data) == [serving.a]
    starts = [e for e in emulator.audit(kind="application_started") if e["application"] == told]
    assert [event["volumes"] for event in starts] == [[], [serving.data]]


def test_without_its_volume_it_does_not_start(emulator: EmulatorClient, pair: Pair) -> None:
    answer = emulator.run_command(pair.a, "start", command_id="s1")
    assert answer["exit_code"] == 32
    assert "mount" in answer["stderr"]


def test_a_device_that_is_not_there_cannot_be_mounted(
    emulator: EmulatorClient, serving: Pair
) -> None:
    wrong, right = {"data_device": "/dev/vdz"}, {"data_device": "/dev/vdb"}
    again = emulator.run_command(serving.a, "start", command_id="s2", arguments=wrong)
    assert again["exit_code"] == 32
    again = emulator.run_command(serving.a, "start", command_id="s3", arguments=right)
    assert again["exit_code"] == 0


def test_a_command_needs_a_token_of_the_servers_project(
    cloud: EmulatedCloud, emulator: EmulatorClient, pair: Pair
) -> None:
    url = f"{cloud.url}/emulator/guests/{pair.a}/commands"
    body = {"id": "x", "name": "start", "epoch": 1}
    assert requests.post(url, json=body, timeout=5).status_code == 401
    other = {"X-Auth-Token": emulator.mint_token(user="other")}
    assert requests.post(url, json=body, headers=other, timeout=5).status_code == 404
    own = {"X-Auth-Token": emulator.mint_token()}
    assert requests.post(url, json={"id": "x"}, headers=own, timeout=5).status_code == 400


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_guest_that_cannot_answer_is_a_504_after_the_limit(
    emulator: EmulatorClient, serving: Pair, fault: str
) -> None:
    emulator.fault("server", serving.a, fault)
    refused = refusal(emulator, serving.a, "stop", command_id="p1", limit=0.05)
    assert (refused.code, refused.http_status) == ("NO_ANSWER", 504)
    assert emulator.writers(serving.data) == ([serving.a] if fault == "hang" else [])


def test_a_hung_guest_writes_until_it_is_stopped(
    demo: Clients, emulator: EmulatorClient, serving: Pair
) -> None:
    emulator.fault("server", serving.a, "hang")
    assert emulator.writers(serving.data) == [serving.a]
    demo.compute.stop_server(serving.a)
    until(lambda: demo.compute.get_server(serving.a).status == "SHUTOFF")
    assert emulator.writers(serving.data) == []
    demo.compute.delete_volume_attachment(serving.a, serving.data)
    until(lambda: demo.volumes.volumes.get(serving.data).status == "available")
    assert rules(emulator, serving) == set()


def test_an_application_fault_leaves_the_guest_well(
    emulator: EmulatorClient, serving: Pair
) -> None:
    emulator.fault("server", serving.a, "app")
    assert emulator.run_command(serving.a, "status", command_id="q1")["exit_code"] == 3
    assert emulator.run_command(serving.a, "start", command_id="s2")["exit_code"] == 0


def test_a_revived_guest_answers_and_runs_nothing(emulator: EmulatorClient, serving: Pair) -> None:
    emulator.fault("server", serving.a, "hang")
    emulator.fault("server", serving.a, "revive")
    assert emulator.run_command(serving.a, "status", command_id="q1")["exit_code"] == 3


def test_a_command_that_died_with_its_guest_runs_again_after_the_reboot(
    emulator: EmulatorClient, serving: Pair
) -> None:
    emulator.run_command(serving.a, "stop", command_id="p1")
    emulator.set_latency(command_start=30)  # the crash ends it
    try:
        refused = refusal(emulator, serving.a, "start", command_id="s2", limit=0.01)
        assert refused.code == "RUNNING"
        emulator.fault("server", serving.a, "crash")
        emulator.fault("server", serving.a, "revive")
    finally:
        emulator.set_latency(command_start=0)
    again = emulator.run_command(serving.a, "start", command_id="s2")
    assert (again["exit_code"], again["replayed"]) == (0, False)


def test_a_host_without_power_ends_its_guests(
    demo: Clients, emulator: EmulatorClient, serving: Pair
) -> None:
    emulator.fault("host", "cmp1", "power_off")
    assert emulator.writers(serving.data) == []
    assert refusal(emulator, serving.a, "stop", command_id="p", limit=0.02).code == "NO_ANSWER"
    emulator.fault("host", "cmp1", "revive")
    assert emulator.guests()[serving.a]["answers"]
    assert emulator.guests()[serving.a]["applications"] == []


def test_a_local_delete_lets_two_servers_write_and_the_audit_says_so(
    demo: Clients, emulator: EmulatorClient, serving: Pair
) -> None:
    emulator.fault("host", "cmp1", "compute_down")
    demo.compute.delete_server(serving.a)
    demo.compute.create_volume_attachment(serving.b, volume_id=serving.data)
    until(lambda: demo.volumes.volumes.get(serving.data).status == "in-use")
    emulator.run_command(serving.b, "start", command_id="s1")
    assert set(emulator.writers(serving.data)) == {serving.a, serving.b}
    assert {"write_to_lost_volume"} <= rules(emulator, serving)
    last = emulator.violations()[-1]
    assert last["rule"] == "two_writers"
    assert set(last["servers"]) == {serving.a, serving.b}


def test_detaching_under_a_writer_is_a_violation(
    demo: Clients, emulator: EmulatorClient, serving: Pair
) -> None:
    demo.compute.delete_volume_attachment(serving.a, serving.data)
    until(lambda: demo.volumes.volumes.get(serving.data).status == "available")
    assert rules(emulator, serving) == {"detached_while_writing"}


def test_starting_on_two_servers_is_a_violation(
    demo: Clients, emulator: EmulatorClient, serving: Pair
) -> None:
    own = demo.volumes.volumes.create(1)
    until(lambda: demo.volumes.volumes.get(own.id).status == "available")
    demo.compute.create_volume_attachment(serving.b, volume_id=own.id)
    until(lambda: demo.volumes.volumes.get(own.id).status == "in-use")
    emulator.run_command(serving.b, "start", command_id="s1")
    assert rules(emulator, serving) == {"application_on_two_servers"}


def test_the_clean_way_from_one_server_to_the_other_violates_nothing(
    demo: Clients, emulator: EmulatorClient, serving: Pair
) -> None:
    seen = emulator.audit()[-1]["seq"]
    emulator.run_command(serving.a, "stop", command_id="p1")
    demo.compute.delete_volume_attachment(serving.a, serving.data)
    until(lambda: demo.volumes.volumes.get(serving.data).status == "available")
    demo.compute.create_volume_attachment(serving.b, volume_id=serving.data)
    until(lambda: demo.volumes.volumes.get(serving.data).status == "in-use")
    emulator.run_command(serving.b, "start", command_id="s1")
    assert rules(emulator, serving) == set()
    events = emulator.audit(since=seen)
    assert [e["seq"] for e in events] == list(range(seen + 1, seen + 1 + len(events)))
    told = [e["kind"] for e in events if serving.data == e.get("volume")]
    told = [kind for kind in told if not kind.startswith("transition")]
    assert told == ["detach_begin", "detached", "attach_begin", "attached"]


def test_an_application_of_one_stack_is_not_allowed_in_another(
    emulator: EmulatorClient, pair: Pair
) -> None:
    emulator.add_application("own", start="own-start", stop="own-stop", stack=pair.stack)
    assert emulator.run_command(pair.b, "own-start", command_id="x")["exit_code"] == 0
    made = emulator.create_stack(
        f"{pair.stack}-x",
        {
            "heat_template_version": "2021-04-16",
            "resources": {"s": {"type": "OS::Nova::Server", "properties": {"flavor": "1"}}},
        },
    )
    server = emulator.resources(made["stack_name"])["s"]["physical_resource_id"]
    assert refusal(emulator, server, "own-start", command_id="x").code == "UNKNOWN_COMMAND"


@pytest.mark.parametrize(
    ("target", "name", "fault", "code"),
    [
        ("server", "none", "crash", "NOT_FOUND"),
        ("host", "cmp9", "power_off", "NOT_FOUND"),
        ("host", "cmp1", "hang", "BAD_REQUEST"),
        ("rack", "r1", "power_off", "BAD_REQUEST"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(
    emulator: EmulatorClient, target: str, name: str, fault: str, code: str
) -> None:
    with pytest.raises(EmulatorError) as refused:
        emulator.fault(target, name, fault)
    assert refused.value.code == code
    assert refused.value.remedy


# -- rehearsals

REHEARSAL = "44444444-4444-4444-8444-444444444444"


def rehearse(
    emulator: EmulatorClient, server: str, name: str, rehearsal: str = REHEARSAL, **options: Any
) -> dict[str, Any]:
    number = f"{name}-{len(emulator.audit())}"
    return emulator.run_command(server, name, command_id=number, rehearsal=rehearsal, **options)


def heartbeat(emulator: EmulatorClient, server: str) -> dict[str, Any]:
    url = f"{emulator.url}/emulator/guests/{server}/heartbeat"
    answer = requests.get(url, headers={"X-Auth-Token": emulator.token()}, timeout=30)
    return dict(answer.json()["heartbeat"])


def left(emulator: EmulatorClient, pair: Pair) -> list[str]:
    """What the audit says is left of rehearsals on the standby."""
    return [each.seen for each in rehearsals_end(emulator.audit()) if pair.b in each.seen]


def rehearsed(emulator: EmulatorClient, server: str) -> list[str]:
    return list(emulator.guests()[server]["rehearsed"])


@pytest.fixture
def copied(demo: Clients, emulator: EmulatorClient, serving: Pair) -> str:
    """A copy of the volume, attached to the standby b."""
    copy = demo.volumes.volumes.create(1, name="copy").id
    until(lambda: demo.volumes.volumes.get(copy).status == "available")
    demo.compute.create_volume_attachment(serving.b, volume_id=copy)
    until(lambda: demo.volumes.volumes.get(copy).status == "in-use")
    return str(copy)


def test_a_rehearsed_application_runs_beside_the_real_one(
    emulator: EmulatorClient, serving: Pair, copied: str
) -> None:
    assert rehearse(emulator, serving.b, "start")["exit_code"] == 0

    assert rehearse(emulator, serving.b, "status")["exit_code"] == 0
    assert rehearsed(emulator, serving.b) == [serving.application]
    assert emulator.guests()[serving.b]["applications"] == []
    assert emulator.writers(serving.data) == [serving.a]
    assert emulator.writers(copied) == []
    assert rules(emulator, serving) == set()

    rehearse(emulator, serving.b, END_REHEARSAL)
    assert rehearsed(emulator, serving.b) == []
    assert left(emulator, serving) == []


def test_a_rehearsal_that_is_left_is_a_violation(
    emulator: EmulatorClient, serving: Pair, copied: str
) -> None:
    del copied
    rehearse(emulator, serving.b, "start")

    (violation,) = left(emulator, serving)
    assert f"{serving.application} is still rehearsed" in violation


def test_a_rehearsal_on_a_volume_that_is_written_is_a_violation(
    emulator: EmulatorClient, serving: Pair
) -> None:
    rehearse(emulator, serving.a, "start")

    assert "rehearsal_on_real_volume" in rules(emulator, serving)


def test_an_application_that_writes_only_where_its_start_says_is_rehearsed_beside_a_volume(
    emulator: EmulatorClient, serving: Pair
) -> None:
    emulator.add_application("beside", start="start_beside", stop="stop_beside", told_only=True)
    assert rehearse(emulator, serving.a, "start_beside")["exit_code"] == 0
    assert "rehearsal_on_real_volume" not in rules(emulator, serving)
    rehearse(emulator, serving.a, END_REHEARSAL)


def test_a_copy_that_is_detached_during_its_rehearsal_is_a_violation(
    demo: Clients, emulator: EmulatorClient, serving: Pair, copied: str
) -> None:
    rehearse(emulator, serving.b, "start")
    (attachment,) = demo.compute.volume_attachments(serving.b)
    demo.compute.delete_volume_attachment(serving.b, attachment.volume_id)
    until(lambda: demo.volumes.volumes.get(copied).status == "available")

    assert [event["rule"] for event in emulator.violations() if event.get("volume") == copied] == [
        "detached_while_writing"
    ]


@pytest.mark.parametrize("fault", ["crash", "revive"])
def test_a_rehearsal_ends_with_its_guest(
    emulator: EmulatorClient, serving: Pair, copied: str, fault: str
) -> None:
    del copied
    rehearse(emulator, serving.b, "start")

    emulator.fault("server", serving.b, fault)

    assert rehearsed(emulator, serving.b) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("lacks_package", "there is no PostgreSQL"),
        ("misconfigured", "unrecognized configuration parameter"),
        ("data_full", "No space left on device"),
        ("lacks_mount_point", "mount point does not exist"),
        ("denied", "Permission denied"),
    ],
)
def test_a_standby_may_be_broken_which_only_a_start_shows(
    emulator: EmulatorClient, serving: Pair, copied: str, fault: str, said: str
) -> None:
    del copied
    emulator.fault("server", serving.b, fault)

    failed = rehearse(emulator, serving.b, "start")
    assert failed["exit_code"] != 0
    assert said in failed["stderr"]
    assert rehearsed(emulator, serving.b) == []
    assert heartbeat(emulator, serving.b)["not_ready"] is None

    emulator.fault("server", serving.b, "repaired")
    assert rehearse(emulator, serving.b, "start")["exit_code"] == 0


def test_an_old_agent_refuses_what_is_rehearsed_and_does_not_run_it(
    emulator: EmulatorClient, serving: Pair, copied: str
) -> None:
    del copied
    emulator.fault("server", serving.b, "old_agent")

    error = refusal(emulator, serving.b, "start", command_id="r1", rehearsal=REHEARSAL)

    assert error.code == "UNKNOWN_COMMAND"
    assert emulator.guests()[serving.b]["applications"] == []
    assert "rehearsals" not in heartbeat(emulator, serving.b)


def test_an_agent_that_cannot_isolate_refuses_what_is_rehearsed(
    emulator: EmulatorClient, serving: Pair, copied: str
) -> None:
    del copied
    emulator.fault("server", serving.b, "not_isolated")

    error = refusal(emulator, serving.b, "start", command_id="r1", rehearsal=REHEARSAL)

    assert error.code == "NOT_REHEARSABLE"
    assert heartbeat(emulator, serving.b)["rehearsals"]["isolation"] == (
        "the agent does not run as root"
    )


def test_what_guests_have_learned_can_be_taken_back(emulator: EmulatorClient, pair: Pair) -> None:
    first = emulator.add_application("own two", start="x-start", stop="x-stop", stack=pair.stack)
    second = emulator.add_application("own two", start="y-start", stop="x-stop", stack=pair.stack)
    assert (first.commands, second.commands) == (("x-start", "x-stop"), ("y-start",))

    emulator.take_back(second)
    again = emulator.add_application("own two", start="y-start", stop="x-stop", stack=pair.stack)
    assert again.commands == ("y-start",)
    emulator.take_back(again)
    emulator.take_back(first)
    once_more = emulator.add_application(
        "own two", start="x-start", stop="x-stop", stack=pair.stack
    )
    assert once_more.commands == ("x-start", "x-stop")
    emulator.take_back(once_more)
    emulator.take_back(once_more)
