# SPDX-License-Identifier: Apache-2.0
"""The drill itself: activate a group, break its active guest, watch the failover, and check the
result; also of active/active, and what a guest finds when it comes back after its member was failed
over.

Every step first checks how far an earlier, killed drill on the same state got, and continues from
there.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import openstack
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.agent.channel.interface import Channel, ChannelError, Command, Heartbeat
from mistral_failover.agent.wire import UNKNOWN_COMMAND, Address
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence import node_link
from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.lab.drill import examples
from mistral_failover.lab.drill.audit import AT_REST, Violation, read_state
from mistral_failover.lab.drill.critical import CriticalPathTime, critical_path
from mistral_failover.lab.drill.guest import DrillError
from mistral_failover.lab.drill.scenarios import SCENARIOS, SLOW
from mistral_failover.lab.drill.scene import CLOUD, Scene
from mistral_failover.model.goal import FENCE_TYPE
from mistral_failover.model.ids import derived_id, group_id
from mistral_failover.model.types import Verb
from mistral_failover.runtime.process import runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import details, groups, views
from mistral_failover.store.incidents import OPERATOR
from mistral_failover.store.transaction import ProjectTransaction
from mistral_failover.store.views import JournalRow

GROUP = "payments"
FAULTS = ("crash", "hang", "app")
"""The scenarios that end with a member that can be repaired."""
FAULTS_ALONE = (*FAULTS, "host", "confirmed")
"""The scenarios of a group without a standby."""
_BOOT_LIMIT = 60.0
_DEPOSED_LIMIT = 60.0
_COMMAND_LIMIT = 3.0
REFUSALS = ("OLD_EPOCH", "REFUSED", UNKNOWN_COMMAND)
"""The codes with which an agent reports that a command has not run."""
_PAUSE = 0.1

Tell = Callable[[float | None, str, str], None]
"""Called with seconds since the alarm (None before it), a kind, and a sentence."""


@dataclass(frozen=True)
class Outcome:
    """How a drill ended. Times in seconds."""

    group: str
    status: str
    reason: str
    active: str
    holders: dict[str, str]
    to_active: float | None
    total: float | None
    critical_path: float | None
    ratio: float | None
    tasks: int | None
    recovered: int
    rehearsals: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


class DrillRun:
    """One drill in a scene, of the group whose one role a volume follows."""

    example = examples.ONE
    scenery = "a stack of two servers and its volumes"

    def __init__(self, scene: Scene, *, tell: Tell, fault: str = "crash", volumes: int = 1) -> None:
        self._scene = scene
        self._tell = tell
        self._story = SCENARIOS[fault]
        self._volumes = volumes
        self._seen = 0
        self._alarm_at: float | None = None
        self._recovered = 0
        self._execution: str | None = None
        self._broken: list[str] = []
        self._failed_over: dict[str, Any] = {}
        self._rehearsals: list[str] = []

    def run(self) -> Outcome:
        """Run every remaining step."""
        scene, status = self._scene, self._brought_up()
        if not self._alarms(status):
            self._break(next(iter(status["roles"].values())))
        if self._story.vouched:
            self._vouch()
        if self._story.returns:
            self._return()
        self._failed_over = scene.action("failover.status", group=GROUP)
        self._afterwards()
        return self._outcome()

    def _brought_up(self) -> dict[str, Any]:
        """Set the scene, bring the group up, and return its status."""
        scene = self._scene
        self._tell(None, "drill", f"setting the scene: {self.scenery}")
        scene.add_group(GROUP, self._volumes, self._story.adapt, self.example)
        self._recover()
        status = scene.action("failover.status", group=GROUP)
        if status["last_complete_goal"] is None:
            self._tell(None, "drill", "bringing the group up: the first activation")
            self._watch(scene.start("failover.activate_first", group=GROUP))
            status = scene.action("failover.status", group=GROUP)
        return dict(status)

    def _afterwards(self) -> None:
        """Do what follows the failover: nothing."""

    def _recover(self) -> None:
        """Wait until the sweep has continued the work of an earlier drill that was killed."""
        status = self._scene.action("failover.status", group=GROUP)
        alarms = self._alarms(status)
        if alarms:
            self._alarm_at = alarms[-1]["at"]
        under_way = status["status"] == TraversalStatus.IN_PROGRESS or status["unstarted"]
        if not under_way and not self._scene.swept():
            return
        told = "an earlier drill was killed: a sweep continues its work"
        self._tell(self._elapsed(), "drill", told)
        self._recovered = self._scene.recover()
        self._tell_news()

    @staticmethod
    def _alarms(status: dict[str, Any]) -> list[dict[str, Any]]:
        return [i for i in status["incidents"] if i["source"] != OPERATOR]

    def _break(self, member: str) -> None:
        server = self._scene.server(GROUP, member)
        story, cloud = self._story, self._scene.cloud
        body = cloud.alarm_body(server)
        self._alarm_at = time.time()
        if story.strikes == "latency":
            cloud.set_latency(**{story.fault: SLOW})
            if self._scene.guests is not None:
                self._scene.guests.slow_down(SLOW)
        else:
            struck = cloud.guests()[server]["host"] if story.strikes == "host" else server
            cloud.fault(story.strikes, struck, story.fault)
        self._tell(0.0, "fault", story.sentence.format(member=member))
        self._execution = self._scene.start("failover.on_alarm", **body)
        self._watch(self._execution)
        # Aodh delivers at least once: the second delivery must be counted and start nothing.
        self._watch(self._scene.start("failover.on_alarm", **body))

    def _vouch(self) -> None:
        """Confirm as an operator that the lost member is off, if the failover waits for that."""
        status = self._scene.action("failover.status", group=GROUP)
        if status["status"] != TraversalStatus.BLOCKED:
            return
        (member,) = status["lost"]
        said = f"the operator has seen that {member} is off, and runs failover confirm-fenced"
        self._tell(self._elapsed(), "operator", said)
        because = "the power of its host is off"
        execution = self._scene.start(
            "failover.confirm_fenced", group=GROUP, member=member, because=because
        )
        self._watch(execution)

    def _return(self) -> None:
        """Bring the lost member's host back, with its guest and an epoch that has ended."""
        scene = self._scene
        status = scene.action("failover.status", group=GROUP)
        (member,) = status["lost"]
        server = scene.server(GROUP, member)
        epoch = next(row["epoch"] for row in status["members"] if row["name"] == member)
        guest = scene.cloud.guests()[server]
        if not guest["answers"]:
            scene.cloud.fault("host", guest["host"], "revive")
            self._tell(
                self._elapsed(), "fault", f"the host of {member} is back, and boots its guest"
            )
        found = deposed(scene, GROUP, member, server, epoch)
        said = (
            f"the agent on {member} learns that it was deposed: epoch {epoch - 1} has ended "
            f"({found.deposed})"
        )
        self._tell(self._elapsed(), "agent", said)
        code = late_command(scene, GROUP, member, server, epoch - 1, "pg-start")
        said = f"a command of epoch {epoch - 1} reaches {member} late: {code}"
        refused = code in REFUSALS
        self._tell(self._elapsed(), "agent", f"{said}, it did not run" if refused else said)
        if not refused:
            self._broken.append(f"{said}, but it should have been refused")

    def _watch(self, execution: str) -> None:
        """Report what happens until an execution has ended."""
        while True:
            ended = self._scene.client.execution(execution)["state"] != "RUNNING"
            self._tell_news()
            if ended:
                return
            time.sleep(_PAUSE)

    def _tell_news(self) -> None:
        for row in self._journal():
            at = None if self._alarm_at is None else row["at"] - self._alarm_at
            at = at if at is None or at >= 0 else None
            self._tell(at, row["kind"], row["sentence"])
            if row["kind"] == "done" and row["resource_id"] is not None:
                self._tell_proof(at, row["resource_id"])

    def _tell_proof(self, at: float | None, resource_id: str) -> None:
        """If a resource is a fence, report what proved that the member no longer writes."""
        record = self._scene.read(lambda tx: tx.record(resource_id))
        if record is not None and record.type == FENCE_TYPE and (proof := record.attributes):
            self._tell(at, "proof", f"proven by {proof['rung']}: {proof['observed']}")

    def _journal(self) -> Iterator[JournalRow]:
        rows = self._scene.read(
            lambda tx: views.history(tx, self._group_id(tx), after=self._seen or -1, limit=1000)
        )
        for row in rows:
            self._seen = row["id"]
            yield row

    def _group_id(self, tx: ProjectTransaction) -> str:
        state = groups.find(tx, GROUP)
        return state.id if state else ""

    def _elapsed(self) -> float | None:
        return None if self._alarm_at is None else time.time() - self._alarm_at

    def _outcome(self) -> Outcome:
        status = self._scene.action("failover.status", group=GROUP)
        share, to_active = self._times(self._failed_over)
        path = share.critical_path if share and self._scene.guests is None else 0.0
        violations = [*self._broken, *(str(v) for v in self.violations())]
        if status["status"] != self._story.ends:
            violations.append(
                f"{GROUP} ended {status['status']}, but {self._story.ends} was expected: "
                f"{status['reason']}"
            )
        violations += self._wrong_rung()
        return Outcome(
            group=GROUP,
            status=status["status"],
            reason=status["reason"],
            active=self._active(status["roles"]),
            holders=self._holders(status),
            to_active=to_active,
            total=share.total if share else None,
            critical_path=path or None,
            ratio=share.ratio if share and path else None,
            tasks=self._scene.task_count(self._execution) if self._execution else None,
            recovered=self._recovered,
            rehearsals=self._rehearsals,
            violations=violations,
        )

    def _wrong_rung(self) -> list[str]:
        """Return a violation if another rung than the scenario's proved the fence."""
        fences = [r for r in self._failed_over["resources"] if r["type"] == "fence"]
        rungs = [fence["attributes"].get("rung") for fence in fences]
        if self._story.rung in (None, *rungs):
            return []
        return [f"the fence is proven by {rungs}, not by {self._story.rung}"]

    @staticmethod
    def _active(roles: dict[str, str]) -> str:
        """Return the active member, for people."""
        return next(iter(roles.values()), "none")

    def _holders(self, status: dict[str, Any]) -> dict[str, str]:
        return {
            row["name"]: row["member"]
            for row in status["resources"]
            if row["type"] == "volume_attachment" and row["status"] == "CREATE_COMPLETE"
        }

    def violations(self) -> list[Violation]:
        """Return broken invariants, according to the cloud's log and the state database."""
        return self._scene.violations()

    def _times(self, status: dict[str, Any]) -> tuple[CriticalPathTime | None, float | None]:
        """Return the cloud's share, and when the application was active, since the alarm."""
        traversal = status["traversal"]
        if self._alarm_at is None or traversal["status"] not in AT_REST:
            return None, None
        if traversal["ended_at"] is None:
            return None, None
        activated = [
            operation["ended_at"]
            for operation in self._scene.read(
                lambda tx: details.operations_of(tx, traversal_id=traversal["id"])
            )
            if operation["verb"] == Verb.CREATE
            and self._type_of(status, operation["resource_id"]) == "activation"
            and operation["ended_at"] is not None
        ]
        to_active = max(activated) - self._alarm_at if activated else None
        path = measure(self._scene, GROUP, traversal["id"])
        return CriticalPathTime(traversal["ended_at"] - self._alarm_at, path), to_active

    @staticmethod
    def _type_of(status: dict[str, Any], resource_id: str) -> str | None:
        types = {row["id"]: row["type"] for row in status["resources"]}
        return types.get(resource_id)


def measure(scene: Scene, group: str, traversal_id: str) -> float:
    """The cloud's critical path of one traversal, in seconds."""
    state = read_state(scene.database)
    identity = derived_id("group", scene.project, group)
    servers = {m["name"]: m["server_id"] for m in state.members if m["group_id"] == identity}
    stack = scene.stack_id(group)
    by_id = {
        row["id"]: {
            "type": row["type"],
            "physical_id": row["physical_id"],
            "server": servers.get(row["member"] or (row["properties"] or {}).get("member", "")),
            "stack": stack,
        }
        for row in state.resources
    }
    graph = scene.read(lambda tx: views.graph(tx, traversal_id))
    operations = scene.read(lambda tx: details.operations_of(tx, traversal_id=traversal_id))
    return critical_path(node_link.read(graph or {}), operations, by_id, scene.cloud.critical())


class SingleRun(DrillRun):
    """One drill of a group without a standby: its only member comes back and serves again. It takes
    two goals, and the fence belongs to the first one."""

    example = examples.ALONE
    scenery = "a stack of one server and its volumes"

    def _wrong_rung(self) -> list[str]:
        return []

    def _times(self, status: dict[str, Any]) -> tuple[CriticalPathTime | None, float | None]:
        share, to_active = super()._times(status)
        return (CriticalPathTime(share.total, 0.0) if share else None), to_active


class RehearsalRun(DrillRun):
    """One drill of a rehearsal: it passes; then the standby lacks a package, which nothing else
    notices, and the next rehearsal finds it. The group serves all the time."""

    def run(self) -> Outcome:
        """Run every remaining step."""
        scene, status = self._scene, self._brought_up()
        serving = status["traversal"]["id"]
        (lost,) = set(status["roles"].values())
        standby = next(row["name"] for row in status["members"] if row["name"] != lost)
        self._rehearse("PASSED")
        self._tell(None, "fault", f"a package is missing on {standby}; the group still serves")
        scene.cloud.fault("server", scene.server(GROUP, standby), "lacks_package")
        self._rehearse("FAILED")
        self._failed_over = scene.action("failover.status", group=GROUP)
        if self._failed_over["traversal"]["id"] != serving:
            self._broken.append("a rehearsal gave the group another goal")
        return self._outcome()

    def _rehearse(self, expected: str) -> None:
        self._tell(None, "operator", "runs failover rehearse")
        self._watch(self._scene.start("failover.rehearse", group=GROUP))
        found = self._scene.action("failover.rehearsals", group=GROUP)[0]
        if found["status"] != expected:
            self._broken.append(
                f"a rehearsal ended {found['status']}, but {expected} was expected: "
                f"{found['reason']}"
            )
        seconds = found["report"]["measured"]
        came_to = f"to the service {seconds:.2f} s" if seconds is not None else found["reason"]
        self._rehearsals.append(f"{found['status']}: {came_to}")

    def _wrong_rung(self) -> list[str]:
        return []


class ActiveActiveRun(DrillRun):
    """One drill of a group with two roles, each with its own application on its own volumes. One
    member dies, the other takes both roles, and in the end both roles are back home."""

    example = examples.TWO

    def _afterwards(self) -> None:
        """Repair the former member, and move the roles home."""
        status = self._failed_over
        lost = list(status["lost"])
        if lost and len(set(status["roles"].values())) > 1:
            self._broken.append(f"a role is not on the remaining member: {status['roles']}")
        for member in lost:
            self._make_well(member)
        if lost or len(set(status["roles"].values())) == 1:
            self._tell(self._elapsed(), "operator", "runs failover failback: every role goes home")
            execution = self._scene.start("failover.failback", group=GROUP, recovered=lost)
            self._watch(execution)
        status = self._scene.action("failover.status", group=GROUP)
        if len(set(status["roles"].values())) == 1 or status["lost"]:
            self._broken.append(f"the roles are not home: {status['roles']}")

    def _make_well(self, member: str) -> None:
        """Do what an operator does about a guest that died: find out why, and boot it."""
        server = self._scene.server(GROUP, member)
        said = f"the operator has checked {member}, and boots its guest"
        self._tell(self._elapsed(), "operator", said)
        with openstack.connect(cloud=CLOUD) as cloud:
            if cloud.compute.get_server(server).status == "SHUTOFF":
                cloud.compute.start_server(server)
        deadline = time.monotonic() + _BOOT_LIMIT
        while not self._scene.cloud.guests()[server]["answers"]:
            if time.monotonic() > deadline:
                raise DrillError(f"{member} did not boot within {_BOOT_LIMIT:.0f} s")
            time.sleep(_PAUSE)

    # A drill that was killed over its failback does not see any more how the failover went.

    def _wrong_rung(self) -> list[str]:
        return super()._wrong_rung() if self._failed_over["lost"] else []

    def _times(self, status: dict[str, Any]) -> tuple[CriticalPathTime | None, float | None]:
        return super()._times(status) if status["lost"] else (None, None)

    @staticmethod
    def _active(roles: dict[str, str]) -> str:
        return ", ".join(f"{role} on {member}" for role, member in sorted(roles.items()))


def deposed(scene: Scene, group: str, member: str, server: str, epoch: int) -> Heartbeat:
    """Wait until a guest that came back reports the result of being deposed, in ``epoch``.

    Raises DrillError if it does not within a minute.
    """
    to = _address(scene, group, member, server)
    deadline = time.monotonic() + _DEPOSED_LIMIT
    while time.monotonic() < deadline:
        said = _channel().heard(to)
        if said is not None and said.epoch >= epoch and _is_quiet(said):
            return said
        time.sleep(_PAUSE)
    raise DrillError(f"{member} did not report within {_DEPOSED_LIMIT:.0f} s that it was deposed")


def _is_quiet(said: Heartbeat) -> bool:
    """Return whether nothing runs, and nothing is still being stopped."""
    return bool(said.deposed) and not said.running and said.stopping is False


def late_command(scene: Scene, group: str, member: str, server: str, epoch: int, name: str) -> str:
    """Send a command of an ``epoch`` that has ended, like an executor that slept through the
    failover. Return the code with which it was refused, or ``DONE``."""
    command = Command(
        id=str(uuid.uuid4()),
        to=_address(scene, group, member, server),
        epoch=epoch,
        name=name,
        limit=_COMMAND_LIMIT,
    )
    try:
        _channel().run(command)
    except ChannelError as error:
        return error.code
    return "DONE"


def _address(scene: Scene, group: str, member: str, server: str) -> Address:
    return Address(group_id(scene.project, group), group, member, server)


def _channel() -> Channel:
    """Return the channel as the actions of this process use it."""
    request = Request(runtime(), ActionContext(SecurityContext(), ExecutionContext()))
    return request.channel(request.cloud(Unguarded()), Unguarded())
