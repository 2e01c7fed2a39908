# SPDX-License-Identifier: Apache-2.0
"""Whose rights a call has: the request's token as it is, or the entry of clouds.yaml.

Measured on Nova 34, Cinder 29, Heat 27, Keystone 30 and Mistral 23:

Tokens

- A trust's token is never re-scoped (403) and may not validate itself (403). It gets the catalog
  and sees only its own project.
- The token of an application credential with access rules: 401 of a service whose rule is missing,
  also of one without ``service_type`` in its configuration. About itself 404 without the header
  ``OpenStack-Identity-Access-Rules``, 200 with it.
- A revoked or expired token: 401 about itself, 404 about another one.
- Services accept a revoked token while they remember it (300 s). Keystone itself sometimes
  honours the token of a deleted trust for some seconds.

Another project's things

- Nova, Cinder, Heat: 404, as if they did not exist.
- Another project's address: Cinder 400 "Malformed request url", Heat 403.
"""

import re
from types import SimpleNamespace

import pytest
import requests
import yaml

from contract.rig import UNKNOWN_ID
from mistral_failover.cloud.clients import cloud_for
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.session import why_refused
from mistral_failover.cloud.stacks import stack_map
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.cloud.volumes import resolve_volume
from mistral_failover.runtime.errors import describe
from mistral_failover.settings import Settings

REFUSED = ("TOKEN_EXPIRED", "TRUST_GONE")


@pytest.mark.parametrize("trust", [True, False], ids=["by a trust", "by a password"])
def test_a_token_reaches_every_service_and_is_never_exchanged(connect, rig, pair, trust):
    token = rig.trust()[0] if trust else rig.token()
    cloud = connect(token=token)
    assert server_state(cloud, pair.ids["db_a"]).exists
    assert stack_map(cloud, pair.name)
    assert cloud.volumes.volumes.get(pair.ids["data"]).status
    assert cloud.project_id == rig.project_id()
    assert cloud.session.get_token() == token


def test_keystone_scopes_the_token_of_a_trust_to_nothing_else(rig):
    token, _ = rig.trust()
    answer = rig.keystone(
        "POST",
        "/auth/tokens",
        body={
            "auth": {
                "identity": {"methods": ["token"], "token": {"id": token}},
                "scope": {"project": {"id": rig.project_id()}},
            }
        },
    )
    assert answer.status_code == 403
    assert "trust-scoped token" in answer.json()["error"]["message"]


def test_the_token_of_a_trust_may_not_validate_itself_yet_gets_the_catalog(rig):
    token, _ = rig.trust()
    subject = {"X-Subject-Token": token}
    assert rig.keystone("GET", "/auth/tokens", token, headers=subject).status_code == 403
    assert rig.keystone("GET", "/auth/catalog", token).json()["catalog"]
    assert rig.keystone("GET", f"/projects/{rig.project_id()}", token).status_code == 200
    foreign = rig.project_id("other")
    assert rig.keystone("GET", f"/projects/{foreign}", token).status_code == 403


def test_a_token_of_a_password_validates_itself(rig):
    token = rig.token()
    answer = rig.keystone("GET", "/auth/tokens", token, headers={"X-Subject-Token": token})
    assert answer.json()["token"]["project"]["id"] == rig.project_id()


def test_the_missing_access_rule_of_an_application_credential_is_named(connect, rig, pair):
    unrelated = {"service": "network", "method": "GET", "path": "/v2.0/networks"}
    token = rig.restricted([unrelated])
    subject = {"X-Subject-Token": token}
    assert rig.keystone("GET", "/auth/tokens", token, headers=subject).status_code == 404
    understood = {**subject, "OpenStack-Identity-Access-Rules": "1.0"}
    assert rig.keystone("GET", "/auth/tokens", token, headers=understood).status_code == 200
    with pytest.raises(CloudError) as raised:
        server_state(connect(token=token), pair.ids["db_a"])
    assert (raised.value.code, raised.value.service) == ("FORBIDDEN", "Nova")
    rule = re.search(r"service: (\S+), method: (\S+), path: (\S+)\.$", raised.value.message)
    named = dict(zip(("service", "method", "path"), rule.groups(), strict=True))
    assert (named["service"], named["method"]) == ("compute", "GET")

    allowed = connect(token=rig.restricted([named]))

    assert server_state(allowed, pair.ids["db_a"]).exists
    with pytest.raises(CloudError) as raised:
        resolve_volume(allowed, pair.name, "data")
    assert raised.value.code == "FORBIDDEN"


def test_an_expired_token_is_reported_with_a_remedy(connect, rig):
    token, trust = rig.trust(lifetime=max(1.0, rig.seconds(5)))
    rig.until(lambda: rig.keystone("GET", "/auth/catalog", token).status_code in (401, 404))
    with pytest.raises(CloudError) as raised:
        connect(token=token)
    assert raised.value.code in REFUSED
    assert raised.value.remedy
    assert trust not in str(describe(raised.value))


def test_a_revoked_token_is_refused(connect, rig):
    token = rig.token()
    rig.revoke(token)
    subject = {"X-Subject-Token": token}
    known = rig.keystone("GET", "/auth/tokens", rig.token(), headers=subject)
    assert (known.status_code, "Failed to validate" in known.text) == (404, True)
    assert rig.keystone("GET", "/auth/tokens", token, headers=subject).status_code == 401
    with pytest.raises(CloudError) as raised:
        connect(token=token)
    assert raised.value.code == "TOKEN_EXPIRED"


def test_a_token_that_is_revoked_later_is_reported_by_the_services(connect, rig, pair):
    token = rig.token()
    cloud = connect(token=token)
    assert server_state(cloud, pair.ids["db_a"]).exists
    rig.revoke(token)
    for read in (
        lambda: stack_map(cloud, pair.name),
        lambda: server_state(cloud, pair.ids["db_a"]),
        lambda: resolve_volume(cloud, pair.name, "data"),
    ):
        with pytest.raises(CloudError) as raised:
            read()
        assert raised.value.code == "TOKEN_EXPIRED"


def test_a_trust_that_was_deleted_ends_its_token(connect, rig, pair):
    token, trust = rig.trust()
    cloud = connect(token=token)
    assert stack_map(cloud, pair.name)
    security = SimpleNamespace(auth_uri=rig.auth_url, auth_token=token, project_id=rig.project_id())
    rig.end_trust(trust)

    def refused():
        try:
            stack_map(cloud, pair.name)
        except CloudError as error:
            return error
        return None

    # Keystone takes some seconds to be of one mind: its processes remember each for itself.
    said = rig.until(refused)
    assert said.code in (*REFUSED, "SERVER_ERROR")
    asked = rig.until(lambda: why_refused(security, rig.settings))
    assert asked.code in REFUSED
    assert token not in f"{describe(said)} {describe(asked)}"


def test_a_user_is_shown_the_trusts_that_they_gave_and_the_roles_of_one(rig):
    token, trust = rig.trust()
    own, mine = rig.token(), f"/OS-TRUST/trusts?trustor_user_id={rig.user_id()}"

    listed = {row["id"]: row for row in rig.keystone("GET", mine, own).json()["trusts"]}
    assert "roles" not in listed[trust]
    assert listed[trust]["project_id"] == rig.project_id()
    for whose in (own, token):
        shown = rig.keystone("GET", f"/OS-TRUST/trusts/{trust}", whose).json()["trust"]
        assert [role["name"] for role in shown["roles"]] == list(rig.roles)
    refused = rig.keystone("GET", mine, rig.token("other"))
    assert refused.status_code == 403
    assert "identity:list_trusts_for_trustor" in refused.text


def test_keystone_says_that_a_trust_was_deleted(connect, rig):
    token, trust = rig.trust()
    rig.end_trust(trust)

    gone = rig.until(lambda: says(rig, token, 404))
    assert gone == f"Could not find trust: {trust}."

    def told():
        with pytest.raises(CloudError) as raised:
            connect(token=token)
        return raised.value if raised.value.code == "TRUST_GONE" else None

    # Keystone may not be of one mind yet: who still knows the token calls it revoked.
    error = rig.until(told)
    assert trust not in str(describe(error))


def test_the_trust_of_a_user_who_is_disabled_is_not_honoured_until_they_are_enabled(connect, rig):
    with rig.newcomer() as name:
        token, trust = rig.trust(name)
        plain, user = rig.token(name), rig.user_id(name)
        rig.enable(user, False)

        # One of its processes knows the token yet, and finds it revoked; another does not.
        assert rig.until(lambda: says(rig, token, 403) or says(rig, token, 401))
        assert rig.until(lambda: says(rig, plain, 401))
        heat = rig.api().url("heat") + "/stacks"
        asked = [
            requests.get(heat, headers={"X-Auth-Token": t}, timeout=30) for t in (token, plain)
        ]
        assert [answer.status_code in (401, 503) for answer in asked] == [True, True]
        with pytest.raises(CloudError) as raised:
            connect(token=token)
        assert raised.value.code in REFUSED
        assert rig.by_trust(trust).status_code == 403

        rig.enable(user, True)
        assert rig.until(lambda: says(rig, token, 401))
        assert rig.until(lambda: rig.by_trust(trust).status_code == 201)


def says(rig, token, status):
    """How Keystone refuses a token with this status; None: it does not."""
    answer = rig.keystone("GET", "/auth/catalog", token)
    return answer.json()["error"]["message"] if answer.status_code == status else None


def test_the_project_that_a_request_claims_must_be_its_tokens(connect, rig):
    for trust in (True, False):
        with pytest.raises(CloudError) as raised:
            connect(trust=trust, project_id=rig.project_id("other"))
        assert raised.value.code == "FORBIDDEN"


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("right", [True, False], ids=["right password", "wrong password"])
def test_without_a_token_the_entry_of_clouds_yaml_acts(rig, pair, tmp_path, monkeypatch, right):
    person = rig.password("demo")
    auth = {
        "auth_url": rig.auth_url,
        "username": person.user,
        "password": person.password if right else "wrong",
        "project_name": person.project,
        "user_domain_id": "default",
        "project_domain_id": "default",
    }
    path = tmp_path / "clouds.yaml"
    path.write_text(
        yaml.safe_dump({"clouds": {"drill": {"auth": auth, "region_name": "RegionOne"}}})
    )
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))
    monkeypatch.setattr("openstack.config.loader.CONFIG_FILES", [str(path)])
    cloud = cloud_for(None, guard=Unguarded(), settings=Settings(cloud="drill"))
    if right:
        assert server_state(cloud, pair.ids["db_a"]).exists
        assert stack_map(cloud, pair.name)
    else:
        with pytest.raises(CloudError) as raised:
            server_state(cloud, pair.ids["db_a"])
        assert raised.value.code == "CREDENTIAL_REFUSED"


@pytest.mark.parametrize(
    ("service", "path"), [("nova", "/servers"), ("cinder", "/volumes"), ("heat", "/stacks")]
)
@pytest.mark.parametrize("token", [None, "gAAAAAnobodys"])
def test_a_service_refuses_who_has_no_token(demo, service, path, token):
    headers = {"X-Auth-Token": token} if token else {}
    answer = requests.get(demo.url(service) + path, headers=headers, timeout=30)
    assert answer.status_code == 401
    assert answer.json()["error"]["title"] == "Unauthorized"


@pytest.mark.parametrize(
    ("service", "path", "status", "words"),
    [
        ("cinder", "/volumes", 400, "Malformed request url"),
        ("heat", "/stacks", 403, "Access was denied to this resource."),
    ],
)
def test_a_foreign_projects_address_is_closed(demo, other, service, path, status, words):
    answer = other.session.get(demo.url(service) + path, raise_exc=False)
    assert answer.status_code == status
    assert words in answer.text


def test_no_error_shows_the_token(connect):
    cloud = connect()
    token = cloud.session.get_token()
    with pytest.raises(CloudError) as raised:
        stack_map(cloud, UNKNOWN_ID)
    assert token not in f"{raised.value} {raised.value.__dict__}"
