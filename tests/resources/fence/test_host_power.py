# SPDX-License-Identifier: Apache-2.0
"""The rung ``host_power``: what the boards and their agents do, what is a proof, and what is none.

Contract: without a proof nothing may move. So each way in which a board or an agent fails is a test
here.
"""

from __future__ import annotations

import base64
import os
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.cloud import hosts
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import HandedBack
from mistral_failover.resources.fence import host_power, power
from mistral_failover.store import host_fences
from support.fencing import AGENT, PASSWORD, PROJECT, Fencing, since
from support.operators import Operator
from support.together import together
from support.waiting import until


def test_a_dead_host_is_switched_off_verified_separately_and_nova_is_told(
    fencing: Fencing,
) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])

    evidence = fencing.prove()

    assert evidence.proven, evidence.observed
    assert evidence.rung == "host_power"
    assert "fence_simulated reports the power off of its host" in evidence.observed
    assert "Nova counts its compute service as down" in evidence.observed
    assert fencing.machines.power(fencing.host) == "off"
    assert fencing.actions() == ["off", "status"]
    assert fencing.forced_down()


def test_a_host_that_is_already_off_is_proven_off(fencing: Fencing) -> None:
    fencing.dies()
    fencing.machines.add(fencing.host, "off")
    fencing.configure([fencing.device(fencing.machines.board())])

    assert fencing.prove().proven


def test_neither_the_host_nor_the_board_is_shown_to_the_project(fencing: Fencing) -> None:
    fencing.dies()
    port = fencing.machines.board("refuses")
    fencing.configure([fencing.device(port)])

    observed = fencing.prove().observed

    assert fencing.host not in observed
    assert "127.0.0.1" not in observed
    assert str(port) not in observed


BOARDS = {
    "refuses": "off: exit code 1",
    "hangs": "it did not end within",
    "half-open": "it did not end within",
}


@pytest.mark.parametrize(("mode", "said"), BOARDS.items())
def test_a_board_that_does_not_switch_proves_nothing(
    fencing: Fencing, mode: str, said: str
) -> None:
    fencing.dies()
    options: dict[str, Any] = {"ssl": 1} if mode == "half-open" else {}
    limit = 10.0 if mode == "refuses" else 1.0
    fencing.configure([fencing.device(fencing.machines.board(mode), limit=limit, **options)])

    evidence = fencing.prove()

    assert not evidence.proven
    assert said in evidence.observed
    assert fencing.machines.power(fencing.host) == "on"
    assert not fencing.forced_down()
    assert fencing.seconds < 10


def test_a_board_that_is_unreachable_proves_nothing(fencing: Fencing) -> None:
    fencing.dies()
    fencing.configure([fencing.device(1)])

    assert not fencing.prove().proven
    assert not fencing.forced_down()


def test_a_board_that_switches_the_host_on_again_proves_nothing(fencing: Fencing) -> None:
    """The look that the agent takes is too early; the separate one is not."""
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board("returns"))])

    evidence = fencing.prove()

    assert not evidence.proven
    assert "reports the power on, although it reported success for off" in evidence.observed


def test_a_board_that_lies_is_contradicted_by_the_member_s_agent(fencing: Fencing) -> None:
    """The compute service is dead, and the guest writes on."""
    fencing.compute_dies()
    fencing.configure([fencing.device(fencing.machines.board("lies"))], listen=4)

    evidence = fencing.prove(limit=10)

    assert not evidence.proven
    assert "contradicted: db_a's agent sent a heartbeat" in evidence.observed
    assert fencing.actions() == ["off", "status"], "the board itself claims that it is off"
    assert not fencing.forced_down()


def test_a_board_that_lies_is_contradicted_by_the_host_s_compute_service(
    fencing: Fencing,
) -> None:
    fencing.emulated.client.fault("server", fencing.server, "crash")
    fencing.configure(
        [fencing.device(fencing.machines.board("lies"))], listen=4, compute_must_be_down=False
    )

    evidence = fencing.prove(limit=10)

    assert not evidence.proven
    assert "the compute service of its host reported to Nova after" in evidence.observed


def test_a_live_host_that_falls_silent_when_it_is_switched_off_is_proven_off(
    fencing: Fencing,
) -> None:
    fencing.configure(
        [fencing.device(fencing.machines.board())], compute_must_be_down=False, listen=1.5
    )

    with fencing.power_of_the_machine_counts():
        evidence = fencing.prove(limit=10)

    assert evidence.proven, evidence.observed
    assert fencing.seconds > 1.5, "it listened"


def test_an_agent_that_fell_silent_before_the_report_is_not_listened_to_once_more(
    fencing: Fencing,
) -> None:
    """A live one would have been heard while the rung waited for Nova."""
    fencing.emulated.client.fault("server", fencing.server, "crash")
    fencing.configure([fencing.device(fencing.machines.board())], listen=3)
    dies = threading.Timer(3, fencing.dies)
    dies.start()

    evidence = fencing.prove(limit=20)

    dies.join()
    assert evidence.proven, evidence.observed
    assert 3 < fencing.seconds < 6, "and it listened for another 3 s"


def test_an_agent_is_listened_to_until_a_live_one_would_have_been_heard(fencing: Fencing) -> None:
    """By its clock, which may be two seconds behind."""
    fencing.dies()
    time.sleep(4)
    fencing.configure([fencing.device(fencing.machines.board())], listen=4)

    evidence = fencing.prove(limit=20)

    assert evidence.proven, evidence.observed
    assert 1.5 < fencing.seconds < 4.5


def test_a_host_that_nova_reports_up_is_not_switched_off_for_one_project(
    fencing: Fencing,
) -> None:
    """Other projects have servers there."""
    fencing.configure([fencing.device(fencing.machines.board())])

    evidence = fencing.prove(limit=1)

    assert not evidence.proven
    assert "Nova reports the compute service of its host up" in evidence.observed
    assert fencing.actions() == []


AGENTS = {
    "floods": "it did not end within",
    "kills": "signal 11 ended it",
    "tells": "exit code 1",
    "ignores": "it did not end within",
    "boasts": "status: exit code 1",
    "odd": "exit code 7",
}


@pytest.mark.parametrize(("behaviour", "said"), AGENTS.items())
def test_an_agent_that_misbehaves_proves_nothing_and_tells_no_password(
    fencing: Fencing, caplog: pytest.LogCaptureFixture, behaviour: str, said: str
) -> None:
    fencing.dies()
    # A program starts in a tenth of a second, or in more than one where the machine is busy.
    limit = 1.0 if "did not end" in said else 5.0
    device = fencing.device(fencing.machines.board(), behaviour=behaviour, limit=limit)
    fencing.configure([device])

    evidence = fencing.prove()

    assert not evidence.proven
    assert said in evidence.observed
    assert fencing.seconds < 4
    for text in (evidence.observed, caplog.text):
        assert PASSWORD not in text
        assert base64.b64encode(f"fence:{PASSWORD}".encode()).decode() not in text
        assert "\x1b" not in text
    until(lambda: not alive(fencing), "a process of an agent is left", limit=10.0)


def alive(fencing: Fencing) -> list[str]:
    """Return the processes of the agents' groups that still exist. One that was killed is there
    until the kernel has run it once more."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True)
    groups = {str(call["pid"]) for call in fencing.logged()}
    rows = [line.split() for line in listed.stdout.splitlines()]
    return [row[0] for row in rows if row[0] in groups and not row[1].startswith("Z")]


def test_an_agent_that_leaves_a_process_behind_ends_with_it(fencing: Fencing) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board(), behaviour="leaves")])

    evidence = fencing.prove()

    assert evidence.proven, evidence.observed
    until(lambda: not alive(fencing), "a process of an agent is left", limit=10.0)


def test_a_wrong_password_proves_nothing(fencing: Fencing) -> None:
    fencing.dies()
    wrong = fencing.secret("wr0ng", "wrong")
    fencing.configure([fencing.device(fencing.machines.board(), secret=wrong)])

    assert not fencing.prove().proven
    assert fencing.machines.power(fencing.host) == "on"


def test_secrets_reach_the_agent_on_its_standard_input_alone(fencing: Fencing) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])

    assert fencing.prove().proven

    for call in fencing.logged():
        assert PASSWORD not in str(call["argv"])
        assert PASSWORD not in str(call["environment"])
        assert set(call["environment"]) <= {"PATH", "HOME", "LC_ALL", "LC_CTYPE"}


@pytest.mark.parametrize("agent", ["fence_unknown", "/nowhere/fence_ipmilan"])
def test_an_agent_that_is_missing_proves_nothing(fencing: Fencing, agent: str) -> None:
    fencing.dies()
    fencing.configure([fencing.device(1, agent=agent)])

    assert "is not installed on the executor" in fencing.prove().observed


def test_an_agent_that_other_users_can_change_is_not_run(fencing: Fencing) -> None:
    fencing.dies()
    theirs = fencing.folder / "fence_theirs"
    theirs.write_bytes(Path(AGENT).read_bytes())
    theirs.chmod(0o777)
    fencing.configure([fencing.device(fencing.machines.board(), agent=str(theirs))])

    assert "is not installed" in fencing.prove().observed
    assert fencing.actions() == []


def test_a_host_that_the_board_does_not_know_is_not_proven_off(fencing: Fencing) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board(), plug="another")])

    assert not fencing.prove().proven


def test_a_host_that_the_file_does_not_know_is_not_proven_off(fencing: Fencing) -> None:
    fencing.dies()
    fencing.configure()

    evidence = fencing.prove()

    assert not evidence.proven
    assert evidence.observed == "no fence device is configured for its host"


def test_the_next_level_is_tried_when_one_fails(fencing: Fencing) -> None:
    fencing.dies()
    broken = fencing.device(fencing.machines.board("refuses"))
    fencing.configure([broken], [fencing.device(fencing.machines.board())])

    assert fencing.prove().proven
    assert fencing.actions() == ["off", "off", "status", "status"]


def test_a_level_that_reports_off_is_contradicted_by_a_board_that_refused_and_says_on(
    fencing: Fencing,
) -> None:
    fencing.dies()
    refuses = fencing.device(fencing.machines.board("refuses"))
    fencing.configure([refuses], [fencing.device(fencing.machines.board("lies"))])

    evidence = fencing.prove(limit=12)

    assert not evidence.proven
    assert "level 2: contradicted: fence_simulated reports the power on" in evidence.observed
    assert fencing.machines.power(fencing.host) == "on"


def test_a_board_that_failed_and_is_out_of_reach_contradicts_no_other_level(
    fencing: Fencing,
) -> None:
    """It died with its host, for example."""
    fencing.dies()
    hangs = fencing.device(fencing.machines.board("hangs"), limit=0.5)
    fencing.configure([fencing.device(1)], [hangs], [fencing.device(fencing.machines.board())])

    assert fencing.prove().proven


def test_every_device_of_a_level_must_report_off(fencing: Fencing) -> None:
    fencing.dies()
    broken = fencing.device(1)
    fencing.configure([fencing.device(fencing.machines.board()), broken])

    assert not fencing.prove().proven


def test_all_levels_are_told_when_none_proves_it(fencing: Fencing) -> None:
    fencing.dies()
    port = fencing.machines.board("refuses")
    fencing.configure([fencing.device(port)], [fencing.device(port, behaviour="odd")])

    observed = fencing.prove().observed

    assert "level 1: fence_simulated off: exit code 1" in observed
    assert "level 2: fence_simulated off: exit code 7" in observed


def test_the_limit_of_the_rung_bounds_all_levels_together(fencing: Fencing) -> None:
    fencing.dies()
    hanging = fencing.device(fencing.machines.board("hangs"), limit=30)
    fencing.configure([hanging], [hanging], [hanging])

    evidence = fencing.prove(limit=9)

    assert not evidence.proven
    assert fencing.actions().count("off") == 3
    assert fencing.seconds < 12


def test_a_process_that_stops_breaks_the_call_off_and_gives_its_claim_back(
    fencing: Fencing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the process that continues waits neither for the device's limit nor for the claim."""
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board("hangs"), limit=40)])
    attempt = fencing.attempt()

    def permit(_method: str) -> float:
        if fencing.actions():  # the agent has begun
            raise HandedBack
        return 60.0

    monkeypatch.setattr(attempt.tools.cloud.guard, "permit", permit)

    with pytest.raises(HandedBack):
        host_power.HostPower("host_power").prove(attempt, {"kind": "host_power", "limit": 60})

    until(lambda: not alive(fencing), "a process of an agent is left", limit=10.0)
    database = fencing.runtime.database
    assert database.reading(lambda tx: host_fences.of_host(tx, fencing.host)).owner is None


def test_a_level_that_hangs_leaves_time_for_the_next_one(fencing: Fencing) -> None:
    fencing.dies()
    hanging = fencing.device(fencing.machines.board("hangs"), limit=4)
    fencing.configure([hanging], [fencing.device(fencing.machines.board(), limit=4)])

    assert fencing.prove(limit=4).proven
    assert fencing.machines.power(fencing.host) == "off"


def test_a_level_takes_its_whole_limit_if_the_time_is_enough_for_all(fencing: Fencing) -> None:
    fencing.dies()
    slow = after(fencing, "sleep 0.8")
    board = fencing.machines.board()
    fencing.configure(
        [fencing.device(board, agent=slow, limit=2.5)], [fencing.device(board, limit=2.5)]
    )

    assert fencing.prove().proven
    assert fencing.actions() == ["off", "status"]


def test_a_server_that_is_elsewhere_after_the_fence_is_not_fenced(fencing: Fencing) -> None:
    """It was evacuated meanwhile; there it runs."""
    fencing.dies()
    ran = fencing.folder / "ran"
    agent = after(fencing, f"touch {ran}")
    fencing.configure([fencing.device(fencing.machines.board(), agent=agent)])
    servers = fencing.emulated.emulation.state.servers
    elsewhere = next(
        name for name in fencing.emulated.emulation.state.hosts if name != fencing.host
    )

    def evacuate(_: int) -> Any:
        until(ran.exists)
        servers[fencing.server].host = elsewhere

    def climb(_: int) -> Any:
        return fencing.prove()

    evidence, _ = together(2, lambda number: (climb, evacuate)[number](number))

    assert not evidence.proven
    assert "was on another host after the fence" in evidence.observed
    assert elsewhere not in evidence.observed


def test_a_server_that_nova_is_moving_is_not_fenced(fencing: Fencing) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    fencing.emulated.emulation.state.servers[fencing.server].task_state = "migrating"

    assert "may be moving to another host (migrating)" in fencing.prove().observed
    assert fencing.actions() == []


def test_a_proof_counts_though_nova_may_not_be_told(fencing: Fencing) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    fencing.emulated.client.api_fault("service_update", status=403)

    evidence = fencing.prove()

    assert evidence.proven
    assert "Nova did not accept that (FORBIDDEN)" in evidence.observed


def test_a_credential_that_does_not_see_hosts_proves_nothing(
    fencing: Fencing, monkeypatch: pytest.MonkeyPatch
) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    clouds = fencing.folder / "clouds.yaml"
    clouds.write_text(clouds.read_text("utf-8").replace("admin", "demo"), "utf-8")

    with pytest.raises(CloudError) as caught:
        fencing.prove()

    assert caught.value.code == "FORBIDDEN"
    assert fencing.actions() == []


def test_a_credential_that_keystone_refuses_says_nothing_about_the_request_s_rights(
    fencing: Fencing,
) -> None:
    """Else the whole operation would wait for new rights."""
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    clouds = fencing.folder / "clouds.yaml"
    clouds.write_text(clouds.read_text("utf-8").replace("password: admin", "password: x"), "utf-8")

    with pytest.raises(CloudError) as caught:
        fencing.prove()

    assert caught.value.code == "CONFIG"


def test_the_host_of_another_project_s_server_is_not_switched_off(
    fencing: Fencing, connect: Callable[..., Cloud]
) -> None:
    """The operator's credential sees it."""
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    fencing.cloud = connect("other")

    evidence = fencing.prove()

    assert evidence.observed == f"Nova does not show server {fencing.server} to the project"
    assert fencing.actions() == []


def test_a_project_that_is_not_in_the_file_gets_nothing_switched_off(fencing: Fencing) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])

    evidence = fencing.prove(project="another")

    assert "the operator has not given this project the use" in evidence.observed
    assert fencing.actions() == []


# -- one host, many groups


def test_groups_that_fence_a_host_at_once_switch_it_off_once(fencing: Fencing) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    died = fencing.now()

    with since(died):
        proofs = together(4, lambda number: fencing.prove(limit=20))

    assert all(each.proven for each in proofs), proofs
    assert fencing.actions().count("off") == 1


def test_a_proof_from_before_the_incident_counts_until_the_host_was_up(fencing: Fencing) -> None:
    """Its traversal began after it: the host may have been repaired in between."""
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])

    assert fencing.prove().proven
    assert fencing.prove().proven
    assert fencing.actions() == ["off", "status", "status"]

    fencing.is_switched_on()
    fencing.reports()
    fencing.dies()
    assert fencing.prove().proven
    assert fencing.actions()[3:] == ["off", "status"]


@pytest.mark.parametrize("must_be_down", [True, False])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("when", ["told", "not told", "by an operator", "disproven"])
def test_a_host_that_boots_after_its_repair_is_not_switched_off_again(
    fencing: Fencing, must_be_down: bool, late: bool, when: str
) -> None:
    """By our own mark Nova counts it as down, and without it by its last report. ``late``: the
    alarm came before the fence. It is the alarm of another project."""
    fencing.dies()
    fencing.configure(
        [fencing.device(fencing.machines.board())],
        compute_must_be_down=must_be_down,
        projects=[PROJECT, "another"],
    )
    if when == "not told":
        fencing.emulated.client.api_fault("service_update", status=503, times=100)
    fencing.emulated.emulation.state.hosts[fencing.host].forced_down = when == "by an operator"
    before = fencing.now()
    assert fencing.prove().proven
    fencing.emulated.client.clear_api_faults()
    if when == "disproven":
        table = host_fences.host_fences.update().values(proof=None, proven_at=None)
        fencing.runtime.database.atomically(lambda tx: tx.execute(table))
    switched = fencing.actions()

    fencing.is_switched_on()
    with since(before if late else fencing.now()):
        said = undecided(lambda: fencing.prove(limit=2, project="another"))

    assert "is not switched off again before Nova has shown its compute service up" in said
    assert "failover fence" in said
    assert fencing.host not in said
    assert set(fencing.actions()[len(switched) :]) == {"status"}
    assert fencing.machines.power(fencing.host) == "on"

    fencing.by_hand()
    assert fencing.machines.power(fencing.host) == "off", "an operator may"


def test_a_host_that_is_switched_on_while_its_devices_are_tried_stays_on(fencing: Fencing) -> None:
    """It was seen off, but the first level takes its time."""
    fencing.dies()
    hanging = fencing.device(fencing.machines.board("hangs"), limit=4)
    answering = fencing.device(fencing.machines.board(), limit=4)
    fencing.configure([hanging], [answering], projects=[PROJECT, "another"])
    before = fencing.now()
    assert fencing.prove(limit=12).proven
    table = host_fences.host_fences.update().values(proof=None, proven_at=None)
    fencing.runtime.database.atomically(lambda tx: tx.execute(table))
    switched = len(fencing.actions())

    def is_claimed() -> bool:
        read = fencing.runtime.database.reading
        return read(lambda tx: host_fences.of_host(tx, fencing.host)).owner is not None

    def repaired() -> None:
        until(is_claimed, "nothing claims the host")
        fencing.is_switched_on()

    def fenced() -> None:
        with suppress(power.Unproven, CloudError):
            fencing.prove(limit=20, project="another")

    with since(before):
        together(2, lambda number: (fenced, repaired)[number]())

    assert "off" not in fencing.actions()[switched:]
    assert fencing.machines.power(fencing.host) == "on"


@pytest.mark.parametrize("must_be_down", [True, False])
def test_a_host_that_was_up_after_its_repair_can_be_fenced_again(
    fencing: Fencing, must_be_down: bool
) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())], compute_must_be_down=must_be_down)
    assert fencing.prove().proven
    fencing.is_switched_on()
    fencing.reports()
    assert not fencing.forced_down()
    if must_be_down:
        assert "up, and the operator allows only" in fencing.prove(limit=1).observed
        fencing.compute_dies()

    assert fencing.prove().proven
    assert fencing.machines.power(fencing.host) == "off"
    assert fencing.forced_down()


def test_a_host_that_dies_again_while_its_fence_waits_is_fenced_by_nova_s_own_word(
    fencing: Fencing,
) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    assert fencing.prove().proven
    fencing.is_switched_on()
    asked = len(fencing.actions())

    def crashes(_: int) -> Any:
        until(lambda: len(fencing.actions()) > asked)
        fencing.reports()
        fencing.dies()

    def climb(_: int) -> Any:
        return fencing.prove()

    evidence, _ = together(2, lambda number: (climb, crashes)[number](number))

    assert evidence.proven, evidence.observed
    assert fencing.actions()[asked:] == ["status", "off", "status"]


def test_another_process_that_tells_nova_of_the_fence_is_no_sign_of_life(
    fencing: Fencing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That moves the time that Nova shows for the last report."""
    fencing.compute_dies()
    fencing.emulated.client.fault("server", fencing.server, "crash")
    fencing.configure([fencing.device(fencing.machines.board())], listen=2)
    host, look, looks = (
        fencing.emulated.emulation.state.hosts[fencing.host],
        hosts.compute_service,
        iter(range(99)),
    )

    def told_meanwhile(*given: Any) -> Any:
        if next(looks) == 4:  # it listens
            host.forced_down, host.changed = True, time.time() + 5
        return look(*given)

    monkeypatch.setattr(hosts, "compute_service", told_meanwhile)

    evidence = fencing.prove()

    assert evidence.proven, evidence.observed
    assert next(looks) > 5, "it looked again"


def test_a_proof_of_others_is_contradicted_by_the_member_s_own_agent(fencing: Fencing) -> None:
    """The operator who fenced the host by hand did not listen to it."""
    fencing.compute_dies()
    fencing.configure([fencing.device(fencing.machines.board("lies"))], listen=3)
    before = fencing.now()
    fencing.by_hand()

    with since(before):
        evidence = fencing.prove(limit=12)

    assert not evidence.proven
    assert "contradicted: db_a's agent sent a heartbeat" in evidence.observed
    assert recorded_proof(fencing) is None, "nor does it count for others any more"


def after(fencing: Fencing, script: str) -> str:
    """Return the path of an agent that runs these lines of a shell first."""
    agent = fencing.folder / "fence_after"
    agent.write_text(f"#!/bin/sh\n{script}\nexec {AGENT}\n")
    agent.chmod(0o755)
    return str(agent)


def recorded_proof(fencing: Fencing) -> str | None:
    """Return the proof that other groups with a member on the host would use."""
    return fencing.runtime.database.reading(lambda tx: host_fences.of_host(tx, fencing.host)).proof


def test_a_process_that_died_while_it_fenced_delays_the_others_for_its_lease_only(
    fencing: Fencing,
) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    store = fencing.runtime.database
    store.atomically(lambda tx: host_fences.claim(tx, fencing.host, "a dead process", 1.0))

    assert fencing.prove(limit=10).proven
    assert fencing.seconds > 0.8


def test_a_process_that_was_too_slow_to_keep_its_claim_begins_again(
    fencing: Fencing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a slow state store would make an operator confirm the fence."""
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    renew, late = host_fences.renew, [False, True]

    def slow(*given: Any) -> bool:
        return renew(*given) and not (late and late.pop())

    monkeypatch.setattr(host_fences, "renew", slow)

    assert fencing.prove().proven
    assert fencing.actions() == ["off", "status"]


def undecided(prove: Callable[[], Any]) -> str:
    """What a fence says that proved nothing, and is tried again without an operator."""
    with pytest.raises(CloudError) as raised:
        prove()
    assert (raised.value.code, raised.value.transient) == ("FENCE_UNPROVEN", True)
    return raised.value.message


def test_a_process_that_waits_for_another_one_in_vain_has_no_proof_and_tries_again(
    fencing: Fencing,
) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    store = fencing.runtime.database
    store.atomically(lambda tx: host_fences.claim(tx, fencing.host, "a slow process", 60.0))

    said = undecided(lambda: fencing.prove(limit=1))

    assert "another process is fencing its host" in said
    assert "a slow process" not in said
    assert fencing.actions() == []


def test_the_status_shows_the_wait_for_another_process(
    fencing: Fencing, monkeypatch: pytest.MonkeyPatch
) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    store = fencing.runtime.database
    store.atomically(lambda tx: host_fences.claim(tx, fencing.host, "a dead process", 2.0))
    attempt, heard = fencing.attempt(), []

    def waits_for(error: CloudError | None) -> None:
        heard.append(error and error.service)

    guard = attempt.tools.cloud.guard
    monkeypatch.setattr(guard, "waits_for", waits_for, raising=False)
    monkeypatch.setattr(guard, "overloaded", lambda *_: None, raising=False)

    evidence = host_power.HostPower("host_power").prove(attempt, {"kind": "host_power", "limit": 9})

    assert evidence.proven
    assert heard[0] == "the fence of its host"
    assert heard[-1] is None, "its own fence is no wait"


def test_what_a_wait_has_left_of_the_time_is_no_try(fencing: Fencing) -> None:
    fencing.dies()
    slow = after(fencing, "sleep 0.8")
    fencing.configure([fencing.device(fencing.machines.board(), agent=slow, limit=5)])
    store = fencing.runtime.database
    store.atomically(lambda tx: host_fences.claim(tx, fencing.host, "a dead process", 3.0))

    undecided(lambda: fencing.prove(limit=3.5))

    assert fencing.prove(limit=10).proven


def proven_for_another_group(
    fencing: Fencing, trouble: str, levels: int = 1, **device: Any
) -> Path:
    """The host was proven off. Where the returned file exists, ``$trouble`` in the shell, its
    devices run into that trouble."""
    fencing.dies()
    file = fencing.folder / "trouble"
    agent = after(fencing, f"trouble={file}\n[ ! -e $trouble ] || {trouble}")
    same = fencing.device(fencing.machines.board(), agent=agent, **device)
    fencing.configure(*[[same]] * levels)
    fencing.begin()
    assert fencing.prove().proven
    return file


def test_a_proof_of_another_process_that_could_not_be_examined_in_time_is_examined_again(
    fencing: Fencing,
) -> None:
    hang = proven_for_another_group(fencing, "sleep 5", levels=2, limit=5)
    hang.touch()

    undecided(lambda: fencing.prove(limit=2))

    hang.unlink()
    assert fencing.prove().proven
    assert fencing.actions().count("off") == 1


def test_a_proof_stays_while_the_devices_do_not_say_whether_the_host_is_still_off(
    fencing: Fencing,
) -> None:
    """A board has few sessions, and many groups ask it at once."""
    busy = proven_for_another_group(fencing, "{ rm $trouble; exit 1; }")
    before = fencing.actions()
    busy.touch()

    assert fencing.prove().proven

    assert fencing.actions() == [*before, "status"], "it was not switched off once more"


def test_without_an_answer_a_proof_of_another_process_proves_nothing(fencing: Fencing) -> None:
    proven_for_another_group(fencing, "exit 1").touch()

    said = undecided(lambda: fencing.prove(limit=2))

    assert "exit code 1" in said, "what the device answered"
    assert recorded_proof(fencing) is not None, "the others may use it"


def test_groups_that_wait_for_a_device_take_the_answer_that_one_of_them_got(
    fencing: Fencing,
) -> None:
    """The board died with its host: each question takes as long as it may."""
    slow = proven_for_another_group(fencing, "sleep 1", limit=5)
    before = len(fencing.actions())
    slow.touch()

    proofs = together(6, lambda _: fencing.prove(limit=20))

    assert all(evidence.proven for evidence in proofs)
    assert len(fencing.actions()) - before < 6


def test_a_process_that_lost_its_lease_records_no_proof(fencing: Fencing) -> None:
    fencing.dies()
    gate = fencing.folder / "gate"
    slow = after(fencing, f"echo x > {gate}.met; until test -e {gate}; do sleep 0.02; done")
    fencing.configure([fencing.device(fencing.machines.board(), agent=slow)])
    store = fencing.runtime.database

    def take_over(_: int) -> Any:
        until(Path(f"{gate}.met").exists)
        expired = host_fences.host_fences.update().values(lease_until=0.0)
        store.atomically(lambda tx: tx.execute(expired))
        store.atomically(lambda tx: host_fences.claim(tx, fencing.host, "another", 60.0))
        gate.touch()

    jobs = (lambda _: undecided(lambda: fencing.prove(limit=5)), take_over)
    said, _ = together(2, lambda number: jobs[number](number))

    assert "another process is fencing its host" in said, "it waited for that one"
    found = store.reading(lambda tx: host_fences.of_host(tx, fencing.host))
    assert (found.owner, found.proof) == ("another", None)


# -- the operator's file


def wrong(fencing: Fencing, **more: Any) -> str:
    fencing.dies()
    fencing.configure(**more)
    return fencing.prove().observed


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o606])
def test_a_file_that_others_can_read_or_change_is_not_used(fencing: Fencing, mode: int) -> None:
    fencing.configure([fencing.device(1)])
    fencing.file.chmod(mode)

    assert fencing.prove().observed == "the operator's fence devices cannot be used"


def test_a_file_of_root_may_be_readable_by_the_group(fencing: Fencing) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a file of root")
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    fencing.file.chmod(0o640)

    assert fencing.prove().proven


@pytest.mark.parametrize(
    "device",
    [
        {"options": {"password": "s3cret"}},
        {"options": {"action": "on"}},
        {"options": {"ip": "10.0.0.1\naction=on"}},
        {"options": {"a=b": "1"}},
        {"secrets": {"password": "relative"}},
        {"agent": "../fence_ipmilan"},
        {"limit": 0},
        {"unknown": 1},
    ],
)
def test_a_device_that_is_wrong_is_refused_without_a_word_to_the_project(
    fencing: Fencing, caplog: pytest.LogCaptureFixture, device: dict[str, Any]
) -> None:
    fencing.dies()
    fencing.configure([{"agent": "fence_ipmilan", **device}])

    assert fencing.prove().observed == "the operator's fence devices cannot be used"
    assert "hosts." in caplog.text
    assert "s3cret" not in caplog.text


def test_a_secret_s_file_that_others_can_read_is_not_used(fencing: Fencing) -> None:
    fencing.dies()
    fencing.configure([fencing.device(fencing.machines.board())])
    Path(fencing.secret()).chmod(0o644)

    assert not fencing.prove().proven
    assert fencing.actions() == []


def test_without_a_file_nothing_is_proven(fencing: Fencing) -> None:
    assert fencing.prove().observed == "the operator's fence devices cannot be used"


def evacuated(fencing: Fencing) -> str:
    """The compute service of the member's host dies, its server is evacuated, and its new host
    loses its power; return that one's name."""
    fencing.compute_dies()
    Operator(fencing.emulated.client).evacuate(fencing.server, "2.94")
    target = str(fencing.emulated.client.guests()[fencing.server]["host"])
    fencing.emulated.client.fault("host", target, "power_off")
    return target


def test_the_host_that_a_server_was_evacuated_from_is_switched_off_too(fencing: Fencing) -> None:
    target, old = evacuated(fencing), fencing.host
    fencing.machines.add(target, "off")
    board = fencing.machines.board()
    devices = {host: [[fencing.device(board, plug=host)]] for host in (old, target)}
    fencing.configure(hosts=devices)

    evidence = fencing.prove()

    assert evidence.proven, evidence.observed
    assert fencing.machines.power(old) == "off"


@pytest.mark.parametrize("hidden", [False, True])
def test_while_that_host_cannot_be_switched_off_or_is_unknown_nothing_is_proven(
    fencing: Fencing, hidden: bool
) -> None:
    target, old = evacuated(fencing), fencing.host
    fencing.machines.add(target, "off")
    fencing.host = target
    fencing.configure([fencing.device(fencing.machines.board())])
    if hidden:
        fencing.emulated.client.api_fault("migrations", "error", status=403, times=9)

    evidence = fencing.prove()

    assert not evidence.proven
    assert ("Nova evacuated it" if hidden else "no fence device is configured") in evidence.observed
    if not hidden:
        fencing.emulated.client.fault("host", old, "revive")
        assert fencing.prove().proven, "Nova has removed the guest there"
