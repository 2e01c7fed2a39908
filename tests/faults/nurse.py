# SPDX-License-Identifier: Apache-2.0
"""What an operating system does for the victim: starts it again when it died, wakes it up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from faults.slot import Slot

PERIOD = 0.03  # seconds


class Nurse(threading.Thread):
    """A context manager. A frozen victim is woken up as soon as ``finished`` says that the work
    was done without it, and after ``patience`` seconds in any case; until then the survivor
    sweeps (the driver of the drill may be waiting for the victim's answer)."""

    def __init__(
        self,
        slot: Slot,
        patience: float,
        *,
        finished: Callable[[], bool],
        sweep: Callable[[], None],
    ) -> None:
        super().__init__(name="nurse", daemon=True)
        self._slot = slot
        self._patience = patience
        self._finished = finished
        self._sweep = sweep
        self._ended = threading.Event()
        self._frozen_at: float | None = None
        self.error: BaseException | None = None
        self.finished_without_it = False

    def __enter__(self) -> Nurse:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self.join()
        if self._slot.victim.frozen():
            self._slot.victim.resume()

    def run(self) -> None:
        try:
            while not self._ended.wait(PERIOD):
                self._look()
        except BaseException as error:  # the drill has to hear of it
            self.error = error
            raise

    def _look(self) -> None:
        victim = self._slot.victim
        if victim.dead():
            victim.kill()
            victim.start()
        elif victim.frozen():
            self._frozen_at = self._frozen_at or time.monotonic()
            self.finished_without_it = self._finished()
            if self.finished_without_it or time.monotonic() > self._frozen_at + self._patience:
                victim.resume()
            else:
                self._sweep()
        else:
            self._frozen_at = None
