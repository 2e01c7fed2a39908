# SPDX-License-Identifier: Apache-2.0
"""A chain of the group's own (examples/own_chain) on the real engine: its own tasks run between the
stages, and what ends it in the middle does not end the failover."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_chain" / "payments_failover.yaml"
CHAIN = "payments.failover"


@dataclass
class House:
    """The two services that the chain calls: /tickets and /check. What they answer, and what the
    cloud's audit had reached when they were called."""

    url: str = ""
    status: dict[str, int] = field(default_factory=lambda: {"/tickets": 201, "/check": 200})
    asked: list[tuple[str, int]] = field(default_factory=list)
    called: Callable[[str], None] = lambda path: None

    def answer(self, path: str) -> int:
        self.called(path)
        return self.status[path]

    def times(self, path: str) -> int:
        """How often a service was called."""
        return [each for each, _ in self.asked].count(path)


@pytest.fixture
def house(cloud: Any) -> Iterator[House]:
    """The services, listening; Mistral may call loopback addresses meanwhile."""
    told = House()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            told.asked.append((self.path, len(cloud.audit())))
            self.send_response(told.answer(self.path))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        cfg.CONF.set_override("denied_cidrs", [], group="action_std_http")
        yield told
        cfg.CONF.clear_override("denied_cidrs", group="action_std_http")
        server.shutdown()
        thread.join()


@pytest.fixture
def group(protect: Callable[..., Any], house: House) -> Any:
    """A group whose failovers the example's chain works off, in service on db_a."""
    made = protect(workflow=CHAIN)
    text = EXAMPLE.read_text(encoding="utf-8")
    made.workflows.load(
        text.replace("http://tickets.example.org", house.url).replace(
            "http://checker.example.org", house.url
        )
    )
    made.activate()
    house.asked.clear()
    return made


def test_the_ticket_is_sent_after_the_proof_and_the_data_is_checked_before_the_start(
    group: Any, house: House
) -> None:
    run = group.run("on_alarm", **group.fails("crash")).assert_succeeded()

    assert run.output["outcome"]["status"] == "COMPLETE"
    assert group.holders() == ["db_b"]
    assert group.runs_on() == ["db_b"]
    run.sub("converge").assert_tasks(
        "fence", "tell", "quiesce", "move_volumes", "check_data", "activate", "update_stack", "end"
    )
    (ticket, told_at), (check, checked_at) = house.asked
    assert (ticket, check) == ("/tickets", "/check")
    assert last(group, "server_stopped", "db_a") <= told_at < last(group, "detach_begin", "db_a")
    assert last(group, "attached", "db_b") <= checked_at < last(group, "command_started", "db_b")
    assert group.cloud.violations() == []


def last(group: Any, kind: str, member: str) -> int:
    """The number of the audit's last event of a kind about a member's server."""
    server = group.server(member)
    return max(e["seq"] for e in group.cloud.audit(kind=kind) if e.get("server") == server)
