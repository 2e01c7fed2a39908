# SPDX-License-Identifier: Apache-2.0
"""What must hold, from the promises of docs/safety.md, read from the cloud's and the guests' own
ledgers. Of the engine it reads only what it tells a person: status.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mistral_failover import defects
from mistral_failover.model.observation import fresh_for
from simulation.scheduler import BEGIN
from simulation.world import SWEEP_EVERY, Project, World

_TOLD = """select j.id, j.at, g.project_id, g.id, j.kind, j.sentence, j.traversal_id,
    j.resource_id, i.fact, i.last_at
    from failover_journal j join failover_groups g on g.id = j.group_id
    left join failover_incidents i on i.id = j.incident_id
    where j.id > ? order by j.id"""
_BEGUN = re.compile(r"(Start|Stop) \S+ on (\S+): (started|continued)")
_RELEASED = re.compile(r"(Detach|Stop) \S+ (?:from|on) (\S+): done")
_FENCED = re.compile(r"Fence (\S+): done")
_FENCING = re.compile(r"Fence (\S+): (started|continued)")
_COMES = re.compile(r"(Attach|Start) \S+ (?:to|on) \S+: (started|continued)")
_LEASE = 60.0
"""Seconds: more than a lease. Who could renew it for so long is no dead owner."""
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

_LOOKED = re.compile(r"GET /compute/\S+/servers/([0-9a-f-]{36})$")
_DETACH = re.compile(r"DELETE /compute/\S+/servers/([0-9a-f-]{36})/os-volume_attachments/")
_OLDEST_LOOK = 30.0  # seconds: a lease
_AT_ONCE = 1.0
"""Seconds between a look that proves something and the record of it, if nothing comes between."""

NEIGHBOUR = 3
"""Of so many sweeps and looks of a person one is of the neighbour, too."""
TWO_LOOKS = fresh_for(60.0) + SWEEP_EVERY
"""Seconds for which status may say SERVING of what does not serve: two looks at a group at rest,
which sweeps make."""


@dataclass(eq=False)
class Oracle:
    """Reads the ledgers of one world, and remembers what was broken."""

    world: World
    broken: list[str] = field(default_factory=list)
    forgiven: set[str] = field(default_factory=set)
    """Rules that a person broke by hand, such as one who deletes a server that writes."""
    agents_prove: bool = False
    """Whether an agent's word that all has stopped may be a proof: the guest runs on then."""
    _read: int = 0
    _holds: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _writes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _down_since: dict[str, float] = field(default_factory=dict)
    _journal: int = 0
    _runs: set[str] = field(default_factory=set)
    _crashed: set[str] = field(default_factory=set)
    _epochs: dict[str, int] = field(default_factory=dict)
    _fenced: dict[str, int] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)
    _fencing: dict[str, str | None] = field(default_factory=dict)
    _goals: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _updated: dict[str, str] = field(default_factory=dict)
    _steps: dict[tuple[str, str], str | None] = field(default_factory=dict)
    _sent: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    _project_of: dict[str, str] = field(default_factory=dict)
    _ran: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _silent_since: dict[str, float] = field(default_factory=dict)
    _paused: set[str] = field(default_factory=set)
    _proven: dict[str, float] = field(default_factory=dict)
    _quieting: set[str] = field(default_factory=set)
    _looked: dict[str, float] = field(default_factory=dict)
    _begun: dict[str, float] = field(default_factory=dict)
    _lost: dict[str, tuple[float, dict[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        defects.recorders.add(self)

    def record(self, found: defects.Defect) -> None:
        """Note an error of the product's own, which no promise allows."""
        self.breaks(f"a defect: {found.error} at {found.place} while {found.doing}")

    def look(self) -> None:
        """Read what is new in the ledgers."""
        self._learn()
        events = self.world.emulation.audit.since(self._read)
        self._read += len(events)
        told = self.world.store.rows(_TOLD, self._journal)
        for at, event in sorted(
            [(each["t"], each) for each in events] + [(each[1], each) for each in told],
            key=lambda each: each[0],
        ):
            if isinstance(event, tuple):
                self._journal = max(self._journal, event[0])
                self._judge(*event[1:])
                continue
            for rule in self._broken_by(event):
                if rule.partition(":")[0] not in self.forgiven:
                    self.breaks(f"{at - BEGIN:.1f}: {rule}")
        for project in (self.world.mine, self.world.neighbour):
            if len(project.serving()) == 1:
                self._down_since.pop(project.id, None)
            else:
                self._down_since.setdefault(project.id, self.world.scheduler.now)

    def _learn(self) -> None:
        state = self.world.emulation.state
        things: list[Any] = [*state.servers.values(), *state.volumes.values()]
        for each in [*things, *state.stacks.values()]:
            self._project_of.setdefault(each.id, each.project_id)

    def _strange(self, project: str | None, text: str) -> str | None:
        """Return what a text names of another project than its own; None if it names nothing."""
        for each in _ID.findall(text):
            if self._project_of.get(each, project) != project:
                return str(each)
        return None

    def told(self, project: Project, text: str) -> None:
        """Look whether a text that a project can read is about itself."""
        if strange := self._strange(project.id, text):
            self.breaks(f"crossing: {strange} of another project is in what it is told")

    def breaks(self, what: str) -> None:
        """Note a promise that is broken."""
        self.world.tell(f"BROKEN {what}")
        self.broken.append(what)

    def _faulty(self, event: Mapping[str, Any]) -> None:
        what, servers = event["fault"], [event["id"]]
        if event["target"] == "host":  # also of guests whose servers Nova has forgotten
            found = self.world.emulation.state.guests.values()
            servers = [each.server_id for each in found if each.host == event["id"]]
        if what == "power_off":
            self._runs.difference_update(servers)
        elif what == "crash":
            self._crashed.update(servers)
        elif what == "revive":
            self._crashed.difference_update(servers)
        for each in servers:
            if what in ("power_off", "crash", "hang"):
                self._silent_since.setdefault(each, event["t"])
            elif what in ("thaw", "revive"):
                self._silent_since.pop(each, None)

    def _judge(self, at: float, *row: Any) -> None:
        """Judge what the journal tells people by what the ledgers had until then."""
        project, group, kind, sentence, traversal, resource, fact, last_at = row
        own = self.world.neighbour if project == self.world.neighbour.id else self.world.mine
        self.told(own, sentence)
        wrong = None
        if traversal and traversal not in self._goals[group]:
            self._goals[group].append(traversal)
        if kind == "steal":
            host = sentence.rpartition("@")[2].partition(":")[0]
            wrong = "live owner" if self.world.able(host, at - _LEASE) else None
        elif kind == "started":
            self._open.add(resource)
            if fenced := _FENCING.match(sentence):
                self._fencing[resource] = traversal
                self._quieting.add(own.servers[fenced[1]])
                if (own.id, fenced[1]) not in self.world.blamed:
                    wrong = "without a reason, of a member that no report calls lost"
            elif _COMES.match(sentence) and traversal in self._fencing.values():
                wrong = "too early, before the proof of a fence"
            if traversal != self._goals[group][-1]:
                wrong = "for an older goal"
            if begun := _BEGUN.match(sentence):
                key = own.servers[begun[2]], begun[1].lower()
                if begun[3] == "started" or self._steps.get(key) != traversal:
                    self._sent.pop(key, None)
                self._steps[key] = traversal
        elif kind == "done":
            wrong = "done again" if resource not in self._open else self._untrue(own, sentence, at)
            self._open.discard(resource)
            self._fencing.pop(resource, None)
        elif kind in ("pause", "resumed"):
            (self._paused.add if kind == "pause" else self._paused.discard)(group)
        elif kind == "admitted" and group in self._paused and "nevertheless" not in sentence:
            wrong = "admitted, though a pause holds the group's alarms"
        elif kind == "dismissed" and "by a sweep" in sentence:
            wrong = self._unheard(own, json.loads(fact)["lost"], last_at)
        if "[NOT_FOUND]" in sentence and "stack" in sentence:
            wrong = "a stranger was believed, because the stack is there"
        if wrong and wrong not in self.forgiven:
            self.breaks(f"{at - BEGIN:.1f}: {wrong}: {sentence}")

    def _unheard(self, own: Project, members: list[str], since: float) -> str | None:
        """Return why an alarm cannot have been dismissed by what was heard of its members since it
        was last delivered; None if it may be."""
        silent = [self._silent_since.get(own.servers[each]) for each in members]
        if any(at is not None and at <= since for at in silent):
            return "dismissed, though its member has been silent since before the alarm"
        return None

    def _untrue(self, own: Project, sentence: str, at: float) -> str | None:
        """Return why what the journal says is done is not so; None if it may be."""
        if fenced := _FENCED.match(sentence):
            server = own.servers[fenced[1]]
            self._fenced[server] = self._epochs.get(server, 0)
            self._quieting.discard(server)
            self._proven[server] = at
            if server in self._runs - self._crashed:
                if not self.agents_prove:
                    return "proof: its guest runs"
                return "proof: it writes" if server in self._writes[own.id] else None
            started, looked = self.world.started.get(server, 0.0), self._looked.get(server, 0.0)
            if self._begun.get(server, 0.0) < started < looked and at - looked < _AT_ONCE:
                return "proof: it is about to start"
            return None
        if released := _RELEASED.match(sentence):
            server = own.servers[released[2]]
            if released[1] == "Detach":
                return "still attached" if server in self._holds[own.volume] else None
            return "still writes" if server in self._writes[own.id] else None
        if sentence.startswith("Update the stack") and own.id in self._updated.values():
            return "still updated"
        return None

    def _broken_by(self, event: Mapping[str, Any]) -> Iterator[str]:
        kind = event["kind"]
        if looked := kind == "request" and _LOOKED.match(f"{event['method']} {event['path']}"):
            self._looked[looked[1]] = event["arrived"]
        if kind == "request" and event["project_id"] is not None:
            if strange := self._strange(event["project_id"], event["path"]):
                yield f"crossing: {event['method']} by another project than that of {strange}"
            elif self._runs_again(event):
                yield "released from a server that was started again after its fence"
        elif kind == "violation":
            yield f"{event['rule']}: the cloud saw it"
        elif kind == "attached":
            held = self._holds[event["volume"]]
            held.add(event["server"])
            if len(held) > 1:
                yield "two holders: a volume is attached twice"
        elif kind == "detached":
            self._holds[event["volume"]].discard(event["server"])
        elif kind == "application_started":
            project = self._project_of[event["server"]]
            running = self._writes[project]
            running.add(event["server"])
            if project in self._down_since:  # it may have served between two looks
                self._down_since[project] = event["t"]
            if len(running) > 1:
                yield "two writers: an application runs on two servers"
        elif kind in ("application_stopped", "application_ended"):
            self._writes[self._project_of[event["server"]]].discard(event["server"])
        elif kind == "guest_started":
            self._runs.add(event["server"])
            self._crashed.discard(event["server"])
            self._silent_since.pop(event["server"], None)
            self._begun[event["server"]] = event["t"]
        elif kind in ("server_stopped", "guest_destroyed"):
            self._runs.discard(event["server"])
            self._silent_since.setdefault(event["server"], event["t"])
        elif kind == "transition_started" and event["name"] == "patch":
            self._updated[event["operation"]] = self._project_of[event["stack"]]
        elif kind == "transition_finished":
            self._updated.pop(event["operation"], None)
        elif kind == "fault":
            self._faulty(event)
        elif kind == "command_started" and event["server"] in self._quieting:
            pass  # a fence has the agent stop everything, in the member's new epoch
        elif kind == "command_started":
            server, epoch = event["server"], event["epoch"]
            self._epochs[server] = max(epoch, self._epochs.get(server, 0))
            if epoch <= self._fenced.get(server, -1):
                yield "old epoch: a command of before the fence runs"
            sent = self._sent[server, event["command"]]
            if not event.get("rehearsal"):
                sent.add(event["id"])
            if len(sent) > 1:
                yield "anew: a step sent a second command"
            self._ran[event["id"]] += 1
            if self._ran[event["id"]] > 1:
                yield "twice: a command ran again"
        elif kind == "command_died":
            self._ran[event["id"]] -= 1

    def _runs_again(self, event: Mapping[str, Any]) -> bool:
        """Return whether a request takes a volume from a lost member whose guest has been running
        again for longer than a look can be old. That a host stays off which a person called off is
        the person's part."""
        found = _DETACH.match(f"{event['method']} {event['path']}")
        if found is None or event["status"] != 202 or self.agents_prove:
            return False
        server, began = found[1], self._begun.get(found[1], 0.0)
        _, lost = self._lost.get(event["project_id"], (0.0, {}))
        names = [name for name, its in lost.items() if its == server]
        if not names or (event["project_id"], names[0]) in self.world.confirmed:
            return False
        again = server in self._runs and began > self._proven.get(server, math.inf)
        return again and event["t"] - began > _OLDEST_LOOK

    def said(self, project: Project, status: Mapping[str, Any], asked_at: float) -> None:
        """Compare what status told a person with the truth, and with what it told before."""
        told_at, before = self._lost.get(project.id, (0.0, {}))
        if asked_at >= told_at:
            lost = {each: project.servers[each] for each in status["lost"]}
            self._lost[project.id] = self.world.scheduler.now, lost
            for member in before.keys() - lost.keys():
                recovered = (project.id, member) in self.world.recovered
                if not recovered and project.servers[member] == before[member]:
                    self.breaks(f"forgotten: {member} was lost, and no order says that it is well")
                self.world.recovered.discard((project.id, member))
        since = self._down_since.get(project.id)
        if status["service"]["status"] != "SERVING" or since is None:
            return
        down = self.world.scheduler.now - since
        if down > (TWO_LOOKS if project is self.world.mine else NEIGHBOUR * TWO_LOOKS):
            self.breaks(f"SERVING was said although nothing had served for {down:.0f} s")

    def left(self) -> str | None:
        """Return what a rehearsal has left behind; None if nothing is there."""
        state = self.world.emulation.state
        own = {self.world.mine.volume, self.world.neighbour.volume}
        copies = [each for each in state.volumes if each not in own]
        running = [each.server_id for each in state.guests.values() if each.rehearsed]
        if copies or state.snapshots or running:
            things = f"{len(copies)} volumes, {len(state.snapshots)} snapshots"
            return f"a rehearsal left {things}, and runs on {len(running)} servers"
        return None

    def at_rest(self, project: Project, status: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a group that says it reached its goal; None if nothing is."""
        (active,) = status["roles"].values() if status["roles"] else (None,)
        serving = project.serving()
        if serving != [active]:
            return f"COMPLETE on {active}, but {serving or 'no member'} serves"
        for stack in self.world.emulation.state.stacks.values():
            if stack.project_id == project.id and stack.parameters.get("active") != active:
                return f"COMPLETE on {active}, but the stack has {stack.parameters.get('active')}"
        return None
