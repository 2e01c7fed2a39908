# SPDX-License-Identifier: Apache-2.0
"""Whatever is sent to the embedded Mistral's API: what lacks something is refused before Mistral
sees it, nothing fails, and nothing stays."""

from __future__ import annotations

import http.client
import io
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mistral_failover.embedded.access import AccessControl
from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.mistral.client import MistralClient

TOKEN = "0123456789abcdef" * 4
HOST = "127.0.0.1:8989"
text = st.text(max_size=60)
maybe = st.one_of(st.none(), text)
hosts = st.one_of(st.sampled_from([HOST, "127.0.0.1", "localhost:1", "rebind.example", ""]), text)
origins = st.one_of(st.sampled_from([f"http://{HOST}", "https://evil.example", "null"]), maybe)
sites = st.one_of(st.sampled_from(["none", "same-origin", "cross-site"]), maybe)
tokens = st.one_of(st.sampled_from([TOKEN, TOKEN.upper(), TOKEN[:-1], f"Bearer {TOKEN}"]), maybe)
kinds = st.one_of(
    st.sampled_from(
        ["application/json", "application/json; charset=utf-8", "text/plain"]
        + ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
    ),
    maybe,
)
paths = st.one_of(st.sampled_from(["/v2/executions", "/v2/workflows", "/v2/environments"]), text)


class Behind:
    """What stands behind the gate."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.seen.append(environ)
        start_response("200 OK", [])
        return [b""]


@settings(max_examples=500, deadline=None)
@given(
    hosts,
    origins,
    sites,
    tokens,
    tokens,
    kinds,
    paths,
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
)
def test_only_what_has_everything_gets_past_the_gate(
    host: str,
    origin: str | None,
    site: str | None,
    token: str | None,
    bearer: str | None,
    kind: str | None,
    path: str,
    method: str,
) -> None:
    behind, answers = Behind(), []
    gate = AccessControl(behind, TOKEN, Path("api-token"), ["127.0.0.1", "localhost"])
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "CONTENT_LENGTH": "2",
        "wsgi.input": io.BytesIO(b"{}"),
        "HTTP_HOST": host,
        "HTTP_ORIGIN": origin,
        "HTTP_SEC_FETCH_SITE": site,
        "HTTP_X_AUTH_TOKEN": token,
        "HTTP_AUTHORIZATION": bearer,
        "CONTENT_TYPE": kind,
    }

    body = gate(
        {key: value for key, value in environ.items() if value is not None},
        lambda status, headers: answers.append(int(status[:3])),
    )

    assert b"".join(body) or behind.seen
    assert answers[0] in (200, 401, 403, 415)
    if behind.seen:
        assert host.lower().partition(":")[0] in ("127.0.0.1", "localhost")
        assert origin is None or origin.lower() == f"http://{host}".lower()
        assert site is None or site.lower() in ("none", "same-origin")
        assert TOKEN in (token, (bearer or "")[7:].strip())
        assert (kind or "").startswith(("application/json", "text/plain"))
        cloud_token = behind.seen[0].get("HTTP_X_AUTH_TOKEN")
        assert cloud_token != TOKEN, "actions would use it as the cloud's"


@pytest.fixture(scope="module")
def api(mistral: TestEngine) -> tuple[str, int]:
    where = urllib.parse.urlsplit(mistral.url)
    return str(where.hostname), int(where.port or 0)


def quiet(count: int) -> bool:
    """Whether no more threads than these are left within a while."""
    end = time.monotonic() + 10
    while threading.active_count() > count and time.monotonic() < end:
        time.sleep(0.05)
    return threading.active_count() <= count


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.one_of(st.binary(max_size=300), st.from_regex(rb"(GET|POST) [^ ]{1,40} HTTP/1.1\r\n.*")))
def test_bytes_at_random_are_answered_with_no_server_error(
    api: tuple[str, int], sent: bytes
) -> None:
    with socket.create_connection(api, timeout=10) as connection:
        connection.sendall(sent + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        said = connection.recv(65536)

    assert b" 500 " not in said.partition(b"\r\n")[0]


MISTRALS_OWN = {
    # A cron trigger without a name.
    ("POST", "cron_triggers"),
    # A result of an action execution that does not exist.
    ("PUT", "action_executions"),
    # A workbook that is no mapping.
    ("POST", "workbooks"),
    ("PUT", "workbooks"),
}
"""To these Mistral answers 500 by itself, and changes nothing."""
resources = st.sampled_from(
    ["executions", "tasks", "action_executions", "workflows", "workbooks", "actions"]
    + ["environments", "cron_triggers", "services", "event_triggers", "code_sources"]
    + ["dynamic_actions", "executions/x", "tasks/x", "action_executions/x", "environments/x"]
    + ["workflows/x/members", "workflows/validate", "nothing", ""]
)
plain = st.one_of(st.none(), st.booleans(), st.integers(), text)
values = st.recursive(
    plain,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(text, inner, max_size=3)),
    max_leaves=5,
)
fields = st.sampled_from(
    ["id", "name", "input", "params", "state", "workflow_name", "workflow_id", "variables"]
    + ["pattern", "description", "scope", "env", "output", "reset"]
)
bodies = st.one_of(
    st.binary(max_size=200),
    values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(fields, values, max_size=3).map(lambda value: json.dumps(value).encode()),
)


Kept = tuple[list[str], int]


def kept(client: MistralClient) -> Kept:
    """What Mistral has: the names of its workflows, and how many executions."""
    return [each["name"] for each in client.workflows()], len(client.executions())


@pytest.fixture
def before(mistral: TestEngine) -> Kept:
    """What Mistral had before the test; each of its examples is compared to that."""
    token = mistral.token_file.read_text("ascii").strip()
    return kept(MistralClient(mistral.url, token=token))


@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,  # what Mistral does with a body is not this package's to correct
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    resources,
    st.sampled_from(["application/json", "text/plain"]),
    bodies,
    st.sampled_from(["POST", "PUT"]),
)
def test_requests_with_the_token_change_nothing_by_chance(
    mistral: TestEngine,
    api: tuple[str, int],
    before: Kept,
    resource: str,
    kind: str,
    body: bytes,
    method: str,
) -> None:
    token = mistral.token_file.read_text("ascii").strip()
    client = MistralClient(mistral.url, token=token)

    status = answered(api, token, method, resource, body, kind)

    assert status < 500 or (method, resource.partition("/")[0]) in MISTRALS_OWN
    assert status != 401
    assert kept(client) == before


@pytest.mark.parametrize("body", [b"null", b"1", b'"x"', b"[]", b"[{}]", b"{", b"[" * 100_000])
@pytest.mark.parametrize("resource", ["executions", "action_executions/x", "environments"])
def test_a_body_that_is_no_object_is_refused(
    mistral: TestEngine, api: tuple[str, int], resource: str, body: bytes
) -> None:
    token = mistral.token_file.read_text("ascii").strip()

    assert answered(api, token, "PUT", resource, body) == 400


@pytest.mark.parametrize(
    "resource",
    ["code_sources", "dynamic_actions", "event_triggers", "event_triggers.json", "/code_sources/x"]
    + ["workflows/x/members", "workflows/x/members/y"],
)
def test_what_this_package_has_no_use_for_is_closed(
    mistral: TestEngine, api: tuple[str, int], resource: str
) -> None:
    token = mistral.token_file.read_text("ascii").strip()

    assert {answered(api, token, method, resource, b"{}") for method in ("GET", "POST")} == {403}


@pytest.mark.parametrize(
    "query", ["skip_validation", "skip_validation=true", "a=b&skip_validation="]
)
def test_no_client_has_its_definition_taken_unchecked(
    mistral: TestEngine, api: tuple[str, int], query: str
) -> None:
    token = mistral.token_file.read_text("ascii").strip()
    definition = (
        b"version: '2.0'\nodd:\n  tasks:\n    one: {action: std.noop, on-success: [nowhere]}\n"
    )

    assert answered(api, token, "POST", f"workflows?{query}", definition, "text/plain") == 403


def answered(
    api: tuple[str, int],
    token: str,
    method: str,
    resource: str,
    body: bytes,
    kind: str = "application/json",
) -> int:
    """The status of the answer to a request."""
    connection = http.client.HTTPConnection(*api, timeout=30)
    headers = {"X-Auth-Token": token, "Content-Type": kind}
    connection.request(method, f"/v2/{resource}", body, headers)
    said = connection.getresponse()
    said.read()
    connection.close()
    return said.status


def test_no_thread_is_left_behind_by_senders_that_never_end(api: tuple[str, int]) -> None:
    before = threading.active_count()
    idle = [socket.create_connection(api, timeout=10) for _ in range(20)]
    for connection in idle:
        connection.sendall(b"POST /v2/executions HTTP/1.1\r\nContent-Length: 100000\r\n")
    for connection in idle:
        connection.close()

    assert quiet(before + 1)
