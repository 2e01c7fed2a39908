# SPDX-License-Identifier: Apache-2.0
"""A real Chromium, with an operator's tunnel to the API, opens a page that wants to give orders.

Needs Chromium and playwright: ``make test-ui``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.mistral.client import MistralClient
from support.browser import EVIL, REBOUND

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

SWITCHOVER = "failover.switchover"
ORDER = f"""\
version: '2.0'
{SWITCHOVER}:
  input: [group]
  tasks:
    move: {{action: std.noop}}
"""
FORM = """\
<form method="post" action="{url}/executions" {more}>
<input name="wf_ex.workflow_name" value="{name}">
<input name="wf_ex.input" value='{{"group": "payments"}}'>
</form><script>document.forms[0].submit()</script>
"""
SEND = """async ([url, method, kind, body, mode]) => {
  const request = {method, mode, headers: {"Content-Type": kind}, body, credentials: "include"};
  try { const answer = await fetch(url, request); return [answer.status, await answer.text()] }
  catch (error) { return [0, String(error)] }
}"""


@dataclass
class Site:
    """A web site; it also notes what is sent to it, as an API without any checks would."""

    port: int = 0
    page: str = "<p>hello</p>"
    heard: list[tuple[str, str, str]] = field(default_factory=list)

    def url(self, name: str) -> str:
        return f"http://{name}:{self.port}"


@pytest.fixture
def site() -> Iterator[Site]:
    """The page of a stranger."""
    found = Site()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            found.heard.append((self.command, self.headers.get("Content-Type", ""), body))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            page = found.page if self.command == "GET" else "<p>taken</p>"
            self.wfile.write(page.encode())

        do_GET = do_POST = do_OPTIONS = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A tab."""
    context = chromium.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def mistral_url(mistral: TestEngine) -> Iterator[str]:
    """The API, as it is at the operator's end of a tunnel."""
    mistral.load(ORDER, "a test")
    yield mistral.url
    mistral.clean()


@pytest.fixture
def owner(mistral_url: str, mistral: TestEngine) -> MistralClient:
    """A client with the token."""
    return MistralClient(mistral_url, token=mistral.token_file.read_text("ascii").strip())


def submitted(page: Any, site: Site, url: str, more: str = "") -> Any:
    """Open a page that submits a form by itself; what the browser got for it."""
    site.page = FORM.format(url=url, name=SWITCHOVER, more=more)
    with page.expect_response(lambda answer: answer.request.method == "POST") as found:
        page.goto(site.url(EVIL), wait_until="commit")
    return found.value


def test_a_browser_sends_such_a_form_to_a_server_that_takes_it(page: Any, site: Site) -> None:
    submitted(page, site, site.url("127.0.0.1"))

    ((kind, body),) = [(kind, body) for method, kind, body in site.heard if method == "POST"]
    assert kind == "application/x-www-form-urlencoded"
    assert SWITCHOVER in body


@pytest.mark.parametrize(
    "more", ["", 'enctype="text/plain"', 'enctype="multipart/form-data"', 'target="_blank"']
)
def test_a_page_s_form_orders_nothing(
    page: Any, site: Site, mistral_url: str, owner: MistralClient, more: str
) -> None:
    if "_blank" in more:
        site.page = FORM.format(url=mistral_url, name=SWITCHOVER, more=more)
        page.goto(site.url(EVIL))
        page.wait_for_timeout(500)
    else:
        answer = submitted(page, site, mistral_url, more)
        assert answer.status == 403
        assert "another site" in json.loads(answer.text())["faultstring"]

    assert owner.executions(workflow_name=SWITCHOVER) == []


@pytest.mark.parametrize("mode", ["cors", "no-cors"])
@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_a_page_s_script_orders_nothing_and_reads_nothing(
    page: Any, site: Site, mistral_url: str, owner: MistralClient, mode: str, kind: str
) -> None:
    page.goto(site.url(EVIL))
    order = json.dumps({"workflow_name": SWITCHOVER, "input": {"group": "payments"}})
    text = ORDER.replace(SWITCHOVER, "evil.page")

    for path, body in (("executions", order), ("workflows", text)):
        status, said = page.evaluate(SEND, [f"{mistral_url}/{path}", "POST", kind, body, mode])
        assert status in (0, 403)
        assert SWITCHOVER not in said

    assert owner.executions(workflow_name=SWITCHOVER) == []
    assert "evil.page" not in [each["name"] for each in owner.workflows()]


def test_a_page_whose_name_was_rebound_to_the_api_reads_and_orders_nothing(
    page: Any, mistral_url: str, owner: MistralClient
) -> None:
    rebound = f"http://{REBOUND}:{urlsplit(mistral_url).port}"
    opened = page.goto(f"{rebound}/v2/workflows")
    order = json.dumps({"workflow_name": SWITCHOVER, "input": {"group": "payments"}})

    # For the browser this is the page's own site: no other check of its own stands in the way.
    url = f"{rebound}/v2/executions"
    status, said = page.evaluate(SEND, [url, "POST", "application/json", order, "same-origin"])

    assert opened.status == 403
    assert (status, "Host header" in said) == (403, True)
    assert owner.executions(workflow_name=SWITCHOVER) == []


def test_an_operator_who_opens_the_api_in_the_browser_is_told_what_is_missing(
    page: Any, mistral_url: str, mistral: TestEngine
) -> None:
    opened = page.goto(f"{mistral_url}/workflows")

    assert opened.status == 401
    assert str(mistral.token_file) in page.content()
