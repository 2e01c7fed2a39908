# SPDX-License-Identifier: Apache-2.0
"""Groups over an emulated cloud and a state store of this process, without Mistral: a loop works
the ready nodes off, in any order."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import base, orders, reports
from mistral_failover.actions import groups as group_actions
from mistral_failover.actions.base import FailoverAction
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.groups import agent_health
from mistral_failover.lab.emulator.client import EmulatorClient, write_clouds_yaml
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.model.ids import group_id
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import DEFAULT_PROJECT, Request
from mistral_failover.settings import Settings
from mistral_failover.store import tables
from mistral_failover.store.tables import metadata
from mistral_failover.store.transaction import SqlTransaction
from support.databases import new_store
from support.driving import work_all
from support.operators import Operator

_numbers = itertools.count(1)
_SERVER = {
    "type": "OS::Nova::Server",
    "properties": {
        "image": "tiny",
        "flavor": "m1.tiny",
        "networks": [{"allocate_network": "none"}],
    },
}
_VOLUME = {"type": "OS::Cinder::Volume", "properties": {"size": 1}}


def _stack(servers: tuple[str, ...], volumes: int, zones: Mapping[str, str]) -> dict[str, Any]:
    template: dict[str, Any] = {
        "heat_template_version": "2021-04-16",
        "parameters": {name: {"type": "string", "default": "none"} for name in ("active", "files")},
        "resources": {
            **dict.fromkeys(servers, _SERVER),
            **{f"volume_{number}": _VOLUME for number in range(volumes)},
        },
    }
    for name, zone in zones.items():
        one = template["resources"][name]
        properties = {**one["properties"], "availability_zone": zone}
        template["resources"][name] = {**one, "properties": properties}
    return template


def resources(volumes: int, roles: list[str]) -> dict[str, Any]:
    """For each role its volumes, an application on them, and the stack's parameter."""
    found: dict[str, Any] = {}
    for number in range(volumes):
        holder = {"get_param": roles[number % len(roles)]}
        properties = {"volume": f"volume_{number}", "server": holder}
        found[f"data_{number}"] = {"type": "volume_attachment", "properties": properties}
    for index, role in enumerate(roles):
        mine = [f"data_{number}" for number in range(index, volumes, len(roles))]
        device = {"device": {"get_attr": [mine[0], "device"]}} if mine else {}
        properties = {"member": {"get_param": role}, "start": "start", "stop": "stop", **device}
        found[f"{role}_application"] = {
            "type": "activation",
            "depends_on": mine,
            "properties": properties,
        }
        found[f"{role}_routing"] = {
            "type": "stack_parameters",
            "depends_on": f"{role}_application",
            "properties": {"parameters": {role: {"get_param": role}}},
        }
    return found


@dataclass
class PlannedGroup:
    """A group on a stack of its own, and what an operator does to it."""

    name: str
    cloud: EmulatorClient
    state: Runtime
    members: tuple[str, ...]
    choose: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311

    def ask(self, action: FailoverAction) -> Any:
        """An action's answer, or its error's Result."""
        return action.run(self.context())

    def done(self, action: FailoverAction) -> Any:
        """An action's answer, which must not be an error."""
        answer = self.ask(action)
        assert not isinstance(answer, Result), answer.error
        return answer

    def context(self) -> ActionContext:
        """A request of an execution of its own."""
        execution = ExecutionContext(workflow_execution_id=f"planned-{next(_numbers)}")
        return ActionContext(SecurityContext(), execution)

    def plan(self, **inputs: Any) -> dict[str, Any]:
        """What failover.plan says."""
        return dict(self.done(orders.Plan(self.name, **inputs)))

    def start(self, plan: str) -> dict[str, Any]:
        """Start a plan, and carry it on to where nothing is ready."""
        answer = self.done(orders.StartPlan(plan))
        self.carry(answer)
        return dict(answer)

    def order(self, action: Any) -> dict[str, Any]:
        """Give an order, and carry it on to where nothing is ready."""
        answer = self.done(action)
        self.carry(answer)
        return dict(answer)

    def carry(self, begun: dict[str, Any], most: int | None = None) -> None:
        """Work what was begun off, its ready nodes in any order, so many of them at most."""
        if begun["workflow"]:
            work_all(
                self.state,
                self.context,
                begun["traversal"],
                choose=self.choose.randrange,
                most=most,
            )

    def status(self) -> dict[str, Any]:
        """What failover.status says."""
        return dict(self.done(reports.Status(self.name)))

    def document(self) -> dict[str, Any]:
        """The group file that is defined."""
        shown = self.done(reports.Status(self.name, definition=True))
        return dict(shown["definition"]["document"])

    def journal(self, after: int = 0) -> list[dict[str, Any]]:
        """The group's journal, behind an entry."""
        found = self.done(reports.History(self.name, after=after, limit=1000))
        return [row for row in found if row["id"] > after]

    def started(self, after: int, traversal: str | None = None) -> list[str]:
        """The operations that began since an entry of the journal, in order; of all traversals or
        of one."""
        return [
            row["sentence"].rpartition(": ")[0]
            for row in self.journal(after)
            if row["kind"] == "started" and traversal in (None, row["traversal_id"])
        ]

    def last(self) -> int:
        """The journal's latest entry."""
        return max((row["id"] for row in self.journal()), default=0)

    def server(self, member: str) -> str:
        """The id of a member's server."""
        return str(self.cloud.resources(self.name)[member]["physical_resource_id"])

    def replace(self, member: str) -> None:
        """Let Heat put another server behind a member's name."""
        Operator(self.cloud).replace_server(self.name, member)

    def seen(self) -> int:
        """The number of the latest entry of the cloud's log."""
        return max(int(row["seq"]) for row in self.cloud.audit())

    def stop(self, member: str) -> None:
        """Switch a member's server off, and wait for that."""
        Operator(self.cloud).stop_server(self.server(member))
        cloud = Request(self.state, self.context()).cloud(Unguarded())
        deadline = time.monotonic() + 20
        while server_state(cloud, self.server(member)).status != "SHUTOFF":
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def changes(self, since: int) -> list[str]:
        """The requests that changed something in the cloud, of all that came behind an entry of
        its log; tokens are no change, and neither are previews of an update."""
        return [
            f"{row['method']} {row['path']}"
            for row in self.cloud.audit(since, kind="request")
            if row["method"] not in ("GET", "HEAD")
            and "/auth/tokens" not in row["path"]
            and not row["path"].endswith("/preview")
        ]

    def written(self) -> dict[str, set[str]]:
        """Every row of the state store that is the group's own, but for its plans."""
        identity = group_id(DEFAULT_PROJECT, self.name)

        def read(tx: SqlTransaction) -> dict[str, set[str]]:
            found = {}
            for table in metadata.sorted_tables:
                column = table.c.id if table is tables.groups else table.c.get("group_id")
                if column is None or table is tables.plans:
                    continue
                rows = tx.connection.execute(sa.select(table).where(column == identity))
                found[table.name] = {str(dict(row._mapping)) for row in rows}
            return found

        return self.state.database.reading(read)


@pytest.fixture(scope="session")
def emulated() -> Iterator[EmulatedCloud]:
    """The cloud of this test process, without latency."""
    with EmulatedCloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def state(emulated: EmulatedCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """What the actions of this module share."""
    folder = tmp_path_factory.mktemp("plans")
    write_clouds_yaml(folder / "clouds.yaml", "planned", emulated.url)
    runtime = Runtime(
        Settings(
            database=new_store(folder / "failover.sqlite"),
            cloud="planned",
            command_channel=f"emulator+{emulated.url}",
            storm_groups=0,
            poll_first=0.002,
            poll_ceiling=0.02,
        ),
        eager=False,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OS_CLIENT_CONFIG_FILE", str(folder / "clouds.yaml"))
        patch.setattr(base, "runtime", lambda: runtime)
        patch.setattr(
            agent_health, "FIRST", 0.05
        )  # agents of the emulator are heard at once or never
        yield runtime
    runtime.database.close()


@pytest.fixture(scope="module")
def protect(state: Runtime, emulated: EmulatedCloud) -> Callable[..., PlannedGroup]:
    """Make a stack and define a group over it."""

    def make(
        servers: tuple[str, ...] = ("db_a", "db_b"),
        volumes: int = 1,
        roles: tuple[str, ...] = ("active",),
        zones: Mapping[str, str] = MappingProxyType({}),
        **more: Any,
    ) -> PlannedGroup:
        name, cloud = f"planned{next(_numbers)}", emulated.client
        cloud.create_stack(name, _stack(servers, volumes, zones))
        cloud.add_application(name, start="start", stop="stop", needs_volume=False, stack=name)
        definition = {
            "failover_template_version": "2026-11-21",
            "stack": name,
            "members": {"servers": list(servers)},
            "roles": list(roles),
            "resources": resources(volumes, list(roles)),
            "fence": [{"kind": "quiesce", "limit": 0.5}, {"kind": "stop", "limit": 30}, "confirm"],
            **more,
        }
        group = PlannedGroup(name, cloud, state, servers)
        group.done(group_actions.Define(definition))
        return group

    return make


@pytest.fixture
def group(protect: Callable[..., PlannedGroup]) -> PlannedGroup:
    """An application on a volume that follows the active of two members; it is up on db_a."""
    group = protect()
    group.order(orders.Begin(group.name, lost=[]))
    return group
