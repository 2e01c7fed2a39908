# SPDX-License-Identifier: Apache-2.0
"""What a request's token is worth, and why it is refused. The answers are those that Keystone 30
gave to such tokens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.session import session_for, why_refused
from mistral_failover.cloud.stacks import stack_map
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.settings import Settings
from support.scripted_http import Reply, Request, ScriptedServer

TOKEN = "gAAAAABk-0123456789abcdefghijklmnopqrstuvwxyz"
TRUST = "d46a4710faaa40aeaffdcc623f072781"
NOT_ITSELF = "You are not authorized to perform the requested action: identity:validate_token."
NOT_ANYTHING = "You are not authorized to perform the requested action."
UNKNOWN = "The request you have made requires authentication."
NO_TRUST = f"Could not find trust: {TRUST}."
DISABLED = "Unable to validate token because project p1 is disabled"


def body(url: str, project: str = "p1", expires_in: float = 3600) -> dict[str, Any]:
    """What Keystone tells of a token."""
    end = datetime.now(UTC) + timedelta(seconds=expires_in)
    endpoint = {"interface": "public", "region_id": "R", "region": "R", "url": f"{url}/compute"}
    return {
        "methods": ["password"],
        "expires_at": end.strftime("%Y-%m-%dT%H:%M:%S.000000Z"),
        "user": {"id": "u1", "name": "demo", "domain": {"id": "d", "name": "d"}},
        "project": {"id": project, "name": "demo", "domain": {"id": "d", "name": "d"}},
        "roles": [],
        "catalog": [{"type": "compute", "name": "nova", "endpoints": [endpoint]}],
    }


def keystone(server: ScriptedServer, **answers: Any) -> None:
    """Let the server answer as Keystone: tokens, catalog and project, each with a JSON body or
    ``(status, message)``."""

    def reply(request: Request) -> Reply:
        last = request.path.rpartition("/")[2]
        said = answers.get(last if last in ("tokens", "catalog") else "project", (401, UNKNOWN))
        if isinstance(said, dict):
            return 200, {}, said
        return said[0], {}, {"error": {"code": said[0], "message": said[1]}}

    server.reply = reply


def trusted(server: ScriptedServer) -> None:
    """Let the server answer as Keystone does to the token of an ordinary user's trust."""
    catalog = {"catalog": body(server.url)["catalog"]}
    keystone(server, tokens=(403, NOT_ITSELF), catalog=catalog, project={"project": {"id": "p1"}})


def request_of(server: ScriptedServer, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{"auth_uri": f"{server.url}/v3", "auth_token": TOKEN, "project_id": "p1", **more}
    )


def session_of(server: ScriptedServer, **more: Any) -> GuardedSession:
    return session_for(request_of(server, **more), guard=Unguarded(), settings=Settings())


def refused(make: Callable[[], Any]) -> CloudError:
    with pytest.raises(CloudError) as raised:
        make()
    return raised.value


def test_what_mistral_was_told_of_the_token_counts_without_asking_again(
    server: ScriptedServer,
) -> None:
    session = session_of(server, service_catalog=body(server.url))

    assert session.get_project_id() == "p1"
    assert session.get_token() == TOKEN
    found = session.get_endpoint(service_type="compute", skip_discovery=True)
    assert found == f"{server.url}/compute"
    assert server.calls == []


@pytest.mark.parametrize("told", [None, {}, "text", {"catalog": []}, []])
def test_where_nothing_came_along_keystone_is_asked(server: ScriptedServer, told: Any) -> None:
    keystone(server, tokens={"token": body(server.url)})

    assert session_of(server, service_catalog=told).get_project_id() == "p1"
    assert server.calls == ["GET /v3/auth/tokens"]


def test_a_token_whose_end_has_passed_is_expired_in_every_answer(server: ScriptedServer) -> None:
    past = body(server.url, expires_in=-1)
    assert refused(lambda: session_of(server, service_catalog=past)).code == "TOKEN_EXPIRED"


def test_a_request_that_says_another_project_than_came_along_is_refused(
    server: ScriptedServer,
) -> None:
    error = refused(lambda: session_of(server, service_catalog=body(server.url, project="p2")))
    assert error.code == "FORBIDDEN"


def test_the_token_of_a_trust_may_not_validate_itself_and_is_good_all_the_same(
    server: ScriptedServer,
) -> None:
    trusted(server)

    session = session_of(server)

    assert session.get_token() == TOKEN
    assert session.get_project_id() == "p1"
    assert session.get_endpoint(service_type="compute", skip_discovery=True)
    assert server.calls == [
        "GET /v3/auth/tokens",
        "GET /v3/auth/catalog",
        "GET /v3/projects/p1",
    ]
    assert {request.headers["x-auth-token"] for request in server.seen} == {TOKEN}


def test_a_token_that_may_not_see_the_project_of_its_request_is_refused(
    server: ScriptedServer,
) -> None:
    keystone(
        server,
        tokens=(403, NOT_ITSELF),
        catalog={"catalog": []},
        project=(403, "You are not authorized to perform: identity:get_project."),
    )
    error = refused(lambda: session_of(server))
    assert error.code == "FORBIDDEN"
    assert "p1" in error.message


def test_a_token_whose_project_is_unknown_is_refused(server: ScriptedServer) -> None:
    trusted(server)
    assert refused(lambda: session_of(server, project_id=None)).code == "FORBIDDEN"


def test_a_project_proven_for_a_token_does_not_serve_a_request_that_says_another(
    server: ScriptedServer,
) -> None:
    trusted(server)
    session_of(server)
    assert refused(lambda: session_of(server, project_id="p2")).code == "FORBIDDEN"


GONE = {
    "the trust was deleted": ((401, UNKNOWN), (404, NO_TRUST), "deleted"),
    "the trust was deleted, told at once": ((404, NO_TRUST), (404, NO_TRUST), "deleted"),
    "its user lost a role": ((403, NOT_ANYTHING), (403, NOT_ANYTHING), "lost a role"),
    "its user is disabled": ((401, UNKNOWN), (403, NOT_ANYTHING), "disabled"),
}


@pytest.mark.parametrize("why", GONE)
def test_a_trust_that_is_not_honoured_any_more_is_named(server: ScriptedServer, why: str) -> None:
    tokens, catalog, words = GONE[why]
    keystone(server, tokens=tokens, catalog=catalog)

    error = refused(lambda: session_of(server))

    assert error.code == "TRUST_GONE"
    assert words in error.message
    assert "trust" in error.remedy
    assert TRUST not in f"{error.__dict__}"
    assert TOKEN not in f"{error.__dict__}"


@pytest.mark.parametrize(
    ("tokens", "catalog"),
    [((401, UNKNOWN), (401, UNKNOWN)), ((404, DISABLED), (404, DISABLED))],
)
def test_any_other_token_that_is_refused_has_expired(
    server: ScriptedServer, tokens: Any, catalog: Any
) -> None:
    keystone(server, tokens=tokens, catalog=catalog)
    assert refused(lambda: session_of(server)).code == "TOKEN_EXPIRED"


@pytest.mark.parametrize("where", ["tokens", "catalog", "project"])
def test_a_keystone_that_is_broken_is_no_reason_to_call_a_token_expired(
    server: ScriptedServer, where: str
) -> None:
    catalog = {"catalog": body(server.url)["catalog"]}
    answers = {"tokens": (403, NOT_ITSELF), "catalog": catalog, "project": {"project": {}}}
    keystone(server, **{**answers, where: (500, "An unexpected error")})
    assert refused(lambda: session_of(server)).code == "SERVER_ERROR"


def test_a_request_for_another_cloud_is_refused_unheard(server: ScriptedServer) -> None:
    error = refused(lambda: session_of(server, is_target=True, service_catalog=body(server.url)))
    assert error.code == "FORBIDDEN"
    assert "X-Target-Auth-Uri" in error.message
    assert server.calls == []


def test_where_a_request_does_not_say_keystone_s_address_the_configuration_does(
    server: ScriptedServer,
) -> None:
    trusted(server)
    request = request_of(server, auth_uri=None)
    settings = Settings(auth_url=f"{server.url}/v3")

    session = session_for(request, guard=Unguarded(), settings=settings)

    assert session.get_project_id() == "p1"
    error = refused(lambda: session_for(request, guard=Unguarded(), settings=Settings()))
    assert error.code == "CONFIG"
    assert "www_authenticate_uri" in error.remedy


def test_keystone_is_asked_anew_whether_it_still_accepts_a_token(server: ScriptedServer) -> None:
    request = request_of(server, service_catalog=body(server.url))
    keystone(server, tokens={"token": body(server.url)})
    assert why_refused(request, Settings()) is None

    keystone(server, tokens=(403, NOT_ANYTHING), catalog=(403, NOT_ANYTHING))
    error = why_refused(request, Settings())
    assert error is not None
    assert error.code == "TRUST_GONE"


def test_a_token_that_was_refused_is_not_remembered_as_good(server: ScriptedServer) -> None:
    trusted(server)
    session_of(server)
    keystone(server)
    assert why_refused(request_of(server), Settings()) is not None
    assert refused(lambda: session_of(server)).code == "TOKEN_EXPIRED"


def test_a_keystone_that_can_not_be_asked_refuses_nothing(server: ScriptedServer) -> None:
    keystone(server, tokens=(503, "away"))
    assert why_refused(request_of(server), Settings()) is None
    assert why_refused(request_of(server, auth_token=None), Settings()) is None
    assert why_refused(request_of(server, auth_uri=None), Settings()) is None


def test_no_error_shows_the_token(connect: Any, pair: Any, emulator: Any) -> None:
    cloud = connect()
    token = cloud.session.get_token()
    texts = []
    for operation in ("server_show", "stack_show", "volume_show"):
        emulator.api_fault(operation, status=500, times=50)
    for read in (
        lambda: server_state(cloud, "0b5e9d2c-9a4f-4e0f-9a53-0d5f0c1e7a11"),
        lambda: stack_map(cloud, "nobody"),
        lambda: stack_map(connect("other"), pair.name),
    ):
        with pytest.raises(CloudError) as raised:
            read()
        texts.append(f"{raised.value} {raised.value.__dict__}")
    assert token not in "".join(texts)
