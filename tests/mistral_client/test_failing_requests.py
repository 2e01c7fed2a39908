# SPDX-License-Identifier: Apache-2.0
"""What the client makes of a Mistral, a proxy or a Keystone that does not answer as it should."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from keystoneauth1 import exceptions as keystone
from keystoneauth1.plugin import BaseAuthPlugin
from keystoneauth1.session import Session
from requests.structures import CaseInsensitiveDict

from mistral_failover.mistral.client import MistralClient, MistralError
from support.scripted_http import Reply, Request, scripted_server

Answer = tuple[int, Any]
Answers = Callable[[str, str, CaseInsensitiveDict[str]], Answer]


@pytest.fixture
def served() -> Iterator[Callable[[Answers], str]]:
    """Serve answers by method, path and headers; the URL."""
    with ExitStack() as stack:

        def make(answers: Answers) -> str:
            def reply(asked: Request) -> Reply:
                status, body = answers(asked.method, asked.path, asked.headers)
                return status, {}, body

            return f"{stack.enter_context(scripted_server(reply)).url}/v2"

        yield make


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_before_a_mistral_that_is_away_is_no_refusal(
    served: Callable[..., str], status: int
) -> None:
    client = MistralClient(served(lambda *_: (status, {})))
    for ask in (lambda: client.execution("x"), lambda: client.start("failover.sweep")):
        with pytest.raises(MistralError) as away:
            ask()
        assert away.value.code == "MISTRAL_UNREACHABLE"
        assert str(status) in away.value.message


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, {"faultstring": "AssertionError"}, "(500) AssertionError"),
        *((201, body, json.dumps(body)) for body in ({}, [], {"state": None})),
    ],
)
def test_an_error_within_mistral_is_shown_with_what_to_do(
    served: Callable[..., str], status: int, body: Any, said: str
) -> None:
    client = MistralClient(served(lambda *_: (status, body)))

    with pytest.raises(MistralError) as failed:
        client.run_action("failover.status")

    assert said in failed.value.message
    assert "log of Mistral" in failed.value.remedy
    assert ("broker" in failed.value.remedy) or status == 201


@pytest.mark.parametrize(
    "error",
    [keystone.ConnectFailure("no"), keystone.ServiceUnavailable(), keystone.DiscoveryFailure("no")],
)
def test_a_keystone_that_is_away_is_a_mistral_that_is_away(error: Exception) -> None:
    class Keystone(BaseAuthPlugin):
        def get_token(self, session: Session) -> str | None:
            raise error

    session = Session(auth=Keystone())
    with pytest.raises(MistralError) as away:
        MistralClient("http://127.0.0.1:9/v2", session=session).actions()
    assert away.value.code == "MISTRAL_UNREACHABLE"


def test_what_keystone_refuses_is_no_word_of_mistrals() -> None:
    class Keystone(BaseAuthPlugin):
        def get_token(self, session: Session) -> str | None:
            raise keystone.Unauthorized("the password is wrong")

    with pytest.raises(keystone.Unauthorized):
        MistralClient("http://127.0.0.1:9/v2", session=Session(auth=Keystone())).actions()


def test_a_port_that_nothing_listens_on_is_told_in_words() -> None:
    with pytest.raises(MistralError) as away:
        MistralClient("http://127.0.0.1:9/v2").actions()
    assert away.value.message == "no answer from http://127.0.0.1:9/v2: connection refused"


def test_a_mistral_that_does_not_answer_is_not_waited_for_longer_than_was_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v2"
        began = time.monotonic()
        with pytest.raises(MistralError) as away:
            MistralClient(url, timeout=0.3).actions()
    assert away.value.code == "MISTRAL_UNREACHABLE"
    assert away.value.message == f"no answer from {url}: no answer"
    assert time.monotonic() - began < 10, "importing the words of errors takes a second"


def test_another_service_at_the_url_is_not_taken_for_mistral() -> None:
    with scripted_server(lambda _: (200, {"Content-Type": "text/html"}, b"<html>")) as page:
        url = f"{page.url}/%7Efoo/v2"
        with pytest.raises(MistralError) as other:
            MistralClient(url).actions()
    assert other.value.code == "MISTRAL_UNREACHABLE"
    assert f"{url} is not Mistral" in other.value.message


@pytest.mark.parametrize("body", [["no"], "no", 7, None])
def test_a_refusal_in_another_form_is_told_as_it_is(served: Callable[..., str], body: Any) -> None:
    client = MistralClient(served(lambda *_: (409, body)))
    with pytest.raises(MistralError) as refused:
        client.start("failover.sweep")
    assert (refused.value.code, refused.value.http_status) == ("MISTRAL_REFUSED", 409)
    assert refused.value.message == f"(409) {json.dumps(body)}"


def test_a_token_that_ended_is_renewed_once(served: Callable[..., str]) -> None:
    tokens = ["old", "new"]

    class Keystone(BaseAuthPlugin):
        def get_token(self, session: Session) -> str | None:
            return tokens[0]

        def invalidate(self) -> bool:
            return bool(tokens.pop(0))

    def answers(_method: str, _path: str, headers: CaseInsensitiveDict[str]) -> Answer:
        if headers["X-Auth-Token"] == "old":
            return 401, {"faultstring": "the token has ended"}
        return 201, {"id": "e-1", "state": "RUNNING"}

    client = MistralClient(served(answers), session=Session(auth=Keystone()))

    assert client.start("failover.sweep")["id"] == "e-1"
    assert tokens == ["new"]


def test_requests_are_sent_once_and_carry_token_and_project(
    served: Callable[..., str],
) -> None:
    class Keystone(BaseAuthPlugin):
        def get_token(self, session: Session) -> str | None:
            return "a token"

    asked: list[tuple[str, str | None, str | None]] = []

    def answers(method: str, _path: str, headers: CaseInsensitiveDict[str]) -> Answer:
        asked.append((method, headers["X-Auth-Token"], headers["X-Project-Id"]))
        if method == "GET":
            return 200, {"workflows": []}
        return 500, {"faultstring": "out of\n order"}

    url = served(answers)
    client = MistralClient(url, session=Session(auth=Keystone()), project=lambda: "p-1")
    with pytest.raises(MistralError) as refused:
        client.start("failover.sweep")

    assert (refused.value.code, refused.value.http_status) == ("MISTRAL_REFUSED", 500)
    assert refused.value.message == "(500) out of order"
    assert asked == [(method, "a token", "p-1") for method in ("GET", "POST")]


def test_an_action_without_an_executor_is_reported_as_still_running(
    served: Callable[..., str],
) -> None:
    asked: list[str] = []

    def answers(method: str, _path: str, _headers: CaseInsensitiveDict[str]) -> Answer:
        asked.append(method)
        return (201 if method == "POST" else 200), {"id": "a-1", "state": "RUNNING"}

    client = MistralClient(served(answers), timeout=0.2)
    with pytest.raises(MistralError) as late:
        client.run_action("failover.status", forget=True)

    assert late.value.code == "STILL_RUNNING"
    assert "executor" in late.value.remedy
    assert "DELETE" not in asked, "who looks into it finds the record"


@pytest.mark.parametrize("allowed", [True, False])
def test_the_record_of_a_question_is_deleted_where_mistral_lets_one(
    served: Callable[..., str], allowed: bool
) -> None:
    asked: list[tuple[str, str]] = []

    def answers(method: str, path: str, _headers: CaseInsensitiveDict[str]) -> Answer:
        asked.append((method, path))
        if method == "DELETE":
            return (200, {}) if allowed else (403, {"faultstring": "it is not allowed"})
        state = "RUNNING" if method == "POST" else "SUCCESS"
        return 200, {"id": "a-1", "state": state, "output": json.dumps({"result": 7})}

    client = MistralClient(served(answers))
    found = client.run_action("failover.metrics", forget=True)

    assert found == 7
    assert asked[-1] == ("DELETE", "/v2/action_executions/a-1")


def test_a_wait_outlives_a_mistral_that_is_away_for_a_moment(served: Callable[..., str]) -> None:
    answers = iter([(503, {}), (200, {"state": "RUNNING"}), (503, {}), (503, {})])
    success = (200, {"id": "1", "state": "SUCCESS"})
    client = MistralClient(served(lambda *_asked: next(answers, success)))

    assert client.wait("1", timeout=5)["state"] == "SUCCESS"


def test_a_wait_ends_when_mistral_stays_away(served: Callable[..., str]) -> None:
    client = MistralClient(served(lambda *_asked: (503, {})))

    with pytest.raises(MistralError) as raised:
        client.wait("1", timeout=0.2)

    assert raised.value.code == "MISTRAL_UNREACHABLE"
