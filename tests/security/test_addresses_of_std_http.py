# SPDX-License-Identifier: Apache-2.0
"""A workflow cannot reach services that trust this machine, by whatever Mistral connects with.

That a Mistral connects so: embedded/test_embedded_process.py.
"""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from oslo_config import cfg

from mistral_failover.embedded import egress, settings
from mistral_failover.server import credential, service
from mistral_failover.server.options import Options
from support.mistral_egress import (
    ALIVE,
    TWO,
    Answering,
    connect_as_embedded,
    limited,
    one_of_two,
    take_email,
)
from support.trickling import trickling


@pytest.mark.parametrize(("emulated", "denied"), [(True, ""), (False, None)])
def test_a_server_denies_mistral_s_own_list_except_with_an_emulated_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulated: bool, denied: str | None
) -> None:
    made: dict[str, Mapping[str, Any]] = {}
    monkeypatch.setattr(credential, "project_of", lambda *_: "project")
    monkeypatch.setattr(service, "EmbeddedMistral", lambda *_, **given: made.update(given))

    options = replace(Options(tmp_path), cloud="home", emulated=emulated)
    service._mistral(options)

    assert made["overrides"].get("action_std_http.denied_cidrs") == denied


def test_the_embedded_mistral_leaves_mistral_s_list_alone() -> None:
    assert "action_std_http" not in settings.DEFAULTS


INSIDE, OUTSIDE, ANY = "127.0.0.1", ALIVE, "0.0.0.0"  # noqa: S104 - nothing listens there
"""Where the services are that trust this machine, an address that may be called, and one that Linux
takes for this machine."""


class Trusting:
    """A service that trusts this machine. Nothing accepts its connections but `reached`."""

    def __init__(self) -> None:
        self._listener = socket.create_server((INSIDE, 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]

    @property
    def reached(self) -> bool:
        """Whether a connection was made since this was asked last."""
        try:
            self._listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def inside() -> Iterator[Trusting]:
    made = Trusting()
    yield made
    made.close()


@pytest.fixture
def outside() -> Iterator[str]:
    """The URL of what a workflow may call."""
    server = http.server.ThreadingHTTPServer((OUTSIDE, 0), Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://{OUTSIDE}:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _denied(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Mistral that connects as the embedded one does, and may not connect to `INSIDE`."""
    connect_as_embedded(monkeypatch)
    denied = [f"{INSIDE}/32", "::1/128", "169.254.0.0/16", "fe80::/10"]
    cfg.CONF.set_override("denied_cidrs", denied, group="action_std_http")
    yield
    cfg.CONF.clear_override("denied_cidrs", group="action_std_http")


def std_http(url: str, **more: Any) -> Any:
    """Run std.http."""
    return _run("HTTPAction", url=url, timeout=5, **more)


def std_mistral_http(url: str, **more: Any) -> Any:
    """Run std.mistral_http."""
    return _run("MistralHTTPAction", url=url, timeout=5, **more)


def notify(url: str, **more: Any) -> Any:
    """Post to a webhook of ``notify``."""
    from mistral.notifiers.publishers.webhook import WebhookPublisher

    if more:
        pytest.skip("a webhook has no such parameter")
    return WebhookPublisher().publish(None, "id", {}, "event", "now", url=url)


def std_email(url: str, **more: Any) -> Any:
    """Run std.email with the URL's host and port as the server."""
    if more or "?" in url:
        pytest.skip("std.email has no such parameter")
    server = url.removeprefix("http://").rstrip("/")
    if server.startswith("["):  # smtplib reads no port after such an address
        server = server.partition("]")[0].removeprefix("[")
    return _run("SendEmailAction", from_addr="a@b", to_addrs=["c@d"], smtp_server=server)


def _run(name: str, **given: Any) -> Any:
    from mistral.actions import std_actions

    execution = SimpleNamespace(
        **dict.fromkeys(
            ("workflow_name", "workflow_execution_id", "task_execution_id", "callback_url"), "x"
        ),
        action_execution_id="x",
    )
    return getattr(std_actions, name)(**given).run(SimpleNamespace(execution=execution))


EVERY = [std_http, std_mistral_http, notify, std_email]


@pytest.mark.parametrize("connect", EVERY)
@pytest.mark.parametrize("host", [INSIDE, "localhost", ANY, "[::ffff:127.0.0.1]", "127.1"])
def test_no_name_of_this_machine_is_connected_to(
    inside: Trusting, connect: Callable[..., Any], host: str
) -> None:
    with pytest.raises(Exception, match="blocked address"):
        connect(f"http://{host}:{inside.port}/")
    assert not inside.reached


@pytest.mark.parametrize("connect", [std_http, std_mistral_http])
def test_a_redirect_goes_no_further_than_a_request(
    inside: Trusting, outside: str, connect: Callable[..., Any]
) -> None:
    for host in (INSIDE, ANY):
        with pytest.raises(Exception, match="blocked address"):
            connect(f"{outside}?http://{host}:{inside.port}/", allow_redirects=True)
    assert not inside.reached
    assert connect(f"{outside}?{outside}", allow_redirects=True)["status"] == 200


@pytest.mark.parametrize("connect", [std_http, std_mistral_http])
def test_a_proxy_of_a_workflow_is_refused(
    inside: Trusting, outside: str, connect: Callable[..., Any]
) -> None:
    with pytest.raises(Exception, match="proxy"):
        connect(outside, proxies={"http": f"http://{INSIDE}:{inside.port}"})
    assert not inside.reached


@pytest.mark.parametrize("connect", [std_http, std_mistral_http, notify])
def test_what_the_environment_has_is_not_used(
    inside: Trusting,
    outside: str,
    connect: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://{INSIDE}:{inside.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    connect(outside)
    assert not inside.reached


@pytest.mark.parametrize("connect", EVERY)
@pytest.mark.parametrize("times", [0, 1, 2, 3])
def test_a_name_that_changes_its_address_is_connected_to_where_it_was_compared(
    inside: Trusting, connect: Callable[..., Any], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many times it is outside when it is looked up, then inside."""
    look_up, seen = socket.getaddrinfo, list[str]()

    def changing(host: str, *args: Any, **named: Any) -> Any:
        if host == "rebind.example.org":
            seen.append(host)
            host = OUTSIDE if len(seen) <= times else INSIDE
        return look_up(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    with suppress(Exception):  # refused, or nothing listens there
        connect(f"http://rebind.example.org:{inside.port}/")
    assert seen
    assert not inside.reached


@pytest.mark.parametrize(
    ("action", "given", "begin", "piece"),
    [
        ("HTTPAction", {"timeout": 0.5}, b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        ("HTTPAction", {}, b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
        ("MistralHTTPAction", {}, b"", b"H"),
        ("SendEmailAction", {}, b"220", b"-"),
    ],
)
def test_an_answer_in_drops_ends_with_the_time_of_the_action(
    action: str, given: Mapping[str, Any], begin: bytes, piece: bytes
) -> None:
    run = std_email if action == "SendEmailAction" else partial(_run, action)
    began = time.monotonic()
    with (
        limited(1),
        trickling(begin, piece, OUTSIDE) as port,
        pytest.raises(Exception, match="time"),
    ):
        run(url=f"http://{OUTSIDE}:{port}/", **given)
    assert time.monotonic() - began < 5


def test_an_address_that_does_not_answer_leaves_time_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To connect has its own limit."""
    with http.server.HTTPServer((OUTSIDE, 0), Answering) as there:
        serving = threading.Thread(target=there.handle_request, daemon=True)
        serving.start()
        with one_of_two(monkeypatch, there.socket) as port:
            answer = egress._request(
                "GET", f"http://{TWO}:{port}/", timeout=(0.3, 5), allow_redirects=False
            )
        serving.join()

    assert answer.status_code < 400


def test_an_email_goes_to_a_server_that_is_not_denied(inside: Trusting) -> None:
    said = list[bytes]()
    with socket.create_server((OUTSIDE, 0)) as listener:
        thread = threading.Thread(target=take_email, args=(listener, said))
        thread.start()
        std_email(f"http://{OUTSIDE}:{listener.getsockname()[1]}/")
        thread.join(10)
    assert b"rcpt TO:<c@d>\r\n" in said
    assert not inside.reached
