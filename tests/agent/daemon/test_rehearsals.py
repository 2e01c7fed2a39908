# SPDX-License-Identifier: Apache-2.0
"""Rehearsals on a node: commands in namespaces of their own, which end at once, and nothing of them
is left."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.agent.channel.interface import ChannelError, CommandResult
from mistral_failover.agent.daemon.isolation import Namespaces
from mistral_failover.agent.daemon.settings import RehearsalSettings
from mistral_failover.agent.wire import END_REHEARSAL
from support.agents import Node, killed_at_the_end, shell
from support.waiting import until


def _why_not() -> str:
    if os.geteuid() != 0:
        return "only root can make namespaces"
    namespaces = Namespaces(RehearsalSettings())
    namespaces.try_it(["any"])
    return namespaces.why_not() or ""


pytestmark = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "never")

REHEARSAL = str(uuid.uuid4())  # names a control group of this machine, which tests share
OTHER = "22222222-2222-4222-8222-222222222222"
SERVICE = Path(__file__).parents[2] / "support" / "small_service.py"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path / "node", f"filesystem://{tmp_path}/broker")
    # Not /tmp and /dev/shm: the folder of a test is there.
    node.settings["rehearsals"] = {"private": ["/run", "/var/tmp", "/var/spool"]}
    node.commands["look"] = {"argv": shell("hostname; ip -o link; ls /proc"), "rehearse": "same"}
    node.commands["sleep"] = {"argv": shell("sleep 6040.17"), "rehearse": "same", "lane": "slow"}
    node.commands["increment"]["rehearse"] = shell(f"echo rehearsed >> {tmp_path}/rehearsed")
    return node


def rehearse(node: Node, name: str, rehearsal: str = REHEARSAL, **more: Any) -> CommandResult:
    return node.run(name, **{"id": uuid.uuid4().hex, "rehearsal": rehearsal, **more})


def end(node: Node, rehearsal: str = REHEARSAL) -> float:
    """End a rehearsal; return the seconds that it took."""
    began = time.monotonic()
    assert rehearse(node, END_REHEARSAL, rehearsal).exit_code == 0
    return time.monotonic() - began


def refused(node: Node, name: str, rehearsal: str = REHEARSAL, **more: Any) -> ChannelError:
    with pytest.raises(ChannelError) as raised:
        rehearse(node, name, rehearsal, **more)
    return raised.value


def test_a_rehearsed_command_sees_only_the_loopback_interface_and_its_own_processes(
    node: Node,
) -> None:
    with node.agent():
        result = rehearse(node, "look")

        assert result.exit_code == 0, result.stderr
        interfaces = [line for line in result.stdout.splitlines() if "<" in line]
        assert len(interfaces) == 1
        assert "lo: <LOOPBACK,UP" in interfaces[0]
        assert len([word for word in result.stdout.split() if word.isdigit()]) < 10


def test_a_command_runs_in_its_form_for_rehearsals(node: Node) -> None:
    with node.agent():
        assert rehearse(node, "increment").exit_code == 0

    assert node.count() == 0
    assert (node.folder.parent / "rehearsed").exists()


def test_a_command_without_a_form_for_rehearsals_is_refused_and_does_not_run(node: Node) -> None:
    with node.agent():
        error = refused(node, "checked")

    assert error.code == "NOT_REHEARSABLE"
    assert "checked may not be rehearsed" in error.message
    assert node.count() == 0


# -- one isolation for a rehearsal

SERVE = """
import fcntl, os, socket, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
listening = socket.create_server(("127.0.0.1", int(sys.argv[2])))
if os.fork():
    os._exit(0)
os.setsid()
for number in (0, 1, 2):
    os.dup2(os.open("/dev/null", os.O_RDWR), number)
while True:
    connection, _ = listening.accept()
    connection.sendall(sys.argv[3].encode())
    connection.close()
"""
"""A small daemon: it has a lock file and a port, and says which one it is."""
ASK = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5) as connection:
    print(connection.recv(100).decode())
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def answer(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        return connection.recv(100).decode()


@pytest.fixture
def port(node: Node) -> Iterator[int]:
    """A service with a port, a lock and a mount; the real one runs already."""
    port = free_port()
    lock = f"/run/failover-test-{uuid.uuid4().hex}.lock"
    place = node.folder / "data"
    place.mkdir()
    serve = [shutil.which("python3") or "", "-c", SERVE, lock, str(port)]
    mount = f'mount -t tmpfs none {place} && touch {place}/mounted && exec "$0" "$@"'
    node.commands["serve"] = {
        "argv": [*serve, "real"],
        "rehearse": [*shell(mount), *serve, "rehearsed"],
    }
    node.commands["ask"] = {
        "argv": shell("exit 9"),
        "rehearse": [serve[0], "-c", ASK, str(port)],
    }
    real = subprocess.run([*serve, "real"], check=False, timeout=20)
    assert real.returncode == 0
    yield port
    for pid in inside(f"{port}\0real"):
        os.kill(pid, signal.SIGKILL)
    Path(lock).unlink(missing_ok=True)


def inside(text: str) -> list[int]:
    """The processes whose command line has a text."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                words = (place / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in words and int(place.name) != os.getpid():
                found.append(int(place.name))
    return found


def test_a_real_service_and_a_rehearsed_one_run_side_by_side_on_the_same_port(
    node: Node, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with node.agent():
        started = rehearse(node, "serve")
        assert started.exit_code == 0, started.stderr
        said = rehearse(node, "ask")
        assert (said.exit_code, said.stdout) == (0, "rehearsed\n"), said.stderr
        assert answer(port) == "real"
        assert inside(f"{port}\0rehearsed")
        assert not (node.folder / "data" / "mounted").exists(), "the mount is inside only"

        seconds = end(node)

        assert inside(f"{port}\0rehearsed") == []
        assert str(node.folder / "data") not in Path("/proc/mounts").read_text("utf-8")
        assert answer(port) == "real"
    with capsys.disabled():
        print(f"\nthe rehearsal was ended in {seconds * 1000:.0f} ms, with its message")
    assert seconds < 1.0


def test_what_was_rehearsed_is_not_in_effect(node: Node, port: int) -> None:
    with node.agent():
        assert rehearse(node, "serve").exit_code == 0
        until(
            lambda: (
                (beat := node.channel.heard(node.address)) is not None
                and bool(beat.rehearsals and beat.rehearsals.current)
            )
        )
        beat = node.channel.heard(node.address)

        assert beat is not None
        assert beat.in_effect == ()
        assert beat.running == ()
        assert beat.rehearsals is not None
        assert beat.rehearsals.current == REHEARSAL


# -- its end


def test_a_rehearsal_that_was_ended_does_not_begin_again(node: Node) -> None:
    with node.agent():
        assert rehearse(node, "increment", id="one").exit_code == 0
        end(node)
        end(node)

        assert refused(node, "increment").code == "REHEARSAL_ENDED"
        assert refused(node, "increment", id="one").code == "REHEARSAL_ENDED"
        assert rehearse(node, "increment", OTHER).exit_code == 0


def test_a_rehearsal_that_was_ended_before_its_first_command_came_does_not_begin(
    node: Node,
) -> None:
    with node.agent():
        end(node)

        assert refused(node, "increment").code == "REHEARSAL_ENDED"


def test_one_rehearsal_at_a_time(node: Node) -> None:
    with node.agent():
        assert rehearse(node, "increment").exit_code == 0

        error = refused(node, "increment", OTHER)
        assert error.code == "REHEARSAL_RUNNING"
        assert REHEARSAL in error.message

        end(node)
        assert rehearse(node, "look", OTHER).exit_code == 0


def in_a_thread(call: Any) -> tuple[threading.Thread, list[ChannelError]]:
    raised: list[ChannelError] = []

    def run() -> None:
        try:
            call()
        except ChannelError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


def test_a_real_command_ends_the_rehearsal_and_runs(node: Node) -> None:
    with node.agent():
        thread, raised = in_a_thread(lambda: rehearse(node, "sleep"))
        until(lambda: inside("sleep\x006040.17"))
        began = time.monotonic()

        assert node.run("increment").exit_code == 0

        seconds = time.monotonic() - began
        thread.join(10)
        assert inside("sleep\x006040.17") == []
        assert refused(node, "look").code == "REHEARSAL_ENDED"
    assert [error.code for error in raised] == ["REHEARSAL_ENDED"]
    assert "increment was requested" in raised[0].message
    assert node.count() == 1
    assert seconds < 1.0


def test_a_new_epoch_ends_the_rehearsal(node: Node) -> None:
    with node.agent(on_deposed=["stop"]):
        thread, raised = in_a_thread(lambda: rehearse(node, "sleep"))
        until(lambda: inside("sleep\x006040.17"))
        began = time.monotonic()

        node.channel.depose(node.address, 2)

        until(lambda: not inside("sleep\x006040.17"))
        seconds = time.monotonic() - began
        thread.join(10)
        until(lambda: node.stops() == 1)
        assert refused(node, "look", epoch=2).code == "REHEARSAL_ENDED"
        until(lambda: begins_anew(node))  # once the agent knows that the stop has ended
    assert [error.code for error in raised] == ["REHEARSAL_ENDED"]
    assert seconds < 1.0


def begins_anew(node: Node) -> bool:
    """Whether another rehearsal may begin."""
    try:
        return rehearse(node, "look", OTHER, epoch=2).exit_code == 0
    except ChannelError:
        return False


def test_nothing_survives_an_agent_that_is_killed(node: Node, port: int) -> None:
    with killed_at_the_end(node.process()) as process:
        assert rehearse(node, "serve", id="one", limit=60.0).exit_code == 0
        thread, raised = in_a_thread(lambda: rehearse(node, "sleep", id="two", limit=20.0))
        until(lambda: inside("sleep\x006040.17"))

        process.kill()
        began = time.monotonic()
        until(lambda: not inside("sleep\x006040.17") and not inside(f"{port}\0rehearsed"))
        assert time.monotonic() - began < 1.0

    with killed_at_the_end(node.process()):
        assert refused(node, "serve", id="one", limit=60.0).code == "REHEARSAL_ENDED"
        thread.join(30)
        assert rehearse(node, "look", OTHER).exit_code == 0
    assert [error.code for error in raised] == ["REHEARSAL_ENDED"]
    assert {row.state for row in node.rows() if row.id == "two"} == {"refused"}


def test_a_rehearsal_ends_with_its_agent(node: Node, port: int) -> None:
    with node.agent():
        assert rehearse(node, "serve").exit_code == 0

    assert inside(f"{port}\0rehearsed") == []
    assert answer(port) == "real"


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """A block device with a file system, as a volume."""
    image = tmp_path / "volume"
    with image.open("wb") as file:
        file.truncate(16 * 2**20)
    made = subprocess.run(
        ["losetup", "--find", "--show", str(image)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no block device can be made: {made.stderr}")
    name = made.stdout.strip()
    subprocess.run(["mkfs.ext4", "-q", name], check=True)
    yield name
    subprocess.run(["losetup", "--detach", name], check=True)


def test_a_device_is_free_once_the_rehearsal_has_ended(
    node: Node, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "volume-here"
    place.mkdir()
    script = f"mount {device} {place} && exec sleep 6042.17 >{place}/open 2>&1"
    node.commands["use"] = {"argv": shell(script), "rehearse": "same"}
    with node.agent():
        _, raised = in_a_thread(lambda: rehearse(node, "use"))
        until(lambda: inside("sleep\x006042.17"))
        with pytest.raises(OSError, match="busy"):
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL))

        seconds = end(node)

        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
        until(lambda: bool(raised))
    with capsys.disabled():
        print(f"\nthe device was free after {seconds * 1000:.0f} ms")
    assert seconds < 1.0


# -- limits, users, output


def test_a_rehearsal_s_memory_is_limited(node: Node) -> None:
    node.settings["rehearsals"]["memory"] = 2
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 50
    script = f"len(bytearray({most} + 2**26))"
    node.commands["eat"] = {
        "argv": [shutil.which("python3") or "", "-c", script],
        "rehearse": "same",
    }
    with node.agent():
        looked = rehearse(node, "look")
        assert looked.exit_code == 0
        beat = node.channel.heard(node.address)
        assert beat is not None
        assert beat.rehearsals is not None
        if beat.rehearsals.unlimited is not None:
            pytest.skip(beat.rehearsals.unlimited)

        assert rehearse(node, "eat").exit_code == 137
        assert rehearse(node, "look").exit_code == 0, "the isolation outlives it"


def test_a_rehearsed_command_runs_as_its_user(node: Node) -> None:
    node.commands["who"] = {
        "argv": shell('id -u; id -Gn; pwd; env | cut -d= -f1 | sort | tr "\\n" " "'),
        "rehearse": "same",
        "user": "nobody",
        "folder": "/usr",
    }
    with node.agent():
        said = rehearse(node, "who")

    names = "FAILOVER_COMMAND_ID FAILOVER_REHEARSAL HOME LANG PATH PWD USER "
    assert said.stdout.splitlines() == ["65534", "nogroup", "/usr", names], said.stderr


def test_a_rehearsed_command_is_killed_at_its_limit_and_the_rehearsal_goes_on(node: Node) -> None:
    node.commands["late"] = {"argv": shell("sleep 6044.17"), "rehearse": "same", "limit": 0.3}
    with node.agent():
        assert rehearse(node, "late").exit_code == 124
        assert inside("sleep\x006044.17") == []
        assert rehearse(node, "look").exit_code == 0


def test_the_output_of_a_rehearsed_command_is_cut_to_4_kb(node: Node) -> None:
    node.commands["talk"] = {
        "argv": shell("yes é | head -n 5000; yes x | head -n 5000 >&2"),
        "rehearse": "same",
    }
    with node.agent():
        said = rehearse(node, "talk")

    assert 4090 <= len(said.stdout.encode()) <= 4096
    assert len(said.stderr.encode()) == 4096


def test_sockets_of_services_and_mails_to_send_are_not_seen_inside(node: Node) -> None:
    path = Path(f"/run/failover-test-{uuid.uuid4().hex}")
    path.touch()
    try:
        node.commands["list"] = {
            "argv": shell("ls /run /var/spool; touch /var/spool/m"),
            "rehearse": "same",
        }
        with node.agent():
            said = rehearse(node, "list")
    finally:
        path.unlink()

    assert said.exit_code == 0
    assert path.name not in said.stdout
    assert "lock" in said.stdout, "folders are there"
    assert not Path("/var/spool/m").exists()


def test_a_rehearsal_during_a_real_command_is_refused(node: Node) -> None:
    node.commands["long"] = {"argv": shell("sleep 6041.17")}
    with node.agent(finish=0.1):
        in_a_thread(lambda: node.run("long", id="real"))
        until(lambda: inside("sleep\x006041.17"))

        error = refused(node, "look")

        assert error.code == "REHEARSAL_ENDED"
        assert "There is no rehearsal during long" in error.message


def test_an_agent_that_may_rehearse_nothing_says_so(tmp_path: Path) -> None:
    node = Node(tmp_path / "plain", f"filesystem://{tmp_path}/broker")
    with node.agent():
        assert refused(node, "increment").code == "NOT_REHEARSABLE"
        beat = node.channel.heard(node.address)

    assert beat is not None
    assert beat.rehearsals is not None
    assert beat.rehearsals.not_isolated == "no command of its file has rehearse"
    assert beat.rehearsals.commands == frozenset()
