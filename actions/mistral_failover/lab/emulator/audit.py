# SPDX-License-Identifier: Apache-2.0
"""The append-only record of everything that happened in the emulated cloud."""

import json
import time
from pathlib import Path
from typing import Any, TextIO

from mistral_failover.model.documents import load_json


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
