# SPDX-License-Identifier: Apache-2.0
"""The running cloud: its state on disk, its transitions in flight, its audit.

Everything happens on one event loop, so the state needs no lock. A transition is a function
registered by name; in flight it is a `Timer` (due time, name, arguments), never a closure, so
that it survives a killed process. What runs inside of a guest does not.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TextIO

from mistral_failover.lab.emulator.latency import Latency
from mistral_failover.lab.emulator.state import CloudState, Timer, new_id
from mistral_failover.model.documents import load_json

TRANSITIONS: dict[str, Callable[..., None]] = {}


def transition(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a function of (emulation, **args) as the transition `name`."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        TRANSITIONS[name] = function
        return function

    return register


class Audit:
    """Events in order, each with `seq` (from 1), `t` (wall time, seconds) and `kind`.

    With a file, every event is a line of JSON, and the events of an earlier process are read
    back. A line that a crash cut short is dropped.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._events: list[dict[str, Any]] = []
        self._pending: list[str] = []
        self._file: TextIO | None = None
        if path is None:
            return
        if path.exists():
            self._recover(path)
        self._file = path.open("a", encoding="utf-8")

    def _recover(self, path: Path) -> None:
        kept = 0
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            self._events.append(load_json(line, "line"))
            kept += len(line)
        with path.open("rb+") as file:
            file.truncate(kept)

    def record(self, kind: str, /, **details: Any) -> dict[str, Any]:
        """Adds an event and returns it; `flush` brings it to the file."""
        event = {"seq": len(self._events) + 1, "t": time.time(), "kind": kind, **details}
        self._events.append(event)
        if self._file is not None:
            self._pending.append(json.dumps(event) + "\n")
        return event

    def since(self, seq: int, kind: str | None = None) -> list[dict[str, Any]]:
        """The events after number `seq`, all or those of one kind."""
        events = self._events[max(seq, 0) :]
        return events if kind is None else [event for event in events if event["kind"] == kind]

    def flush(self) -> None:
        """Writes what is pending; after this a killed process loses none of it."""
        if self._file is not None and self._pending:
            self._file.write("".join(self._pending))
            self._file.flush()
            self._pending.clear()

    def close(self) -> None:
        """Flushes and closes the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None


class Process(Protocol):
    """What runs in a guest, and ends with it."""

    def end(self) -> None:
        """End it at once."""


class Emulation:
    """One emulated cloud.

    :param state_dir: where the state, the audit and the guests' disks live; None keeps the first
        two in memory, and the disks in a temporary folder.
    :param latency: how long things take.
    :param save_every: seconds between two writings of the state. By default it is written with each
        change, so a killed process loses nothing; with thousands of servers that takes long.
    """

    def __init__(
        self, state_dir: Path | None, latency: Latency, *, save_every: float = 0.0
    ) -> None:
        self._path = None if state_dir is None else state_dir / "state.json"
        self.state = CloudState.seeded()
        if state_dir is not None:
            state_dir.mkdir(parents=True, exist_ok=True)
        if self._path is not None and self._path.exists():
            self.state = CloudState.loads(self._path.read_text(encoding="utf-8"))
        self._temporary = tempfile.TemporaryDirectory() if state_dir is None else None
        self._disks = Path(self._temporary.name if self._temporary else state_dir or "", "disks")
        self.audit = Audit(None if state_dir is None else state_dir / "audit.jsonl")
        self.latency = latency
        # Times set at the start override those of an earlier process.
        latency.overrides = {**self.state.latency, **latency.overrides}
        self.state.latency = latency.overrides
        self.url = ""
        self.workflow_url: str | None = None
        self.started_at = time.time()
        self.last_request = time.monotonic()
        self.background: set[asyncio.Task[Any]] = set()
        self.agents: dict[str, Process] = {}
        self.replies: dict[str, dict[str, Any] | None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._dirty = False
        self._save_every = save_every
        self._saved_at = -save_every
        self._later: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Continues the transitions in flight; those already due happen at once, in order."""
        self._loop = asyncio.get_running_loop()
        for operation, record in list(self.state.operations.items()):
            if record["kind"] == "command":
                self.finish(operation, "no_answer")
        for timer in sorted(self.state.timers.values(), key=lambda t: t.due):
            self._arm(timer)

    def stop(self) -> None:
        """Stops the clock; what is in flight stays in the state."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
        for agent in self.agents.values():
            agent.end()
        self.agents.clear()
        self._save_every = 0.0
        self.flush()
        self.audit.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def disk(self, server_id: str) -> Path:
        """The folder that is the disk of a server's guest."""
        return self._disks / server_id

    def changed(self) -> None:
        """Marks the state as changed; it is written once for all changes of a loop's turn."""
        if not self._dirty and self._loop is not None:
            self._loop.call_soon(self.flush)
        self._dirty = True

    def flush(self) -> None:
        """Writes audit and state, atomically; called before an answer leaves."""
        self.audit.flush()
        if not self._dirty:
            return
        early = self._saved_at + self._save_every - time.monotonic()
        if early > 0 and self._loop is not None:
            if self._later is None or self._later.when() <= self._loop.time():
                self._later = self._loop.call_later(early, self.flush)
            return
        self._dirty, self._saved_at = False, time.monotonic()
        if self._path is not None:
            temporary = self._path.with_suffix(".tmp")
            temporary.write_text(self.state.dumps(), encoding="utf-8")
            temporary.replace(self._path)

    def after(self, delay: float, name: str, /, **args: Any) -> None:
        """Lets the transition `name` happen in `delay` seconds."""
        timer = Timer(new_id(), time.time() + delay, name, args)
        self.state.timers[timer.id] = timer
        self._arm(timer)
        self.changed()

    def later(self, lasting: str, name: str, /, **args: Any) -> None:
        """Lets the transition `name` happen when the time of ``lasting`` has passed."""
        self.after(self.latency.of(lasting), name, **args)

    def at(self, due: float, name: str, /, **args: Any) -> None:
        """Lets the transition `name` happen at the time `due`."""
        self.after(due - time.time(), name, **args)

    def fire(self, name: str, /, **args: Any) -> None:
        """Carries the transition `name` out now."""
        TRANSITIONS[name](self, **args)
        self.changed()

    def defer(self, host: str, name: str, /, **args: Any) -> None:
        """Keeps a compute service's message until that host is back, as its queue would."""
        timer = Timer(new_id(), time.time(), name, args)
        self.state.deferred.setdefault(host, []).append(timer)
        self.changed()

    def deliver_deferred(self, host: str) -> None:
        """Hands a host that came back the messages that waited for it."""
        for timer in self.state.deferred.pop(host, []):
            self.after(0, timer.name, **timer.args)

    def begin(self, kind: str, /, **ids: Any) -> str:
        """Notes the start of a server-side operation; returns its number for `finish`."""
        operation = new_id()
        self.state.operations[operation] = {"kind": kind, "ids": ids, "accepted_at": time.time()}
        self.audit.record("transition_started", operation=operation, name=kind, **ids)
        self.changed()
        return operation

    def finish(self, operation: str | None, outcome: str = "done") -> None:
        """Notes the end of an operation; one that is finished already stays as it is."""
        record = self.state.operations.pop(operation, None) if operation else None
        if record is None:
            return
        self.audit.record(
            "transition_finished",
            operation=operation,
            name=record["kind"],
            accepted_at=record["accepted_at"],
            outcome=outcome,
            **record["ids"],
        )
        self.changed()

    def critical(self) -> list[dict[str, Any]]:
        """Every operation, by time of acceptance; `finished_at` is None while in flight."""
        rows = [
            {
                "kind": event["name"],
                "ids": {
                    key: value
                    for key, value in event.items()
                    if key
                    not in ("seq", "t", "kind", "operation", "name", "accepted_at", "outcome")
                },
                "accepted_at": event["accepted_at"],
                "finished_at": event["t"],
                "outcome": event["outcome"],
            }
            for event in self.audit.since(0, "transition_finished")
        ]
        rows += [
            {**record, "finished_at": None, "outcome": None}
            for record in self.state.operations.values()
        ]
        return sorted(rows, key=lambda row: row["accepted_at"])

    async def pause(self, name: str) -> None:
        """Lets the time of the operation `name` pass."""
        await asyncio.sleep(self.latency.of(name))

    async def wait_for(self, key: str, limit: float) -> bool:
        """Waits until the key is woken with `wake`; False after `limit` seconds."""
        future = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(key, []).append(future)
        try:
            await asyncio.wait_for(future, limit)
        except TimeoutError:
            return False
        finally:
            waiting = self._waiters.get(key, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiters.pop(key, None)
        return True

    def wake(self, key: str) -> None:
        """Wakes all that wait for `key`."""
        for future in self._waiters.pop(key, []):
            if not future.done():
                future.set_result(None)

    def _arm(self, timer: Timer) -> None:
        if self._loop is not None:
            delay = max(0.0, timer.due - time.time())
            self._handles[timer.id] = self._loop.call_later(delay, self._expire, timer.id)

    def _expire(self, timer_id: str) -> None:
        self._handles.pop(timer_id, None)
        timer = self.state.timers.pop(timer_id)
        self.fire(timer.name, **timer.args)
