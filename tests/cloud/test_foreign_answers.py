# SPDX-License-Identifier: Apache-2.0
"""What a gateway, a proxy or a portal says in place of a service says nothing: not that a thing is
gone, not that there is none, and not that it was done. It never ends in an unexpected error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from keystoneauth1.identity import v3

from mistral_failover.cloud import (
    dns_records,
    event_alarms,
    hosts,
    load_balancers,
    networks,
    servers,
    stacks,
    volume_holders,
)
from mistral_failover.cloud.answers import form_of
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.project_listing import ProjectListing
from mistral_failover.cloud.tokens import asked
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.cloud.volumes import attach, detach
from mistral_failover.lab.emulator import compute_devices, instance_actions, snapshots
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import SERVICES as EMULATED
from mistral_failover.mistral.api import Mistral
from support.emulated import Pair
from support.one_place import session_at, versions

Call = Callable[[str], Any]


def cloud_at(url: str) -> Cloud:
    return Cloud(session_at(url))


def mistral_at(url: str) -> Mistral:
    return Mistral(session_at(url), f"{url}/v2")


def token_of(url: str) -> Any:
    auth = v3.Password(f"{url}/v3", username="u", password="p", user_domain_id="default")
    session = GuardedSession(guard=Unguarded(60), timeout=5, auth=auth)
    return Cloud(session).project_id


READS: dict[str, tuple[str, Call]] = {
    "a server": ("Nova", lambda url: servers.server_state(cloud_at(url), "s")),
    "where a server is": ("Nova", lambda url: hosts.location_of(cloud_at(url), "s")),
    "servers": ("Nova", lambda url: cloud_at(url).rows("Nova", "servers", "/servers/detail")),
    "volumes of a server": (
        "Nova",
        lambda url: volume_holders.listed_by_nova(cloud_at(url), "s", "v"),
    ),
    "compute services": ("Nova", lambda url: hosts.compute_services(cloud_at(url))),
    "evacuations": ("Nova", lambda url: hosts.evacuated_from(cloud_at(url), "s")),
    "a volume": ("Cinder", lambda url: cloud_at(url).volume("v")),
    "a volume's object": ("Cinder", lambda url: cloud_at(url).volumes.volumes.get("v")),
    "volumes": ("Cinder", lambda url: cloud_at(url).volumes.volumes.list()),
    "attachments": ("Cinder", lambda url: volume_holders.holders_of(cloud_at(url), "v")),
    "a stack": ("Heat", lambda url: stacks.stack_shown(cloud_at(url), "n/i")),
    "stacks": ("Heat", lambda url: list(cloud_at(url).heat.stacks.list())),
    "listed stacks": ("Heat", lambda url: ProjectListing(cloud_at(url)).stack("n")),
    "resources": ("Heat", lambda url: stacks.listing(cloud_at(url), "n/i", 1)),
    "events": ("Heat", lambda url: cloud_at(url).heat.events.list("n/i", resource_name="r")),
    "a template": ("Heat", lambda url: stacks.template_of(cloud_at(url), "n/i")),
    "a port": ("Neutron", lambda url: networks.port(cloud_at(url), "x")),
    "ports": ("Neutron", lambda url: networks.listed(cloud_at(url), "ports")),
    "a floating IP": ("Neutron", lambda url: networks.floating_ip(cloud_at(url), "x")),
    "members of a pool": ("Octavia", lambda url: load_balancers.pool_members(cloud_at(url), "x")),
    "a pool": ("Octavia", lambda url: load_balancers.refuse_failed(cloud_at(url), "x")),
    "a zone": ("Designate", lambda url: dns_records.resolve_zone(cloud_at(url), "example.org")),
    "a recordset": ("Designate", lambda url: dns_records.recordset(cloud_at(url), "z", "r")),
    "recordsets": ("Designate", lambda url: dns_records.named(cloud_at(url), "z", "n", "A")),
    "alarms": ("Aodh", lambda url: event_alarms.watching_alarms(cloud_at(url))),
    "an alarm": ("Aodh", lambda url: event_alarms.alarm(cloud_at(url), "0" * 32)),
    "a token": ("Keystone", token_of),
    "a token's rights": (
        "Keystone",
        lambda url: asked(GuardedSession(guard=Unguarded(60), timeout=5), f"{url}/v3", "t", "p"),
    ),
    "an execution": ("Mistral", lambda url: mistral_at(url).state("e")),
    "tasks": ("Mistral", lambda url: mistral_at(url).tasks("e")),
    "running executions": ("Mistral", lambda url: list(mistral_at(url).running())),
}
CHANGES: dict[str, tuple[str, Call]] = {
    "a deletion": ("Nova", lambda url: cloud_at(url).send("Nova", "DELETE", "/servers/s")),
    "an attach": (
        "Nova",
        lambda url: cloud_at(url).send("Nova", "POST", "/servers/s/os-volume_attachments", {}),
    ),
    "a reservation": (
        "Cinder",
        lambda url: cloud_at(url).volumes.attachments.create("v", None, "s"),
    ),
    "an update": (
        "Heat",
        lambda url: cloud_at(url).heat.stacks.update("n/i", existing=True, parameters={}),
    ),
    "a preview": (
        "Heat",
        lambda url: cloud_at(url).heat.stacks.preview_update("n/i", existing=True, template={}),
    ),
    "a port": ("Neutron", lambda url: cloud_at(url).send("Neutron", "PUT", "/v2.0/ports/x", {})),
}
PORTAL = ({"Content-Type": "text/html"}, b"<html>Please log in</html>")
GATEWAY = ({}, b'{"error_code": "429001"}')
KONG = ({}, b'{"message": "no Route matched with those values"}')
WORD = ({}, b'"busy"')
LIST = ({}, b'[{"error_code": 1}]')
CUT_OFF = ({}, b'{"servers": [{"id": "s"')
NULL = ({}, b"null")
EMPTY = ({}, b"")
BODIES = {
    "a portal's page": PORTAL,
    "a gateway's code": GATEWAY,
    "a gateway's message": KONG,
    "a word": WORD,
    "a list": LIST,
    "cut off": CUT_OFF,
    "null": NULL,
    "empty": EMPTY,
}
OF_NO_SERVICE = re.compile(r"/[^/]+(/v[0-9.]+)?/?|/emulator/.*")
"""Versions, and the emulator's own."""
OF_OTHER_TOOLS = {
    "/compute/v2.1/flavors/detail",
    "/compute/v2.1/flavors/{flavor_id}",
    "/compute/v2.1/servers/{server_id}/os-security-groups",
    "/network/v2.0/extensions",
    "/network/v2.0/routers",
    "/network/v2.0/subnets",
}
"""What the emulated cloud has for OpenStack's own commands and for Ansible only."""
LATER = (408, 413, 429, 498, 500, 502, 503, 504)
VERDICTS = (400, 401, 403, 404, 409, 410)


def answering(server: Any, status: int, headers: dict[str, str], body: bytes) -> str:
    """Let the server answer everything so, except for questions about versions."""

    def reply(request: Any) -> Any:
        known = versions(server.url, request.path.partition("?")[0])
        return (200, {}, known) if known else (status, headers, body)

    server.reply = reply
    return str(server.url)


def failure(call: Call, url: str) -> CloudError:
    with pytest.raises(CloudError) as raised:
        call(url)
    return raised.value


every_read = pytest.mark.parametrize(("service", "call"), READS.values(), ids=READS.keys())
every_change = pytest.mark.parametrize(("service", "call"), CHANGES.values(), ids=CHANGES.keys())


@every_read
def test_success_in_another_form_is_no_answer(service: str, call: Call, server: Any) -> None:
    for name, (headers, body) in BODIES.items():
        error = failure(call, answering(server, 200, headers, body))
        found = (error.code, error.transient, error.service)
        assert found == ("UNREACHABLE", True, service), name


@every_read
def test_a_refusal_without_the_service_s_mark_is_no_answer(
    service: str, call: Call, server: Any
) -> None:
    for status, (headers, body) in [*product(VERDICTS, [PORTAL]), (404, GATEWAY), (404, KONG)]:
        error = failure(call, answering(server, status, headers, body))
        found = (error.code, error.transient, error.service)
        assert found == ("UNREACHABLE", True, service), (status, body)


@every_read
def test_a_busy_or_failing_service_is_asked_again_whatever_it_says(
    service: str, call: Call, server: Any
) -> None:
    for status in LATER:
        error = failure(call, answering(server, status, *GATEWAY))
        assert (error.transient, error.service) == (True, service), status
        assert error.code in ("RATE_LIMITED", "SERVER_ERROR", "TIMEOUT"), status


@every_change
def test_a_change_that_was_answered_by_another_may_have_happened(
    service: str, call: Call, server: Any
) -> None:
    for status in (200, *VERDICTS):
        for headers, body in (PORTAL, CUT_OFF, WORD):
            error = failure(call, answering(server, status, headers, body))
            found = (error.code, error.transient, error.service, error.unknown)
            assert found == ("UNREACHABLE", True, service, True), (status, body)


@every_change
@pytest.mark.parametrize("status", [413, 429, 498])
def test_a_rate_limit_says_that_nothing_was_done(
    service: str, call: Call, server: Any, status: int
) -> None:
    for headers, body in BODIES.values():
        error = failure(call, answering(server, status, headers, body))
        assert (error.code, error.transient, error.service, error.unknown) == (
            *("RATE_LIMITED", True, service),
            False,
        )


def test_an_answer_about_something_else_is_no_answer(server: Any) -> None:
    body = json.dumps({"server": {"id": "another", "status": "SHUTOFF"}}).encode()

    error = failure(READS["a server"][1], answering(server, 200, {}, body))

    assert (error.code, error.transient) == ("UNREACHABLE", True)
    assert "about something else" in error.detail


def test_a_portal_that_redirects_gets_no_token(server: Any) -> None:
    def reply(request: Any) -> Any:
        if known := versions(server.url, request.path.partition("?")[0]):
            return 200, {}, known
        return 302, {"Location": f"{server.url}/login", "Content-Type": "text/html"}, b"Moved"

    server.reply = reply

    error = failure(READS["a server"][1], server.url)

    assert (error.code, error.transient) == ("UNREACHABLE", True)
    assert "GET /login" not in server.calls


def test_the_form_of_every_answer_is_known() -> None:
    paths = {
        route.path
        for module in (*EMULATED.values(), compute_devices, instance_actions, snapshots)
        for route in module.routes()
        if "GET" in (route.methods or ())
    }
    unknown = {path for path in paths if form_of("GET", path) is None}

    assert {each for each in unknown if not OF_NO_SERVICE.fullmatch(each)} == OF_OTHER_TOOLS


@pytest.mark.parametrize("operation", ["volume_show", "volume_attachment_list", "attach", "detach"])
@pytest.mark.parametrize(
    ("status", "says"),
    [(200, "<html>"), (200, '{"volume": {'), (404, "<html>"), (429, '{"error_code": "1"}')],
)
def test_a_volume_moves_though_a_gateway_answers_now_and_then(
    cloud: Cloud,
    pair: Pair,
    emulator: EmulatorClient,
    operation: str,
    status: int,
    says: str,
) -> None:
    emulator.api_fault(operation, "gateway", status=status, says=says, times=2)

    attach(cloud, pair.volume, pair.a, 10)
    detach(cloud, pair.volume, pair.a, 10)

    changed = [event["kind"] for event in emulator.audit()]
    assert (changed.count("attach_begin"), changed.count("detach_begin")) == (1, 1)
    assert cloud.volumes.volumes.get(pair.volume).status == "available"
