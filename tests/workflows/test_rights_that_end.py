# SPDX-License-Identifier: Apache-2.0
"""A failover whose rights are taken away in the middle, be it its token, its trust or its user:
nothing is lost, nothing is done twice, and a request with valid rights, as a cron trigger's
sweep, brings it to its end."""

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
from mistral_failover.actions import groups as group_actions
from mistral_failover.actions import reports
from mistral_failover.lab.drill import audit
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.emulator.state import stable_hex, token_key
from mistral_failover.lab.testing.workflows import Run, Workflows
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import groups
from mistral_failover.store.tables import metadata
from support.activation import activate
from support.as_user import run_as

pytestmark = pytest.mark.faults

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
    "parameters": {"active": {"type": "string", "default": "none"}},
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
POINTS = [  # attach.before is played by the test of what is kept of a token
    "link.after",
    "stop.after",
    "detach.after",
    "attach.after",
    "command.after",
    "patch.after",
]
_numbers = itertools.count(1)


@dataclass
class Tenant:
    """A group of the project ``demo``, and the requests about it, each with a token of its own.

    ``user`` owns its stack, its alarms and its cron trigger; ``colleague`` is another one of the
    project.
    """

    name: str
    cloud: EmulatorClient
    emulated: EmulatedCloud
    workflows: Workflows
    user: str
    colleague: str
    tokens: list[str] = field(default_factory=list)

    def request(
        self, *, cron: bool = False, user: str | None = None, trust: bool = True
    ) -> SimpleNamespace:
        """What a request brings along: with an alarm, or with a cron trigger of Mistral's, which
        brings nothing but the token of a trust; or, not by a trust, of a person."""
        token = self.cloud.mint_token(user=user or self.user, trust=trust)
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

    def keystone(self, method: str, path: str, token: str, body: Any = None) -> None:
        """Ask Keystone for something, which it must do."""
        headers = {"X-Auth-Token": token, "X-Subject-Token": token}
        url = self.emulated.auth_url + path
        answer = requests.request(method, url, headers=headers, json=body, timeout=5)
        assert answer.ok, answer.text

    def revoke(self, token: str) -> None:
        """Take a token away."""
        self.keystone("DELETE", "/auth/tokens", token)

    def delete_trust(self, token: str) -> None:
        """Take away the trust that a token was got by."""
        known = self.emulated.emulation.state.tokens[token_key(token)]
        own = self.cloud.mint_token(user=self.user)
        self.keystone("DELETE", f"/OS-TRUST/trusts/{known.trust_id}", own)

    def disable(self, token: str) -> None:
        """Disable the user whom a token acts for, as an administrator does it."""
        self._enable(token, enabled=False)

    def enable(self, token: str) -> None:
        """Enable them again."""
        self._enable(token, enabled=True)

    def _enable(self, token: str, *, enabled: bool) -> None:
        whose = self.emulated.emulation.state.tokens[token_key(token)].user_id
        admin = self.cloud.mint_token(user="admin")
        self.keystone("PATCH", f"/users/{whose}", admin, {"user": {"enabled": enabled}})

    def server(self, member: str) -> str:
        """The id of a member's server."""
        return str(self.cloud.resources(self.name)[member]["physical_resource_id"])

    def status(self) -> dict[str, Any]:
        """What failover.status says."""
        answer = reports.Status(self.name).run(self.context())
        assert isinstance(answer, dict), answer.error
        return answer


@pytest.fixture
def tenant(
    pack: Workflows, state: Runtime, cloud: EmulatorClient, emulated: EmulatedCloud
) -> Iterator[Tenant]:
    """A database that is active on db_a."""
    name = f"tenant{next(_numbers)}"
    user, colleague = f"{name}-user", f"{name}-colleague"
    for each in (user, colleague):
        cloud.add_user(each, project="demo")
    EmulatorClient(emulated.url, user=user, password=user).create_stack(name, STACK)
    cloud.add_application(name, start="start", stop="stop", needs_volume=True, stack=name)
    tenant = Tenant(name, cloud, emulated, pack, user, colleague)
    definition = {
        "failover_template_version": "2026-11-21",
        "stack": name,
        "members": {"servers": ["db_a", "db_b"]},
        "resources": RESOURCES,
        "fence": [{"kind": "quiesce", "limit": 0.2}, {"kind": "stop", "limit": 1}, "confirm"],
    }
    # As mistral.conf says it by [keystone_authtoken] www_authenticate_uri.
    cfg.CONF.set_override("auth_url", emulated.auth_url, group=configuration.GROUP)
    answer = group_actions.Define(definition).run(tenant.context())
    assert isinstance(answer, dict), answer.error
    assert activate(name, tenant.context)["status"] == "COMPLETE"
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


@dataclass(frozen=True)
class End:
    """A way for rights to end: how, by which code that is told, and who has rights then."""

    take: Callable[[Tenant, str], None]
    code: str
    somebody: Callable[[Tenant], SimpleNamespace]


ENDS = {
    # Keystone and the services know nothing of the token; the trust still stands.
    "token revoked": End(Tenant.revoke, "TOKEN_EXPIRED", lambda t: t.request(cron=True)),
    # The trust of the alarm is gone; that of the same user's cron trigger is another one.
    "trust deleted": End(Tenant.delete_trust, "TRUST_GONE", lambda t: t.request(cron=True)),
    # With their user all trusts are dead, also the cron trigger's.
    "user disabled": End(
        Tenant.disable, "TRUST_GONE", lambda t: t.request(user=t.colleague, trust=False)
    ),
}


# Where a failover stops and continues does not depend on how its rights ended. So one way is played
# at every point, the others in the middle of an operation.
_ENDS_AT = [
    *(("token revoked", point) for point in POINTS),
    ("trust deleted", "attach.after"),
    ("user disabled", "attach.after"),
]
ENDS_AT = [
    pytest.param(ENDS[how], point, id=f"{how}-{point}".replace(" ", "_")) for how, point in _ENDS_AT
]


@pytest.fixture(params=ENDS.values(), ids=[how.replace(" ", "_") for how in ENDS])
def end(request: pytest.FixtureRequest) -> End:
    """Each way for rights to end."""
    found: End = request.param
    return found


@pytest.mark.parametrize(("end", "point"), ENDS_AT, indirect=["end"])
def test_a_failover_whose_rights_end_is_completed_by_a_request_with_valid_rights(
    tenant: Tenant, state: Runtime, point: str, end: End
) -> None:
    heard = len(tenant.cloud.audit())

    run = fails_over_until(tenant, point, end)

    completed_by_a_sweep(tenant, state, end, run, heard)


def fails_over_until(tenant: Tenant, point: str, end: End) -> Run:
    """A failover by an alarm whose rights end at a point."""
    tenant.cloud.fault("server", tenant.server("db_a"), "crash")
    request = tenant.request()
    at(point, lambda: end.take(tenant, request.auth_token))
    run = tenant.run("on_alarm", request, **tenant.cloud.alarm_body(tenant.server("db_a")))
    fault_points.disarm()
    return run


def completed_by_a_sweep(tenant: Tenant, state: Runtime, end: End, run: Run, heard: int) -> Run:
    """Check that a sweep with valid rights completes the failover, and does nothing twice since
    that entry of the cloud's log; the sweep."""
    status = tenant.status()
    assert status["incidents"][0]["decision"] == "ADMITTED"
    incidents = [each["id"] for each in status["incidents"]]
    if run.state == "ERROR":
        assert "RIGHTS_ENDED" in run.error_codes()
        assert status["status"] == "IN_PROGRESS"
        assert f"[{end.code}]" in status["reason"]

    swept = tenant.run("sweep", end.somebody(tenant)).assert_succeeded()

    assert run.state == "ERROR" or swept.output["swept"]["restarted"] == []
    status = tenant.status()
    assert (status["status"], status["reason"]) == ("COMPLETE", "")
    assert status["roles"] == {"active": "db_b"}
    assert [each["id"] for each in status["incidents"]] == incidents
    server = tenant.server("db_b")
    assert tenant.name in tenant.cloud.guests()[server]["applications"]
    assert nothing_twice(tenant, state, heard)
    return swept


def nothing_twice(tenant: Tenant, state: Runtime, heard: int) -> bool:
    """Nothing took effect twice, by the cloud's log since then and by the state store."""
    server = tenant.server("db_b")
    attached = [e for e in tenant.cloud.audit(heard, "attach_begin") if e["server"] == server]
    commands = [e["id"] for e in tenant.cloud.audit(heard, "command_started")]
    group = state.database.for_project(PROJECT).reading(lambda tx: groups.find(tx, tenant.name))
    assert group is not None
    kept = audit.read_state(state.database, group.id)
    broken = [
        *audit.tokens_grow(kept),
        *audit.one_traversal_per_incident(kept),
        *audit.ended(kept),
    ]
    assert broken == []
    assert tenant.cloud.violations() == []
    return len(attached) == 1 and len(commands) == len(set(commands))


def test_an_alarm_whose_rights_are_dead_already_is_kept_and_started_by_a_sweep(
    tenant: Tenant, end: End
) -> None:
    tenant.cloud.fault("server", tenant.server("db_a"), "crash")
    request = tenant.request()
    end.take(tenant, request.auth_token)

    run = tenant.run("on_alarm", request, **tenant.cloud.alarm_body(tenant.server("db_a")))

    assert run.state == "ERROR"
    assert end.code in run.error_codes()
    (incident, *_) = tenant.status()["incidents"]
    assert incident["decision"] == "ADMITTED"
    assert tenant.status()["roles"] == {"active": "db_a"}

    tenant.run("sweep", end.somebody(tenant)).assert_succeeded()

    status = tenant.status()
    assert (status["status"], status["roles"]) == ("COMPLETE", {"active": "db_b"})


def test_a_user_who_is_disabled_sweeps_nothing_and_once_enabled_goes_on(
    tenant: Tenant, state: Runtime
) -> None:
    tenant.cloud.fault("server", tenant.server("db_a"), "crash")
    request = tenant.request()
    heard = len(tenant.cloud.audit())
    at("attach.before", lambda: tenant.disable(request.auth_token))
    tenant.run("on_alarm", request, **tenant.cloud.alarm_body(tenant.server("db_a")))
    fault_points.disarm()

    for _ in range(2):
        tenant.run("sweep", tenant.request(cron=True))
        status = tenant.status()
        assert status["status"] == "IN_PROGRESS"
        assert "[TRUST_GONE]" in status["reason"]

    tenant.enable(request.auth_token)
    tenant.run("sweep", tenant.request(cron=True)).assert_succeeded()

    status = tenant.status()
    assert (status["status"], status["roles"]) == ("COMPLETE", {"active": "db_b"})
    assert nothing_twice(tenant, state, heard)


def test_nothing_is_kept_of_the_token_of_a_failover_that_is_left_in_the_middle(
    tenant: Tenant, state: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    heard = len(tenant.cloud.audit())
    run = fails_over_until(tenant, "attach.before", ENDS["token revoked"])
    assert run.state == "ERROR", "it is left in the middle"
    assert len([r["reason"] for r in tenant.status()["resources"] if r["reason"]]) == 1
    swept = completed_by_a_sweep(tenant, state, ENDS["token revoked"], run, heard)

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
