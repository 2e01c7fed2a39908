# SPDX-License-Identifier: Apache-2.0
"""What came from a group file, an alarm or an answer leads a request to no other object."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import pytest
import requests
from keystoneauth1.noauth import NoAuth

from mistral_failover.cloud import (
    dns_records,
    load_balancers,
    networks,
    servers,
    stacks,
    volume_holders,
)
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.mistral.api import Mistral
from mistral_failover.mistral.client import MistralClient, MistralError

HOSTILE = ["", ".", "..", "a/../b", "a/action", "/", "../../v3/users"]


class Recorder(requests.adapters.BaseAdapter):
    """A service that has nothing; ``asked`` has the path and the query of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        self.asked.append(request.path_url)
        answer = requests.Response()
        answer.status_code, answer.request, answer.url = 404, request, str(request.url)
        answer.raw = io.BytesIO(b"{}")
        return answer

    def close(self) -> None:
        pass


@pytest.fixture
def service() -> Recorder:
    return Recorder()


@pytest.fixture
def cloud(service: Recorder, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.setattr(Cloud, "newest", lambda *_: "2.96")  # it is asked by the root's path
    auth = NoAuth(endpoint="http://cloud.example/api")
    session = GuardedSession(guard=Unguarded(10.0), timeout=10.0, auth=auth)
    session.mount("http://", service)
    return Cloud(session)


ASKING: dict[str, Callable[[Cloud, str], Any]] = {
    "port": networks.port,
    "floating IP": networks.floating_ip,
    "pool": load_balancers.pool_members,
    "recordset": lambda cloud, id: dns_records.recordset(cloud, "z", id),
    "volume": volume_holders.volume_of,
    "server": servers.server_state,
    "volumes of a server": lambda cloud, id: volume_holders.listed_by_nova(cloud, id, "v"),
    "stack": stacks.stack_shown,
    "resources of a stack": lambda cloud, id: stacks.listing(cloud, id, 1),
}


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("identity", [each for each in HOSTILE if each != "a/action"])
def test_no_request_is_sent_for_what_is_no_id(
    cloud: Cloud, service: Recorder, name: str, identity: str
) -> None:
    with pytest.raises(CloudError) as refused:
        ASKING[name](cloud, identity)

    # Never NOT_FOUND: that would prove that there is no such server or volume.
    assert refused.value.code == "BAD_REQUEST"
    assert not [path for path in service.asked if identity in path and len(path) > len("/api/")]


@pytest.mark.parametrize("name", ASKING)
def test_what_ends_a_path_elsewhere_does_not(cloud: Cloud, service: Recorder, name: str) -> None:
    with contextlib.suppress(CloudError):
        ASKING[name](cloud, "a?all_tenants=1#b%2e")

    paths = [path for path in service.asked if "all_tenants" in path]
    assert paths
    assert all("a%3Fall_tenants%3D1%23b%252e" in path for path in paths), paths


@pytest.mark.parametrize("identity", HOSTILE)
@pytest.mark.parametrize("of", ["execution", "task", "tasks"])
def test_mistral_is_not_asked_about_what_is_no_id(identity: str, of: str) -> None:
    with pytest.raises(MistralError) as refused:
        getattr(MistralClient("http://127.0.0.1:1/v2"), of)(identity)

    assert refused.value.code == "BAD_REQUEST"


@pytest.mark.parametrize("identity", HOSTILE)
def test_an_action_hears_of_it_as_of_any_failure(identity: str) -> None:
    session = GuardedSession(guard=Unguarded(1.0), timeout=1.0)

    with pytest.raises(CloudError) as refused:
        Mistral(session, "http://127.0.0.1:1/v2").state(identity)

    assert refused.value.code == "BAD_REQUEST"
