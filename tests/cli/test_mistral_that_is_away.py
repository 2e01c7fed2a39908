# SPDX-License-Identifier: Apache-2.0
"""What the client makes of a Mistral, a proxy or a Keystone that does not answer as it should."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import requests
from keystoneauth1 import exceptions as keystone

from mistral_failover.embedded.client import MistralClient
from mistral_failover.embedded.errors import EmbeddedError

Answer = tuple[int, dict[str, Any]]


@pytest.fixture
def served() -> Iterator[Callable[[Callable[[str, str], Answer]], str]]:
    """Serve answers by method and path; the URL."""
    servers: list[ThreadingHTTPServer] = []

    def make(answers: Callable[[str, str], Answer]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body = answers(self.command, self.path)
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - of the base class

            def log_message(self, *_args: object) -> None:
                """Nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}/v2"

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_before_a_mistral_that_is_away_is_no_refusal(
    served: Callable[..., str], status: int
) -> None:
    client = MistralClient(served(lambda *_: (status, {})))
    for ask in (lambda: client.execution("x"), lambda: client.start("failover.sweep")):
        with pytest.raises(EmbeddedError) as away:
            ask()
        assert away.value.code == "MISTRAL_UNREACHABLE"
        assert str(status) in away.value.message


@pytest.mark.parametrize(
    "error",
    [keystone.ConnectFailure("no"), keystone.ServiceUnavailable(), keystone.DiscoveryFailure("no")],
)
def test_a_keystone_that_is_away_is_a_mistral_that_is_away(error: Exception) -> None:
    session = requests.Session()

    def authenticated(_request: Any) -> Any:
        raise error

    session.auth = authenticated
    with pytest.raises(EmbeddedError) as away:
        MistralClient("http://127.0.0.1:9/v2", session=session).actions()
    assert away.value.code == "MISTRAL_UNREACHABLE"


def test_an_action_that_nobody_carries_out_is_said_to_be_still_running(
    served: Callable[..., str],
) -> None:
    asked: list[str] = []

    def answers(method: str, _path: str) -> Answer:
        asked.append(method)
        return (201 if method == "POST" else 200), {"id": "a-1", "state": "RUNNING"}

    client = MistralClient(served(answers), timeout=0.2)
    with pytest.raises(EmbeddedError) as late:
        client.run_action("failover.status", forget=True)

    assert late.value.code == "STILL_RUNNING"
    assert "executor" in late.value.remedy
    assert "DELETE" not in asked, "who looks into it finds the record"


@pytest.mark.parametrize("allowed", [True, False])
def test_the_record_of_a_question_is_deleted_where_mistral_lets_one(
    served: Callable[..., str], allowed: bool
) -> None:
    asked: list[tuple[str, str]] = []

    def answers(method: str, path: str) -> Answer:
        asked.append((method, path))
        if method == "DELETE":
            return (200, {}) if allowed else (403, {"faultstring": "it is not allowed"})
        state = "RUNNING" if method == "POST" else "SUCCESS"
        return 200, {"id": "a-1", "state": state, "output": json.dumps({"result": 7})}

    client = MistralClient(served(answers))
    found = client.run_action("failover.metrics", forget=True)

    assert found == 7
    assert asked[-1] == ("DELETE", "/v2/action_executions/a-1")
