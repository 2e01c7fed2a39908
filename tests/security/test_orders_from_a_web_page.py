# SPDX-License-Identifier: Apache-2.0
"""A web page in the operator's browser, and another user of the machine, can give no orders.

Both reach the loopback port of the embedded Mistral: the page by the browser (with a form, without
asking first; or by a name of its own that it rebinds to 127.0.0.1), the other user directly. What
they send is sent here byte for byte, over a socket: a library would correct it.
"""

from __future__ import annotations

import http.client
import json
import stat
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.embedded import access
from mistral_failover.embedded.access import AccessControl
from mistral_failover.errors import CodedError
from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.mistral.client import MistralClient, MistralError

SWITCHOVER = "failover.switchover"
ORDER = f"""\
version: '2.0'
{SWITCHOVER}:
  input: [group, because: '']
  tasks:
    move: {{action: std.noop}}
"""
TOKEN = "0123456789abcdef" * 4
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: str

    @property
    def reason(self) -> str:
        return str(json.loads(self.body)["faultstring"])


@dataclass(frozen=True)
class Api:
    """The API as a program without the project's client finds it."""

    url: str
    token_file: Path

    @property
    def token(self) -> str:
        return self.token_file.read_text("ascii").strip()

    @property
    def client(self) -> MistralClient:
        return MistralClient(self.url, token=self.token)

    def ask(
        self,
        method: str = "GET",
        path: str = "/v2/workflows",
        headers: Mapping[str, str] | None = None,
        body: str | bytes | None = None,
        *,
        token: bool = False,
    ) -> Answer:
        """One request, with the headers given; those that are missing are those of a program."""
        where = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=30)
        sent = dict(headers or {}) | ({"X-Auth-Token": self.token} if token else {})
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        found = Answer(answer.status, answer.read().decode())
        connection.close()
        return found

    def orders(self) -> list[Any]:
        """What was ordered."""
        return list(self.client.executions(workflow_name=SWITCHOVER))


@pytest.fixture
def api(mistral: TestEngine) -> Iterator[Api]:
    """A real Mistral with one workflow that orders something."""
    mistral.load(ORDER, "a test")
    yield Api(mistral.url, mistral.token_file)
    mistral.clean()


# -- what a page does


def test_a_form_of_another_site_orders_nothing(api: Api) -> None:
    fields = {
        "wf_ex.workflow_name": SWITCHOVER,
        "wf_ex.input": json.dumps({"group": "payments", "because": "a page wanted it"}),
    }
    headers = {
        "Content-Type": FORM,
        "Origin": "https://evil.example",
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "no-cors",
    }

    said = api.ask("POST", "/v2/executions", headers, urllib.parse.urlencode(fields))

    assert (said.status, api.orders()) == (403, [])


def test_a_workflow_in_plain_text_of_another_site_is_not_stored(api: Api) -> None:
    headers = {"Content-Type": "text/plain", "Origin": "https://evil.example"}

    said = api.ask("POST", "/v2/workflows", headers, ORDER.replace(SWITCHOVER, "evil.page"))

    assert said.status == 403
    assert "evil.page" not in [each["name"] for each in api.client.workflows()]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_what_a_browser_sends_for_another_site_is_refused_even_with_the_token(
    api: Api, headers: dict[str, str]
) -> None:
    said = api.ask(headers=headers, token=True)

    assert said.status == 403
    assert "another site" in said.reason


def test_the_question_that_precedes_such_a_request_is_refused_too(api: Api) -> None:
    asked = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-auth-token, content-type",
    }

    assert api.ask("OPTIONS", "/v2/executions", asked).status == 403


@pytest.mark.parametrize("name", ["rebind.example", "127.0.0.1.evil.example", "evil", ""])
def test_a_name_that_was_bound_to_this_address_is_refused_even_with_the_token(
    api: Api, name: str
) -> None:
    port = urllib.parse.urlsplit(api.url).port

    said = api.ask(headers={"Host": f"{name}:{port}" if name else ""}, token=True)

    assert said.status in (400, 403), said
    assert "rebind" not in said.body, "what a stranger sent is not sent back"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST"])
@pytest.mark.parametrize("port", ["", ":9000"])
def test_the_end_of_a_tunnel_is_no_other_name(api: Api, name: str, port: str) -> None:
    own = {"Host": f"{name}{port}", "Origin": f"http://{name}{port}".lower()}

    assert api.ask(headers=own, token=True).status == 200


# -- what another user of the machine does


@pytest.mark.parametrize("path", ["/", "/v2/", "/v2/workflows", "/v2/executions", "/healthcheck"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"X-Auth-Token": "0" * 64}, {"X-Auth-Token": ""}, {"Authorization": "Bearer ü"}],
)
def test_without_the_token_nothing_is_told(api: Api, path: str, headers: dict[str, str]) -> None:
    said = api.ask(path=path, headers=headers)

    assert said.status == 401
    assert SWITCHOVER not in said.body


def test_a_refusal_says_which_file_has_the_token_and_what_to_do(api: Api) -> None:
    said = api.ask()

    assert str(api.token_file) in said.reason
    assert "X-Auth-Token" in said.reason
    assert api.token not in said.body


def test_the_token_is_for_the_owner_alone_and_no_part_of_it_is_enough(api: Api) -> None:
    mode = stat.S_IMODE(api.token_file.stat().st_mode)

    assert (mode, len(api.token)) == (0o600, 64)
    for part in (api.token[:-1], f"{api.token}0", api.token.upper()):
        assert api.ask(headers={"X-Auth-Token": part}).status == 401


@pytest.mark.parametrize(
    "headers",
    [{"X-Roles": "admin"}, {"X-Forwarded-For": "127.0.0.1"}, {"X-Target-Auth-Uri": "http://x"}],
)
def test_a_header_that_claims_rights_gives_none(api: Api, headers: dict[str, str]) -> None:
    assert api.ask(headers=headers).status == 401


# -- what the owner of the token may send


def test_the_token_opens_the_api(api: Api) -> None:
    body = {"workflow_name": SWITCHOVER, "input": {"group": "payments"}}

    said = api.ask(
        "POST", "/v2/executions", {"Content-Type": "application/json"}, json.dumps(body), token=True
    )

    assert said.status == 201, said
    assert [each["id"] for each in api.orders()] == [json.loads(said.body)["id"]]


@pytest.mark.parametrize(
    ("sent", "reaches"),
    [
        ({"X-Auth-Token": TOKEN}, None),
        ({"Authorization": f"Bearer {TOKEN}"}, None),
        ({"Authorization": f"Bearer {TOKEN}", "X-Auth-Token": "of-a-cloud"}, "of-a-cloud"),
    ],
)
def test_the_token_does_not_reach_the_actions_but_one_of_a_cloud_beside_it_does(
    sent: dict[str, str], reaches: str | None
) -> None:
    seen: dict[str, Any] = {}
    environ = {"HTTP_HOST": "localhost", "REQUEST_METHOD": "GET", "PATH_INFO": "/v2/"}
    environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in sent.items()}

    gate = AccessControl(
        lambda passed, _: seen.update(passed) or [], TOKEN, Path("f"), ["localhost"]
    )
    gate(environ, lambda *_: None)

    assert seen["PATH_INFO"] == "/v2/", "it was let through"
    assert seen.get("HTTP_X_AUTH_TOKEN") == reaches
    assert TOKEN not in str(seen)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v2/executions", FORM),
        ("/v2/executions", "multipart/form-data; boundary=x"),
        ("/v2/executions", "text/plain"),
        ("/v2/executions", ""),
        ("/v2/workflows", FORM),
        ("/v2/workflowsx", "text/plain"),
        ("/v2/environments", "text/plain"),
        ("/v2/action_executions", "text/xml"),
    ],
)
def test_a_form_is_refused_even_with_the_token(api: Api, path: str, kind: str) -> None:
    before = len(api.orders())
    fields = {"wf_ex.workflow_name": SWITCHOVER, "wf_ex.input": '{"group": "payments"}'}

    said = api.ask("POST", path, {"Content-Type": kind}, urllib.parse.urlencode(fields), token=True)

    assert (said.status, len(api.orders())) == (415, before), said
    assert "application/json" in said.reason


@pytest.mark.parametrize("what", ["workflows", "workbooks"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_definitions_are_plain_text_as_mistral_wants_them(api: Api, what: str, method: str) -> None:
    text = ORDER.replace(SWITCHOVER, "house.order")
    if what == "workbooks":
        body = "".join(f"    {line}\n" for line in text.splitlines()[1:]).replace("house.", "")
        text = f"version: '2.0'\nname: house\nworkflows:\n{body}"

    said = api.ask(method, f"/v2/{what}", {"Content-Type": "text/plain"}, text, token=True)

    assert said.status in (200, 201, 404, 409), said


# -- the one client


def test_the_client_says_what_to_do_when_it_has_no_token(api: Api) -> None:
    with pytest.raises(MistralError) as refused:
        MistralClient(api.url).actions()

    assert refused.value.code == "UNAUTHORISED"
    assert str(api.token_file) in refused.value.message
    assert refused.value.http_status == 401


# -- the token's file


def test_the_token_outlives_a_restart_and_is_renewed_by_removing_it(tmp_path: Path) -> None:
    first = access.token(tmp_path)

    assert access.token(tmp_path) == first
    (tmp_path / access.TOKEN_FILE).unlink()
    assert access.token(tmp_path) != first


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_token_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    access.token(tmp_path)
    file = tmp_path / access.TOKEN_FILE
    file.chmod(mode)

    with pytest.raises(CodedError) as refused:
        access.token(tmp_path)

    assert refused.value.code == "TOKEN_NOT_PRIVATE"
    assert refused.value.remedy == f"Run: chmod 600 {file}"
    assert f"{mode:04o}" in refused.value.message


def test_a_token_that_is_a_link_to_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("0" * 64)
    (tmp_path / "elsewhere").chmod(0o600)
    (tmp_path / access.TOKEN_FILE).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(CodedError) as refused:
        access.token(tmp_path)

    assert refused.value.code == "TOKEN_NOT_PRIVATE"


@pytest.mark.parametrize("text", ["", "short", "ü" * 64])
def test_a_token_that_could_be_guessed_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / access.TOKEN_FILE
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")

    with pytest.raises(CodedError) as refused:
        access.token(tmp_path)

    assert (refused.value.code, f"rm {file}" in refused.value.remedy) == ("TOKEN_UNREADABLE", True)
