# SPDX-License-Identifier: Apache-2.0
"""The simulated world: an emulated cloud, a state store, and processes that run the product's code.

Import this only after `simulation.standard_library` is installed; `simulation.__main__` does both.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext
from oslo_config import cfg

from mistral_failover import fault_points, settings
from mistral_failover.actions import alarms as alarm_actions
from mistral_failover.actions import groups as group_actions
from mistral_failover.actions import orders as order_actions
from mistral_failover.actions import recovery as recovery_actions
from mistral_failover.actions import rehearsals as rehearsal_actions
from mistral_failover.actions import reports as report_actions
from mistral_failover.cloud import clients, session, stacks, transport
from mistral_failover.cloud.waits import ConcurrentWaits
from mistral_failover.lab.emulator import alarming, guests
from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError, write_clouds_yaml
from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.latency import profile
from mistral_failover.lab.emulator.server import application
from mistral_failover.runtime import process as product_process
from mistral_failover.store import database as product_database
from simulation.scheduler import BEGIN, Process, Scheduler
from simulation.standard_library import Lock
from simulation.wire import Loop, Wire

URL = "http://127.0.0.1:1"
GROUP = "payments"
MEMBERS = ("db_a", "db_b", "db_c")
SWEEP_EVERY = 15.0
"""Seconds between two sweeps, as a cron trigger of every installation begins them."""


class PerProcess:
    """A global of the product of which each simulated process has its own."""

    def __init__(self, scheduler: Scheduler, make: Callable[[], Any]) -> None:
        self._scheduler, self._make = scheduler, make

    def _own(self) -> Any:
        own = self._scheduler.process.globals
        if id(self) not in own:
            own[id(self)] = self._make()
        return own[id(self)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own(), name)

    def __getitem__(self, key: Any) -> Any:
        return self._own()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own()[key] = value

    def __len__(self) -> int:
        return len(self._own())


class Store:
    """The database's server, as SQLite in a file. Writers take turns, of whichever process."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.folder = Path(tempfile.mkdtemp(prefix="failover-simulation-", dir=_memory()))
        self.file = self.folder / "store.sqlite"
        self._turn = Lock()
        self._cache: dict[Any, Any] = {}
        self._engines: list[sa.Engine] = []
        self.away: dict[str, float] = {}
        """Until when the store does not answer a process, by its name."""
        self.read_only: dict[str, float] = {}
        """Until when it refuses each change of a process, as a server that is only a replica."""
        self.unanswered: dict[str, int] = {}
        """Of how many commits a process does not hear that they took effect."""
        self.hindered: dict[str, float] = {}
        """When a process last did not get what it asked for, by its name."""

    def open(self, process: Process, database: product_database.Database) -> None:
        """Let a process use it."""
        engine = database.engine
        database._writers = self._turn  # type: ignore[assignment]
        engine.update_execution_options(compiled_cache=self._cache)
        for each in (database._reader, database._snapshots):
            each.update_execution_options(compiled_cache=self._cache)
        made: list[sqlite3.Connection] = []

        def place(_dialect: Any, _record: Any, given: list[Any], _options: Any) -> None:
            given[0] = str(self.file)

        def opened(connection: sqlite3.Connection, _record: Any) -> None:
            made.append(connection)
            connection.execute("PRAGMA synchronous=OFF")
            connection.create_function("julianday", 1, self._days)

        def begin(_connection: sa.Connection) -> None:
            # Time passes: what a transaction records is before what its process does next.
            self._scheduler.sleep(self._scheduler.random.uniform(0.001, 0.003))
            if self.away.get(process.name, 0.0) > self._scheduler.now:
                self.hindered[process.name] = self._scheduler.now
                raise _lost()

        def executes(_connection: sa.Connection, _cursor: Any, text: str, *_more: Any) -> None:
            changes = text.startswith(("INSERT", "UPDATE", "DELETE"))
            if changes and self.read_only.get(process.name, 0.0) > self._scheduler.now:
                self.hindered[process.name] = self._scheduler.now
                said = "The MySQL server is running with the --read-only option"
                raise sa.exc.OperationalError(None, None, sqlite3.OperationalError(1290, said))

        def committed(_connection: sa.Connection) -> None:
            if self.unanswered.get(process.name, 0) > 0:
                self.unanswered[process.name] -= 1
                self.hindered[process.name] = self._scheduler.now
                _connection.connection.driver_connection.execute("COMMIT")  # type: ignore[union-attr]
                raise _lost()

        def gone() -> None:
            held = self._turn.held_by()
            if held is not None and getattr(held, "process", None) is process:
                for connection in made:
                    with contextlib.suppress(sqlite3.Error):
                        connection.rollback()
                self._turn.release()

        sa.event.listen(engine, "do_connect", place)
        sa.event.listen(engine, "connect", opened)
        sa.event.listen(engine, "begin", begin, insert=True)
        sa.event.listen(engine, "before_cursor_execute", executes)
        sa.event.listen(engine, "commit", committed)
        process.ends.append(gone)
        self._engines.append(engine)

    def move(self) -> None:
        """Go on with a copy: what a parent process has is not touched. No transaction is open."""
        for engine in self._engines:
            engine.dispose(close=False)
        folder = Path(tempfile.mkdtemp(prefix="failover-simulation-", dir=_memory()))
        self.copy(folder / "store.sqlite")
        self.folder, self.file = folder, folder / "store.sqlite"

    def copy(self, file: Path) -> None:
        """Copy what is in it into a new file."""
        with (
            contextlib.closing(sqlite3.connect(self.file)) as source,
            contextlib.closing(sqlite3.connect(file)) as target,
        ):
            source.backup(target)

    def rows(self, query: str, *given: Any) -> list[tuple[Any, ...]]:
        """Return what is in it, past the product's own code."""
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            return connection.execute(query, given).fetchall()

    def remove(self) -> None:
        """Remove its file."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _days(self, _when: str) -> float:
        return self._scheduler.now / 86400.0 + 2440587.5


def _memory() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: PTH112 - once


def _lost() -> sa.exc.OperationalError:
    """What SQLAlchemy says of a server that went away."""
    error = sqlite3.OperationalError("the server has gone away")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return sa.exc.OperationalError(None, None, error)


@dataclass(eq=False)
class Project:
    """A project with a group; the names of everything in it are those of any other one's. Without a
    token it is that of a Mistral whose authentication is off."""

    emulation: Emulation
    id: str
    token: str | None = None
    volume: str = ""
    _servers: dict[str, str] = field(default_factory=dict)

    @property
    def context(self) -> ActionContext:
        """What Mistral says of a request of its users."""
        security = SecurityContext()
        if self.token is not None:
            uri = f"{URL}/identity/v3"
            security = SecurityContext(auth_uri=uri, auth_token=self.token, project_id=self.id)
        return ActionContext(security, ExecutionContext())

    @property
    def servers(self) -> dict[str, str]:
        """The members' servers as the stack has them now, by member; of one that was deleted, the
        last one."""
        for server in self.emulation.state.servers.values():
            if server.project_id == self.id and server.owner is not None:
                self._servers[server.owner[1]] = server.id
        return self._servers

    def serving(self) -> list[str]:
        """Return the members that serve: their guests run the application with the volume."""
        found = []
        for member, server in self.servers.items():
            guest = self.emulation.state.guests.get(server)
            if guest is None or not guests.runs(self.emulation, guest) or guest.condition == "hung":
                continue
            if GROUP in guest.applications and self.volume in guest.volumes:
                found.append(member)
        return found


class Executor:
    """A simulated host of Mistral: it runs actions, of a project."""

    def __init__(self, world: World, process: Process, project: Project | None = None) -> None:
        self.world, self.process = world, process
        self.project = project or world.mine
        self.context = self.project.context

    def of(self, project: Project) -> Executor:
        """Return the same host at work for a project."""
        return Executor(self.world, self.process, project)

    def run(self, action: Any) -> Any:
        """Run an action in the present task, which is of this executor."""
        return action.run(self.context)

    def begin(self, name: str, work: Callable[[Executor], object]) -> None:
        """Begin a task that works on this executor."""
        self.world.scheduler.spawn(self.process, lambda: work(self), name)

    @property
    def usable(self) -> bool:
        """Whether Mistral gives it work: it lives, and says so."""
        return self.process.alive and self.process.frozen_until <= self.world.scheduler.now


class World:
    """Everything. It is built once, in a parent; each play goes on with a copy, in a child."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.journal: list[str] = []
        self.loop = Loop(scheduler)
        scheduler.pump = self.loop.pump
        self.emulation = Emulation(None, profile("measured"))
        self.emulation.url = URL
        app = application(self.emulation)
        app.state.emulation = self.emulation
        self.wire = Wire(scheduler, self.loop, app)
        self.wire.tell = self.tell
        self.wire.before_sending = _begin_to_send
        self.store = Store(scheduler)
        self.emulation._disks = self.store.folder / "disks"
        self.executors: list[Executor] = []
        self.spare: list[Executor] = []
        self.mine, self.neighbour = Project(self.emulation, ""), Project(self.emulation, "")
        """That of the play's group, and another one, which has the same of its own."""
        self.delivered_twice = 0
        """How many of the next chains Mistral also gives to another executor."""
        self.ambushes: dict[str, Callable[[Process], None]] = {}
        """What happens to the next process that reaches a fault point, by the point."""
        self.blamed: set[tuple[str, str]] = set()
        """The members that an alarm, an order or a look called lost: by project and name."""
        self.recovered: set[tuple[str, str]] = set()
        """Those that an order called recovered."""
        self.confirmed: set[tuple[str, str]] = set()
        """Those of which a person said that they are off."""
        self.started: dict[str, float] = {}
        """When a person had a server started, by its id."""
        self.group_id = ""
        _separate(scheduler)
        self.join()
        self.loop.run_until_complete(self._started())

    def join(self) -> None:
        """Let the product's requests go over this world's wire; again in a child process, because
        the product opens new connections there."""
        transport._Connections.shared = self.wire  # type: ignore[assignment]

    def fork(self) -> None:
        """Go on in a child process with copies of what is on disk."""
        self.join()
        self.store.move()
        disks = self.store.folder / "disks"
        shutil.copytree(self.emulation._disks, disks)
        self.emulation._disks = disks

    def save(self, folder: Path, since: float) -> None:
        """Keep the store and the cloud's ledger in a folder, as a drill does in its own, and since
        when this was a play."""
        (folder / "cloud").mkdir(parents=True)
        self.store.copy(folder / "failover.sqlite")
        lines = (json.dumps(event) + "\n" for event in self.emulation.audit.since(0))
        (folder / "cloud" / "audit.jsonl").write_text("".join(lines))
        (folder / "since").write_text(str(since))

    def remove(self) -> None:
        """Remove what it has on disk."""
        self.emulation.stop()
        self.store.remove()

    def _close_agents(self) -> None:
        """Close the agents' files; each begins again when it is asked for something."""
        for agent in self.emulation.agents.values():
            agent.end()
        self.emulation.agents.clear()

    async def _started(self) -> None:
        self.emulation.start()

    def tell(self, what: str) -> None:
        """Add a line to the journal."""
        at, process = self.scheduler.now - BEGIN, self.scheduler.process.name
        self.journal.append(f"{at:10.3f} {process:6} {what}")

    # -- building

    def build(self, executors: int = 2, spare: int = 6) -> None:
        """Make a stack, its group and the processes; the group serves on the first member."""
        settings_of = self._configure()
        for number in range(1, executors + spare + 1):
            process = Process(f"e{number}", 100 + number)
            made = Executor(self, process)
            self._within(process, lambda: self._connect(process, settings_of))  # noqa: B023
            (self.executors if number <= executors else self.spare).append(made)
        first = self.executors[0]
        for project in (self.mine, self.neighbour):
            self._within(self.scheduler.world, lambda: self._make_stack(project))  # noqa: B023
            self._within(first.process, lambda: self._define(first.of(project)))  # noqa: B023
        ((self.group_id,),) = self.store.rows(
            "select id from failover_groups where project_id <> ?", self.neighbour.id
        )
        for executor in (*self.executors, *self.spare):
            self._within(executor.process, lambda: self._use(executor))  # noqa: B023
        for executor in self.spare:  # a new process knows nothing of the stacks yet
            self._within(executor.process, stacks._addresses.clear)
        self._close_agents()
        fault_points.arm(self._reached)

    def _configure(self) -> settings.Settings:
        clouds = self.store.folder / "clouds.yaml"
        write_clouds_yaml(clouds, "emulated", URL)
        os.environ["OS_CLIENT_CONFIG_FILE"] = str(clouds)
        cfg.CONF([], default_config_files=[], default_config_dirs=[])
        settings.load(cfg.CONF)
        for name, value in {
            "database": f"sqlite:///{self.store.file}",
            "cloud": "emulated",
            "command_channel": f"emulator+{URL}",
            "storm_groups": 0,
        }.items():
            cfg.CONF.set_override(name, value, group=settings.GROUP)
        return settings.load(cfg.CONF)

    def _connect(self, process: Process, of: settings.Settings) -> None:
        made = product_process.Runtime(of)
        made.database.close()
        self.store.open(process, made.database)
        product_process._runtimes[of] = made

    def _make_stack(self, project: Project) -> None:
        name = "demo" if project is self.mine else "neighbour"
        client = EmulatorClient(URL, user=name, password=name)
        client._http.mount("http://", self.wire)
        if project is self.neighbour:
            client.add_user(name)
            project.token = client.mint_token(user=name, expires_in=1e7)
        client.create_stack(GROUP, STACK)
        project.id = client._project_id
        if project is self.mine:
            client.add_application(
                GROUP, start="start", stop="stop", status="status", needs_volume=True
            )
        project.volume = client.resources(GROUP)["data_volume"]["physical_resource_id"]

    def _define(self, executor: Executor) -> None:
        self.scheduler.sleep(30.0)
        self.accepted(executor.run(group_actions.Define(DOCUMENT)))
        begun = self.accepted(
            executor.run(order_actions.Begin(GROUP, to="db_a", because="it begins"))
        )
        self.drive(executor, begun["traversal"])

    def _use(self, executor: Executor) -> None:
        """Do what plays do, there and back, so that they begin with statements that are compiled
        and answers that are kept."""
        if executor is self.executors[0]:
            self.scheduler.sleep(100.0)
            self.order(executor, order_actions.Switchover(GROUP, to="db_b", because="tried"), "to")
            self.rehearse(executor)
            self.alarm(executor, "db_b")
            self.sweep(executor)
            self.order(executor, order_actions.Switchover(GROUP, to="db_c", because="tried"), "to")
            path = f"/compute/v2.1/servers/{self.mine.servers['db_b']}/action"
            self.request("POST", path, {"os-start": None})
            self.scheduler.sleep(10.0)
            recover = order_actions.Begin(GROUP, lost=[], recovered=["db_b"], because="tried")
            self.order(executor, recover, "recovered")
            self.order(executor, order_actions.Rollback(GROUP, because="tried"), "back")
            self.order(executor, order_actions.Switchover(GROUP, to="db_a", because="tried"), "to")
        for each in (executor, executor.of(self.neighbour)):
            self.sweep(each)
            self.accepted(each.run(report_actions.Status(GROUP)))
        self.scheduler.sleep(100.0)

    def _within(self, process: Process, work: Callable[[], None]) -> None:
        over: list[bool] = []

        def body() -> None:
            work()
            over.append(True)

        self.scheduler.spawn(process, body, "build")
        self.scheduler.run(self.scheduler.now + 600.0, lambda: bool(over))
        if not over:
            raise AssertionError("the world was not built: " + "\n".join(self.journal[-20:]))

    def executor_of(self, process: Process) -> Executor | None:
        """Return the executor whose process it is; None if it is none any more."""
        return next((each for each in self.executors if each.process is process), None)

    def able(self, host: str, since: float) -> bool:
        """Return whether a process has lived, and had the state store, since then."""
        for each in self.executors:
            if each.process.name == host and each.process.alive:
                hindered = max(each.process.frozen_until, self.store.hindered.get(host, 0.0))
                return hindered < since
        return False

    def strike(self, fault: Callable[..., None], *what: str) -> None:
        """Let something happen to a guest or host, in the emulated cloud's own loop."""
        self.loop.call_soon(fault, self.emulation, *what)

    def request(self, method: str, path: str, body: Any, project: Project | None = None) -> None:
        """Send a request as a person does, with the rights of a project."""
        client = EmulatorClient(URL)
        client._http.mount("http://", self.wire)
        try:
            token = (project or self.mine).token or client.token()
            client._call(method, path, body, headers={"X-Auth-Token": token})
            if isinstance(body, Mapping) and "os-start" in body:
                self.started[path.split("/")[-2]] = self.scheduler.now
        except (EmulatorError, OSError, ValueError) as error:
            self.tell(f"by hand: refused, {type(error).__name__}")

    # -- what Mistral's workflows do

    def accepted(self, answer: Any) -> Any:
        """Return the answer of an action. Raises AssertionError for a refusal."""
        if isinstance(answer, Result):
            raise AssertionError(f"refused: {answer.error}")
        return answer

    def drive(self, executor: Executor, traversal: str) -> Any:
        """Carry a traversal out as the tasks of a chain do, until it ends or its task fails."""
        others = [e for e in self.executors if e.usable and e.process is not executor.process]
        if self.delivered_twice and others:
            self.delivered_twice -= 1
            other = self.scheduler.random.choice(others).of(executor.project)
            other.begin("chain again", lambda each: self.drive(each, traversal))
        while True:
            answer = executor.run(recovery_actions.Advance(traversal, "end"))
            if isinstance(answer, Result):
                self.tell(f"chain ends: {answer.error.get('code')}")
                return answer
            if not answer["again"]:
                self.tell(f"chain ends: {answer['state']}")
                return answer
            self.scheduler.sleep(1.0)

    def order(self, executor: Executor, action: Any, words: str) -> None:
        """Carry an operator's order out in the present task."""
        self.tell(f"order: {words}")
        self._hear(executor.project, action)
        answer = executor.run(action)
        if isinstance(answer, Result):
            self.tell(f"refused: {answer.error.get('code')}")
        elif isinstance(answer, Mapping):
            begun = [answer, *answer.get("admitted", ())]
            for traversal in [each["traversal"] for each in begun if each.get("traversal")]:
                self.drive(executor, str(traversal))

    def _hear(self, project: Project, action: Any) -> None:
        """Note what an order says of members. One that names no lost ones means those with a role,
        and one to replace a member means a new server."""
        given = vars(action)
        lost = given.get("lost", MEMBERS if "lost" in given else ())
        named = [given["member"]] if given.get("member") else []
        of = project.id
        if isinstance(action, order_actions.ConfirmFenced):
            self.confirmed.add((of, given["member"]))
        self.blamed.update((of, each) for each in (*(MEMBERS if lost is None else lost), *named))
        self.recovered.update((of, each) for each in (*(given.get("recovered") or ()), *named))

    def rehearse(self, executor: Executor) -> None:
        """Rehearse as `failover.rehearse` does."""
        begun = executor.run(order_actions.Rehearse(GROUP, because="tried"))
        if isinstance(begun, Result):
            self.tell(f"no rehearsal: {begun.error.get('code')}")
            return
        self.drive(executor, str(begun["traversal"]))
        ended = executor.run(rehearsal_actions.EndRehearsal(begun["rehearsal"]))
        if not isinstance(ended, Result) and ended["workflow"]:
            self.drive(executor, str(ended["traversal"]))
            ended = executor.run(rehearsal_actions.EndRehearsal(begun["rehearsal"]))
        words = ended.error.get("code") if isinstance(ended, Result) else ended["outcome"]["status"]
        self.tell(f"rehearsal: {words}")

    def alarm(self, executor: Executor, member: str, *, over: bool = False) -> None:
        """Deliver an alarm about a member as `failover.on_alarm` does; ``over``: that it ended."""
        server = executor.project.servers[member]
        body = alarming.webhook_body(self.emulation, server, "server_lost")
        if over:
            body |= {"previous": "alarm", "current": "ok"}
        else:
            self.blamed.add((executor.project.id, member))
        self.tell(f"alarm about {member}{' is over' if over else ''}")
        self._admit(executor, lambda: alarm_actions.Admit(body))

    def _admit(self, executor: Executor, action: Callable[[], Any]) -> None:
        for _ in range(60):
            answer = executor.run(action())
            if not isinstance(answer, Result):
                self.tell(f"alarm: {answer.get('decision')}")
                if answer.get("traversal"):
                    self.drive(executor, str(answer["traversal"]))
                return
            if not answer.error.get("transient"):
                self.tell(f"alarm refused: {answer.error.get('code')}")
                return
            self.scheduler.sleep(5.0)

    def sweep(self, executor: Executor, action: Any = None) -> None:
        """Sweep as `failover.sweep` does, and begin what it names."""
        answer = executor.run(action or recovery_actions.Sweep())
        if isinstance(answer, Result):
            self.tell(f"sweep: {answer.error.get('code')}")
            return
        for batch in answer["chains"]:
            for chain in [batch] if isinstance(batch, Mapping) else batch:
                traversal = str(chain["traversal"])
                self.tell("sweep: a chain")
                executor.begin("chain", lambda each, t=traversal: self.drive(each, t))  # type: ignore[misc]

        for heal in answer["heals"]:
            executor.begin("heal", lambda each, h=heal: self._heal(each, h))  # type: ignore[misc]

    def _heal(self, executor: Executor, heal: Mapping[str, Any]) -> None:
        if heal["workflow"] == "failover.failover":
            self.order(executor, order_actions.Begin(**heal["input"]), "the policy heals")
        elif heal["workflow"] == "failover.on_event":
            self.blamed.update((executor.project.id, each) for each in MEMBERS)
            self._admit(executor, lambda: alarm_actions.AdmitEvent(**heal["input"]))
        else:
            raise AssertionError(f"a sweep starts {heal['workflow']}")

    def _reached(self, point: str) -> None:
        """Offer a turn at a fault point of the product; what lies in wait there strikes."""
        if (strike := self.ambushes.pop(point, None)) is not None:
            strike(self.scheduler.process)
        self.scheduler.turn()


def _begin_to_send() -> None:
    """What a connection of the product does before bytes leave."""
    call = transport._call
    call.connected = True
    call.rest()
    call.sent = True


def _separate(scheduler: Scheduler) -> None:
    """Let simulated processes share nothing that real ones do not."""
    own: Any = PerProcess
    clients._waits = own(scheduler, ConcurrentWaits)
    clients._questions = own(scheduler, clients.RequestCoalescer)
    session._tokens = own(scheduler, session._AuthenticationCache)
    session._entries = own(scheduler, session._AuthenticationCache)
    session._read = own(scheduler, dict)
    stacks._addresses = own(scheduler, dict)
    product_process._runtimes = own(scheduler, dict)


_SERVER = {
    "type": "OS::Nova::Server",
    "properties": {
        "image": "tiny",
        "flavor": "m1.tiny",
        "networks": [{"allocate_network": "none"}],
    },
}
STACK = {
    "heat_template_version": "2021-04-16",
    "parameters": {"active": {"type": "string", "default": "none"}},
    "resources": {
        **dict.fromkeys(MEMBERS, _SERVER),
        "data_volume": {"type": "OS::Cinder::Volume", "properties": {"size": 1}},
    },
}
_ACTIVE = {"get_param": "active"}
DOCUMENT = {
    "failover_template_version": "2026-11-21",
    "stack": GROUP,
    "members": {"servers": list(MEMBERS)},
    "resources": {
        "data": {
            "type": "volume_attachment",
            "properties": {"volume": "data_volume", "server": _ACTIVE},
        },
        "database": {
            "type": "activation",
            "depends_on": "data",
            "properties": {
                "member": _ACTIVE,
                "start": "start",
                "stop": "stop",
                "status": "status",
            },
        },
        "routing": {
            "type": "stack_parameters",
            "depends_on": "database",
            "properties": {"parameters": {"active": _ACTIVE}},
        },
    },
    "fence": ["stop", "confirm"],
    "limits": {"patience": 120},
}
