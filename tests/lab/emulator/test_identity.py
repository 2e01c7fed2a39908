# SPDX-License-Identifier: Apache-2.0
"""Tokens: who gets one, what it is worth, when it is refused."""

from __future__ import annotations

import keystoneauth1.exceptions
import pytest
import requests
from keystoneauth1 import access, session
from keystoneauth1.identity import v3

from lab.emulator.emulated_clients import Clients
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud


def test_a_project_of_somebody_else_is_refused(cloud: EmulatedCloud) -> None:
    auth = v3.Password(
        cloud.auth_url,
        username="demo",
        password="demo",
        user_domain_id="default",
        project_name="other",
        project_domain_id="default",
    )
    with pytest.raises(keystoneauth1.exceptions.Unauthorized):
        session.Session(auth).get_token()


def test_an_application_credential_stands_for_its_user(
    cloud: EmulatedCloud, emulator: EmulatorClient, demo: Clients
) -> None:
    key, secret = emulator.add_application_credential()
    auth = v3.ApplicationCredential(
        cloud.auth_url, application_credential_id=key, application_credential_secret=secret
    )
    assert session.Session(auth).get_project_id() == demo.session.get_project_id()


def test_a_plain_token_can_be_rescoped(cloud: EmulatedCloud, emulator: EmulatorClient) -> None:
    auth = v3.Token(
        cloud.auth_url,
        emulator.mint_token(),
        project_name="demo",
        project_domain_id="default",
    )
    assert session.Session(auth).get_token()


def test_the_token_of_an_administrator_s_trust_may_validate_itself(
    cloud: EmulatedCloud, emulator: EmulatorClient
) -> None:
    token = emulator.mint_token(user="admin", trust=True)
    headers = {"X-Auth-Token": token, "X-Subject-Token": token}
    answer = requests.get(f"{cloud.auth_url}/auth/tokens", headers=headers, timeout=5)
    assert access.create(resp=answer, auth_token=token).trust_scoped


def test_a_token_sees_its_own_project_only(cloud: EmulatedCloud, emulator: EmulatorClient) -> None:
    theirs = emulator.add_user("somebody")
    own = emulator.add_user("else")

    def ask(user: str, project: str) -> int:
        headers = {"X-Auth-Token": emulator.mint_token(user=user)}
        url = f"{cloud.auth_url}/projects/{project}"
        return requests.get(url, headers=headers, timeout=5).status_code

    assert [ask("else", own), ask("else", theirs)] == [200, 403]
    assert [ask("admin", theirs), ask("admin", "nowhere")] == [200, 404]


def test_the_state_keeps_no_token(cloud: EmulatedCloud, emulator: EmulatorClient) -> None:
    token = emulator.mint_token()
    assert token not in cloud.emulation.state.dumps()
