# SPDX-License-Identifier: Apache-2.0
"""A service answers 401. Keystone says whether that is about the token, the access rules of an
application credential, or the service."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.session import session_for
from mistral_failover.cloud.stacks import stack_map
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.cloud.volume_holders import volume_of
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.runtime.errors import describe
from mistral_failover.settings import Settings
from support.emulated import Pair

Rules = Sequence[Mapping[str, str]] | None
SETTINGS = Settings(http_timeout=5)
ONE = [{"service": "network", "method": "GET", "path": "/network/v2.0/ports"}]


def plugin(emulated: EmulatedCloud, rules: Rules) -> v3.ApplicationCredential:
    identity, secret = emulated.client.add_application_credential(access_rules=rules)
    return v3.ApplicationCredential(
        emulated.auth_url,
        application_credential_id=identity,
        application_credential_secret=secret,
    )


def by_entry(emulated: EmulatedCloud, rules: Rules) -> Cloud:
    """A cloud with an application credential, as of clouds.yaml."""
    auth = plugin(emulated, rules)
    return Cloud(GuardedSession(guard=Unguarded(60), timeout=5, auth=auth))


def by_token(emulated: EmulatedCloud, rules: Rules) -> Cloud:
    """A cloud with a token of one, as of a request through Mistral."""
    session = Session(auth=plugin(emulated, rules))
    security = SimpleNamespace(
        auth_uri=emulated.auth_url,
        auth_token=session.get_token(),
        project_id=session.get_project_id(),
    )
    return Cloud(session_for(security, guard=Unguarded(60), settings=SETTINGS))


READS: dict[str, Callable[[Cloud, Pair], Any]] = {
    "Nova": lambda cloud, pair: server_state(cloud, pair.a),
    "Cinder": lambda cloud, pair: volume_of(cloud, pair.volume),
    "Heat": lambda cloud, pair: stack_map(cloud, pair.name),
}
Connect = Callable[[EmulatedCloud, Rules], Cloud]
every_way = pytest.mark.parametrize("connect_as", [by_entry, by_token])


def outcome(read: Callable[[Cloud, Pair], Any], cloud: Cloud, pair: Pair) -> CloudError | None:
    try:
        read(cloud, pair)
    except CloudError as error:
        return error
    return None


def failure(read: Callable[[Cloud, Pair], Any], cloud: Cloud, pair: Pair) -> CloudError:
    error = outcome(read, cloud, pair)
    assert error is not None
    return error


@every_way
@pytest.mark.parametrize("service", READS)
def test_the_rule_that_a_request_lacks_is_named_and_allows_it(
    emulated: EmulatedCloud, pair: Pair, connect_as: Connect, service: str
) -> None:
    rules = list(ONE)
    error = outcome(READS[service], connect_as(emulated, rules), pair)
    assert error is not None
    while error is not None and len(rules) < 8:
        assert (error.code, error.service) == ("FORBIDDEN", service), error
        assert not {"transient", "unknown"} & set(describe(error))
        rules.append(rule_in(error.message))
        error = outcome(READS[service], connect_as(emulated, rules), pair)

    assert error is None


def rule_in(message: str) -> dict[str, str]:
    found = re.search(r"service: (\S+), method: (\S+), path: (\S+?)\.?$", message)
    assert found, message
    return {"service": found[1], "method": found[2], "path": found[3]}


def test_a_rule_is_written_for_all_of_a_kind(emulated: EmulatedCloud, pair: Pair) -> None:
    error = failure(READS["Nova"], by_token(emulated, ONE), pair)

    assert rule_in(error.message) == {
        "service": "compute",
        "method": "GET",
        "path": "/compute/v2.1/servers/*",
    }


@every_way
def test_a_service_that_refuses_what_keystone_accepts_is_waited_for(
    emulated: EmulatedCloud, pair: Pair, emulator: EmulatorClient, connect_as: Connect
) -> None:
    cloud = connect_as(emulated, None)
    emulator.api_fault("server_show", status=401, times=99)

    facts = describe(failure(READS["Nova"], cloud, pair))

    assert (facts["code"], facts["service"]) == ("SERVER_ERROR", "Nova")
    assert facts["detail"] == "HTTP 401, although Keystone accepts the token"
    assert "unknown" not in facts


def test_a_token_that_keystone_no_longer_accepts_has_ended(
    emulated: EmulatedCloud, pair: Pair
) -> None:
    cloud = by_token(emulated, None)
    emulated.emulation.state.tokens.clear()

    assert failure(READS["Nova"], cloud, pair).code == "TOKEN_EXPIRED"


def test_while_keystone_is_away_a_401_says_nothing_about_the_token(
    emulated: EmulatedCloud, pair: Pair, emulator: EmulatorClient
) -> None:
    cloud = by_token(emulated, None)
    emulator.api_fault("server_show", status=401, times=99)
    emulator.api_fault("token_validate", status=503, times=99)

    error = failure(READS["Nova"], cloud, pair)

    assert (error.transient, error.service) == (True, "Keystone")
