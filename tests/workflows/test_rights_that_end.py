# SPDX-License-Identifier: Apache-2.0
"""A failover whose token is taken away in the middle: nothing is lost, nothing is done twice, and
whoever comes with valid rights, as a cron trigger's sweep, brings it to its end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext
from oslo_config import cfg

from mistral_failover import fault_points
from mistral_failover import settings as configuration
from mistral_failover.actions import people
from mistral_failover.actions.runtime import Runtime
from mistral_failover.emulator.client import EmulatorClient
from mistral_failover.emulator.server import EmulatedCloud
from mistral_failover.emulator.state import stable_hex
from mistral_failover.store.tables import metadata
from mistral_failover.testing.run import Run
from mistral_failover.testing.workflows import Workflows
from support.as_somebody import run_as

PROJECT = stable_hex("project", "demo")
_SERVER = {
    "type": "OS::Nova::Server",
    "properties": {
        "image": "tiny",
        "flavor": "m1.tiny",
        "networks": [{"allocate_network": "none"}],
        "scheduler_hints": {"group": {"get_resource": "spread"}},
    },
}
STACK = {
    "heat_template_version": "2021-04-16",
    "parameters": {"active": {"type": "string", "default": "nobody"}},
    "resources": {
        "spread": {
            "type": "OS::Nova::ServerGroup",
            "properties": {"policies": ["anti-affinity"]},
        },
        "db_a": _SERVER,
        "db_b": _SERVER,
        "data_volume": {"type": "OS::Cinder::Volume", "properties": {"size": 1}},
    },
}
ACTIVE = {"get_param": "active"}
RESOURCES = {
    "data": {
        "type": "volume_attachment",
        "properties": {"volume": "data_volume", "server": ACTIVE},
    },
    "database": {
        "type": "activation",
        "depends_on": "data",
        "properties": {"member": ACTIVE, "start": "start", "stop": "stop"},
    },
    "routing": {
        "type": "stack_parameters",
        "depends_on": "database",
        "properties": {"parameters": {"active": ACTIVE}},
    },
}
POINTS = [
    "link.after",
    "stop.after",
    "detach.after",
    "attach.before",
    "attach.after",
    "command.after",
    "patch.after",
]
_numbers = itertools.count(1)


@dataclass
class Tenant:
    """A group of the project ``demo``, and the requests about it, each with a token of its own."""

    name: str
    cloud: EmulatorClient
    emulated: EmulatedCloud
    workflows: Workflows
    tokens: list[str] = field(default_factory=list)

    def request(self, *, cron: bool = False) -> SimpleNamespace:
        """What a request brings along: with an alarm, or with a cron trigger of Mistral's, which
        brings nothing but the token of a trust."""
        token = self.cloud.mint_token(trust=True)
        self.tokens.append(token)
        more: dict[str, Any] = {"auth_uri": self.emulated.auth_url}
        if cron:
            more = {"auth_uri": None, "is_trust_scoped": True, "trust_id": "0" * 32}
        return SimpleNamespace(project_id=PROJECT, auth_token=token, **more)

    def context(self) -> ActionContext:
        """The same for an action by itself."""
        request = self.request()
        security = SecurityContext(
            auth_uri=request.auth_uri, auth_token=request.auth_token, project_id=PROJECT
        )
        return ActionContext(security, ExecutionContext())

    def run(self, workflow: str, request: SimpleNamespace | None = None, /, **inputs: Any) -> Run:
        """Run a shipped workflow to its end."""
        return run_as(self.workflows, request or self.request(), f"failover.{workflow}", inputs)

    def revoke(self, token: str) -> None:
        """Take a token away."""
        headers = {"X-Auth-Token": token, "X-Subject-Token": token}
        url = f"{self.emulated.auth_url}/auth/tokens"
        assert requests.delete(url, headers=headers, timeout=5).status_code == 204

    def server(self, member: str) -> str:
        """The id of a member's server."""
        return str(self.cloud.resources(self.name)[member]["physical_resource_id"])

    def status(self) -> dict[str, Any]:
        """What failover.status says."""
        answer = people.Status(self.name).run(self.context())
        assert isinstance(answer, dict), answer.error
        return answer


@pytest.fixture
def tenant(
    pack: Workflows, state: Runtime, cloud: EmulatorClient, emulated: EmulatedCloud
) -> Iterator[Tenant]:
    """A database that is active on db_a."""
    name = f"tenant{next(_numbers)}"
    cloud.create_stack(name, STACK)
    cloud.add_application(name, start="start", stop="stop", needs_volume=True, stack=name)
    tenant = Tenant(name, cloud, emulated, pack)
    definition = {
        "failover_template_version": "2026-11-21",
        "stack": name,
        "members": {"servers": ["db_a", "db_b"]},
        "resources": RESOURCES,
        "fence": [{"kind": "quiesce", "limit": 0.2}, {"kind": "stop", "limit": 1}, "confirm"],
    }
    # As mistral.conf says it by [keystone_authtoken] www_authenticate_uri.
    cfg.CONF.set_override("auth_url", emulated.auth_url, group=configuration.GROUP)
    answer = people.Define(definition).run(tenant.context())
    assert isinstance(answer, dict), answer.error
    tenant.run("activate_first", group=name).assert_succeeded()
    yield tenant
    fault_points.disarm()
    cfg.CONF.clear_override("auth_url", group=configuration.GROUP)


def at(point: str, act: Callable[[], None]) -> None:
    """Let something happen when a point is reached first."""
    left = [act]

    def hook(name: str) -> None:
        if name == point and left:
            left.pop()()

    fault_points.arm(hook)


@pytest.mark.parametrize("point", POINTS)
def test_a_failover_whose_token_is_revoked_is_brought_to_its_end_by_a_sweep(
    tenant: Tenant, point: str
) -> None:
    tenant.cloud.fault("server", tenant.server("db_a"), "crash")
    alarm = tenant.cloud.alarm_body(tenant.server("db_a"))
    request = tenant.request()
    heard = len(tenant.cloud.audit())
    at(point, lambda: tenant.revoke(request.auth_token))

    run = tenant.run("on_alarm", request, **alarm)

    fault_points.disarm()
    status = tenant.status()
    if run.state == "ERROR":
        assert "RIGHTS_ENDED" in run.error_codes()
        assert status["status"] == "IN_PROGRESS"
        assert "[TOKEN_EXPIRED]" in status["reason"]
        (incident, *_) = status["incidents"]
        assert incident["decision"] == "ADMITTED"

    swept = tenant.run("sweep", tenant.request(cron=True)).assert_succeeded()

    assert run.state == "ERROR" or swept.output["swept"]["ready"] == []
    status = tenant.status()
    assert (status["status"], status["reason"]) == ("COMPLETE", "")
    assert status["roles"] == {"active": "db_b"}
    server = tenant.server("db_b")
    assert tenant.name in tenant.cloud.nodes()[server]["applications"]
    attached = [e for e in tenant.cloud.audit(heard, "attach_begin") if e["server"] == server]
    assert len(attached) == 1
    assert tenant.cloud.violations() == []


def test_a_failover_is_left_in_the_middle_at_almost_every_point(tenant: Tenant) -> None:
    """Lest the test above finds nothing to sweep."""
    tenant.cloud.fault("server", tenant.server("db_a"), "crash")
    request = tenant.request()
    at("attach.before", lambda: tenant.revoke(request.auth_token))

    run = tenant.run("on_alarm", request, **tenant.cloud.alarm_body(tenant.server("db_a")))

    assert run.state == "ERROR"
    reasons = [r["reason"] for r in tenant.status()["resources"] if r["reason"]]
    assert len(reasons) == 1


def test_an_alarm_whose_token_is_dead_already_is_kept_and_started_by_a_sweep(
    tenant: Tenant,
) -> None:
    tenant.cloud.fault("server", tenant.server("db_a"), "crash")
    request = tenant.request()
    tenant.revoke(request.auth_token)

    run = tenant.run("on_alarm", request, **tenant.cloud.alarm_body(tenant.server("db_a")))

    assert run.state == "ERROR"
    assert "TOKEN_EXPIRED" in run.error_codes()
    (incident, *_) = tenant.status()["incidents"]
    assert incident["decision"] == "ADMITTED"
    assert tenant.status()["roles"] == {"active": "db_a"}

    # The first sweep starts it and finds its nodes ready at once: nothing was said about them yet.
    tenant.run("sweep", tenant.request(cron=True)).assert_succeeded()
    tenant.run("sweep", tenant.request(cron=True)).assert_succeeded()

    status = tenant.status()
    assert (status["status"], status["roles"]) == ("COMPLETE", {"active": "db_b"})


def test_nothing_of_a_token_is_kept(
    tenant: Tenant, state: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    tenant.cloud.fault("server", tenant.server("db_a"), "crash")
    request = tenant.request()
    at("attach.before", lambda: tenant.revoke(request.auth_token))
    run = tenant.run("on_alarm", request, **tenant.cloud.alarm_body(tenant.server("db_a")))
    fault_points.disarm()
    swept = tenant.run("sweep", tenant.request(cron=True))
    assert tenant.status()["status"] == "COMPLETE"

    secrets = [*tenant.tokens, "0" * 32, *tenant.emulated.emulation.state.trusts]
    kept = {
        "state store": "".join(map(str, state.database.reading(everything))),
        "execution": "".join(map(str, (told(run), told(swept)))),
        "log": caplog.text,
    }
    for where, text in kept.items():
        assert text
        assert [secret for secret in secrets if secret in text] == [], where


def everything(tx: Any) -> list[Any]:
    """Every row of the state store."""
    return [tuple(row) for t in metadata.sorted_tables for row in tx.connection.execute(t.select())]


def told(run: Run) -> list[Any]:
    """What Mistral keeps of an execution and those below it."""
    tasks = [
        (t.name, t.state_info, t.result, t.published, [told(sub) for sub in t.subs])
        for t in run.all_tasks
    ]
    return [run.input, run.output, run.state_info, tasks]
