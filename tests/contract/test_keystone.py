# SPDX-License-Identifier: Apache-2.0
"""Tokens of every kind, and access rules, with a real Keystone and the emulated services behind the
real keystonemiddleware.

Measured on Keystone 30:

- A token of the system, or of a domain, has no project. So does an unscoped one, which has no
  catalog either.
- The token of a federated user has ``OS-FEDERATION`` in its user. With a project it has the roles
  of the groups that the mapping names. It can leave neither a trust (404) nor an application
  credential (400) behind, unless its identity provider has an ``authorization_ttl``, or the user
  has roles without the token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from keystoneauth1 import exceptions
from keystoneauth1.adapter import Adapter
from keystoneauth1.plugin import BaseAuthPlugin
from keystoneauth1.session import Session

import testcloud.keystone
from mistral_failover.cloud.access_rules import AccessRule, lacking, needed
from mistral_failover.cloud.clients import Cloud, cloud_for
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.server import credential
from mistral_failover.settings import Settings
from support.emulated import PAIR, Pair, works
from testcloud import settings
from testcloud.keystone import PROJECT, PROTOCOL, PROVIDER, REGION, Keystone

SCOPED = {"project_id": PROJECT}


@pytest.fixture(scope="module")
def emulated() -> Iterator[EmulatedCloud]:
    """The services."""
    with EmulatedCloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def keystone(
    request: pytest.FixtureRequest,
    emulated: EmulatedCloud,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Keystone]:
    """A real Keystone before them."""
    if not request.config.getoption("--keystone"):
        pytest.skip("--keystone starts a Keystone")
    folder = tmp_path_factory.mktemp("keystone")
    with testcloud.keystone.running(settings.load(), folder, emulated) as found:
        yield found


@pytest.fixture
def pair(request: pytest.FixtureRequest, keystone: Keystone, emulated: EmulatedCloud) -> Pair:
    """A stack with two servers and a volume."""
    name = f"pair-{abs(hash(request.node.name))}"
    emulated.client.create_stack(name, PAIR)
    rows = emulated.client.resources(name)
    ids = {each: row["physical_resource_id"] for each, row in rows.items()}
    return Pair(name, ids["db_a"], ids["db_b"], ids["data"])


def by_token(keystone: Keystone, auth: BaseAuthPlugin, project: str | None = PROJECT) -> Cloud:
    """The cloud of a request through Mistral with this token."""
    security = SimpleNamespace(
        auth_uri=keystone.auth_url,
        auth_token=Session(auth).get_token(),
        project_id=project,
        region_name=REGION,
    )
    return cloud_for(security, guard=Unguarded(60), settings=Settings(http_timeout=30))


def by_plugin(keystone: Keystone, auth: BaseAuthPlugin) -> Cloud:
    """The cloud of a server whose entry of clouds.yaml has this credential."""
    session = GuardedSession(guard=Unguarded(60), timeout=30, auth=auth, region_name=REGION)
    return Cloud(session)


ways = pytest.mark.parametrize("connect", [by_token, by_plugin])
Connect = Callable[[Keystone, BaseAuthPlugin], Cloud]


@ways
@pytest.mark.parametrize("whose", ["password", "federated"])
def test_a_user_of_the_project_may_do_everything(
    keystone: Keystone, pair: Pair, connect: Connect, whose: str
) -> None:
    name = {"password": "demo", "federated": "ann"}[whose]

    works(connect(keystone, getattr(keystone, whose)(name, **SCOPED)), pair)


def test_an_entry_of_clouds_yaml_may_have_a_federated_user(
    keystone: Keystone, pair: Pair, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry(
        keystone,
        tmp_path,
        monkeypatch,
        "v3oidcaccesstoken",
        identity_provider=PROVIDER,
        protocol=PROTOCOL,
        access_token="ann",  # noqa: S106 - a user
        project_id=PROJECT,
    )

    cloud, found = credential.cloud_of("own")

    works(cloud, pair)
    assert (found.project, found.user, found.application) == (PROJECT, "ann", False)
    assert "member" in found.roles


SCOPES: dict[str, dict[str, str]] = {
    "system": {"system_scope": "all"},
    "domain": {"domain_id": "default"},
    "nothing": {"unscoped": "true"},
}


@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_without_a_project_is_refused(keystone: Keystone, scope: str) -> None:
    keystone.admin_of_everything()

    with pytest.raises(CloudError) as error:
        by_token(keystone, keystone.password("admin", **SCOPES[scope]), None)

    assert error.value.code == "FORBIDDEN"
    assert "project" in error.value.message


@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_without_a_project_has_no_rights_in_the_project_of_its_request(
    keystone: Keystone, scope: str
) -> None:
    keystone.admin_of_everything()

    with pytest.raises(CloudError) as error:
        by_token(keystone, keystone.password("admin", **SCOPES[scope]), PROJECT)

    assert error.value.code == "FORBIDDEN"


@pytest.mark.parametrize("scope", SCOPES)
def test_a_server_s_credential_without_a_project_is_refused(
    keystone: Keystone, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    keystone.admin_of_everything()
    user = {"username": "admin", "password": "admin", "user_domain_id": "default"}
    entry(keystone, tmp_path, monkeypatch, "v3password", **user, **SCOPES[scope])

    with pytest.raises(CloudError) as error:
        credential.cloud_of("own")

    assert error.value.code == "NO_PROJECT"
    assert "project_name" in error.value.remedy


def entry(
    keystone: Keystone, folder: Any, monkeypatch: pytest.MonkeyPatch, kind: str, **auth: str
) -> None:
    """Write clouds.yaml with the entry own."""
    made = {
        "auth_type": kind,
        "auth": {"auth_url": keystone.auth_url, **auth},
        "region_name": REGION,
    }
    file = folder / "clouds.yaml"
    file.write_text(yaml.safe_dump({"clouds": {"own": made}}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))


def documents(rules: Sequence[AccessRule]) -> list[dict[str, str]]:
    return [rule.document() for rule in rules]


@ways
def test_a_credential_with_the_rules_that_are_printed_works(
    keystone: Keystone, pair: Pair, connect: Connect, request: pytest.FixtureRequest
) -> None:
    rules = documents(needed(by_plugin(keystone, keystone.password("demo", **SCOPED))))
    name = request.node.name
    auth = keystone.application_credential("demo", name, access_rules=rules)

    cloud = connect(keystone, auth)

    works(cloud, pair)
    assert lacking(cloud) == []


@ways
def test_the_rule_that_a_request_lacks_is_named(
    keystone: Keystone, pair: Pair, connect: Connect, request: pytest.FixtureRequest
) -> None:
    rules = needed(by_plugin(keystone, keystone.password("demo", **SCOPED)))
    held = [rule for rule in rules if (rule.service, rule.method) != ("compute", "GET")]
    name = request.node.name
    auth = keystone.application_credential("demo", name, access_rules=documents(held))
    cloud = connect(keystone, auth)

    with pytest.raises(CloudError) as error:
        server_state(cloud, pair.a)

    assert error.value.code == "FORBIDDEN"
    assert "service: compute, method: GET, path: /compute/v2.1/servers/*" in error.value.message
    assert [(rule.service, rule.method) for rule in lacking(cloud)] == [("compute", "GET")]


def test_what_a_federated_user_can_leave_behind(keystone: Keystone) -> None:
    """Heat, Aodh and Mistral make a trust of the user; a server needs an application credential.
    Both want roles that the user has without the token."""
    outcome = leave_behind(keystone, "ann")
    keystone.keep_groups(60)
    later = leave_behind(keystone, "ben")

    assert outcome == {"trust": 404, "application credential": 400}
    assert later == {"trust": 201, "application credential": 201}


def leave_behind(keystone: Keystone, name: str) -> dict[str, int]:
    session = Session(keystone.federated(name, **SCOPED))
    own = Adapter(session, endpoint_override=keystone.auth_url)
    user, admin = session.get_user_id(), keystone.admin.get_user_id()
    member = {"name": "member"}
    trust = {
        "trustor_user_id": user,
        "trustee_user_id": admin,
        "project_id": PROJECT,
        "impersonation": True,
        "roles": [member],
    }
    made = {"name": "server", "roles": [member]}
    asked = {
        "trust": ("/OS-TRUST/trusts", {"trust": trust}),
        "application credential": (
            f"/users/{user}/application_credentials",
            {"application_credential": made},
        ),
    }
    found = {}
    for what, (path, body) in asked.items():
        try:
            found[what] = own.post(path, json=body).status_code
        except exceptions.HttpError as error:
            found[what] = error.http_status
    return found
