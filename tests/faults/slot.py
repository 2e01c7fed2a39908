# SPDX-License-Identifier: Apache-2.0
"""A slot: one emulated cloud, one state store, and the Mistrals on it.

The *victim* is the one to which the faults happen; the *survivor* sweeps. They are two processes,
or one Mistral in the process of the tests, for faults that no process dies of. A slot serves many
drills, each with a group of its own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import mistral_failover.workflows
from faults import child
from mistral_failover.embedded.server import known_to_actions
from mistral_failover.embedded.settings import LOCAL_HTTP
from mistral_failover.errors import CodedError
from mistral_failover.lab.drill.audit import (
    Secrets,
    State,
    Violation,
    audit,
    no_secrets,
    read_state,
)
from mistral_failover.lab.emulator.client import write_clouds_yaml
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import groups, incidents, rehearsals, schema
from mistral_failover.store.database import Database
from mistral_failover.store.groups import group_id
from support import injected_faults
from support.fencing import clouds_of_an_operator
from support.injected_faults import Fault, FaultPlan
from support.mistral_process import MistralProcess

LEASE = 2.0  # seconds
CLOUDS = "OS_CLIENT_CONFIG_FILE"


class Child(MistralProcess):
    """``faults.child`` in place of ``mistral_failover.embedded``."""

    def __init__(self, state_dir: Path, clouds: Path, **options: Any) -> None:
        env = {**os.environ, CLOUDS: str(clouds)}
        super().__init__(state_dir, env=env, main=child.main, **options)

    def resume(self) -> None:
        """Let a frozen process go on."""
        assert self.pid is not None
        stopping = self.state_dir / child.STOPPING
        until(lambda: not stopping.exists(), child.STOPS_WITHIN, lambda: "frozen to the end")
        injected_faults.wake(self.pid)

    def write_stacks_down(self) -> None:
        """Have STATE_DIR/stacks tell what every thread is doing."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGUSR1)

    def frozen(self) -> bool:
        """Whether the process is stopped."""
        if self.pid is None:
            return False
        return injected_faults.stopped(self.pid)

    def dead(self) -> bool:
        """Whether the process has ended."""
        return self._process is not None and self._process.poll() is not None


class Inmate(child.Restarted):
    """A Mistral in this process, armed as a `Child` is; it can neither die nor freeze."""

    def __init__(
        self,
        state_dir: Path,
        clouds: Path,
        *,
        overrides: dict[str, Any],
        workflows: Iterable[str | Path],
    ) -> None:
        super().__init__(state_dir, log_file=state_dir / "mistral.log", overrides=overrides)
        self._clouds = clouds
        self._workflows = workflows
        self._armed = contextlib.ExitStack()

    def start(self) -> Inmate:
        """Start it, with the hook armed."""
        with contextlib.ExitStack() as stack:
            environment = stack.enter_context(pytest.MonkeyPatch.context())
            environment.setenv(CLOUDS, str(self._clouds))
            super().start()
            stack.callback(super().stop)
            stack.enter_context(known_to_actions(self))
            stack.enter_context(child.armed_at(self._dir))
            self.install_workflows(self._workflows)
            self._armed = stack.pop_all()
        return self

    def stop(self) -> None:
        """Stop it, and disarm the hook."""
        self._armed.close()

    def write_stacks_down(self) -> None:
        """Have STATE_DIR/stacks tell what every thread is doing."""
        with (self._dir / "stacks").open("a") as stacks:
            faulthandler.dump_traceback(stacks, all_threads=True)

    def frozen(self) -> bool:
        """Never."""
        return False

    def dead(self) -> bool:
        """Never."""
        return False


class Slot:
    """A context manager. ``alone``: there is one Mistral, in this process, victim and survivor at
    once. ``options``: of ``[failover]``, besides those that every slot has."""

    def __init__(self, folder: Path, *, alone: bool = False, **options: Any) -> None:
        self.folder = folder
        self._alone = alone
        self._options = options
        self._stack = contextlib.ExitStack()
        self._clouds = folder / "clouds.yaml"
        self._numbers = itertools.count(1)
        self.fence_devices = folder / "fence-devices.yaml"
        self.plan = FaultPlan(folder / "victim")

    def __enter__(self) -> Slot:
        with contextlib.ExitStack() as stack:
            self.folder.mkdir(parents=True)
            self.cloud = stack.enter_context(EmulatedCloud(latency="zero"))
            write_clouds_yaml(self._clouds, "drill", self.cloud.url)
            clouds_of_an_operator(self.cloud, self.folder)
            self.database = Database(f"sqlite:///{self.folder}/failover.sqlite")
            stack.callback(self.database.close)
            schema.upgrade(self.database)
            if self._alone:
                self.victim = self.survivor = self._mistral(Inmate, "victim")
            else:
                self.victim, self.survivor = (
                    self._mistral(Child, name) for name in ("victim", "survivor")
                )
            for mistral in self.mistrals:
                stack.callback(mistral.stop)
                mistral.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.victim.frozen():
            self.victim.resume()  # a frozen process can not end
        self._stack.close()

    @property
    def mistrals(self) -> list[Any]:
        """The victim and, where it is another one, the survivor."""
        return list(dict.fromkeys((self.victim, self.survivor)))

    def write_stacks_down(self) -> None:
        """Have victim/stacks and survivor/stacks tell what every thread is doing."""
        for mistral in self.mistrals:
            mistral.write_stacks_down()

    def _mistral(self, kind: type[Any], name: str) -> Any:
        options = {
            "database": f"sqlite:///{self.folder}/failover.sqlite",
            "cloud": "drill",
            "command_channel": f"emulator+{self.cloud.url}",
            "lease": LEASE,
            "lease_margin": LEASE / 3,
            "repeat_after": 5.0,  # where a call is cut off on a machine that is busy
            "poll_first": 0.01,
            "poll_ceiling": 0.05,
            "sweep_after": 0.3,
            "storm_groups": 0,  # one drill after the other fails, in one project
            "fence_devices_file": str(self.fence_devices),
            **self._options,
        }
        overrides = {f"failover.{key}": value for key, value in options.items()} | LOCAL_HTTP
        workflows = mistral_failover.workflows.paths()
        return kind(self.folder / name, self._clouds, overrides=overrides, workflows=workflows)

    # -- a drill

    def new_name(self) -> str:
        """A name for a group."""
        return f"g{next(self._numbers)}"

    def arm(self, *faults: Fault) -> None:
        """Have these faults happen to the victim from now on."""
        self.plan.set(*faults)

    def fired(self, number: int) -> bool:
        """Whether the armed fault of that number has happened."""
        return self.plan.fired(number)

    def duplicates_under_way(self) -> bool:
        """Whether a second delivery is still being worked on."""
        return any(
            fault.mode == "duplicate" and self.plan.fired(number) and not self.plan.ended(number)
            for number, fault in enumerate(self.plan.faults)
        )

    def state(self, group: str) -> State:
        """What the state store holds of a group."""
        return read_state(self.database, group_id(DEFAULT_PROJECT, group))

    def standing(self, group: str) -> tuple[str, str]:
        """The status of a group's current traversal, and the active member of its goal. LOCKED
        where a lock is held, UNSTARTED where an admitted alarm has caused no traversal yet,
        REHEARSING where a rehearsal has something in the cloud."""

        def read(tx: Any) -> tuple[str, str]:
            identity = group_id(DEFAULT_PROJECT, group)
            state = groups.get(tx, identity)
            traversal = tx.traversal(state.current_traversal) if state else None
            if traversal is None:
                return "", ""
            goal = tx.goal(identity, traversal.goal_version)
            active = goal.document["roles"].get("active", "")
            if any(record.owner for record in tx.records(identity)):
                return "LOCKED", active
            if rehearsals.unfinished(tx, identity):
                return "REHEARSING", active
            unstarted = any(
                incident.group_id == identity and incident.source != incidents.OPERATOR
                for incident in incidents.unstarted(tx)
            )
            return "UNSTARTED" if unstarted else traversal.status, active

        return self.database.for_project(DEFAULT_PROJECT).reading(read)

    def events(self, since: int) -> list[dict[str, Any]]:
        """What the cloud saw since then."""
        return self.cloud.emulation.audit.since(since)

    def violations(self, group: str, since: int) -> list[Violation]:
        """What the audit finds of a group at rest."""
        events = self.events(since)
        return audit(events, self.state(group))

    @staticmethod
    def quiet(mistral: Any) -> bool:
        """Whether a Mistral is alive and awake, and nothing is under way in it."""
        try:
            return not mistral.frozen() and not mistral.client.executions(state="RUNNING", limit=1)
        except CodedError:
            return False

    def secrets(self) -> list[Violation]:
        """Tokens that lie about in what the processes wrote."""
        files = [p for p in self.folder.rglob("*") if p.is_file() and p.name != "clouds.yaml"]
        tokens = Secrets(frozenset(self.cloud.emulation.state.tokens))
        return list(no_secrets(files, read_state(self.database), tokens))


def until(condition: Callable[[], Any], limit: float, what: Callable[[], str]) -> Any:
    """Wait for a condition, at most ``limit`` seconds; returns its value."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"after {limit:g} s: not {what()}")
