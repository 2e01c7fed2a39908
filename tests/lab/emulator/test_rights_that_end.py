# SPDX-License-Identifier: Apache-2.0
"""Trusts that are listed and deleted, and users who are disabled: the answers are those of Keystone
30, and of keystonemiddleware before the other services."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud

NOT_AUTHORIZED = "You are not authorized to perform the requested action"
UNKNOWN = "The request you have made requires authentication."


class Keystone:
    """Keystone as HTTP."""

    def __init__(self, cloud: EmulatedCloud) -> None:
        self.cloud = cloud

    def ask(
        self, method: str, path: str, token: str | None = None, body: Any = None, about: str = ""
    ) -> requests.Response:
        headers = {"X-Auth-Token": token or "", "X-Subject-Token": about or token or ""}
        url = self.cloud.auth_url + path
        return requests.request(method, url, headers=headers, json=body, timeout=5)

    def said(self, *asked: Any, **more: Any) -> tuple[int, str]:
        """A status, and the message of an error."""
        answer = self.ask(*asked, **more)
        return answer.status_code, answer.json()["error"]["message"]


class Somebody:
    """A user with a trust, and the token that the trustee got by it."""

    def __init__(self, keystone: Keystone, name: str, role: str = "member") -> None:
        client = keystone.cloud.client
        self.keystone = keystone
        self.project = client.add_user(name)
        client.add_user(f"{name}-trustee")
        self.token = client.mint_token(user=name)
        self.id = self._user(self.token)
        self.trustee = client.mint_token(user=f"{name}-trustee")
        made = self.give(role)
        assert made.status_code == 201
        self.trust = made.json()["trust"]["id"]
        self.by_trust = self.get_token().headers["X-Subject-Token"]

    def _user(self, token: str) -> str:
        return str(self.keystone.ask("GET", "/auth/tokens", token).json()["token"]["user"]["id"])

    def give(self, *roles: str) -> requests.Response:
        """Give a trust."""
        trust = {
            "trustor_user_id": self.id,
            "trustee_user_id": self._user(self.trustee),
            "project_id": self.project,
            "impersonation": True,
            "roles": [{"name": role} for role in roles],
        }
        return self.keystone.ask("POST", "/OS-TRUST/trusts", self.token, {"trust": trust})

    def get_token(self) -> requests.Response:
        """Ask for a token by the trust."""
        way = {"methods": ["token"], "token": {"id": self.trustee}}
        body = {"auth": {"identity": way, "scope": {"OS-TRUST:trust": {"id": self.trust}}}}
        return self.keystone.ask("POST", "/auth/tokens", body=body)

    def enable(self, enabled: bool) -> requests.Response:
        """Enable or disable the user, as an administrator does it."""
        admin = self.keystone.cloud.client.mint_token(user="admin")
        body = {"user": {"enabled": enabled}}
        return self.keystone.ask("PATCH", f"/users/{self.id}", admin, body)

    def answers(self, token: str) -> set[tuple[int, str]]:
        """What Keystone says to a token that it refuses, whatever it is asked for."""
        paths = ("/auth/tokens", "/auth/catalog", f"/projects/{self.project}")
        return {self.keystone.said("GET", path, token) for path in paths}

    def services(self, token: str) -> set[int]:
        """How the other services answer."""
        paths = (
            "compute/v2.1/servers",
            f"volume/v3/{self.project}/volumes",
            f"orchestration/v1/{self.project}/stacks",
        )
        headers = {"X-Auth-Token": token}
        url = self.keystone.cloud.url
        return {requests.get(f"{url}/{p}", headers=headers, timeout=5).status_code for p in paths}


@pytest.fixture
def keystone(cloud: EmulatedCloud) -> Keystone:
    return Keystone(cloud)


@pytest.mark.parametrize(("role", "roles"), [("member", {"member", "reader"}), ("reader", None)])
def test_a_trust_passes_on_its_roles_with_what_they_imply(
    keystone: Keystone, role: str, roles: set[str] | None
) -> None:
    somebody = Somebody(keystone, f"giver-{role}", role)

    told = somebody.get_token().json()["token"]

    assert {each["name"] for each in told["roles"]} == (roles or {role})
    assert told["user"]["id"] == somebody.id
    assert somebody.give().status_code == 403
    assert somebody.give("admin").status_code == 404
    theirs = f"/OS-TRUST/trusts/{somebody.trust}"
    assert keystone.ask("DELETE", theirs, somebody.trustee).status_code == 403


def test_an_application_credential_is_shown_no_trusts(
    keystone: Keystone, emulator: EmulatorClient
) -> None:
    somebody = Somebody(keystone, "delegated")
    key, secret = emulator.add_application_credential("delegated")
    way = {
        "methods": ["application_credential"],
        "application_credential": {"id": key, "secret": secret},
    }
    made = keystone.ask("POST", "/auth/tokens", body={"auth": {"identity": way}})
    token = made.headers["X-Subject-Token"]

    mine = f"/OS-TRUST/trusts?trustor_user_id={somebody.id}"
    assert keystone.said("GET", mine, token)[0] == 403


def test_the_token_of_a_trust_that_was_deleted_is_honoured_no_more(
    keystone: Keystone, emulator: EmulatorClient
) -> None:
    somebody = Somebody(keystone, "deleter")
    path = f"/OS-TRUST/trusts/{somebody.trust}"
    assert keystone.ask("DELETE", path, somebody.token).status_code == 204

    gone = (404, f"Could not find trust: {somebody.trust}.")
    assert somebody.answers(somebody.by_trust) == {gone}
    assert keystone.said("GET", path, somebody.token) == gone
    admin = emulator.mint_token(user="admin")
    assert keystone.said("GET", "/auth/tokens", admin, about=somebody.by_trust) == gone
    assert somebody.services(somebody.by_trust) == {401}
    assert somebody.get_token().status_code == 401
    assert somebody.services(somebody.token) == {200}


def test_the_tokens_of_a_user_who_was_disabled_are_honoured_no_more(
    keystone: Keystone, emulator: EmulatorClient
) -> None:
    somebody = Somebody(keystone, "disabled")
    assert somebody.enable(False).json()["user"]["enabled"] is False

    assert somebody.answers(somebody.by_trust) == {(403, f"{NOT_AUTHORIZED}.")}
    assert somebody.answers(somebody.token) == {(401, UNKNOWN)}
    admin = emulator.mint_token(user="admin")
    about = keystone.said("GET", "/auth/tokens", admin, about=somebody.token)
    assert about == (404, "Failed to validate token")
    about = keystone.said("GET", "/auth/tokens", admin, about=somebody.by_trust)
    assert about == (403, f"{NOT_AUTHORIZED}.")
    assert somebody.services(somebody.by_trust) == {503}
    assert somebody.services(somebody.token) == {401}
    assert somebody.get_token().status_code == 403
    way = {"name": "disabled", "domain": {"id": "default"}, "password": "disabled"}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": way}}}}
    assert keystone.ask("POST", "/auth/tokens", body=body).status_code == 401


def test_who_is_enabled_again_needs_new_tokens_and_no_new_trust(keystone: Keystone) -> None:
    somebody = Somebody(keystone, "returned")
    somebody.enable(False)
    assert somebody.enable(True).json()["user"]["enabled"] is True

    assert somebody.answers(somebody.by_trust) == {(401, UNKNOWN)}
    assert somebody.services(somebody.by_trust) == somebody.services(somebody.token) == {401}
    assert somebody.services(somebody.get_token().headers["X-Subject-Token"]) == {200}


def test_only_an_administrator_disables_anybody(
    keystone: Keystone, emulator: EmulatorClient
) -> None:
    somebody = Somebody(keystone, "meek")
    body = {"user": {"enabled": False}}

    refused = keystone.said("PATCH", f"/users/{somebody.id}", somebody.token, body)

    assert refused == (403, f"{NOT_AUTHORIZED}: identity:update_user.")
    admin = emulator.mint_token(user="admin")
    assert keystone.said("PATCH", "/users/nobody", admin, body)[0] == 404
    assert keystone.said("PATCH", f"/users/{somebody.id}", admin, {"user": {}})[0] == 400
