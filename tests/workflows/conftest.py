# SPDX-License-Identifier: Apache-2.0
"""The shipped workflows on the real engine: with replaced actions, or with the real ones on a
state store of this process and an emulated cloud in a thread of it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import openstack
import pytest
import yaml
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext
from oslo_config import cfg

from mistral_failover import settings as configuration
from mistral_failover import workflows as shipped
from mistral_failover.actions import doctor, groups, orders, recovery, reports
from mistral_failover.actions import members as member_actions
from mistral_failover.convergence.records import Ready
from mistral_failover.lab.emulator.client import EmulatorClient, write_clouds_yaml
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.lab.testing.workflows import Run, Workflows
from mistral_failover.runtime import process
from mistral_failover.runtime.process import Runtime
from support.activation import activate, done
from support.databases import new_store
from support.fencing import clouds_of_an_operator, private
from support.operators import Operator
from support.requests_sent import only_requests_with_a_rule
from support.storage import commands
from support.volume_group import ACTIVE, DATABASE, RESOURCES
from support.waiting import until

__all__ = ["only_requests_with_a_rule"]

_numbers = itertools.count(1)
_SERVER = {
    "type": "OS::Nova::Server",
    "properties": {
        "image": "tiny",
        "flavor": "m1.tiny",
        "networks": [{"allocate_network": "none"}],
        "scheduler_hints": {"group": {"get_resource": "spread"}},
    },
}


def stack(servers: tuple[str, ...]) -> dict[str, Any]:
    """A template of these servers, each on a host of its own, and one volume."""
    return {
        "heat_template_version": "2021-04-16",
        "parameters": {"active": {"type": "string", "default": "none"}},
        "resources": {
            "spread": {
                "type": "OS::Nova::ServerGroup",
                "properties": {"policies": ["anti-affinity"]},
            },
            **dict.fromkeys(servers, _SERVER),
            "data_volume": {"type": "OS::Cinder::Volume", "properties": {"size": 1}},
        },
    }


FENCE = [{"kind": "quiesce", "limit": 0.2}, {"kind": "stop", "limit": 1}, "confirm"]


@pytest.fixture
def pack(mistral: TestEngine, workflow: Workflows) -> Workflows:
    """The shipped workflows, loaded."""
    mistral.keep(shipped.paths())
    return workflow


# Of a module, not of the process: each look at all servers, each sweep of all groups would take
# longer with every test.
@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedCloud]:
    """The cloud of these tests, without latency; the environment names its clouds.yaml."""
    with EmulatedCloud() as cloud, pytest.MonkeyPatch.context() as patch:
        file = tmp_path_factory.mktemp("cloud") / "clouds.yaml"
        write_clouds_yaml(file, "emulated", cloud.url)
        patch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        yield cloud


@pytest.fixture(scope="module")
def state(
    mistral: TestEngine, emulated: EmulatedCloud, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runtime]:
    """The actions of this process, configured as mistral.conf would do it."""
    configuration.load(cfg.CONF)  # registers the options with the configuration Mistral has parsed
    options = {
        "database": new_store(tmp_path_factory.mktemp("state") / "failover.sqlite"),
        "cloud": "emulated",
        "command_channel": f"emulator+{emulated.url}",
        "lease": 10.0,
        "sweep_after": 0.0,
        "storm_groups": 0,  # in these tests most groups of the project fail, on purpose
        "mistral_url": mistral.url,
        "mistral_token_file": str(mistral.token_file),
        "poll_first": 0.005,
        "poll_ceiling": 0.02,
    }
    for name, value in options.items():
        cfg.CONF.set_override(name, value, group=configuration.GROUP)
    yield process.runtime()
    for name in options:
        cfg.CONF.clear_override(name, group=configuration.GROUP)


@pytest.fixture
def cloud(emulated: EmulatedCloud) -> Iterator[EmulatorClient]:
    """The emulator's own interface; what a test broke is repaired. No test may break an invariant
    of the cloud: those that come after it share the cloud."""
    since = max((each["seq"] for each in emulated.client.violations()), default=0)
    yield emulated.client
    emulated.client.clear_api_faults()
    for host in emulated.client.status()["hosts"]:
        emulated.client.fault("host", host, "revive")
    assert [each for each in emulated.client.violations() if each["seq"] > since] == []


@pytest.fixture
def operator(cloud: EmulatorClient) -> Operator:
    """An administrator of the cloud, who does not know of the group."""
    return Operator(cloud)


def context() -> ActionContext:
    """What an action gets from a Mistral whose authentication is off."""
    return ActionContext(SecurityContext(), ExecutionContext())


@dataclass
class Protected:
    """A group on a stack of its own, and the workflows over it."""

    name: str
    cloud: EmulatorClient
    state: Runtime
    workflows: Workflows
    members: tuple[str, ...] = ("db_a", "db_b")

    def run(self, workflow: str, /, **inputs: Any) -> Run:
        """Run a shipped workflow to its end."""
        return self.workflows.run(f"failover.{workflow}", inputs, timeout=60)

    def activate(self) -> dict[str, Any]:
        """The first activation, which brings up db_a; returns how it ended."""
        return activate(self.name, context)

    def fails(self, fault: str = "crash", member: str = "db_a") -> dict[str, Any]:
        """Break a member; the alarm about it."""
        server = self.server(member)
        if fault in ("power_off", "compute_down"):
            self.cloud.fault("host", self.cloud.guests()[server]["host"], fault)
        else:
            self.cloud.fault("server", server, fault)
        return self.cloud.alarm_body(server)

    def server(self, member: str) -> str:
        """The id of a member's server."""
        return str(self.cloud.resources(self.name)[member]["physical_resource_id"])

    def start(self, workflow: str, /, **inputs: Any) -> str:
        """Start a shipped workflow; returns its execution's id, for :meth:`ended`."""
        return self.workflows.start(f"failover.{workflow}", inputs)

    def ended(self, execution: str) -> Run:
        """Wait for the end of an execution."""
        return self.workflows.wait(execution, timeout=60)

    def told(self, kind: str | None = None) -> list[str]:
        """The group's journal, or its sentences of one kind."""
        rows = done(reports.History(self.name, limit=1000).run(context()))
        return [row["sentence"] for row in rows if kind in (None, row["kind"])]

    def wait_until_told(self, sentence: str, times: int = 1) -> None:
        """Wait until the journal says it, so many times."""
        until(lambda: self.told().count(sentence) >= times, f"never said: {sentence}")

    def runs_on(self) -> list[str]:
        """The members on which the application runs."""
        nodes = self.cloud.guests()
        return [m for m in self.members if self.name in nodes[self.server(m)]["applications"]]

    def ready(self, begun: dict[str, Any]) -> list[Ready]:
        """The ready nodes of the traversal that an action has begun."""
        traversal = begun["traversal"]
        nodes = self.state.database.reading(lambda tx: tx.ready_nodes(traversal))
        return [Ready(traversal, node) for node in nodes]

    def status(self) -> dict[str, Any]:
        """What failover.status says."""
        return done(reports.Status(self.name).run(context()))

    def document(self) -> dict[str, Any]:
        """The group file that is defined."""
        shown = done(reports.Status(self.name, definition=True).run(context()))
        return dict(shown["definition"]["document"])

    def shown(self) -> dict[str, Any]:
        """What failover.show says of the present traversal."""
        return done(reports.Show(self.status()["traversal"]["id"]).run(context()))

    def observed(self) -> dict[str, Any]:
        """Look at the group now; how it serves."""
        done(recovery.Observe(self.name).run(context()))
        return dict(self.status()["service"])

    def examined(self, check: str) -> dict[str, Any]:
        """What the doctor finds by a check that has one finding."""
        (found,) = self.examined_all(check)
        return found

    def examined_all(self, check: str) -> list[dict[str, Any]]:
        """What the doctor finds by a check."""
        findings = done(doctor.Doctor(self.name).run(context()))["findings"]
        return [dict(row) for row in findings if row["check"] == check]

    def changes_after_stop(self, since: int, server: str, *paths: str) -> bool:
        """Whether the services with these paths were asked for changes since an event, all of them
        after the server was stopped."""
        events = self.cloud.audit(since)
        changes = [
            each["seq"]
            for each in events
            if each["kind"] == "request"
            and each["method"] in ("PUT", "POST", "DELETE")
            and any(path in each["path"] for path in paths)
        ]
        stops = (each for each in events if each["kind"] == "server_stopped")
        stopped = next(each["seq"] for each in stops if each["server"] == server)
        return bool(changes) and stopped < min(changes)

    def redefine(self, resources: dict[str, Any]) -> None:
        """Give the group other resources."""
        definition = {
            "failover_template_version": "2026-11-21",
            "stack": self.name,
            "members": {"servers": list(self.members)},
            "resources": resources,
            "fence": FENCE,
        }
        done(groups.Define(definition).run(context()))

    def member_list(self) -> dict[str, dict[str, Any]]:
        """What failover.members says, by member."""
        rows = done(member_actions.Members(self.name).run(context()))
        return {row["member"]: row for row in rows}

    def plan(self, **facts: Any) -> dict[str, Any]:
        """What failover.plan says."""
        return done(orders.Plan(self.name, **facts).run(context()))

    def traversals(self) -> list[str]:
        """The causes of the group's traversals, in order."""
        return self.told("traversal")

    def volume(self) -> str:
        """The id of the group's volume."""
        return str(self.cloud.resources(self.name)["data_volume"]["physical_resource_id"])

    def holders(self) -> list[str]:
        """The members whose server the volume is attached to, by the cloud's own word."""
        volume = self.volume()
        servers = {self.server(member): member for member in self.members}
        nodes = self.cloud.guests()
        return [m for s, m in servers.items() if volume in nodes[s]["volumes"]]


@pytest.fixture
def protect(pack: Workflows, state: Runtime, cloud: EmulatorClient) -> Callable[..., Protected]:
    """Make a stack and define a group over it. ``unresolved``: Heat does not answer at that moment,
    so the file is accepted, whatever it names."""

    def make(
        resources: dict[str, Any] = RESOURCES,
        types: list[dict[str, Any]] | None = None,
        servers: tuple[str, ...] = ("db_a", "db_b"),
        template: Callable[[dict[str, Any]], dict[str, Any]] = lambda stack: stack,
        *,
        unresolved: bool = False,
        **more: Any,
    ) -> Protected:
        name = f"group{next(_numbers)}"
        cloud.create_stack(name, template(stack(servers)))
        cloud.add_application(name, start="start", stop="stop", needs_volume=True, stack=name)
        definition = {
            "failover_template_version": "2026-11-21",
            "stack": name,
            "members": {"servers": list(servers)},
            "resources": resources,
            "fence": FENCE,
            **more,
        }
        if unresolved:
            cloud.api_fault("resource_list", times=1000)
        done(groups.Define(definition, types=types).run(context()))
        if unresolved:
            cloud.clear_api_faults()
        return Protected(name, cloud, state, pack, servers)

    return make


@pytest.fixture
def group(protect: Callable[..., Protected]) -> Protected:
    """A database on a volume that follows the active of two members."""
    return protect()


@dataclass
class Loose(Protected):
    """A group without a stack: its servers and its volume were made by another tool, with tags.
    ``ids``: by what the group file calls them."""

    ids: dict[str, str] = field(default_factory=dict)
    api: Any = None

    def server(self, member: str) -> str:
        """The id of a member's server."""
        return self.ids[member]

    def volume(self) -> str:
        """The id of the group's volume."""
        return self.ids["data"]

    def file(self, **more: Any) -> dict[str, Any]:
        """Its group file."""
        data = {"volume": {"name": f"{self.name}-data"}, "server": ACTIVE}
        database = {**DATABASE["properties"], "start": f"start-{self.name}"}
        return {
            "failover_template_version": "2026-11-21",
            "members": {
                "servers": {each: {"name": f"{self.name}-{each}"} for each in self.members}
            },
            "resources": {
                "data": {"type": "volume_attachment", "properties": data},
                "database": {**DATABASE, "properties": {**database, "stop": f"stop-{self.name}"}},
            },
            "fence": FENCE,
            **more,
        }

    def define(self, definition: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """What failover.define answers, or the error that it refuses the file with."""
        found = groups.Define(definition or self.file(), name=self.name, **options).run(context())
        return dict(found.error if isinstance(found, Result) else found)

    def make_server(self, name: str, **more: Any) -> str:
        """Make a server, as any client of Nova does; returns its id."""
        made = self.api.compute.create_server(
            name=name, image_id="tiny", flavor_id="m1.tiny", networks="none", **more
        )
        self.api.compute.wait_for_server(made, interval=0.02)
        return str(made.id)

    def make_volume(self, name: str, **more: Any) -> str:
        """Make a volume, as any client of Cinder does; returns its id."""
        made = self.api.block_storage.create_volume(name=name, size=1, **more)
        self.api.block_storage.wait_for_status(made, "available", interval=0.02)
        return str(made.id)


@pytest.fixture
def rehearsable(protect: Callable[..., Protected]) -> Callable[..., Protected]:
    """Make a group that is up, and whose rehearsals have the check ``newest_row``."""

    def make(**more: Any) -> Protected:
        made = protect(rehearsal={"checks": ["newest_row"]}, **more)
        made.cloud.add_application(
            made.name,
            start="start",
            stop="stop",
            checks=["newest_row"],
            needs_volume=True,
            stack=made.name,
        )
        made.activate()
        return made

    return make


@pytest.fixture
def loose(pack: Workflows, state: Runtime, cloud: EmulatorClient) -> Callable[..., Loose]:
    """Make servers and a volume without a stack, for a group that is not defined yet."""

    def make(servers: tuple[str, ...] = ("db_a", "db_b")) -> Loose:
        name = f"loose{next(_numbers)}"
        group = Loose(name, cloud, state, pack, servers)
        group.api = openstack.connect(cloud="emulated")
        for member in servers:
            tags = [f"role={name}-{member}"]
            group.ids[member] = group.make_server(f"{name}-{member}", tags=tags)
        group.ids["data"] = group.make_volume(f"{name}-data", metadata={"role": f"{name}-data"})
        cloud.add_application(name, start=f"start-{name}", stop=f"stop-{name}", needs_volume=True)
        return group

    return make


@pytest.fixture
def clouds(emulated: EmulatedCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The clouds of the groups' user and of the operator of the fence devices."""
    clouds = yaml.safe_load(Path(os.environ["OS_CLIENT_CONFIG_FILE"]).read_text("utf-8"))
    file = private(tmp_path / "clouds.yaml", yaml.safe_dump(clouds))
    clouds_of_an_operator(emulated, tmp_path)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    return file


@pytest.fixture
def ceph(
    emulated: EmulatedCloud,
    state: Runtime,
    clouds: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """The hosts' storage is a simulated Ceph cluster that can block them."""
    file = tmp_path / "fence-devices.yaml"
    monkeypatch.setattr(state, "settings", replace(state.settings, fence_devices_file=str(file)))
    document = {"projects": ["*"], "cloud": "operator", "hosts": {}, "ceph": commands(tmp_path)}
    private(file, json.dumps(document))
    yield tmp_path
    for host in emulated.emulation.state.hosts:
        emulated.client.fault("host", host, "revive")
