# SPDX-License-Identifier: Apache-2.0
"""Groups of any size for the benchmarks of the core: a database, an engine, no Mistral."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.records import Started
from mistral_failover.model.goal import render_goal
from mistral_failover.model.group import Group, parse_group
from mistral_failover.store import groups
from mistral_failover.store.database import Database
from mistral_failover.store.transaction import ProjectTransaction


class Bench:
    """An engine on a database that exists, and groups to converge."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self.engine = Engine(self.database, lease=30.0)
        self._groups: dict[str, Group] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.database.close()

    def group(self, name: str, size: int) -> str:
        """Define a group of so many resources; returns its id."""
        document = _document(size)

        def define(tx: ProjectTransaction) -> str:
            identity = groups.define(tx, name, {"document": document, "types": []})
            groups.record_members(tx, identity, [("a", "server-a", None), ("b", "server-b", None)])
            return identity

        identity = self.database.for_project("p").atomically(define)
        self._groups[identity] = parse_group(document, name=name)
        return identity

    def start(self, identity: str, active: str, traversal: str, expected: str | None) -> Started:
        """Start the traversal to the goal in which ``active`` is the active member."""
        goal = render_goal(self._groups[identity], {"active": active}, ())
        return self.engine.start(
            identity, goal, traversal_id=traversal, expected=expected, cause="a benchmark"
        )


def _document(size: int) -> dict[str, Any]:
    """Volumes, each with an application of its own on it: many short branches."""
    resources: dict[str, Any] = {}
    for number in range(size // 2):
        resources[f"data_{number}"] = {
            "type": "volume_attachment",
            "properties": {"volume": f"volume_{number}", "server": {"get_param": "active"}},
        }
        resources[f"application_{number}"] = {
            "type": "activation",
            "depends_on": f"data_{number}",
            "properties": {"member": {"get_param": "active"}, "start": "on", "stop": "off"},
        }
    return {
        "failover_template_version": "2026-11-21",
        "stack": "bench",
        "members": {"servers": ["a", "b"]},
        "resources": resources,
    }
