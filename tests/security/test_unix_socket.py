# SPDX-License-Identifier: Apache-2.0
"""The embedded Mistral's API on a unix socket, which no browser and no other user can reach."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.cli.main import main
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import GuardedSession, LeaseLost, Unguarded
from mistral_failover.embedded import access, unix_socket
from mistral_failover.embedded.wsgi import WsgiFace
from mistral_failover.errors import CodedError
from mistral_failover.http_server import HttpServer
from mistral_failover.mistral.api import Mistral
from mistral_failover.mistral.client import MistralClient, MistralError
from mistral_failover.server import addresses
from mistral_failover.server.options import Options
from support import forked
from support.commands import failover
from support.servers import ServerProcess

TOKEN = "0123456789abcdef" * 4


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory whose name leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="s") as made:
        yield Path(made)


def refused(path: Path) -> CodedError:
    """Why the server does not listen there; --check says the same."""
    with pytest.raises(CodedError) as started:
        unix_socket.bound(path).close()
    with pytest.raises(CodedError) as checked:
        addresses.check_free(addresses.UnixSocket(path))
    assert str(started.value) == str(checked.value)
    return started.value


# -- where it listens


def test_the_socket_is_for_its_user_alone_whatever_the_umask(folder: Path) -> None:
    old = os.umask(0)
    try:
        with unix_socket.bound(folder / "new" / "api.sock"):
            made = (folder / "new" / "api.sock").stat()
            assert stat.S_ISSOCK(made.st_mode)
            assert stat.S_IMODE(made.st_mode) == 0o600
            assert stat.S_IMODE((folder / "new").stat().st_mode) == 0o700
    finally:
        os.umask(old)


@pytest.mark.parametrize("bits", [0o755, 0o750, 0o777])
def test_a_directory_that_others_may_enter_is_refused(folder: Path, bits: int) -> None:
    folder.chmod(bits)

    why = refused(folder / "api.sock")

    assert (why.code, why.remedy) == ("SOCKET_DIR_OPEN", f"Run: chmod 700 {folder}")
    assert list(folder.iterdir()) == []


def test_the_socket_of_a_dead_process_is_replaced(folder: Path) -> None:
    path = folder / "api.sock"
    unix_socket.bound(path).close()
    dead = path.stat().st_ino
    addresses.check_free(addresses.UnixSocket(path))
    assert path.stat().st_ino == dead, "a check leaves it"

    with unix_socket.bound(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_the_socket_of_a_living_process_is_left_to_it(folder: Path) -> None:
    path = folder / "api.sock"
    with unix_socket.bound(path) as first:
        why = refused(path)

        assert (why.code, str(path) in why.message) == ("SOCKET_TAKEN", True)
        assert str(path) in why.remedy
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            first.accept()[0].close()


def test_of_two_that_start_at_once_on_a_dead_socket_one_listens(folder: Path) -> None:
    path = folder / "api.sock"
    unix_socket.bound(path).close()
    ready = threading.Barrier(8)
    found: list[socket.socket | str] = []

    def start() -> None:
        ready.wait()
        try:
            found.append(unix_socket.bound(path))
        except CodedError as error:
            found.append(error.code)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    (one,) = [each for each in found if isinstance(each, socket.socket)]
    assert found.count("SOCKET_TAKEN") == 7
    with one, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        one.accept()[0].close()


def test_what_is_no_socket_is_not_removed(folder: Path) -> None:
    victim = folder / "victim"
    victim.write_text("precious")
    (folder / "link").symlink_to(victim)

    for name in ("victim", "link"):
        why = refused(folder / name)
        assert (why.code, "not a socket" in why.message) == ("SOCKET_UNUSABLE", True)

    assert victim.read_text() == "precious"


def test_a_path_that_is_too_long_is_explained(folder: Path) -> None:
    why = refused(folder / ("x" * unix_socket.LONGEST))

    assert why.code == "SOCKET_UNUSABLE"
    assert f"longer than {unix_socket.LONGEST} bytes" in why.message


def test_the_api_listens_in_the_state_directory_unless_told_otherwise(folder: Path) -> None:
    words = [
        "--os-cloud",
        "mine",
        "--check",
        "--state-dir",
        str(folder / ("x" * 100)),
        "-f",
        "json",
    ]

    assert str(Options(folder).api) == f"unix:{folder}/api.sock"
    assert "--listen unix:PATH" in failover("server", *words).stdout, "a path that is too long"


@pytest.mark.parametrize("said", ["unix:", "unix:/", "socket:/run/api", "8989"])
def test_what_is_no_address_of_the_api_is_a_wrong_command_line(said: str) -> None:
    done = failover("server", "--emulated", "--listen", said)

    assert done.returncode == 2
    assert "expected HOST:PORT with the host's IP address, or unix:PATH" in done.stderr


def test_the_webhook_has_no_unix_socket() -> None:
    done = failover("server", "--emulated", "--webhook-listen", "unix:/run/api")

    assert done.returncode == 2
    assert "argument --webhook-listen: expected HOST:PORT" in done.stderr


# -- the client


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """The requests to an API behind Mistral's gate, at ``api.sock`` of the folder. A proxy of the
    environment would get none of them."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    path, seen = folder / "api.sock", list[tuple[str, str]]()

    def answer(environ: Any, start_response: Any) -> list[bytes]:
        seen.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        body = b'{"id": "1", "state": "RUNNING", "workflow_name": "w", "workflows": []}'
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response("200 OK", headers)
        return [body]

    gate = access.AccessControl(answer, TOKEN, folder / "api-token", {"localhost"})
    with HttpServer(unix_socket.bound(path), WsgiFace(gate, access.LARGEST)):
        yield seen


def test_a_client_asks_over_the_socket_with_the_token(
    asked: list[tuple[str, str]], folder: Path
) -> None:
    client = MistralClient(f"unix:{folder}/api.sock", token=TOKEN)

    assert client.workflows() == []
    client.start("w")

    assert asked == [("GET", "/v2/workflows"), ("POST", "/v2/executions")]


def test_the_socket_alone_opens_nothing(asked: list[tuple[str, str]], folder: Path) -> None:
    with pytest.raises(MistralError) as error:
        MistralClient(f"unix:{folder}/api.sock").workflows()

    assert (error.value.code, asked) == ("UNAUTHORISED", [])


def test_an_action_asks_over_the_socket_as_long_as_its_guard_permits(
    asked: list[tuple[str, str]], folder: Path
) -> None:
    class Guard(Unguarded):
        lost = False

        def permit(self, method: str) -> float:
            if self.lost:
                raise LeaseLost("the lease has ended")
            return super().permit(method)

    guard = Guard(10.0)
    session = GuardedSession(guard=guard, timeout=10.0)
    mistral = Mistral(session, f"unix:{folder}/api.sock", TOKEN)

    assert mistral.state("1") == "RUNNING"
    guard.lost = True
    with pytest.raises(LeaseLost):
        mistral.start("1", "w", {}, "")

    assert asked == [("GET", "/v2/executions/1")]


def test_clients_wait_until_a_busy_server_accepts_them(folder: Path) -> None:
    """Linux refuses a connection at once if too many wait already, other than with TCP."""
    path = folder / "api.sock"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 17\r\nConnection: close\r\n\r\n"
    with unix_socket.bound(path) as listening:
        listening.listen(0)
        listening.settimeout(20)
        answers: list[Any] = []

        def ask() -> None:
            answers.append(MistralClient(f"unix:{path}", timeout=20).workflows())

        asking = [threading.Thread(target=ask) for _ in range(5)]
        for each in asking:
            each.start()
        time.sleep(0.2)
        for _ in asking:
            wire, _ = listening.accept()
            with wire:
                wire.recv(65536)
                wire.sendall(answer + b'{"workflows": []}')
        for each in asking:
            each.join()
    assert answers == [[]] * 5


def test_a_server_that_accepts_nothing_is_given_up_in_time(folder: Path) -> None:
    path = folder / "api.sock"
    with unix_socket.bound(path) as listening, socket.socket(socket.AF_UNIX) as other:
        listening.listen(0)
        other.connect(str(path))
        began = time.monotonic()
        with pytest.raises(MistralError) as error:
            MistralClient(f"unix:{path}", timeout=0.3).workflows()

    assert error.value.code == "MISTRAL_UNREACHABLE"
    assert time.monotonic() - began >= 0.3


def test_a_path_may_begin_in_the_home_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell leaves ``unix:~/api.sock`` as it is."""
    monkeypatch.setenv("HOME", str(folder))

    assert str(addresses.parse_api("unix:~/api.sock")) == f"unix:{folder}/api.sock"


def test_a_server_that_is_gone_is_named_by_its_socket(folder: Path) -> None:
    url = f"unix:{folder}/api.sock"

    with pytest.raises(MistralError) as error:
        MistralClient(url).workflows()
    with pytest.raises(CloudError) as failed:
        Mistral(GuardedSession(guard=Unguarded(1.0), timeout=1.0), url).state("1")

    assert error.value.code == "MISTRAL_UNREACHABLE"
    assert url in error.value.message
    assert failed.value.transient


# -- a whole server


@pytest.mark.drills
@pytest.mark.timeout(600)
def test_a_server_on_a_socket_serves_commands_and_actions_and_has_no_port(folder: Path) -> None:
    path = folder / "api.sock"
    with ServerProcess(folder, "--emulated", listen=None) as server:
        assert server.facts["url"] == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        made = server.failover("group", "create", str(folder / "payments.yaml"))
        assert made.returncode == 0, made.stderr
        moved = server.failover("switchover", "payments", "--to", "db_b", "--because", "a test")
        assert moved.returncode == 0, moved.stderr
        doctor = server.failover("doctor", "-f", "value")
        assert f"Mistral answers at unix:{path}" in doctor.stdout, doctor.stdout + doctor.stderr
        webhook = server.facts["webhook"].split("/")[2]
        assert ports_of(server.facts["pid"]) == [int(webhook.partition(":")[2])]

        other = ServerProcess(folder / "other", "--emulated", "--listen", f"unix:{path}")
        second = forked.run(main, *other.command, timeout=100)
        assert (second.returncode, "[SOCKET_TAKEN]" in second.stderr) == (1, True), second.stderr
        assert server.action("failover.status") is not None

        server.kill()
        assert path.exists()
        server.launch().wait()
        assert server.action("failover.status") is not None
    assert not path.exists()


def test_a_server_that_stops_removes_no_socket_of_another_one(tmp_path: Path) -> None:
    path = tmp_path / "run" / "api.sock"
    first = unix_socket.bound(path)
    made = path.stat()
    path.unlink()  # by hand
    second = unix_socket.bound(path)

    unix_socket.removed(path, made)
    assert path.exists()
    unix_socket.removed(path, path.stat())
    assert not path.exists()
    first.close()
    second.close()


def ports_of(pid: int) -> list[int]:
    """The TCP ports on which a process listens."""
    links = (each.readlink() for each in Path(f"/proc/{pid}/fd").iterdir())
    open_there = {str(each) for each in links}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [
        int(row[1].partition(":")[2], 16)
        for row in rows
        if row[3] == "0A" and f"socket:[{row[9]}]" in open_there
    ]
