# SPDX-License-Identifier: Apache-2.0
"""Notice that something has happened: one question at a time, however many pages are open."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from mistral_failover.ui.action_client import ActionClient, ActionFailed

_WAIT, _AT_REST = 1, 5
"""Seconds that one question waits for a step: while steps come, and later. The longer a question
waits, the less often the client looks for its answer."""
_STEPS_COME = 30.0  # seconds after a step
_AWAY = 3.0  # seconds after a question without an answer
_PAUSE = 0.05  # seconds between two questions: for a Mistral that answers at once


class JournalWatcher:
    """Waits for the next step in the journal of the project while pages are open. After each step
    a thread of its own calls ``changed``, then ``number`` grows."""

    def __init__(self, client: ActionClient, changed: Callable[[], None]) -> None:
        self._client = client
        self._changed = changed
        self._lock = threading.Lock()
        self._watchers = 0
        self._thread: threading.Thread | None = None
        self.number = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Notice steps while the block lasts."""
        with self._lock:
            self._watchers += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ui-journal", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._watchers -= 1

    def _run(self) -> None:
        try:
            self._watch()
        except BaseException:
            with self._lock:
                self._thread = None  # the next page that opens begins again
            raise

    def _watch(self) -> None:
        after: int | None = None
        came = time.monotonic()
        while self._is_watched():
            quiet = time.monotonic() - came > _STEPS_COME
            try:
                found = self._next(after, _AT_REST if quiet else _WAIT)
            except ActionFailed:
                # The next one does not wait: those without an answer may all run later, at once.
                after = None
                time.sleep(_AWAY)
                continue
            if found != after:
                if after is not None:
                    came = time.monotonic()
                    self._changed()
                    self.number += 1
                after = found
            time.sleep(_PAUSE)

    def _is_watched(self) -> bool:
        with self._lock:
            if not self._watchers:
                self._thread = None
            return self._watchers > 0

    def _next(self, after: int | None, wait: int) -> int:
        """Return the id of the latest step, 0 without any; wait for a later one than ``after``."""
        if after:
            rows = self._client.run_action("failover.history", after=after, limit=1000, wait=wait)
        else:
            rows = self._client.run_action(
                "failover.history", limit=1, wait=None if after is None else wait
            )
        return int(rows[-1]["id"]) if rows else after or 0
