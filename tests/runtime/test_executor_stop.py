# SPDX-License-Identifier: Apache-2.0
"""What Mistral's executor does when it stops."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.embedded import boot
from mistral_failover.runtime import process


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of Mistral's executors, which is as before after the test."""
    boot.init()  # before anything of Mistral's is imported
    from mistral.executors.executor_server import ExecutorServer

    monkeypatch.setattr(process, "_done", False)
    for name in ("start", "stop"):  # without what an executor of this process has put around them
        unwrapped = inspect.unwrap(getattr(ExecutorServer, name))
        monkeypatch.setattr(ExecutorServer, name, unwrapped)
    assert ExecutorServer.__module__ == process._SERVER
    return ExecutorServer


def wrap(hand_back: Callable[[float], bool]) -> None:
    """Wrap the class, as a process does once."""
    process.hand_back_with_the_executor(hand_back, lambda: None)


class Messages:
    """Mistral's RPC server, as far as it is stopped."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def stop(self, graceful: bool = False) -> None:
        del graceful
        self._seen.append("no more messages")


def test_an_executor_takes_no_message_after_it_has_handed_back_its_work(servers: Any) -> None:
    seen: list[str] = []
    wrap(lambda limit: bool(seen.append("handed back")))
    server = servers(executor=None, setup_profiler=False)
    server._rpc_server = Messages(seen)

    server.stop()

    assert seen[:2] == ["no more messages", "handed back"]


def test_an_executor_without_a_broker_hands_back_its_work(servers: Any) -> None:
    class Unreachable:
        """An RPC server that cannot end."""

        def stop(self, graceful: bool = False) -> None:
            raise ConnectionError("no broker")

    seen: list[str] = []
    wrap(lambda limit: bool(seen.append("handed back")))
    server = servers(executor=None, setup_profiler=False)
    server._rpc_server = Unreachable()

    with pytest.raises(ConnectionError):
        server.stop()

    assert seen == ["handed back"]


def test_an_executor_that_was_not_started_stops(servers: Any) -> None:
    seen: list[str] = []
    wrap(lambda limit: bool(seen.append("handed back")))

    servers(executor=None, setup_profiler=False).stop()

    assert seen == ["handed back"]
