# SPDX-License-Identifier: Apache-2.0
"""The scheduler of the embedded Mistral: how it ends."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.embedded.services import EmbeddedScheduler
from support.waiting import until

CONF = SimpleNamespace(
    fixed_delay=60, random_delay=0, batch_size=10, in_memory_workers=1, pickup_job_after=60
)


def test_after_a_stop_no_job_asks_a_database_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    ended: list[str] = []

    def work(this: Any, job: str) -> None:
        begun.append(job)
        this._ending.wait(60)
        time.sleep(0.5)
        ended.append(job)

    monkeypatch.setattr(EmbeddedScheduler, "_process_memory_job", work)
    scheduler = EmbeddedScheduler(CONF)
    scheduler.start()
    scheduler._executor.submit(scheduler._process_memory_job, "runs")
    scheduler._executor.submit(scheduler._process_memory_job, "waits")
    until(lambda: begun == ["runs"])

    scheduler.stop()

    assert (begun, ended) == (["runs"], ["runs"]), "the other one stays in the store"
    assert not any(each.is_alive() for each in scheduler._executor._threads)
