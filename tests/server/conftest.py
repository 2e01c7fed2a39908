# SPDX-License-Identifier: Apache-2.0
"""A webhook before a Mistral that only writes down what it is asked."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover import http_server
from mistral_failover.mistral.client import MistralError
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.server import receiver, secret, webhook
from mistral_failover.server.addresses import Address, bound
from mistral_failover.settings import Settings
from mistral_failover.store.database import Database
from support.databases import new_store
from support.servers import post, signed

KEY = b"0123456789abcdef0123456789abcdef"
ALARM = b'{"group": "payments", "member": "db_a", "id": "watchdog-4711"}'


@dataclass
class Started:
    """Stands for Mistral: what was started, by execution."""

    away: bool = False
    executions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(
        self, workflow: str, input: Any = None, *, id: str | None = None, description: str = ""
    ) -> dict[str, Any]:
        if self.away:
            raise MistralError("MISTRAL_UNREACHABLE", "no answer", "wait")
        assert workflow in (receiver.WORKFLOW, receiver.START)
        with self._lock:
            identity = id or f"execution-{len(self.executions)}"
            self.executions.setdefault(identity, input)
        return {"id": identity}


@dataclass
class Door:
    """A running webhook and what is behind it."""

    url: str
    started: Started
    at: list[float]
    """What its clock shows; empty: the time of now."""

    def signed(self, body: bytes = ALARM, **more: Any) -> Any:
        return signed(self.url, KEY, body, **more)

    def post(self, body: bytes = ALARM, headers: Any = None, url: str = "") -> Any:
        return post(url or self.url, body, headers)


_projects = itertools.count()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Database:
    """A state store."""
    return Database(new_store(tmp_path_factory.mktemp("server") / "failover.sqlite"))


def request_of(store: Database, project: str) -> Request:
    """A request of a process that serves only this project."""
    url = store.url.render_as_string(hide_password=False)
    context = ActionContext(SecurityContext(), ExecutionContext())
    return Request(Runtime(Settings(database=url, project=project)), context)


@pytest.fixture
def opened(store: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Door]]:
    """Open a webhook; of a project of its own."""
    monkeypatch.setattr(http_server, "POLL", 0.01)
    running: list[webhook.Webhook] = []

    def make(project: str = "", **options: Any) -> Door:
        at: list[float] = []
        started = Started()
        known = secret.Secret(KEY, KEY[::-1])
        project = project or f"p{next(_projects)}"
        taking = receiver.AlarmReceiver(
            known, started, request_of(store, project), clock=lambda: at[0] if at else time.time()
        )
        made = webhook.Webhook(
            bound(Address("127.0.0.1", 0)), taking, lambda: not started.away, **options
        )
        running.append(made)
        made.__enter__()
        return Door(made.url, started, at)

    yield make
    for each in running:
        each.__exit__()


@pytest.fixture
def door(opened: Callable[..., Door]) -> Door:
    """A webhook without TLS."""
    return opened()


@pytest.fixture
def private(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a file that only its owner reads."""

    def write(name: str, text: str) -> Path:
        file = tmp_path / name
        file.touch(0o600)
        file.write_text(text)
        return file

    return write
