# SPDX-License-Identifier: Apache-2.0
"""A program of this machine that has no token, and opens many slow connections, keeps no client
from an answer, and this process from nothing."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from bench.slow_clients import SlowClients
from mistral_failover import http_server
from mistral_failover.http_server import HttpServer, Request, Response
from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.metrics.server import MetricsServer
from mistral_failover.mistral import in_process
from mistral_failover.mistral.client import MistralClient, MistralError
from mistral_failover.server.addresses import Address, bound
from mistral_failover.server.service import Health
from mistral_failover.server.webhook import Webhook
from mistral_failover.ui.serving import serving
from support.databases import shared
from support.servers import ServerProcess
from support.waiting import until

MANY = 3 * http_server.CONNECTIONS


def port_of(url: str) -> int:
    return int(urlsplit(url).port or 0)


@pytest.fixture(params=["API of Mistral", "webhook", "metrics", "web page"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[int, Callable[[], int]]]:
    """A port of each server, and the status of an answer there to a client that is not slow."""
    with ExitStack() as stack:
        if request.param == "API of Mistral":
            engine: TestEngine = request.getfixturevalue("mistral")
            url, token = f"{engine.url}/workflows", engine.token_file.read_text("ascii").strip()
        elif request.param == "webhook":
            taking: Any = None  # no alarm is sent
            door = Webhook(bound(Address("127.0.0.1", 0)), taking, lambda: True, slowest=600.0)
            url, token = stack.enter_context(door).url.replace("/alarms", "/health"), ""
        elif request.param == "metrics":
            url = stack.enter_context(MetricsServer(lambda: {"families": {}}, 0)).url
            token = ""
        else:
            client: Any = None  # nothing is asked
            page = serving(client, "127.0.0.1", 0, read_only=True, announce=lambda _: None)
            url, token = f"{stack.enter_context(page)}/login", ""

        def status() -> int:
            headers = {"X-Auth-Token": token, "Connection": "close"}
            return requests.get(url, headers=headers, timeout=30).status_code

        yield port_of(url), status


def test_slow_clients_get_a_bounded_number_of_places_and_keep_no_client_out(
    served: tuple[int, Callable[[], int]],
) -> None:
    port, status = served
    expected = status()

    with SlowClients(port, MANY, again=False) as clients:
        assert clients.wait_until_ended(MANY - http_server.CONNECTIONS, 8.0), "they all stay"
        assert status() == expected
    with SlowClients(port, MANY) as clients:
        assert clients.wait_until_ended(MANY, 30.0)
        assert [status() for _ in range(3)] == [expected] * 3


def test_a_connection_ends_with_its_first_answer(
    served: tuple[int, Callable[[], int]],
) -> None:
    """A client that sends its next request early would keep its place for ever."""
    port, _ = served
    one = b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port
    with socket.create_connection(("127.0.0.1", port), 30) as wire:
        wire.sendall(5 * one)
        said = b""
        with contextlib.suppress(ConnectionResetError):  # the rest of its requests is not read
            while some := wire.recv(65536):
                said += some

    assert said.count(b"HTTP/1.1 ") == 1


def test_a_client_that_takes_no_answer_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "ANSWER", 0.1)
    monkeypatch.setattr(http_server, "POLL", 0.01)
    before = threading.active_count()
    listening = socket.create_server(("127.0.0.1", 0))
    face = Stub(Response(200, b"x" * 20_000_000))
    with HttpServer(listening, face):
        stalled = [socket.create_connection(listening.getsockname()) for _ in range(5)]
        for each in stalled:
            each.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: face.asked == len(stalled))
        until(lambda: threading.active_count() <= before + 1)
        for each in stalled:
            each.close()


def test_what_is_being_answered_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further clients wait, and are answered afterwards."""
    monkeypatch.setattr(http_server, "POLL", 0.01)
    face = Stub(Response(200, b"done"), threading.Event())
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    with HttpServer(listening, face, slowest=2.0):
        asking = []
        for _ in range(http_server.CONNECTIONS + 10):
            asking.append(socket.create_connection(listening.getsockname(), 60))
            asking[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: face.asked == http_server.CONNECTIONS)
        assert not face.released.wait(2.5)  # longer than a client may take
        face.released.set()
        for each in asking:
            assert each.makefile("rb").read().endswith(b"done")
            each.close()


@dataclass
class Stub:
    """Gives the same answer to each request, once it may."""

    response: Response
    released: threading.Event = field(default_factory=lambda: _set(threading.Event()))
    name: str = "stub"
    largest: int = 100
    asked: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Response:
        with self._lock:
            self.asked += 1
        assert self.released.wait(60)
        return self.response

    def refusal(self, refused: http_server.Refused, peer: str) -> Response:
        return Response(refused.status, json.dumps(refused.body).encode())


def _set(event: threading.Event) -> threading.Event:
    event.set()
    return event


def test_a_head_without_end_is_refused() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    with (
        HttpServer(listening, Stub(Response(200))),
        socket.create_connection(listening.getsockname(), 30) as wire,
    ):
        wire.sendall(b"GET / HTTP/1.1\r\n" + b"".join(b"x: %5000d\r\n" % n for n in range(15)))
        assert b" 431 " in wire.recv(100)


@pytest.mark.parametrize("line", [b" folded", b"no colon", b"Na me: x", b"a: x\ry", b"a: \0"])
def test_a_line_of_a_head_that_is_no_header_is_refused(line: bytes) -> None:
    """A proxy in front might understand it in another way."""
    listening = socket.create_server(("127.0.0.1", 0))
    with (
        HttpServer(listening, Stub(Response(200))),
        socket.create_connection(listening.getsockname(), 30) as wire,
    ):
        wire.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n\r\n")
        assert b" 400 " in wire.recv(100)


# -- descriptors

_FEW = """
import resource, sys, time
from mistral_failover.metrics.server import MetricsServer
with MetricsServer(lambda: {"families": {}}) as server:
    print(server.port, flush=True)
    sys.stdin.readline()
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
    print("limited", flush=True)
    sys.stdin.readline()
    print(time.process_time(), flush=True)
    sys.stdin.readline()
    print(time.process_time(), flush=True)
    sys.stdin.readline()
"""


def test_without_descriptors_the_server_neither_spins_nor_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _FEW],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin
        assert server.stdout
        told, said = server.stdin, server.stdout

        def next_line() -> str:
            told.write("\n")
            told.flush()
            return said.readline()

        port = int(said.readline())
        url = f"http://127.0.0.1:{port}/metrics"
        assert requests.get(url, timeout=30).status_code == 200
        assert next_line() == "limited\n"
        with SlowClients(port, 50) as clients:
            clients.wait_until_ended(30, 5.0)
            busy = float(next_line())
            time.sleep(1.0)
            assert float(next_line()) - busy < 0.5
            assert requests.get(url, timeout=30).status_code == 200
        errors = server.communicate("\n", timeout=30)[1]
    assert errors.count("cannot accept connections") == 1
    assert "LimitNOFILE" in errors


# -- Mistral asked from its own process


REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "workflows", {"params": {"limit": 1000, "fields": "id,name"}}),
    ("GET", "workflows/there%2Fis none", {}),
    ("GET", "executions/00000000-0000-0000-0000-000000000000", {}),
    ("POST", "executions", {"json": {"workflow_name": "there_is_none"}}),
    ("PUT", "executions/x", {"json": {"state": "NONSENSE"}}),
    ("POST", "workflows", {"data": "nonsense", "headers": {"Content-Type": "text/plain"}}),
    ("GET", "nothing", {}),
]


@pytest.mark.parametrize(("method", "path", "more"), REQUESTS)
def test_mistral_answers_its_own_process_as_it_answers_others(
    mistral: TestEngine, method: str, path: str, more: dict[str, Any]
) -> None:
    token = mistral.token_file.read_text("ascii").strip()

    def said(client: MistralClient) -> Any:
        try:
            return client.request(method, path, **more)
        except MistralError as error:
            return error.code, error.message, error.remedy, error.http_status

    assert said(MistralClient(in_process.URL)) == said(MistralClient(mistral.url, token=token))


def test_a_workflow_is_registered_and_started_from_its_own_process(mistral: TestEngine) -> None:
    client = MistralClient(in_process.URL)
    client.upload(
        "version: '2.0'\nown:\n  tasks:\n    one: {action: std.echo, input: {output: é}}\n"
    )

    assert client.run("own")["state"] == "SUCCESS"
    mistral.clean()


def test_a_flood_is_no_stuck_mistral(mistral: TestEngine) -> None:
    health = Health(MistralClient(in_process.URL, timeout=30), shared("sqlite")[0])
    MistralClient(in_process.URL).upload(
        "version: '2.0'\nfailover.on_event:\n  tasks:\n    one: {action: std.noop}\n"
    )
    with SlowClients(port_of(mistral.url), MANY):
        assert health.look()
    mistral.clean()


def test_a_stuck_mistral_is_noticed_in_time_however_often_it_is_asked() -> None:
    stuck = Stub(Response(200, b"{}"), threading.Event())
    health = Health(MistralClient(in_process.URL, timeout=0.05), shared("sqlite")[0])
    before = threading.active_count()
    with in_process.served(stuck):
        assert not any(health.look() for _ in range(in_process.CALLS + 5))
        assert not health.good
        until(lambda: stuck.asked == in_process.CALLS)  # the others did not begin
        assert threading.active_count() <= before + in_process.CALLS
        stuck.released.set()
        until(health.look)
    assert health.good


def test_where_no_mistral_runs_it_is_not_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "_serving", [])

    with pytest.raises(MistralError) as error:
        MistralClient(in_process.URL).workflows()

    assert error.value.code == "MISTRAL_UNREACHABLE"
    assert "the Mistral of this process" in error.value.message


# -- a whole server

HEALTHY = "WATCHDOG=1"


@pytest.mark.drills
@pytest.mark.timeout(600)
def test_a_failover_completes_while_every_port_of_a_server_is_flooded(tmp_path: Path) -> None:
    """Orders, alarms, metrics, the page and the watchdog's notifications do not stop."""
    with (
        tempfile.TemporaryDirectory(prefix="s") as short,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
    ):
        notified = Path(short) / "notify"
        systemd.bind(str(notified))
        systemd.settimeout(60)
        environment = {"NOTIFY_SOCKET": str(notified), "WATCHDOG_USEC": "6000000"}
        words = ["--emulated", "--metrics-port", str(free()), "--ui", f"127.0.0.1:{free()}"]
        with ServerProcess(tmp_path, *words, env=environment) as server:
            group = str(tmp_path / "payments.yaml")
            made = server.failover("group", "create", group)
            assert made.returncode == 0, made.stderr
            facts = server.facts
            page = f"http://{words[-1]}/login"
            ports = [port_of(url) for url in (facts["url"], facts["webhook"], facts["metrics"])]
            with ExitStack() as floods:
                for port in [*ports, port_of(page)]:
                    clients = floods.enter_context(SlowClients(port, 400))
                    assert clients.wait_until_ended(400, 60), port

                ordered = server.failover("emulator", "break", "payments", "db_a")
                assert ordered.returncode == 0, ordered.stderr
                until(lambda: standing(server) == ("COMPLETE", "db_b"), limit=120, pause=0.5)
                assert reached(facts["metrics"]).status_code == 200
                health = facts["webhook"].replace("/alarms", "/health")
                assert reached(health).json() == {"takes_alarms": True}
                assert reached(page).status_code < 500
                drained(systemd)
                for _ in range(3):
                    assert systemd.recv(100).decode() == HEALTHY


def reached(url: str) -> requests.Response:
    """What a client gets that comes again if it was sent away among all the others."""
    answers: list[requests.Response] = []

    def asked() -> bool:
        try:
            answers.append(requests.get(url, timeout=30))
        except requests.ConnectionError:
            return False
        return True

    until(asked, limit=90, pause=0.5)
    return answers[0]


def standing(server: ServerProcess) -> tuple[str, str | None]:
    found = server.action("failover.status", group="payments")
    return found["status"], found["roles"].get("active")


def drained(wire: socket.socket) -> None:
    """Read what has come until now."""
    wire.setblocking(False)
    try:
        while wire.recv(100):
            pass
    except BlockingIOError:
        wire.settimeout(60)


def free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
