# SPDX-License-Identifier: Apache-2.0
"""Groups on autoscaling groups of an emulated cloud, of any size, driven without Mistral.

Fixtures: a test file takes ``emulated``, ``shared``, ``state`` and ``of`` from here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import base
from mistral_failover.actions.alarms import Admit
from mistral_failover.actions.base import FailoverAction
from mistral_failover.actions.groups import Define
from mistral_failover.actions.orders import Begin, ReplaceMember, Switchover
from mistral_failover.actions.reports import History, Status
from mistral_failover.lab.emulator.client import EmulatorClient, write_clouds_yaml
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.runtime.process import Runtime
from mistral_failover.settings import Settings
from support.databases import new_store
from support.driving import work_all
from support.operators import Operator

_numbers = itertools.count(1)
ACTIVE = {"get_param": "active"}
SERVER = {
    "type": "OS::Nova::Server",
    "properties": {
        "image": "tiny",
        "flavor": "m1.tiny",
        "networks": [{"allocate_network": "none"}],
    },
}


DATABASE = {
    "type": "activation",
    "properties": {"member": ACTIVE, "start": "start", "stop": "stop"},
}
ROUTING = {
    "type": "stack_parameters",
    "depends_on": "database",
    "properties": {"parameters": {"active": ACTIVE}},
}


def stack(size: int, member: Any = SERVER) -> dict[str, Any]:
    """An autoscaling group of so many."""
    return {
        "heat_template_version": "2021-04-16",
        "parameters": {"active": {"type": "string", "default": "none"}},
        "resources": {
            "nodes": {
                "type": "OS::Heat::AutoScalingGroup",
                "properties": {
                    "min_size": 1,
                    "max_size": size,
                    "desired_capacity": size,
                    "resource": member,
                },
            }
        },
    }


def definition(stack: str, **more: Any) -> dict[str, Any]:
    """A group over a stack, an application that follows the active member; with ``more``, or
    other, parts of the group file."""
    return {
        "failover_template_version": "2026-11-21",
        "stack": stack,
        "members": {"autoscaling_group": "nodes"},
        "resources": {"database": DATABASE, "routing": ROUTING},
        "fence": [{"kind": "quiesce", "limit": 0.2}, {"kind": "stop", "limit": 60}],
        "limits": {"cooldown": 0, "per_hour": 100},
        **more,
    }


@dataclass
class ScaledGroup:
    """A group on a stack of its own; its members oldest first."""

    name: str
    cloud: EmulatorClient
    state: Runtime
    members: list[str] = field(default_factory=list)

    def run(self, action: FailoverAction, execution: str | None = None) -> Any:
        """Run an action in an execution of its own, or in one of this name."""
        return action.run(self.context(execution))

    def context(self, execution: str | None = None) -> ActionContext:
        """A request of an execution of its own, or of this name."""
        identity = execution or f"execution-{next(_numbers)}"
        return ActionContext(SecurityContext(), ExecutionContext(workflow_execution_id=identity))

    def done(self, action: FailoverAction, execution: str | None = None) -> Any:
        """Its answer, which must not be an error; what it started is carried to its end."""
        answer = self.run(action, execution)
        assert not isinstance(answer, Result), answer.error
        if isinstance(answer, dict):
            self.carry(answer)
        return answer

    def carry(self, begun: dict[str, Any]) -> None:
        """Carry what was begun to its end."""
        if begun.get("workflow"):
            work_all(self.state, self.context, begun["traversal"])

    def replace(self, member: str | None = None, **more: Any) -> Any:
        """As the workflow does it: whatever the member holds moves first."""
        begun = self.done(ReplaceMember(self.name, member, **more))
        while begun["moves"]:
            self.done(Switchover(self.name, role=begun["moves"][0], holder=begun["member"]))
            begun = self.done(ReplaceMember(self.name, begun["member"], begun["server"]))
        return begun

    def status(self) -> dict[str, Any]:
        return dict(self.done(Status(self.name)))

    def told(self) -> list[str]:
        return [row["sentence"] for row in self.done(History(self.name, limit=1000))]

    def servers(self) -> dict[str, str]:
        """Who is who by now, as the group knows it."""
        return {m["name"]: m["server"] for m in self.status()["members"]}

    def epochs(self) -> list[int]:
        known = {m["name"]: m["epoch"] for m in self.status()["members"]}
        return [known[name] for name in self.members]

    def active(self) -> str:
        return str(self.status()["roles"]["active"])

    def breaks(self, member: str) -> None:
        """Nova has its server in ERROR, and no agent reports there."""
        server = self.servers()[member]
        self.cloud.fault("server", server, "crash")
        Operator(self.cloud).reset_server(server, "error")

    def alarm(self, member: str) -> Any:
        """Its server dies, and an alarm says so."""
        server = self.servers()[member]
        self.cloud.fault("server", server, "crash")
        return Admit(self.cloud.alarm_body(server))


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedCloud]:
    """The cloud of this file's tests; the environment names its clouds.yaml."""
    with EmulatedCloud() as cloud, pytest.MonkeyPatch.context() as patch:
        file = tmp_path_factory.mktemp("cloud") / "clouds.yaml"
        write_clouds_yaml(file, "emulated", cloud.url)
        patch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        yield cloud


@pytest.fixture(scope="module")
def shared(emulated: EmulatedCloud, tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """One state store for this file's tests."""
    return Runtime(
        Settings(
            database=new_store(tmp_path_factory.mktemp("state") / "failover.sqlite"),
            cloud="emulated",
            command_channel=f"emulator+{emulated.url}",
            storm_groups=0,  # in these tests many groups of the project fail, on purpose
            poll_first=0.005,
            poll_ceiling=0.02,
        ),
        eager=False,
    )


@pytest.fixture
def state(shared: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """What the actions of this process share."""
    monkeypatch.setattr(base, "runtime", lambda: shared)
    return shared


@pytest.fixture
def of(state: Runtime, emulated: EmulatedCloud) -> Callable[..., ScaledGroup]:
    """Make a group of so many members, up on the oldest."""

    def make(size: int, member: Any = SERVER, **more: Any) -> ScaledGroup:
        name = f"shop{next(_numbers)}"
        group = ScaledGroup(name, emulated.client, state)
        emulated.client.create_stack(name, stack(size, member))
        emulated.client.add_application(name, start="start", stop="stop", stack=name)
        members = {"autoscaling_group": "nodes", **more.pop("members", {})}
        group.done(Define(definition(name, members=members, **more)))
        group.done(Begin(name, lost=[]))
        found = group.status()["members"]
        group.members = [m["name"] for m in found]
        first = group.active()
        group.members.remove(first)
        group.members.insert(0, first)
        return group

    return make
