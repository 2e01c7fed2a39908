# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of servers that belong to two groups."""

from __future__ import annotations

from collections.abc import Callable

from mistral_failover.actions.doctor import Doctor
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import groups
from support.scaled_groups import ScaledGroup, definition, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]


def test_a_server_that_belongs_to_two_groups_is_named_with_the_other_group(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(2)
    other, servers = f"{group.name}-again", group.servers()

    def findings() -> list[str]:
        found = group.done(Doctor(group.name))["findings"]
        return [row["sentence"] for row in found if other in row["sentence"]]

    assert findings() == []
    file = {"document": definition(group.name), "types": []}
    rows = [(name, server, 1.0) for name, server in servers.items()]
    project = group.state.database.for_project(DEFAULT_PROJECT)
    identity = project.atomically(lambda tx: groups.define(tx, other, file))
    project.atomically(lambda tx: groups.record_members(tx, identity, rows))

    (finding,) = findings()
    assert all(name in finding for name in servers)
