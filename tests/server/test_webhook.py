# SPDX-License-Identifier: Apache-2.0
"""The webhook takes what knows the secret, once; and nothing that is forged, late, huge or slow."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from mistral_failover import http_server
from mistral_failover.served_certificate import ServedCertificate
from mistral_failover.server import receiver, secret, webhook
from mistral_failover.store import deliveries
from mistral_failover.store.database import Database
from server.conftest import ALARM, KEY, Door
from support.alarm_bodies import WEBHOOK

TOKEN = secret.Secret(KEY).token
BARE = b'{"server": "s-1", "id": "watchdog-4711"}'
HOST = b'{"host": "cmp7", "id": "watchdog-4711"}'
ZONE = b'{"zone": "east", "id": "watchdog-4711"}'


BEARER = {"Authorization": f"Bearer {TOKEN}"}


def head(*lines: str) -> bytes:
    text = "\r\n".join([f"POST {receiver.PATH} HTTP/1.1", "Host: here", *lines, "", ""])
    return text.encode()


def cut_off(wire: socket.socket) -> bool:
    """Go on byte by byte, until the other side closes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)
        try:
            wire.sendall(b" ")
        except OSError:
            return True
    return False


def refusal(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_a_signed_alarm_is_answered_with_the_decision_once_that_is_recorded(door: Door) -> None:
    answer = door.signed()

    assert answer.status_code == 202
    (decided,) = answer.json()["decisions"]
    assert decided["decision"] == "HELD"
    assert decided["sentence"].endswith("this project has no group payments")
    assert decided["incident"]
    assert answer.json()["execution"] is None, "there is nothing to start"
    assert door.started.executions == {}


def test_the_failure_of_a_host_is_answered_with_the_execution_that_decides(door: Door) -> None:
    body = {"host": "cmp7", "id": "x"}

    answer = door.signed(json.dumps(body).encode())

    assert answer.status_code == 202
    ((execution, given),) = door.started.executions.items()
    assert answer.json() == {"decisions": [], "execution": execution}
    assert given == {"body": body}


@pytest.mark.parametrize("where", ["path", "header"])
def test_who_can_not_sign_gives_the_token(door: Door, where: str) -> None:
    if where == "path":
        answer = door.post(BARE, url=f"{door.url}/{TOKEN}?group=payments")
    else:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answer = door.post(BARE, headers, url=f"{door.url}?group=payments")

    assert answer.status_code == 202
    assert "no group payments" in answer.json()["decisions"][0]["sentence"]


def test_each_kind_of_alarm_is_taken(door: Door) -> None:
    for body in (WEBHOOK, {"server": "s-1", "id": "x"}):
        answer = door.signed(json.dumps(body).encode())
        assert answer.status_code == 202, body
        assert answer.json()["decisions"]


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"Authorization": "Bearer " + "0" * 64},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer \u00e4\u00f6".encode("latin-1")},
        {secret.SIGNATURE: "0" * 64, secret.TIMESTAMP: "1795300000"},
        {secret.SIGNATURE: "", secret.TIMESTAMP: ""},
        {secret.SIGNATURE: hmac.new(KEY, ALARM, hashlib.sha256).hexdigest()},
        # A sender that knows only the token must not be able to sign.
        {secret.SIGNATURE: secret.signed(TOKEN.encode(), "1", ALARM), secret.TIMESTAMP: "1"},
    ],
)
def test_a_forged_alarm_is_refused(door: Door, forged: dict[str, Any]) -> None:
    assert refusal(door.post(headers=forged)) == (401, "UNAUTHORISED")
    assert door.started.executions == {}


def test_a_signature_is_of_its_body_and_of_its_timestamp(door: Door) -> None:
    now = int(time.time())
    signature = secret.signed(KEY, str(now), ALARM)
    for body, at in ((ALARM + b" ", now), (ALARM, now + 1)):
        headers = {secret.SIGNATURE: signature, secret.TIMESTAMP: str(at)}
        assert refusal(door.post(body, headers)) == (401, "UNAUTHORISED")


@pytest.mark.parametrize("wrong", ["", "/", "/0", f"/{TOKEN}0", f"/x/{TOKEN}", "?token=" + TOKEN])
def test_a_wrong_path_is_no_token(door: Door, wrong: str) -> None:
    assert refusal(door.post(url=door.url + wrong)) == (401, "UNAUTHORISED")


def test_elsewhere_there_is_nothing(door: Door) -> None:
    base = door.url.removesuffix(receiver.PATH)
    for path in ("/", "/v2/executions", "/v1/alarmsx"):
        assert refusal(door.post(url=base + path)) == (404, "NOT_FOUND")
    assert refusal(requests.get(door.url, timeout=30)) == (404, "NOT_FOUND")
    assert door.signed(b"{}").status_code == 400


@pytest.mark.parametrize("off", [-301, 301, -86400])
def test_a_late_or_early_signature_is_refused(door: Door, off: int) -> None:
    door.at.append(time.time() + off)
    assert refusal(door.signed(at=str(int(time.time())))) == (401, "TOO_LATE")
    assert door.started.executions == {}


@pytest.mark.parametrize("at", ["now", "-1", "1e9", "٣"])
def test_a_timestamp_is_whole_seconds(door: Door, at: str) -> None:
    door.at.append(1.0)
    headers = {secret.SIGNATURE: secret.signed(KEY, at, ALARM)}
    answer = door.post(headers=headers | {secret.TIMESTAMP: at.encode()})
    assert answer.status_code == 401


@pytest.mark.parametrize("body", [ALARM, HOST, ZONE])
def test_a_replay_is_refused_and_names_what_came_of_it(door: Door, body: bytes) -> None:
    at = str(int(time.time()))
    first = door.signed(body, at=at).json()

    again = door.signed(body, at=at)

    assert refusal(again) == (409, "REPLAYED")
    came_of_it = first["execution"] or first["decisions"][0]["incident"]
    assert again.json()["error"]["taken_as"] == came_of_it


def test_a_replay_to_the_other_server_on_the_store_is_refused_too(
    opened: Callable[..., Door],
) -> None:
    one, other = opened("shared"), opened("shared")
    at = str(int(time.time()))
    assert one.signed(at=at).status_code == 202
    assert refusal(other.signed(at=at)) == (409, "REPLAYED")
    assert other.started.executions == {}
    assert opened("another").signed(at=at).status_code == 202


@pytest.mark.parametrize("body", [ALARM, HOST, ZONE])
def test_of_twenty_replays_at_once_one_is_taken(door: Door, body: bytes) -> None:
    at = str(int(time.time()))
    with ThreadPoolExecutor(20) as pool:
        codes = list(pool.map(lambda _: door.signed(body, at=at).status_code, range(20)))
    assert (codes.count(202), codes.count(409)) == (1, 19)
    assert len(door.started.executions) == (0 if body == ALARM else 1)


def test_what_mistral_did_not_take_may_be_sent_again_as_it_was(door: Door) -> None:
    at = str(int(time.time()))
    door.started.away = True
    refused = door.signed(HOST, at=at)
    assert refusal(refused) == (503, "UNAVAILABLE")
    assert refused.headers["Retry-After"]
    door.started.away = False
    assert door.signed(HOST, at=at).status_code == 202


def test_what_was_taken_is_forgotten_when_no_repeat_of_it_could_be_taken(store: Database) -> None:
    own = store.for_project("bound")
    for name in ("old", "new"):
        own.atomically(lambda tx, name=name: deliveries.take(tx, name, "e", keep=600.0))
    assert own.reading(lambda tx: deliveries.taken(tx, "old")) == "e"
    own.atomically(lambda tx: deliveries.take(tx, "newest", "e", keep=-1.0))
    assert own.reading(lambda tx: deliveries.taken(tx, "old")) is None


def test_a_signed_alarm_says_everything_in_its_body(door: Door) -> None:
    at = str(int(time.time()))
    headers = {secret.SIGNATURE: secret.signed(KEY, at, ALARM), secret.TIMESTAMP: at}
    answer = door.post(headers=headers, url=f"{door.url}?group=other")
    assert refusal(answer) == (400, "BAD_REQUEST")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("group=payments&member=", "no value for member"),
        ("group=%20", "no value for group"),
        ("group=payments&group=ledger", "twice"),
        ("grup=payments", "unknown parameters grup"),
    ],
)
def test_an_address_that_is_not_filled_in_is_refused(door: Door, query: str, said: str) -> None:
    answer = door.post(BARE, url=f"{door.url}/{TOKEN}?{query}")

    assert refusal(answer) == (400, "BAD_REQUEST")
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[]", b"7", b"\xff", b"{}", b"[" * 100_000, b'{"kind": 1}']
)
def test_what_is_no_alarm_is_refused_with_words(door: Door, body: bytes) -> None:
    answer = door.signed(body)
    assert answer.status_code == 400
    assert answer.json()["error"]["remedy"]
    assert door.started.executions == {}


def test_a_huge_body_is_refused_unread(door: Door) -> None:
    assert refusal(door.signed(b" " * (webhook.LARGEST + 1))) == (413, "TOO_LARGE")
    with connected(door) as wire:
        wire.sendall(head(f"Content-Length: {10**15}"))
        assert b"413" in wire.recv(100)


@pytest.mark.parametrize("length", ["Transfer-Encoding: chunked", "Content-Length: -1", "X: y"])
def test_a_body_of_unknown_length_is_refused(door: Door, length: str) -> None:
    with connected(door) as wire:
        wire.sendall(head(length))
        assert b"411" in wire.recv(100)


def test_a_sender_that_goes_on_byte_by_byte_is_cut_off(opened: Callable[..., Door]) -> None:
    door = opened(slowest=0.5)
    with connected(door) as wire:
        wire.sendall(head("Content-Length: 1000000"))
        assert cut_off(wire)
    assert door.signed().status_code == 202


def test_idle_connections_keep_no_sender_out_for_long(opened: Callable[..., Door]) -> None:
    door = opened(slowest=0.5)
    idle = [connected(door) for _ in range(2 * http_server.CONNECTIONS)]
    deadline = time.monotonic() + 60
    while True:
        try:
            assert door.signed().status_code == 202
            break
        except requests.ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    for each in idle:
        each.close()


def test_who_was_refused_and_goes_on_byte_by_byte_is_cut_off(
    opened: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "DRAIN", 0.2)
    with connected(opened()) as wire:
        wire.sendall(head("Content-Length: 2") + b"{}")
        assert b"401" in wire.recv(100)
        assert cut_off(wire)


@pytest.mark.parametrize(
    "said", [b"", head("Content-Length: 9"), head("Content-Length: 2") + b"{}"]
)
def test_connections_without_a_secret_keep_no_sender_out(
    opened: Callable[..., Door], monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(http_server, "DRAIN", 600.0)
    door = opened(slowest=600.0)
    held = [connected(door) for _ in range(http_server.CONNECTIONS)]
    for each in held:
        each.sendall(said)

    assert door.signed().status_code == 202

    for each in held:
        each.close()


def test_of_the_places_the_peer_that_holds_most_loses_its_first(
    opened: Callable[..., Door],
) -> None:
    door = opened(slowest=600.0)
    other = connected(door, source="127.0.0.2")
    held = [connected(door) for _ in range(http_server.CONNECTIONS - 1)]

    one_more = connected(door, source="127.0.0.3")

    held[0].settimeout(60)
    assert held[0].recv(1) == b"", "it is cut off"
    body = b'{"server": "s-1"}'
    for wire in (other, one_more):
        wire.sendall(head(f"Content-Length: {len(body)}", f"Authorization: Bearer {TOKEN}") + body)
        assert b"202" in wire.recv(100)
    for each in (other, one_more, *held):
        each.close()


def test_an_address_that_is_none_is_refused_with_words(door: Door) -> None:
    with connected(door) as wire:
        wire.sendall(b"POST http://[ HTTP/1.1\r\nHost: here\r\n\r\n")
        assert b"400" in wire.recv(100)


def test_a_flood_is_told_to_come_later(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "RATE", 0.0)
    monkeypatch.setattr(receiver, "BURST", 20.0)
    taken = [door.post(delivered(number), BEARER) for number in range(20)]
    assert {answer.status_code for answer in taken} == {202}

    assert refusal(door.post(delivered(20), BEARER)) == (429, "TOO_MANY")


def test_secrets_are_compared_in_constant_time(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []
    real = hmac.compare_digest

    def counted(one: Any, other: Any) -> bool:
        compared.append(other)
        return bool(real(one, other))

    monkeypatch.setattr(secret.hmac, "compare_digest", counted)
    both = secret.Secret(KEY, KEY[::-1])

    assert both.line_of_token(both.token) == 0
    assert both.line_of_token("x") is None
    assert both.line_of_signature(secret.signed(KEY, "1", ALARM), "1", ALARM) == 0
    assert len(compared) == 6, "each secret is compared, also after one was right"


def test_an_old_secret_counts_as_long_as_its_line_is_there(door: Door) -> None:
    at = str(int(time.time()))
    headers = {secret.SIGNATURE: secret.signed(KEY[::-1], at, ALARM), secret.TIMESTAMP: at}
    assert door.post(headers=headers).status_code == 202


def test_no_token_gets_into_a_log(
    door: Door, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook._REFUSALS, "_last", {})
    caplog.set_level("DEBUG", "mistral_failover")
    caplog.set_level("INFO", "urllib3")  # the sender's own log
    door.post(url=f"{door.url}/{TOKEN}")
    door.post(url=f"{door.url}/{TOKEN}0")
    assert "UNAUTHORISED" in caplog.text
    assert TOKEN not in caplog.text


def test_a_flood_without_a_token_is_logged_once(
    door: Door, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook._REFUSALS, "_last", {})

    answers = {door.post(url=f"{door.url}/wrong").status_code for _ in range(20)}

    assert answers == {401}
    assert caplog.text.count("UNAUTHORISED") == 1


def test_health_says_whether_alarms_are_taken(door: Door) -> None:
    url = door.url.removesuffix(receiver.PATH) + webhook.HEALTH
    assert requests.get(url, timeout=30).json() == {"takes_alarms": True}
    door.started.away = True
    assert requests.get(url, timeout=30).status_code == 503


def test_with_tls_nothing_is_answered_in_the_clear(
    opened: Callable[..., Door], certificate: tuple[Path, Path]
) -> None:
    door = opened(tls=ServedCertificate(*certificate, warning=0.0).context)
    assert door.url.startswith("https://127.0.0.1:")
    assert door.signed(verify=str(certificate[0])).status_code == 202
    with pytest.raises(requests.RequestException):
        requests.post(door.url.replace("https", "http"), data=ALARM, timeout=30)
    context = ServedCertificate(*certificate, warning=0.0).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    pair = folder / "cert.pem", folder / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*argv, "-out", str(pair[0]), "-keyout", str(pair[1])], check=True, capture_output=True
    )
    return pair


def delivered(number: int) -> bytes:
    return json.dumps({"server": "s-1", "id": f"occasion {number}"}).encode()


def connected(door: Door, source: str = "127.0.0.1") -> socket.socket:
    parts = urlsplit(door.url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), 60, (source, 0))


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
        ("Content-Length: 2", "Content-Length: 3"),
    ],
)
def test_a_request_that_gives_its_length_twice_is_refused(
    door: Door, lines: tuple[str, ...]
) -> None:
    with connected(door) as wire:
        wire.sendall(head(*lines) + b"{}")
        assert b" 400 " in wire.recv(1000)
    assert not door.started.executions
