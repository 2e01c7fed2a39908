# SPDX-License-Identifier: Apache-2.0
"""The scene of a drill: the embedded Mistral with the workflows, an emulated cloud, and groups in
it.

The cloud is a process of its own, as a real one would be: it outlives a killed drill, and the next
drill on the same state directory finds it unchanged.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sa

import mistral_failover.workflows
from mistral_failover.convergence.records import JournalKind, TraversalStatus
from mistral_failover.embedded.access import TOKEN_FILE, make_private
from mistral_failover.embedded.background_sweep import BackgroundSweep
from mistral_failover.embedded.server import EmbeddedMistral, known_to_actions
from mistral_failover.embedded.settings import LOCAL_HTTP
from mistral_failover.lab.drill import agent_files, examples
from mistral_failover.lab.drill.audit import Secrets, Violation, audit, password_of, read_state
from mistral_failover.lab.drill.guest import DrillError
from mistral_failover.lab.drill.guests import Guests
from mistral_failover.lab.drill.scenarios import as_it_is
from mistral_failover.lab.emulator.client import EmulatorClient, write_clouds_yaml
from mistral_failover.lab.emulator.process import running
from mistral_failover.mistral.client import ExecutionBody, MistralClient
from mistral_failover.model.documents import load_json
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import groups, stalled_work
from mistral_failover.store.database import Database
from mistral_failover.store.tables import journal
from mistral_failover.store.transaction import ProjectTransaction

T = TypeVar("T")

CLOUD = "drill"
LEASE = 6.0
"""Seconds; short, so that a killed drill continues soon after it is started again."""

SWEEP_INTERVAL = 1.0
"""Seconds between two checks for the unfinished work of a killed drill."""


# The emulated compute service stops a guest within two seconds, where it lives. A user is not shown
# that it died, so for a dead host the rung's whole limit is waited for.
_PAUSE = 0.1
_RECOVERED = 120.0  # seconds within which no work may be in progress any more
_QUICK = {"kind": "stop", "limit": 10}


class Scene:
    """A context manager; everything it keeps is in ``state_dir``."""

    def __init__(
        self,
        state_dir: Path,
        *,
        latency: str = "measured",
        latency_overrides: dict[str, float] | None = None,
        settings: dict[str, Any] | None = None,
        idle_exit: float = 60.0,
        agents: bool = False,
        broker: str | None = None,
        save_every: float = 0.0,
    ) -> None:
        """``settings`` are further options of ``[failover]``. If this process is killed, its cloud
        ends by itself after ``idle_exit`` seconds without a request.

        ``agents``: the guests are real, processes on this machine with an agent on each, which get
        their commands over the broker of that URL, or through files if no URL is given.
        """
        self.state_dir = state_dir.absolute()
        self._latency = latency
        self._latency_overrides = latency_overrides or {}
        self._settings = settings or {}
        self._idle_exit = idle_exit
        self._agents = agents
        self._save_every = save_every
        self._broker = broker or f"filesystem://{self.state_dir}/broker"
        self._stack = contextlib.ExitStack()
        self._since = 0
        self.cloud: EmulatorClient
        self.mistral: EmbeddedMistral
        self.guests: Guests | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            make_private(self.state_dir)  # before the cloud's files are in it
            self.cloud = stack.enter_context(
                running(
                    self.state_dir / "cloud",
                    latency=self._latency,
                    overrides=self._latency_overrides,
                    idle_exit=self._idle_exit,
                    save_every=self._save_every,
                )
            )
            self._write_clouds_yaml()
            if self._agents:
                self.guests = stack.enter_context(self._real_guests())
            self._start_mistral(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _start_mistral(self, stack: contextlib.ExitStack) -> None:
        """Start Mistral with the workflows and its sweep; it ends with the stack."""
        self.mistral = stack.enter_context(self._configured_mistral())
        self.mistral.cancel_stale()
        self.mistral.install_workflows(mistral_failover.workflows.paths())
        self._since = self._last_sentence()
        stack.enter_context(known_to_actions(self.mistral))
        stack.enter_context(BackgroundSweep(self.mistral))

    @property
    def client(self) -> MistralClient:
        """A client of Mistral's API."""
        return self.mistral.client

    def add_group(
        self,
        name: str = "payments",
        volumes: int = 1,
        adapt: Callable[[dict[str, Any]], dict[str, Any]] = as_it_is,
        example: examples.Example = examples.ONE,
    ) -> None:
        """Create an example's stack and define its adapted group, unless they exist. Real guests
        know the commands of only one example.

        An earlier drill may have been killed here: every step uses what exists or is still being
        created. The group is defined last. Raises DrillError if that drill had fewer volumes, or
        another example.
        """
        file = example.group if self.guests is None else agent_files.GROUP_FILE
        definition = adapt(examples.group(volumes, name, file, told=example.told))
        kinds = {resource["type"] for resource in definition["resources"].values()}
        needs_volume = "volume_attachment" in kinds
        defined = name in self.groups()
        if not defined:
            self._make_stack(name, examples.stack(volumes, example.stack))
        if self.guests is not None:
            self.guests.serve(name, own_disk=not needs_volume)
        if defined:
            return
        if self.guests is None:
            self._add_applications(name, example, needs_volume=needs_volume)
        definition["fence"] = [_QUICK if rung == "stop" else rung for rung in definition["fence"]]
        self.action("failover.define", definition=definition, name=name)

    def _make_stack(self, name: str, template: dict[str, Any]) -> None:
        """Create a stack, or wait for the one that a killed drill began to create."""
        self.cloud.create_stack(name, template, adopt=True)
        missing = sorted(set(template["resources"]) - set(self.cloud.resources(name)))
        if missing:
            raise DrillError(
                f"{self.state_dir} belongs to a killed drill, but its stack lacks "
                f"{', '.join(missing)}: run with the options of that drill, or remove the "
                "directory"
            )

    def _add_applications(
        self, name: str, example: examples.Example, *, needs_volume: bool
    ) -> None:
        """Define what runs in the guests; the cloud treats a known application as an update."""
        for application, prefix in example.applications.items():
            self.cloud.add_application(
                f"{application}-{name}",
                start=f"{prefix}-start",
                stop=f"{prefix}-stop",
                needs_volume=needs_volume,
                told_only=example.told,
                stack=name,
            )

    def action(self, name: str, /, **inputs: Any) -> Any:
        """Run an action through the API."""
        return self.client.run_action(name, inputs)

    def server(self, group: str, member: str) -> str:
        """Return the id of a member's server."""
        return str(self.cloud.resources(group)[member]["physical_resource_id"])

    def run(self, workflow: str, /, timeout: float = 300, **inputs: Any) -> ExecutionBody:
        """Run a workflow to its end; return the execution."""
        return self.client.run(workflow, inputs, timeout=timeout)

    def start(self, workflow: str, /, **inputs: Any) -> str:
        """Start a workflow; return the execution's id."""
        return str(self.client.start(workflow, inputs)["id"])

    @cached_property
    def database(self) -> Database:
        """The state database, which the drill's instruments read directly."""
        return Database(self.database_url)

    @property
    def database_url(self) -> str:
        """Where the actions keep their state."""
        return str(self._settings.get("database") or f"sqlite:///{self.state_dir}/failover.sqlite")

    @property
    def project(self) -> str:
        """The project of everything while Mistral's authentication is off."""
        return DEFAULT_PROJECT

    def groups(self) -> list[str]:
        """The names of the groups that are defined."""
        return self.read(groups.names)

    def read(self, function: Callable[[ProjectTransaction], T]) -> T:
        """Read the state database, as the drill's project."""
        return self.database.for_project(self.project).reading(function)

    def stack_id(self, group: str) -> str:
        """The id of a group's stack."""
        links = next(iter(self.cloud.resources(group).values()))["links"]
        stack = next(link["href"] for link in links if link["rel"] == "stack")
        return str(stack).rpartition("/")[2]

    def task_count(self, execution: str) -> int:
        """Return how many tasks Mistral ran for an execution and all below it."""
        client = self.client
        return sum(len(client.tasks(e["id"])) for e in client.sub_executions(execution))

    def violations(self) -> list[Violation]:
        """Return the present findings of the audit."""
        state = read_state(self.database)
        found = audit(self.cloud.audit(), state, files=self.written(), secrets=self.secrets())
        return found + (self.guests.violations() if self.guests is not None else [])

    def written(self) -> list[Path]:
        """Return the files of the scene that must not contain a secret; other files are for
        secrets."""
        own = ("clouds.yaml", "mistral.conf", TOKEN_FILE, self._secret.name, *agent_files.SECRETS)
        folders = (self.state_dir / "guests", self.state_dir / "broker")
        everywhere = [*self.state_dir.iterdir(), *(p for f in folders for p in f.rglob("*"))]
        return [path for path in everywhere if path.name not in own and path.is_file()]

    def secrets(self) -> Secrets:
        """Return the secrets that must not be found in them."""
        cloud = load_json((self.state_dir / "cloud" / "state.json").read_bytes(), "state.json")
        named = {
            "the broker's password": password_of(self._broker),
            "the database's password": password_of(self.database_url),
        }
        if (token := self.state_dir / TOKEN_FILE).exists():
            named["the token of Mistral's API"] = token.read_text(encoding="ascii").strip()
        if self._agents:
            named["the installation's secret"] = self._secret.read_text(encoding="ascii").strip()
            for key in (self.state_dir / "guests").rglob(agent_files.KEY):
                named[f"the key of {key.parent.name}"] = key.read_text(encoding="ascii").strip()
        return Secrets(frozenset(cloud["tokens"]), named)

    def recover(self) -> int:
        """Wait until no work is in progress any more: this Mistral sweeps by itself. For locks of a
        dead process, this waits until their leases expire. Returns :meth:`swept`."""
        deadline = time.monotonic() + _RECOVERED
        while time.monotonic() < deadline:
            unstarted = self.read(lambda tx: stalled_work.unstarted(tx, 0.0))
            names = self.action("failover.status")["groups"]
            if not unstarted and not any(self._under_way(name) for name in names):
                return self.swept()
            time.sleep(_PAUSE)
        raise DrillError(f"work was still in progress after {_RECOVERED:.0f} s of sweeping")

    def swept(self) -> int:
        """Return how many nodes the sweeps have triggered since this scene was set up."""
        query = sa.select(sa.func.count()).where(
            journal.c.id > self._since, journal.c.kind == JournalKind.SWEEP
        )
        return int(self.read(lambda tx: tx.connection.execute(query).scalar_one()))

    def _last_sentence(self) -> int:
        """Return the id of the journal's last sentence, after which this scene begins; asking for
        the groups creates the tables, if there are none."""
        self.action("failover.status")
        query = sa.select(sa.func.coalesce(sa.func.max(journal.c.id), 0))
        return int(self.read(lambda tx: tx.connection.execute(query).scalar_one()))

    def _under_way(self, group: str) -> bool:
        status = self.action("failover.status", group=group)
        return bool(status["under_way"]) or status["status"] == TraversalStatus.IN_PROGRESS

    def _options(self) -> dict[str, Any]:
        """Return the options of ``[failover]``."""
        return {
            "database": self.database_url,
            "cloud": CLOUD,
            "command_channel": self._broker if self._agents else f"emulator+{self.cloud.url}",
            "agent_key_file": str(self._secret) if self._agents else None,
            "lease": LEASE,
            "lease_margin": 1.0,
            "sweep_interval": SWEEP_INTERVAL,
            "sweep_after": self._settings.get("lease", LEASE),
            "poll_ceiling": 0.5,
            "repeat_after": 5.0,  # the emulated cloud keeps no request for longer
            **self._settings,
        }

    def _configured_mistral(self) -> EmbeddedMistral:
        overrides = {f"failover.{name}": value for name, value in self._options().items()}
        overrides |= LOCAL_HTTP
        return EmbeddedMistral(
            self.state_dir, overrides=overrides, log_file=self.state_dir / "mistral.log"
        )

    @property
    def _secret(self) -> Path:
        return self.state_dir / "agent-secret"

    def _real_guests(self) -> Guests:
        installation = agent_files.Installation(
            broker=self._broker,
            project=self.project,
            key_file=agent_files.make_secret(self._secret),
        )
        return Guests(self.state_dir / "guests", self.state_dir / "cloud", installation)

    def _write_clouds_yaml(self) -> None:
        path = self.state_dir / "clouds.yaml"
        write_clouds_yaml(path, CLOUD, self.cloud.url)
        os.environ["OS_CLIENT_CONFIG_FILE"] = str(path)
