# SPDX-License-Identifier: Apache-2.0
"""A service that is not reachable, or does not answer properly: its name, how it failed, that it
is worth another try, and whether what was asked for may happen all the same."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from keystoneauth1.identity import v3

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.tokens import asked
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.mistral.api import Mistral
from mistral_failover.runtime.errors import describe
from support import one_place

TIMEOUT = 0.2


@pytest.fixture
def closed() -> Iterator[str]:
    """A URL without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield url_of(taken)


def url_of(listening: socket.socket) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """A URL of a service that takes requests and says nothing."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen(16)
        yield url_of(one)


def session_at(url: str) -> GuardedSession:
    return one_place.session_at(url, TIMEOUT)


def nova(url: str, *, changes: bool) -> None:
    session_at(url).request(
        f"{url}/compute/servers",
        "POST" if changes else "GET",
        endpoint_filter={"service_type": "compute"},
    )


def cinder(url: str, *, changes: bool) -> None:
    volumes = Cloud(session_at(url)).volumes
    if changes:
        volumes.attachments.delete("a")
    else:
        volumes.volumes.get("v")


def heat(url: str, *, changes: bool) -> None:
    stacks = Cloud(session_at(url)).heat.stacks
    if changes:
        stacks.update("s/1", existing=True, parameters={})
    else:
        stacks.get("s/1")


def mistral(url: str, *, changes: bool) -> None:
    there = Mistral(GuardedSession(guard=Unguarded(60), timeout=TIMEOUT), f"{url}/v2")
    if changes:
        there.start("e", "w", {}, "why")
    else:
        there.state("e")


def keystone_for_a_token(url: str, *, changes: bool) -> None:
    """The token is fetched on the way to Nova, so that Nova is not who did not answer."""
    auth = v3.Password(f"{url}/v3", username="u", password="p", user_domain_id="default")
    session = GuardedSession(guard=Unguarded(60), timeout=TIMEOUT, auth=auth)
    session.request(
        f"{url}/compute/servers",
        "POST" if changes else "GET",
        endpoint_filter={"service_type": "compute"},
    )


def keystone_about_a_token(url: str, *, changes: bool) -> None:
    del changes
    asked(GuardedSession(guard=Unguarded(60), timeout=TIMEOUT), f"{url}/v3", "t", "p")


SERVICES: list[tuple[str, Callable[..., None]]] = [
    ("Nova", nova),
    ("Cinder", cinder),
    ("Heat", heat),
    ("Mistral", mistral),
    ("Keystone", keystone_for_a_token),
    ("Keystone", keystone_about_a_token),
]
every_service = pytest.mark.parametrize(
    ("service", "call"), SERVICES, ids=[call.__name__ for _, call in SERVICES]
)


def failure(call: Callable[..., None], url: str, *, changes: bool = False) -> CloudError:
    with pytest.raises(CloudError) as raised:
        call(url, changes=changes)
    return raised.value


@every_service
def test_a_refused_connection(service: str, call: Callable[..., None], closed: str) -> None:
    facts = describe(failure(call, closed, changes=True))

    assert facts["code"] == "UNREACHABLE"
    assert facts["transient"] is True
    assert (facts["service"], facts["detail"]) == (service, "connection refused")
    assert f"{service} is not reachable: connection refused" in facts["message"]
    assert "unknown" not in facts, "nothing was sent"


@every_service
def test_no_answer(service: str, call: Callable[..., None], silent: str) -> None:
    began = time.monotonic()

    error = failure(call, silent)

    assert error.code == "TIMEOUT"
    assert (error.transient, error.service) == (True, service)
    assert error.detail == f"no answer within {TIMEOUT:g} s"
    assert time.monotonic() - began < TIMEOUT * 5, "it was asked once"


@every_service
@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_an_answer_that_is_none(
    service: str, call: Callable[..., None], server: Any, status: int
) -> None:
    server.reply = lambda _: (status, {}, {"error": {"message": "oops"}})

    facts = describe(failure(call, server.url))

    assert facts["transient"] is True
    assert (facts["service"], facts["detail"]) == (service, f"HTTP {status}")


@pytest.mark.parametrize("call", [nova, cinder, heat])
@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("status", [200, 404])
def test_what_a_proxy_says_in_place_of_the_service(
    call: Callable[..., None], server: Any, changes: bool, status: int
) -> None:
    server.reply = lambda _: (status, {"Content-Type": "text/html"}, b"<p>Maintenance</p>")

    error = failure(call, server.url, changes=changes)

    assert (error.code, error.transient, error.unknown) == ("UNREACHABLE", True, changes)
    assert "not from the service itself" in error.detail


@every_service
def test_a_name_that_can_not_be_resolved(service: str, call: Callable[..., None]) -> None:
    error = failure(call, "http://nowhere.invalid", changes=True)

    assert (error.transient, error.service, error.unknown) == (True, service, False)
    assert error.detail == "the name nowhere.invalid cannot be resolved"


@every_service
@pytest.mark.parametrize("status", [400, 403, 404, 409])
def test_a_refusal_is_nothing_to_wait_for(
    service: str, call: Callable[..., None], server: Any, status: int
) -> None:
    del service
    server.reply = lambda _: (status, {}, {"error": {"message": "no"}})

    facts = describe(failure(call, server.url))

    assert not {"transient", "service", "detail", "unknown"} & set(facts)


def test_what_mistral_itself_does_not_have_is_not_there(server: Any) -> None:
    server.reply = lambda _: (404, {}, {"faultstring": "Workflow execution not found"})

    mistral(server.url, changes=False)


CHANGING = [(name, call) for name, call in SERVICES if call is not keystone_about_a_token]


@pytest.mark.parametrize(("service", "call"), CHANGING, ids=[c.__name__ for _, c in CHANGING])
def test_what_was_sent_and_not_answered_may_have_happened(
    service: str, call: Callable[..., None], silent: str
) -> None:
    del service
    assert failure(call, silent, changes=True).unknown
    assert not failure(call, silent, changes=False).unknown or call is mistral


@pytest.mark.parametrize(
    ("status", "unknown"), [(500, True), (502, True), (503, True), (504, True), (429, False)]
)
def test_what_a_proxy_answers_does_not_tell_what_happened_behind_it(
    server: Any, status: int, unknown: bool
) -> None:
    server.reply = lambda _: (status, {}, {"error": {"message": "oops"}})

    assert failure(cinder, server.url, changes=True).unknown is unknown
    assert failure(heat, server.url, changes=True).unknown is unknown


def test_a_connection_that_breaks_behind_the_request() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()

        def cut() -> None:
            there, _ = one.accept()
            there.recv(10)
            there.close()

        thread = threading.Thread(target=cut)
        thread.start()
        error = failure(nova, url_of(one), changes=True)
        thread.join()

    assert (error.code, error.detail, error.unknown) == ("UNREACHABLE", "connection reset", True)


@pytest.mark.parametrize("verb", ["POST", "PUT", "PATCH", "DELETE"])
def test_what_changes_something_is_sent_once_whatever_a_client_asks_for(
    server: Any, verb: str
) -> None:
    server.reply = lambda _: (503, {}, {})
    with pytest.raises(CloudError), translated("act"):
        session_at(server.url).request(
            f"{server.url}/compute/servers", verb, connect_retries=3, status_code_retries=3
        )
    assert server.calls == [f"{verb} /compute/servers"]


def test_a_wait_that_took_too_long_is_nothing_transient() -> None:
    assert "transient" not in describe(CloudError("TIMEOUT", "Gave up after 3 s"))
