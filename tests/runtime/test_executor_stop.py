# SPDX-License-Identifier: Apache-2.0
"""What Mistral's executor does when it stops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mistral.executors import executor_server
from mistral.executors.executor_server import ExecutorServer

from mistral_failover.runtime import executor_stop


@pytest.fixture
def wrap(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[float], bool]], None]:
    """Wraps the class as a process does once; it is as before after the test."""
    monkeypatch.setattr(executor_stop, "_done", False)
    for name in ("start", "stop"):
        monkeypatch.setattr(ExecutorServer, name, getattr(ExecutorServer, name))

    def call(hand_back: Callable[[float], bool]) -> None:
        assert executor_server.__name__ == executor_stop._SERVER
        executor_stop.hand_back_with_the_executor(hand_back, lambda: None)

    return call


class Messages:
    """Mistral's RPC server, as far as it is stopped."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def stop(self, graceful: bool = False) -> None:
        del graceful
        self._seen.append("no more messages")


def test_an_executor_takes_no_message_after_it_has_handed_back_its_work(
    wrap: Callable[[Callable[[float], bool]], None],
) -> None:
    seen: list[str] = []
    wrap(lambda limit: bool(seen.append("handed back")))
    server = ExecutorServer(executor=None, setup_profiler=False)
    server._rpc_server = Messages(seen)

    server.stop()

    assert seen[:2] == ["no more messages", "handed back"]


def test_an_executor_that_was_not_started_stops(
    wrap: Callable[[Callable[[float], bool]], None],
) -> None:
    seen: list[str] = []
    wrap(lambda limit: bool(seen.append("handed back")))

    ExecutorServer(executor=None, setup_profiler=False).stop()

    assert seen == ["handed back"]
