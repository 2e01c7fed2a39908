# SPDX-License-Identifier: Apache-2.0
"""Mistral's default scheduler, able to stop at once and to skip waits.

Jobs scheduled in this process run from memory, on time; the job store is looked through only for
what a former process left behind. The stock checker sleeps between two looks and so outlives
its own stop, when there is no database any more.
"""

import threading
from typing import Any

from mistral.scheduler import base
from mistral.scheduler.default_scheduler import LOG, DefaultScheduler

from mistral_failover.runtime.errors import caught


class EmbeddedScheduler(DefaultScheduler):  # type: ignore[misc]
    """One for the process.

    :cvar hastened: functions (dotted names) that are run without their delay.
    """

    hastened: frozenset[str] = frozenset()

    def __init__(self, conf: Any) -> None:
        super().__init__(conf)
        self._ending = threading.Event()

    def schedule(self, job: base.SchedulerJob) -> None:
        """Run ``job`` after its delay, or at once when its function is among the hastened."""
        if job.func_name in self.hastened:
            job.run_after = 0
        super().schedule(job)

    def stop(self, graceful: bool = False) -> None:
        """Stop, and wait for the scheduler's own threads; running jobs continue."""
        self._ending.set()
        super().stop(graceful)
        self._dispatcher_thread.join()
        self._job_store_checker_thread.join()

    def _job_store_checker(self) -> None:
        while not self._ending.wait(self._fixed_delay):
            try:
                self._process_store_jobs()
            except Exception as error:
                # As in the base class: one failed look must not end all later ones.
                facts = caught(error, "reading Mistral's job store")
                LOG.warning("Reading the job store failed: %s", facts["message"])


def install() -> None:
    """Make this the scheduler of Mistral services that start from now on."""
    base._SCHEDULER_IMPL = EmbeddedScheduler
