# SPDX-License-Identifier: Apache-2.0
"""A name server that does not answer takes no more time than what asks has."""

from __future__ import annotations

import ast
import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait

import pytest
import sqlalchemy as sa
from keystoneauth1.adapter import Adapter

from mistral_failover import lookups
from mistral_failover.agent.broker import Broker
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.embedded import egress
from mistral_failover.runtime.errors import describe
from mistral_failover.store.database import Database
from support.mistral_egress import (
    ALIVE,
    TWO,
    Answering,
    connect_as_embedded,
    limited,
    one_of_two,
    take_email,
)
from support.pages import MODULES

HOST = "silent.example.org"
LIMIT = 0.3


@pytest.fixture(autouse=True)
def _embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mistral that connects as the embedded one does, to any address."""
    connect_as_embedded(monkeypatch)
    from mistral.utils import egress as of_mistral

    monkeypatch.setattr(of_mistral, "_denied_networks", list)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of which the resolver was asked; it does not answer for one host."""
    real, over, names = socket.getaddrinfo, threading.Event(), list[str]()

    def look_up(host: str, *args: object, **named: object) -> object:
        names.append(host)
        if host == HOST:
            over.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "nothing answered")
        return real(host, *args, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield names
    over.set()
    wait(list(lookups._running.values()), 10)  # else the next test gets the answers of this one


def of_a_service() -> None:
    session = GuardedSession(guard=Unguarded(), timeout=LIMIT)
    url = f"http://{HOST}:8774"
    Adapter(session, service_type="compute", endpoint_override=url).get("/", authenticated=False)


def of_the_broker() -> None:
    Broker(f"amqp://{HOST}").connect(LIMIT)


def of_the_broker_with_tls() -> None:
    Broker(f"amqps://{HOST}").connect(LIMIT)


def of_the_state_store() -> None:
    Database(f"mysql+pymysql://{HOST}/failover", timeout=LIMIT).reading(lambda tx: tx.now())


def of_a_webhook() -> None:
    from mistral.notifiers.publishers import webhook

    webhook.WebhookPublisher().publish({}, "1", {}, "now", "odd", url=f"http://{HOST}/")


def of_a_workflow() -> None:
    egress._request("POST", f"http://{HOST}/", timeout=LIMIT)


def of_an_email() -> None:
    with limited(1):
        egress._SMTP(HOST)


EVERY = [
    of_a_service,
    of_the_broker,
    of_the_broker_with_tls,
    of_the_state_store,
    of_a_webhook,
    of_a_workflow,
    of_an_email,
]


@pytest.mark.parametrize("connect", EVERY)
def test_a_connection_ends_though_its_name_is_never_resolved(
    asked: list[str], connect: Callable[[], None]
) -> None:
    began = time.monotonic()

    with pytest.raises(Exception, match=f"{HOST}.*was not resolved within") as raised:
        connect()

    assert time.monotonic() - began < 5
    assert not isinstance(raised.value, AssertionError)


def test_it_is_told_as_a_service_that_is_unreachable_with_the_name(asked: list[str]) -> None:
    with pytest.raises(CloudError) as raised:
        of_a_service()

    assert (raised.value.code, raised.value.transient) == ("UNREACHABLE", True)
    assert raised.value.detail.startswith(f"the name {HOST} was not resolved within 0.")


def test_it_is_told_as_a_state_store_that_is_away(asked: list[str]) -> None:
    with pytest.raises(sa.exc.SQLAlchemyError) as raised:
        of_the_state_store()

    facts = describe(raised.value)
    assert facts["code"] == "STORE_UNREACHABLE"
    assert facts["detail"] == f"the name {HOST} was not resolved within 0.3 s"


def test_however_many_ask_one_question_is_open(asked: list[str]) -> None:
    for _ in range(5):
        with pytest.raises(lookups.NotResolved):
            lookups.addresses(HOST, 80, 0.01)

    assert asked == [HOST]


def test_an_answer_is_not_kept(asked: list[str]) -> None:
    lookups.addresses("localhost", 80, 5)
    lookups.addresses("localhost", 80, 5)

    assert asked == ["localhost", "localhost"]


def test_an_address_asks_no_resolver(asked: list[str]) -> None:
    assert lookups.addresses("192.0.2.1", 80, 5) == ["192.0.2.1"]
    assert lookups.addresses("2001:db8::1", 80, 5) == ["2001:db8::1"]
    assert asked == []


def test_a_name_without_an_address_is_named() -> None:
    with pytest.raises(lookups.NotResolved, match="the name nowhere.invalid cannot be resolved"):
        lookups.addresses("nowhere.invalid", 80, 5)


def test_each_address_has_an_equal_share_of_what_is_left() -> None:
    left = iter((9.0, 8.0, 1.0))

    assert list(lookups.shares(["a", "b", "c"], lambda: next(left))) == [
        ("a", 3.0),
        ("b", 4.0),
        ("c", 1.0),
    ]
    assert list(lookups.shares(["a", "b"], lambda: None)) == [("a", None), ("b", None)]


# -- an address of several that does not answer


def by_egress(port: int) -> None:
    egress._request("GET", f"http://{TWO}:{port}/", timeout=4)


def by_the_transport(port: int) -> None:
    session = GuardedSession(guard=Unguarded(), timeout=4)
    session.get(f"http://{TWO}:{port}/", authenticated=False)


@pytest.mark.parametrize("ask", [by_egress, by_the_transport])
def test_a_dead_address_does_not_use_up_the_time_of_the_next_one(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[int], None]
) -> None:
    with http.server.HTTPServer((ALIVE, 0), Answering) as there:
        serving = threading.Thread(target=there.handle_request, daemon=True)
        serving.start()
        with one_of_two(monkeypatch, there.socket) as port:
            ask(port)
        serving.join(10)


def test_an_email_goes_to_the_address_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((ALIVE, 0)) as listening:
        serving = threading.Thread(target=take_email, args=(listening, []), daemon=True)
        serving.start()
        with one_of_two(monkeypatch, listening) as port, limited(4):
            egress._SMTP(TWO, port).close()
        serving.join(10)


def test_nothing_else_of_the_product_asks_the_resolver() -> None:
    """What connects a socket by itself has its address from `lookups`."""
    calls = {"getaddrinfo": {"lookups.py"}, "gethostbyname": set[str]()}
    calls |= {"create_connection": {"embedded/egress.py", "store/database.py"}}
    found: dict[str, set[str]] = {call: set() for call in calls}
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in calls:
                found[node.attr].add(name)

    assert found == calls


def test_a_name_can_be_looked_up_again_after_no_thread_was_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(lookups.NotResolved):
            lookups.addresses("localhost", 80, 2.0)

    assert lookups.addresses("localhost", 80, 20.0)
