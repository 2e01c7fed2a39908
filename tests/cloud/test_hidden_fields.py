# SPDX-License-Identifier: Apache-2.0
"""A field that a service does not show is not "no": below its microversion, behind a policy, or
because the microversions could not be read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mistral_failover import cloud as package
from mistral_failover.cloud import hosts, networks, stacks, volume_holders
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.event_alarms import watching_alarms
from mistral_failover.cloud.servers import delete_server, stop
from mistral_failover.cloud.volumes import Release, attach, detach, refuse_unmovable
from mistral_failover.lab.emulator.client import EmulatorClient
from support.emulated import Pair

CHANGES = ("attach_begin", "detach_begin", "server_deleted", "volume_deleted")


def hold(cloud: Cloud, pair: Pair, *, goes_along: bool = False) -> None:
    """Attach the volume to the server a."""
    attach(cloud, pair.volume, pair.a, 10)
    if goes_along:
        detach(cloud, pair.volume, pair.a, 10)
        asked = {"volumeId": pair.volume, "delete_on_termination": True}
        path = f"/servers/{pair.a}/os-volume_attachments"
        cloud.send("Nova", "POST", path, {"volumeAttachment": asked})
        attach(cloud, pair.volume, pair.a, 10)


def requests_that_change(emulator: EmulatorClient) -> list[str]:
    return [
        f"{event['method']} {event['path']}"
        for event in emulator.audit()
        if event["kind"] == "request" and event["method"] != "GET"
    ]


@pytest.mark.parametrize("up_to", ["2.2", "2.3", "2.50", "2.78", "2.79", "2.96"])
def test_a_deletion_takes_no_volume_along_however_old_nova_is(
    connect: Callable[..., Cloud], pair: Pair, emulator: EmulatorClient, up_to: str
) -> None:
    hold(connect(), pair, goes_along=True)
    emulator.offer("compute", up_to=up_to)
    cloud = connect()
    if up_to == "2.2":
        with pytest.raises(CloudError) as raised:
            delete_server(cloud, pair.a, 10)
        assert raised.value.code == "NOT_OFFERED"
        assert "delete_on_termination" in raised.value.message
        assert "2.3" in raised.value.remedy
    else:
        evidence = delete_server(cloud, pair.a, 10)
        assert not evidence.proven
        assert f"would delete {pair.volume}" in evidence.observed
    assert pair.a in emulator.guests()
    assert cloud.volumes.volumes.get(pair.volume).status == "in-use"


@pytest.mark.parametrize(("up_to", "proven"), [("2.50", False), ("2.51", True)])
def test_a_deletion_proves_something_once_nova_shows_its_events(
    connect: Callable[..., Cloud], pair: Pair, emulator: EmulatorClient, up_to: str, proven: bool
) -> None:
    emulator.offer("compute", up_to=up_to)
    evidence = delete_server(connect(), pair.a, 10)
    assert evidence.proven is proven
    assert proven or "nothing shows that a compute service deleted it" in evidence.observed


def test_a_nova_whose_microversions_cannot_be_read_is_not_taken_for_an_old_one(
    connect: Callable[..., Cloud], pair: Pair, emulator: EmulatorClient
) -> None:
    hold(connect(), pair, goes_along=True)
    emulator.api_fault("versions", "drop", times=99)
    with pytest.raises(CloudError) as raised:
        delete_server(connect(), pair.a, 0.5)
    assert raised.value.code in ("UNREACHABLE", "TIMEOUT")
    assert raised.value.service == "Nova"
    emulator.clear_api_faults()
    assert pair.a in emulator.guests()


def test_a_dead_host_s_server_is_kept_while_nova_cannot_say_what_goes_with_it(
    connect: Callable[..., Cloud], pair: Pair, emulator: EmulatorClient
) -> None:
    hold(connect(), pair)
    emulator.fault("host", emulator.guests()[pair.a]["host"], "compute_down")
    emulator.offer("compute", up_to="2.2")
    with pytest.raises(CloudError) as raised:
        detach(
            connect(),
            pair.volume,
            pair.a,
            10,
            Release("it is off", fenced=True, delete_server=True),
        )
    assert (raised.value.code, raised.value.blocked) == ("NOT_OFFERED", True)
    assert "volumes that Nova does not show" in str(raised.value.about)
    assert not any(each.startswith("DELETE /compute/v2.1/servers/") for each in deletions(emulator))


def deletions(emulator: EmulatorClient) -> list[str]:
    return [e for e in requests_that_change(emulator) if "/os-volume_attachments/" not in e]


def test_the_remedy_for_a_volume_that_would_go_is_one_that_this_nova_knows() -> None:
    new, old = (volume_holders.goes_along("s", ["v"], newest=each) for each in ("2.85", "2.84"))
    assert "--os-compute-api-version 2.85" in new.remedy
    assert "openstack" not in old.remedy


Act = Callable[[Callable[..., Cloud], Pair], Any]


def _move(connect: Callable[..., Cloud], pair: Pair) -> Any:
    return detach(connect(), pair.volume, pair.a, 1)


def _stop(connect: Callable[..., Cloud], pair: Pair) -> Any:
    return stop(connect(), pair.a, 1)


def _delete(connect: Callable[..., Cloud], pair: Pair) -> Any:
    return delete_server(connect(), pair.a, 1)


def _service(connect: Callable[..., Cloud], pair: Pair) -> Any:
    return hosts.compute_services(connect("admin"))


def _where(connect: Callable[..., Cloud], pair: Pair) -> Any:
    return hosts.location_of(connect("admin"), pair.a)


def _on_host(connect: Callable[..., Cloud], pair: Pair) -> Any:
    return hosts.volumes_on(connect("admin"), "cmp1")


def _ports(connect: Callable[..., Cloud], pair: Pair) -> Any:
    cloud = connect()
    (network,) = networks.listed(cloud, "networks", name="net1")
    body = {"port": {"network_id": network["id"]}}
    made = cloud.send("Neutron", "POST", "/v2.0/ports", body).json()["port"]
    return networks.port(cloud, made["id"])


@pytest.mark.parametrize(
    ("service", "field", "act"),
    [
        *(("compute", each, _stop) for each in ("status", "OS-EXT-STS:task_state")),
        ("compute", "OS-EXT-STS:power_state", _stop),
        ("compute", "os-extended-volumes:volumes_attached", _delete),
        ("compute", "delete_on_termination", _delete),
        *(("compute", each, _service) for each in ("forced_down", "updated_at")),
        *(("compute", each, _where) for each in ("status", "OS-EXT-STS:task_state")),
        ("compute", "OS-EXT-SRV-ATTR:host", _on_host),
        ("compute", "os-extended-volumes:volumes_attached", _on_host),
        *(("volume", each, _move) for each in ("bootable", "device", "server_id")),
        ("volume", "multiattach", lambda connect, pair: attach(connect(), pair.volume, pair.b, 1)),
        (
            "volume",
            "multiattach",
            lambda connect, pair: refuse_unmovable(connect(), pair.name, {"data": ["a", "b"]}),
        ),
        *(("network", each, _ports) for each in ("device_id", "fixed_ips", "revision_number")),
        *(("network", each, _ports) for each in ("allowed_address_pairs", "status")),
        (
            "orchestration",
            "physical_resource_id",
            lambda connect, pair: stacks.stack_map(connect(), pair.name),
        ),
        *(
            ("alarming", each, lambda connect, pair: watching_alarms(connect()))
            for each in ("enabled", "alarm_id", "alarm_actions")
        ),
    ],
)
def test_a_hidden_field_is_an_error_and_nothing_is_changed(
    connect: Callable[..., Cloud],
    pair: Pair,
    emulator: EmulatorClient,
    service: str,
    field: str,
    act: Act,
) -> None:
    hold(connect(), pair)
    if service == "alarming":
        rule = {"event_type": "*", "query": []}
        alarm = {"name": "any", "type": "event", "event_rule": rule, "alarm_actions": []}
        connect().send("Aodh", "POST", "/v2/alarms", alarm)
    before = deletions(emulator)
    emulator.offer(service, without=[field])
    with pytest.raises(CloudError) as raised:
        act(connect, pair)
    assert (raised.value.code, raised.value.retryable) == ("NOT_OFFERED", False)
    assert field in raised.value.message
    emulator.offer(service)
    sent = [each for each in deletions(emulator)[len(before) :] if "/identity/" not in each]
    assert [each for each in sent if not each.endswith("/v2.0/ports")] == []
    assert [held["server_id"] for held in connect().volume(pair.volume).attachments] == [pair.a]


OPTIONAL = {
    "resources": "a template has them under one of two names",
    "Resources": "a template has them under one of two names",
    "type": "a template has it under one of two names",
    "Type": "a template has it under one of two names",
    "properties": "a resource of a template may have none",
    "Properties": "a resource of a template may have none",
    "desired_capacity": "Heat keeps the size without it",
    "min_size": "without it the size is not known",
    "max_size": "without it the size is not known",
    "block_device_mapping_v2": "without it a boot disk counts as one that the next server gets",
    "application_credential_access_rules": "a token without access rules may do all its roles may",
    "op": "eq by default, in Aodh's API",
    "x-openstack-request-id": "a header; without it the request is looked for",
}
"""What may be missing without an error, and why. A field of an answer is a `Field` instead."""
NO_ANSWERS = {
    "answers.py": "headers",
    "errors.py": "errors",
    "session.py": "tokens",
    "tokens.py": "tokens",
    "transport.py": "its options",
}
"""Modules that read no answers on which something is decided, by what they read."""


def lenient_reads(tree: ast.AST) -> Iterator[str]:
    """The names in ``x.get("name"...)`` and ``getattr(x, "name", ...)``."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(attr="get"), [ast.Constant(str(name)), *_]):
                yield name
            case ast.Call(ast.Name("getattr"), [_, ast.Constant(str(name)), _]):
                yield name


def test_no_answer_of_a_service_is_read_with_a_default() -> None:
    found = {
        (file.name, name)
        for file in Path(package.__path__[0]).glob("*.py")
        if file.name not in NO_ANSWERS
        for name in lenient_reads(ast.parse(file.read_text(encoding="utf-8")))
        if not name.startswith("/") and name not in {*OPTIONAL, ""}
    }
    assert found == set()
