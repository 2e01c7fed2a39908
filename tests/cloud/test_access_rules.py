# SPDX-License-Identifier: Apache-2.0
"""The access rules that an application credential needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from keystoneauth1.identity import v3

from mistral_failover.cloud.access_rules import AccessRule, lacking, needed
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.emulated import Pair, works


def with_rules(emulated: EmulatedCloud, rules: Sequence[Mapping[str, str]] | None) -> Cloud:
    identity, secret = emulated.client.add_application_credential(access_rules=rules)
    auth = v3.ApplicationCredential(
        emulated.auth_url,
        application_credential_id=identity,
        application_credential_secret=secret,
    )
    session = GuardedSession(guard=Unguarded(60), timeout=5, auth=auth, region_name="RegionOne")
    return Cloud(session)


def documents(rules: Sequence[AccessRule]) -> list[dict[str, str]]:
    return [rule.document() for rule in rules]


ENDPOINTS: dict[str, dict[str, str | None]] = {
    "as devstack has them": {},
    "without versions": {
        "compute": "{url}/compute",
        "volumev3": "{url}/volume",
        "block-storage": "{url}/volume",
    },
    "with versions": {
        "network": "{url}/network/v2.0",
        "alarming": "{url}/alarming/v2",
        "identity": "{url}/identity/v3",
    },
    "Cinder by one name": {"block-storage": None},
}


@pytest.mark.parametrize("endpoints", ENDPOINTS)
def test_a_credential_with_these_rules_lacks_none_and_works(
    emulated: EmulatedCloud, emulator: EmulatorClient, cloud: Cloud, pair: Pair, endpoints: str
) -> None:
    emulator.configure(endpoints=ENDPOINTS[endpoints])

    restricted = with_rules(emulated, documents(needed(with_rules(emulated, None))))

    assert lacking(restricted) == []
    works(restricted, pair)


def test_a_credential_without_access_rules_lacks_none(emulated: EmulatedCloud) -> None:
    assert lacking(with_rules(emulated, None)) == []


def test_each_rule_that_a_credential_lacks_is_named(emulated: EmulatedCloud, cloud: Cloud) -> None:
    every = needed(with_rules(emulated, None))
    detach = "/servers/*/os-volume_attachments/*"
    held = [
        rule
        for rule in every
        if (rule.service, rule.method) != ("compute", "DELETE") or rule.path.endswith("servers/*")
    ]

    missing = lacking(with_rules(emulated, documents(held)))

    paths = [rule.path.partition("/v2.1")[2] for rule in missing]
    assert paths == [detach, "/servers/*/os-interface/*"]
    assert {rule.service for rule in missing} == {"compute"}


def test_a_wider_rule_allows_what_narrower_ones_do(emulated: EmulatedCloud, cloud: Cloud) -> None:
    every = with_rules(emulated, None)
    kinds = {rule.service for rule in needed(every)}
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE")
    wide = [AccessRule(kind, method, "/**") for kind in kinds for method in methods]

    assert lacking(with_rules(emulated, documents(wide))) == []


def test_the_rules_of_one_of_cinder_s_types_are_enough(
    emulated: EmulatedCloud, cloud: Cloud
) -> None:
    one = [rule for rule in needed(with_rules(emulated, None)) if rule.service != "volumev3"]

    assert lacking(with_rules(emulated, documents(one))) == []
