# SPDX-License-Identifier: Apache-2.0
"""A program runs in its own group, within its time, and can not hurt the agent."""

from __future__ import annotations

import os
import pwd
import resource
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mistral_failover.agent.daemon import runner
from mistral_failover.agent.daemon.journal import ProcessIdentity
from mistral_failover.agent.daemon.settings import Account
from mistral_failover.agent.wire import MAX_OUTPUT
from support.agents import shell
from support.waiting import until

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def run(script, **more):
    return runner.run(shell(script), **{"limit": 20.0, "environment": ENVIRONMENT, **more})


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_output_and_exit_code_come_back():
    ended = run("echo out; echo err >&2; exit 7")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (7, "out\n", "err\n")
    assert not ended.held
    assert not ended.stopped


def test_a_short_program_takes_no_time():
    assert min(run("true").seconds for _ in range(3)) < 1


def test_a_signal_is_shown_as_shells_do():
    assert run("kill -9 $$").exit_code == 137


def test_nothing_is_on_its_standard_input():
    assert run("cat; echo end").stdout == "end\n"


def test_its_environment_is_what_it_is_given():
    said = run("env", environment={"A": "1"}).stdout.split()
    assert "A=1" in said
    assert not any(line.startswith(("HOME=", "USER=")) for line in said)


def test_it_runs_in_its_folder(tmp_path):
    assert run("pwd", folder=str(tmp_path)).stdout.strip() == str(tmp_path)


def test_it_leads_a_group_of_its_own():
    said = run("echo $$; ps -o pgid=,sid= -p $$").stdout.split()
    assert said[0] == said[1] == said[2]


def test_no_open_file_of_the_agent_is_passed_on(tmp_path):
    with (tmp_path / "secret").open("w"):
        assert "secret" not in run("ls -l /proc/self/fd").stdout


@pytest.mark.parametrize(
    ("argv", "folder"), [(["/nowhere/program"], "/"), (["/bin/true"], "/nowhere"), (["/etc"], "/")]
)
def test_what_can_not_be_begun_ended_at_once(argv, folder):
    ended = runner.run(argv, limit=1.0, environment={}, folder=folder)
    assert ended.exit_code == runner.NOT_RUN
    assert "is not usable" in ended.stderr


def test_at_its_limit_the_whole_group_is_killed(tmp_path):
    pids = tmp_path / "pids"
    ended = run(f"sleep 60 & echo $! > {pids}; echo before; wait", limit=3.0)
    assert ended.exit_code == runner.TIMED_OUT
    assert ended.stdout == "before\n"
    assert "killed after 3 s, its limit" in ended.stderr
    until(lambda: not is_alive(int(pids.read_text())))


def test_who_does_not_mind_being_asked_is_killed(monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.2)
    begun = time.monotonic()
    ended = run("trap '' TERM; sleep 60 & wait; sleep 60", limit=0.2)
    assert ended.exit_code == runner.TIMED_OUT
    assert time.monotonic() - begun < 5


def test_a_flood_does_not_fill_the_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = run("head -c 300000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert ended.stdout.endswith("x\nend\n")
    assert len(ended.stdout) == MAX_OUTPUT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


def test_a_flood_without_end_is_ended_by_the_limit():
    assert run("yes", limit=0.5).exit_code == runner.TIMED_OUT


def test_bytes_that_are_no_text_do_no_harm():
    assert run(r"printf '\377\376ok'").stdout.endswith("ok")


def test_what_it_leaves_behind_is_not_waited_for(tmp_path):
    pid = tmp_path / "pid"
    begun = time.monotonic()
    ended = run(f"sleep 60 & echo $! > {pid}; echo begun")
    try:
        assert (ended.exit_code, ended.stdout, ended.held) == (0, "begun\n", True)
        assert time.monotonic() - begun < 5
        assert is_alive(int(pid.read_text()))
    finally:
        os.kill(int(pid.read_text()), 9)


def test_somebody_can_have_it_cut_off():
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    ended = run("sleep 60", stop=stop)
    assert ended.stopped
    assert ended.exit_code == runner.STOPPED


def test_it_is_known_as_soon_as_it_runs():
    identities = []
    run("true", began=identities.append)
    (identity,) = identities
    assert identity.boot_id == runner.boot_id()


def test_what_can_not_be_written_down_does_not_run_on(tmp_path):
    pid = []

    def fails(identity):
        pid.append(identity.pid)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        run("sleep 60", began=fails)
    assert not is_alive(pid[0])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_it_runs_as_its_user_with_its_groups_only():
    nobody = pwd.getpwnam("nobody")
    account = Account("nobody", nobody.pw_uid, nobody.pw_gid, (nobody.pw_gid,), "/")
    ended = run("id -u; id -G", account=account)
    assert ended.stdout.split() == [str(nobody.pw_uid), str(nobody.pw_gid)]


# -- what a former agent left


@pytest.fixture
def left(tmp_path):
    process = subprocess.Popen(
        shell("trap '' TERM; sleep 600 & echo $!; wait; sleep 600"),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={runner.COMMAND_ID: str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    child = int(process.stdout.readline())
    threading.Thread(target=process.wait, daemon=True).start()
    yield process, child
    if process.poll() is None:
        os.killpg(process.pid, 9)


def test_what_still_runs_is_killed_with_its_group(left):
    process, child = left
    assert runner.kill_leftovers(runner.process_identity(process.pid), grace=0.2)
    assert not is_alive(process.pid)
    until(lambda: not is_alive(child))


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another"}])
def test_another_process_of_the_same_number_is_left_alone(left, change):
    process, _ = left
    known = runner.process_identity(process.pid)
    other = ProcessIdentity(
        **{"pid": known.pid, "start_ticks": known.start_ticks, "boot_id": known.boot_id, **change}
    )
    assert not runner.kill_leftovers(other)
    assert is_alive(process.pid)


def test_a_program_does_nothing_before_its_process_is_recorded(tmp_path):
    proof = tmp_path / "proof"
    seen = []

    def began(identity):
        time.sleep(0.2)
        seen.append((identity, proof.exists()))

    ended = run(f"echo $$ > {proof}; env", began=began)

    ((identity, too_early),) = seen
    assert not too_early
    assert proof.read_text().strip() == str(identity.pid), "it is the process that was recorded"
    assert set(ended.stdout.split()) <= {"PATH=/usr/bin:/bin", "PWD=/", "_=/usr/bin/env"}
    assert not ended.stderr


def test_of_an_agent_that_dies_before_it_recorded_the_process_nothing_runs(tmp_path):
    proof = tmp_path / "proof"
    script = (
        "import os\n"
        "from mistral_failover.agent.daemon import runner\n"
        f"runner.run(['/usr/bin/touch', {str(proof)!r}], limit=9.0, environment={{}},"
        " began=lambda identity: (print(identity.pid, flush=True), os._exit(1)))\n"
    )
    died = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    until(lambda: not is_alive(int(died.stdout)))
    assert not proof.exists()


def test_what_the_journal_does_not_name_is_not_killed(tmp_path):
    """An application that a command left behind has the command's environment."""
    environment = {**ENVIRONMENT, runner.COMMAND_ID: "c-1"}
    pid = tmp_path / "pid"
    identities = []
    run(
        f"setsid sh -c 'echo $$ > {pid}; exec sleep 600' >/dev/null 2>&1 &",
        environment=environment,
        began=identities.append,
    )
    until(lambda: pid.exists() and pid.read_text().strip())
    application = int(pid.read_text())
    try:
        assert not runner.kill_leftovers(identities[0])
        assert is_alive(application)
    finally:
        os.kill(application, 9)


def test_what_minds_no_signal_is_killed_after_its_leader_is_gone():
    process = subprocess.Popen(
        shell("sh -c 'trap \"\" TERM; echo $$; exec sleep 600' & wait"),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    child = int(process.stdout.readline())
    threading.Thread(target=process.wait, daemon=True).start()
    try:
        assert runner.kill_leftovers(runner.process_identity(process.pid), grace=0.2)
        assert not is_alive(child)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)


def test_a_daemon_that_left_the_session_is_left_alone(tmp_path):
    pid = tmp_path / "pid"
    process = subprocess.Popen(
        shell(f"setsid sh -c 'echo $$ > {pid}; exec sleep 600' & wait"), start_new_session=True
    )
    until(lambda: pid.exists() and pid.read_text().strip())
    threading.Thread(target=process.wait, daemon=True).start()
    try:
        assert runner.kill_leftovers(runner.process_identity(process.pid), grace=0.2)
        assert not is_alive(process.pid)
        assert is_alive(int(pid.read_text()))
    finally:
        os.kill(int(pid.read_text()), 9)
