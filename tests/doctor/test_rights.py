# SPDX-License-Identifier: Apache-2.0
"""The doctor and the caller's rights: who may only read is told so, and so is whose trusts do not
do for an alarm. By an emulated Keystone, whose answers are those of a real one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from mistral_failover.doctor import all_checks, trusts
from mistral_failover.doctor import rights as rights_checks
from mistral_failover.doctor.checks import Examination, Finding
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def emulated() -> Iterator[EmulatedCloud]:
    """Keystone and what stands behind it."""
    with EmulatedCloud() as cloud:
        yield cloud


class Person:
    """Somebody with a project, and what the doctor says to them."""

    def __init__(self, emulated: EmulatedCloud, state: Runtime) -> None:
        self.name = f"person{next(_numbers)}"
        self.project = emulated.client.add_user(self.name)
        self.token = emulated.client.mint_token(user=self.name)
        self.emulated, self.state = emulated, state

    def keystone(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        """Keystone's answer."""
        headers = {"X-Auth-Token": token or self.token, "X-Subject-Token": token or self.token}
        url = self.emulated.auth_url + path
        answer = requests.request(method, url, headers=headers, json=body, timeout=5)
        assert answer.ok, answer.text
        return answer.json()

    def told(self, token: str = "") -> dict[str, Any]:
        """What Mistral's API is told of a token."""
        return dict(self.keystone("GET", "/auth/tokens", token=token)["token"])

    def trusts(self, *roles: str, ends_in: float | None = None) -> str:
        """Give a trust."""
        user = self.told()["user"]["id"]
        trust: dict[str, Any] = {
            "trustor_user_id": user,
            "trustee_user_id": user,
            "project_id": self.project,
            "impersonation": True,
            "roles": [{"name": role} for role in roles],
        }
        if ends_in is not None:
            end = datetime.now(UTC) + timedelta(seconds=ends_in)
            trust["expires_at"] = end.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return str(self.keystone("POST", "/OS-TRUST/trusts", {"trust": trust})["trust"]["id"])

    def examination(self, **more: Any) -> Examination:
        """An examination with this person's token, or with another."""
        security = {
            "auth_uri": self.emulated.auth_url,
            "auth_token": self.token,
            "project_id": self.project,
            "trust_id": None,
            "user_name": None,
            **more,
        }
        context: Any = SimpleNamespace(security=SimpleNamespace(**security))
        return Examination(Request(self.state, context))


@pytest.fixture
def person(emulated: EmulatedCloud, state: Runtime) -> Person:
    return Person(emulated, state)


Check = Callable[[Examination], Any]


def said(check: Check, examination: Examination) -> list[tuple[str, str]]:
    found: list[Finding] = list(check(examination))
    assert all(each.remedy for each in found if each.level != "ok")
    return [(each.level, each.sentence) for each in found]


def test_who_may_only_read_is_told_that_no_failover_would_work(person: Person) -> None:
    told = person.told() | {"roles": [{"id": "r1", "name": "reader"}]}

    found = list(rights_checks.token(person.examination(service_catalog=told)))

    assert [each.level for each in found] == ["error", "ok"]
    assert "FORBIDDEN" in found[0].sentence
    assert "(reader)" in found[0].sentence
    assert f"--user {told['user']['id']} --project {person.project} member" in found[0].remedy


@pytest.mark.parametrize("roles", [["member", "reader"], ["Member"], ["admin", "member"]])
def test_the_role_member_is_enough_however_it_is_written(person: Person, roles: list[str]) -> None:
    told = person.told() | {"roles": [{"id": role, "name": role} for role in roles]}

    ((level, sentence),) = said(rights_checks.token, person.examination(service_catalog=told))

    assert (level, sentence.partition(";")[0]) == (
        "ok",
        f"acts as {person.name} ({', '.join(roles)})",
    )


def test_of_a_credential_in_clouds_yaml_the_role_is_looked_at_as_well() -> None:
    access = SimpleNamespace(username="ann", role_names=["reader"], trust_scoped=False)
    session = SimpleNamespace(get_token=str, auth=SimpleNamespace(get_access=lambda _: access))
    security = SimpleNamespace(auth_token=None, trust_id=None, user_name=None)
    examination: Any = SimpleNamespace(
        request=SimpleNamespace(context=SimpleNamespace(security=security)),
        cloud=SimpleNamespace(session=session),
        settings=SimpleNamespace(cloud="shop"),
    )

    grave, acts = rights_checks.token(examination)

    assert (grave.level, acts.level) == ("error", "ok")
    assert "the entry shop of clouds.yaml" in grave.remedy
    assert "--role member" in grave.remedy
    assert list(trusts.trusts(examination)) == []


def test_who_gave_no_trust_is_told_that_no_alarm_comes_in_their_name(person: Person) -> None:
    (found,) = trusts.trusts(person.examination())

    assert found.level == "warn"
    assert "no trust in this project" in found.sentence
    assert "openstack stack resource signal" in found.remedy


def test_trusts_that_pass_on_the_role_are_well_and_need_a_rehearsal(person: Person) -> None:
    person.trusts("member")
    person.trusts("member", ends_in=30 * 86400)

    ((level, sentence),) = said(trusts.trusts, person.examination())

    assert level == "ok"
    assert "2 trusts" in sentence
    assert "member" in sentence


def test_trusts_that_end_soon_or_pass_on_too_little_are_told(person: Person) -> None:
    shown = [person.trusts("reader"), person.trusts("member", ends_in=7200)]

    found = said(trusts.trusts, person.examination())

    assert [level for level, _ in found] == ["warn", "warn"]
    assert "in 2 h" in found[0][1]
    assert "(reader)" in found[1][1]
    assert not any(trust in str(found) for trust in shown)


def test_somebody_else_s_trusts_are_not_taken_for_the_caller_s(
    person: Person, emulated: EmulatedCloud, state: Runtime
) -> None:
    Person(emulated, state).trusts("member")

    assert [level for level, _ in said(trusts.trusts, person.examination())] == ["warn"]


@pytest.mark.parametrize("role", ["member", "reader"])
@pytest.mark.parametrize("carried", [True, False], ids=["told by Mistral", "by a cron trigger"])
def test_a_request_that_came_by_a_trust_is_judged_by_what_that_passes_on(
    person: Person, role: str, carried: bool
) -> None:
    trust = person.trusts(role)
    way: Any = {"methods": ["token"], "token": {"id": person.token}}
    body: Any = {"auth": {"identity": way, "scope": {"OS-TRUST:trust": {"id": trust}}}}
    made = requests.post(f"{person.emulated.auth_url}/auth/tokens", json=body, timeout=5)
    token = made.headers["X-Subject-Token"]
    more: dict[str, Any] = {"service_catalog": made.json()["token"]} if carried else {}

    examination = person.examination(auth_token=token, trust_id=None if carried else trust, **more)
    rights, found = said(rights_checks.token, examination), said(trusts.trusts, examination)

    assert "trust" in rights[-1][1]
    assert trust not in str(rights + found)
    ((level, sentence),) = found
    assert level == ("ok" if role == "member" else "error")
    assert "this request" in sentence
    assert role in sentence
    if carried:
        assert [level for level, _ in rights] == (["ok"] if role == "member" else ["error", "ok"])


def test_a_trust_that_keystone_does_not_describe_is_no_proof(person: Person) -> None:
    token = person.emulated.client.mint_token(user=person.name, trust=True)

    ((level, sentence),) = said(trusts.trusts, person.examination(auth_token=token))

    assert (level, "this request's trust" in sentence) == ("warn", True)


def test_the_token_of_an_application_credential_is_shown_no_trusts(person: Person) -> None:
    key, secret = person.emulated.client.add_application_credential(person.name)
    way: Any = {
        "methods": ["application_credential"],
        "application_credential": {"id": key, "secret": secret},
    }
    url = f"{person.emulated.auth_url}/auth/tokens"
    made = requests.post(url, json={"auth": {"identity": way}}, timeout=5)

    token = made.headers["X-Subject-Token"]
    ((level, sentence),) = said(trusts.trusts, person.examination(auth_token=token))

    assert (level, "application credential" in sentence) == ("warn", True)


def test_the_doctor_asks_both() -> None:
    checks = dict(all_checks.CHECKS)

    assert checks["rights"] is rights_checks.token
    assert checks["trusts"] is trusts.trusts
