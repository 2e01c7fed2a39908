# SPDX-License-Identifier: Apache-2.0
"""Mistral's API as the sweep uses it: where it is, with whose rights, in which pages.

What Mistral itself does with these requests is shown in tests/embedded.
"""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.mistral.api import Mistral, Outcome, mistral_for
from mistral_failover.mistral.client import PAGE
from mistral_failover.settings import Settings
from support.scripted_http import Reply, Request, ScriptedServer

TOKEN = "gAAAAAmistral-api-test-token"


def row(number: int, **more: Any) -> dict[str, Any]:
    """An execution as Mistral lists it."""
    return {
        "id": f"e{number}",
        "workflow_name": "failover.on_alarm",
        "state": "RUNNING",
        "root_execution_id": None,
        "input": '{"group": "g"}',
        "created_at": "2026-11-21 10:00:00",
        "updated_at": "2026-11-21 10:00:05",
    } | more


def without_token(server: ScriptedServer) -> Mistral:
    found = mistral_for(SimpleNamespace(), Settings(mistral_url=f"{server.url}/v2/"))
    assert found is not None
    return found


def test_without_a_token_it_is_where_the_option_says_and_no_token_is_fetched(
    server: ScriptedServer,
) -> None:
    server.reply = lambda request: (200, {}, {"state": "RUNNING"})

    assert without_token(server).state("e1") == "RUNNING"

    assert server.calls == ["GET /v2/executions/e1?fields=state"]
    assert "x-auth-token" not in server.seen[0].headers


def test_without_a_token_and_without_the_option_there_is_none() -> None:
    assert mistral_for(SimpleNamespace(), Settings()) is None


@pytest.mark.parametrize("path", ["/workflow/v2", "/workflow"])
def test_with_a_token_it_is_where_the_catalog_says_and_the_option_does_not_count(
    server: ScriptedServer, path: str
) -> None:
    def reply(request: Request) -> Reply:
        if request.path.endswith("/auth/tokens"):
            return 200, {}, {"token": keystone_token(f"{server.url}{path}", "workflowv2")}
        return 200, {}, {"state": "SUCCESS"}

    server.reply = reply
    token = f"{TOKEN}-{path}"

    found = mistral_for(security(server, token), Settings(mistral_url="http://127.0.0.1:9/v2"))

    assert found is not None
    assert found.state("e1") == "SUCCESS"
    assert server.calls[-1] == "GET /workflow/v2/executions/e1?fields=state"
    assert server.seen[-1].headers["x-auth-token"] == token


def test_a_catalog_without_it_is_an_error_with_a_code(server: ScriptedServer) -> None:
    body = {"token": keystone_token(f"{server.url}/compute", "compute")}
    server.reply = lambda request: (200, {}, body)

    with pytest.raises(CloudError) as caught:
        mistral_for(security(server, f"{TOKEN}-none"), Settings())

    assert caught.value.code == "NO_ENDPOINT"


def test_an_execution_that_is_not_there_has_no_state(server: ScriptedServer) -> None:
    server.reply = lambda request: (404, {}, {"faultstring": "Workflow execution not found"})

    assert without_token(server).state("..e 1?") is None
    assert server.calls == ["GET /v2/executions/..e%201%3F?fields=state"]


def test_what_fails_has_the_code_of_the_cloud_s_errors(server: ScriptedServer) -> None:
    server.reply = lambda request: (500, {}, {"faultstring": "out of order"})

    with pytest.raises(CloudError) as caught:
        without_token(server).state("e1")

    assert caught.value.code == "SERVER_ERROR"


def test_what_mistral_says_of_a_refusal_is_told(server: ScriptedServer) -> None:
    said = {"debuginfo": None, "faultcode": "Client", "faultstring": "Workflow not\n found"}
    server.reply = lambda request: (404, {}, said)

    with pytest.raises(CloudError, match=r"Could not ask Mistral: Workflow not found \(HTTP 404\)"):
        without_token(server).start("e1", "house.unknown", {}, "a test")


def test_of_one_execution_it_is_told_how_it_stands_and_what_it_said(
    server: ScriptedServer,
) -> None:
    stands = {"workflow_name": "house.off", "state": "ERROR", "state_info": "no"}
    changed = (datetime.now(UTC) - timedelta(seconds=120)).strftime("%Y-%m-%d %H:%M:%S")
    times = {"created_at": "2026-11-21 10:00:00", "updated_at": changed}
    server.reply = lambda request: (200, {}, {**stands, **times, "output": '{"a": 1}'})

    found = without_token(server).outcome("e1")
    assert found == Outcome("house.off", "ERROR", {"a": 1}, "no", pytest.approx(120, abs=10))
    fields = "id,workflow_name,state,state_info,output,created_at,updated_at"
    assert server.calls == [f"GET /v2/executions/e1?fields={fields.replace(',', '%2C')}"]
    server.reply = lambda request: (404, {}, {"faultstring": "Workflow execution not found"})
    assert without_token(server).outcome("e1") is None


def test_an_operation_s_guard_stands_before_every_call(server: ScriptedServer) -> None:
    class Lost:
        request_id = None

        def permit(self, method: str) -> float:
            raise LeaseLost(method)

    found = mistral_for(SimpleNamespace(), Settings(mistral_url=f"{server.url}/v2/"), Lost())
    assert found is not None
    for call in (lambda: found.outcome("e1"), lambda: found.start("e1", "w", {}, "")):
        with pytest.raises(LeaseLost):
            call()
    assert server.calls == []


def test_a_long_list_is_asked_for_in_pages(server: ScriptedServer) -> None:
    rows = [row(n) for n in range(PAGE + 2)]

    def reply(request: Request) -> Reply:
        first = 0
        if marker := re.search(r"marker=e(\d+)", request.path):
            first = int(marker[1]) + 1
        return 200, {}, {"executions": rows[first : first + PAGE]}

    server.reply = reply

    assert [e.id for e in without_token(server).running("failover.")] == [r["id"] for r in rows]
    assert len(server.calls) == 2
    assert all("state=RUNNING" in call and f"limit={PAGE}" in call for call in server.calls)
    assert not any("all_projects" in call for call in server.calls)


def test_a_list_has_an_end_even_where_mistral_gives_it_none(server: ScriptedServer) -> None:
    numbers = itertools.count()
    server.reply = lambda request: (
        200,
        {},
        {"executions": [row(next(numbers)) for _ in range(PAGE)]},
    )

    assert len(list(without_token(server).running("failover."))) == 10 * PAGE


def test_a_mistral_that_refuses_a_row_that_it_lists_is_an_error(server: ScriptedServer) -> None:
    def reply(request: Request) -> Reply:
        if "marker=" in request.path:
            return 404, {}, {"faultstring": "Workflow execution not found"}
        return 200, {}, {"executions": [row(n) for n in range(PAGE)]}

    server.reply = reply

    with pytest.raises(CloudError, match="Workflow execution not found"):
        list(without_token(server).running("failover."))
    assert len(server.calls) == 4, "the list was begun anew once"


def test_only_names_that_begin_so_count(server: ScriptedServer) -> None:
    rows = [row(1), row(2, workflow_name="my.failover.copy")]
    server.reply = lambda request: (200, {}, {"executions": rows})

    assert [e.id for e in without_token(server).running("failover.")] == ["e1"]


def test_an_execution_s_facts_are_read(server: ScriptedServer) -> None:
    rows = [row(1, root_execution_id="e0", updated_at=None, input="no JSON")]
    server.reply = lambda request: (200, {}, {"executions": rows})
    mistral = without_token(server)

    (found,) = mistral.running("failover.")

    assert (found.root, found.input, found.ended) == ("e0", {}, False)
    assert found.changed == datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
    assert abs((mistral.now - datetime.now(UTC)).total_seconds()) < 5


def security(server: ScriptedServer, token: str) -> Any:
    """A request's security context."""
    return SimpleNamespace(auth_token=token, auth_uri=server.url, project_id="p1")


def keystone_token(url: str, kind: str) -> dict[str, Any]:
    """Keystone's answer about a token, with one service in the catalog."""
    endpoint = {"id": "1", "interface": "public", "region": "R", "region_id": "R", "url": url}
    return {
        "methods": ["token"],
        "user": {"id": "u1", "name": "u", "domain": {"id": "default", "name": "Default"}},
        "project": {"id": "p1", "name": "p", "domain": {"id": "default", "name": "Default"}},
        "roles": [{"id": "r1", "name": "member"}],
        "issued_at": "2026-11-21T10:00:00.000000Z",
        "expires_at": "2099-11-21T10:00:00.000000Z",
        "catalog": [{"id": "s1", "type": kind, "name": "s", "endpoints": [endpoint]}],
    }


def test_an_execution_is_started_under_the_id_that_is_given(server: ScriptedServer) -> None:
    server.reply = lambda request: (201, {}, row(1))

    without_token(server).start("e1", "failover.activate_first", {"group": "g"}, "the stack")

    assert server.calls == ["POST /v2/executions"]
    assert server.seen[0].body == {
        "id": "e1",
        "workflow_name": "failover.activate_first",
        "input": {"group": "g"},
        "description": "the stack",
    }
