# SPDX-License-Identifier: Apache-2.0
"""Nodes with real agents on a real broker, and executors that send them commands.

The commands are increments: each run appends its id to the node's ``counter``. So a node that runs
one twice, or loses it, is found out.
"""

from __future__ import annotations

import itertools
import secrets
import sqlite3
import stat
import subprocess
import sys
import uuid
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from keystoneauth1.session import Session

from broker import agent
from broker.processes import Armed, Executor, Outcome
from faults.slot import until
from mistral_failover.agent import wire
from mistral_failover.agent.channel.interface import Channel, ChannelContext, channel_for
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.model.ids import group_id
from testbroker.broker import PrivateBroker

PROJECT = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
LEASE = 2.0  # seconds
LIMIT = 4.0  # seconds within which a word of the agent's must come
LONGEST = 20.0
PATIENCE = 40.0  # seconds for what takes a moment on a machine that has nothing else to do

# The arguments: a secret word, and how long it takes before and after it counts.
INCREMENT = """\
#!/bin/sh
sleep "$2"
echo "$FAILOVER_COMMAND_ID" >> "$COUNTER"
sleep "$3"
"""
CHECK = """\
#!/bin/sh
grep -qxF "$FAILOVER_COMMAND_ID" "$COUNTER"
"""
QUIET = """\
#!/bin/sh
echo stopped >> "$COUNTER"
"""


class Node(Armed):
    """A member's server with its agent.

    ``address``: of it. A node behind the same name later is another one, with a folder, a journal
    and a server id of its own.
    """

    def __init__(
        self, folder: Path, project: str, address: Address, broker: str, key: bytes, epoch: int
    ) -> None:
        self.address = address
        self.counter = folder / "counter"
        self.starts = folder / "starts"
        self.stops = folder / "stops"
        self.journal = folder / "journal"
        self._config = folder / "failover-agent.yaml"
        super().__init__(folder, agent.main, ["--config", str(self._config)])
        for counter in (self.counter, self.starts, self.stops):
            counter.touch()
        scripts = {"increment": INCREMENT, "check": CHECK, "quiet": QUIET}
        for name, text in scripts.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "agent.key").write_text(key.hex())
        increment = {
            "argv": [str(folder / "increment"), "{word}", "{before}", "{after}"],
            "environment": {"COUNTER": str(self.counter)},
            "arguments": {"word": "[a-z0-9]+", "before": "[0-9.]+", "after": "[0-9.]+"},
            "limit": 15,
        }
        check = [str(folder / "check")]

        def counted(counter: Path, *words: str) -> dict[str, Any]:
            return {
                "argv": [str(folder / "increment"), *(words or ("-",)), "0", "0"],
                "check": check,
                "environment": {"COUNTER": str(counter)},
            }

        config = {
            "failover_agent_version": "2026-11-21",
            "broker": broker,
            "project": project,
            "group": address.group,
            "member": address.member,
            "key_file": str(folder / "agent.key"),
            "server": address.server_id,
            "epoch": epoch,
            "journal": str(self.journal),
            "heartbeat": 1,
            "on_deposed": ["quiet"],
            "commands": {
                "plain": increment,
                "checked": {**increment, "check": check},
                "repeatable": {**increment, "repeatable": True},
                "pg-start": {
                    **counted(self.starts, "{data_device}"),
                    "arguments": {"data_device": "/dev/[a-z]+"},
                },
                "pg-stop": counted(self.stops),
                "quiet": {
                    "argv": [str(folder / "quiet")],
                    "environment": {"COUNTER": str(self.counter)},
                    "limit": 10,
                    "repeatable": True,
                },
            },
        }
        self._config.write_text(yaml.safe_dump(config))
        for path in (self._config, folder / "agent.key"):
            path.chmod(stat.S_IRUSR | stat.S_IWUSR)

    def counts(self) -> Counter[str]:
        """How often each command took effect, by its id; "stopped" is what a deposed agent did."""
        return read(self.counter)

    def contradictions(self) -> list[str]:
        """Where the journal and what really happened disagree, once nothing runs any more."""
        with closing(
            sqlite3.connect(f"file:{self.journal}/journal.sqlite?mode=ro", uri=True)
        ) as db:
            rows = db.execute("SELECT id, epoch, name, state, exit_code FROM commands").fetchall()
        counted = self.counts() + read(self.starts) + read(self.stops)
        found = [
            f"{id} of epoch {epoch} is {state} ({exit_code}), and counted {counted[id]} times"
            for id, epoch, name, state, exit_code in rows
            if name not in ("quiet", "repeatable")
            if not (
                (state == "done" and exit_code == 0 and counted[id] == 1)
                or (state == "done" and exit_code != 0)
                or (state in ("received", "refused") and counted[id] == 0)
                or (state == "unknown" and counted[id] <= 1)
            )
        ]
        journaled = {row[0] for row in rows}
        return found + [f"{id} is in no journal" for id in {*counted} - journaled - {"stopped"}]

    def settle(self, command: str) -> None:
        """What a person does where the outcome is unknown: look, and say what they saw."""
        word = "--done" if self.counts()[command] else "--not-done"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "mistral_failover.agent.daemon.main"),
                *("settle", "--config", str(self._config), command, word),
            ],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def read(counter: Path) -> Counter[str]:
    """How often each id stands in a counter."""
    return Counter(counter.read_text().split())


class Rig:
    """One group on one broker.

    ``url``: by which executors know the broker.

    ``word``: an argument of every command, ``key``: the installation's secret; neither may lie
    about anywhere when the test is over.
    """

    def __init__(
        self,
        broker: PrivateBroker,
        folder: Path,
        *,
        project: str = PROJECT,
        group: str | None = None,
        key: bytes | None = None,
    ) -> None:
        """``folder`` is made; without a key of the installation's there is a new one."""
        folder.mkdir(parents=True)
        self.broker = broker
        self.url = broker.url
        self.folder = folder
        self.project = project
        self.group = group or f"g{uuid.uuid4().hex[:8]}"
        self.group_id = group_id(project, self.group)
        self.word = secrets.token_hex(16)
        self.key = key or secrets.token_hex(32).encode()
        self.key_file = folder / "key"
        self.key_file.write_bytes(self.key)
        self.key_file.chmod(0o600)
        self.nodes: list[Node] = []
        self.executors: list[Executor] = []
        self._numbers = itertools.count(1)

    def node(
        self,
        member: str = "db_a",
        *,
        server_id: str | None = None,
        epoch: int = 1,
        url: str | None = None,
    ) -> Node:
        """A new server behind a member's name; its agent is not started."""
        address = Address(self.group_id, self.group, member, server_id or str(uuid.uuid4()))
        key = wire.member_key(wire.group_key(self.key, self.group_id), member)
        folder = self.folder / f"node{next(self._numbers)}"
        made = Node(folder, self.project, address, url or self.broker.url, key, epoch)
        self.nodes.append(made)
        return made

    def increment(
        self,
        to: Node,
        name: str = "checked",
        *,
        id: str | None = None,  # noqa: A002 - the word that is used everywhere
        epoch: int = 1,
        before: float = 0.0,
        after: float = 0.0,
        limit: float = LIMIT,
        longest: float = LONGEST,
    ) -> Executor:
        """The process that has a node increment its counter; it is not started."""
        arguments = {"word": self.word, "before": f"{before:g}", "after": f"{after:g}"}
        return self._executor(
            to=asdict(to.address),
            verb="run",
            id=id or str(uuid.uuid4()),
            epoch=epoch,
            name=name,
            arguments=arguments,
            limit=limit,
            longest=longest,
        )

    def again(self, executor: Executor) -> Executor:
        """Another process with the same order, as a process that takes the work over starts one."""
        return self._executor(**executor.order)

    def deposition(self, of: Node, epoch: int) -> Executor:
        """The process that voids the commands of a node's earlier epochs; not started."""
        return self._executor(to=asdict(of.address), verb="depose", epoch=epoch)

    def _executor(self, **order: Any) -> Executor:
        means = {"url": self.url, "key_file": str(self.key_file), "lease": LEASE}
        folder = self.folder / f"executor{next(self._numbers)}"
        made = Executor(folder, {**means, **order})
        self.executors.append(made)
        return made

    def until_struck(self, victim: Armed, executor: Executor) -> None:
        """Wait until the victim stands at its point. An executor that gave up before the agent had
        even started asks again."""

        def struck() -> bool:
            if not victim.plan.fired() and executor.outcome and executor.outcome.code:
                executor.start()
            return victim.plan.fired()

        until(struck, PATIENCE, lambda: f"reached: {victim.plan.faults}")

    def until_it_runs(self, node: Node, executor: Executor) -> None:
        """Wait until a node runs what the executor had it told."""

        def running() -> bool:
            if not node.runs_something and executor.outcome and executor.outcome.code:
                executor.start()
            return node.runs_something

        until(running, PATIENCE, lambda: "a command that runs")

    def channel(self) -> Channel:
        """The channel, in this process."""
        return channel_for(self.url, ChannelContext(Session(), Unguarded(), str(self.key_file)))

    def carry_out(self, executor: Executor, limit: float = 60.0) -> Outcome:
        """Start it, and again where it died, until it says what came of the order."""

        def outcome() -> Outcome | None:
            if executor.dead and executor.outcome is None:
                executor.start()
            return executor.outcome

        executor.start()
        found: Outcome = until(outcome, limit, lambda: f"an outcome of {executor.folder.name}")
        return found

    def close(self) -> None:
        """End every process, and see that no secret lies about."""
        for process in (*self.executors, *self.nodes):
            process.wake()
            process.crash()
        assert not list(self.secrets()), list(self.secrets())

    def secrets(self) -> list[str]:
        """The files that hold a secret and should not. A journal must have the arguments, for the
        check of a command whose agent died."""
        told = {"failover-agent.yaml", "agent.key", "key", "order.json"}
        hidden = [self.broker.password.encode(), self.key]
        for node in self.nodes:
            key = wire.member_key(wire.group_key(self.key, self.group_id), node.address.member)
            hidden += [key, key.hex().encode()]
        found = []
        for path in self.folder.rglob("*"):
            if path.is_file() and path.name not in told:
                words = [] if path.parent.name == "journal" else [self.word.encode()]
                content = path.read_bytes()
                if any(secret in content for secret in (*hidden, *words)):
                    found.append(str(path))
        return found
