# SPDX-License-Identifier: Apache-2.0
"""A process that looked at the members, froze, and wakes up in another world deposes no agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.cloud.transport import Unguarded
from mistral_failover.groups import refresh_members
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.orders import failover
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from support.scaled_groups import ScaledGroup, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]


@pytest.fixture
def request_(state: Runtime) -> Request:
    return Request(state, ActionContext(SecurityContext(), ExecutionContext()))


@pytest.fixture
def deposed(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The servers whose agents were told that they are deposed."""
    told: list[str | None] = []

    def tell(*given: Any) -> None:
        told.extend(one.server_id for one in given[-1])

    monkeypatch.setattr(failover, "depose", tell)
    monkeypatch.setattr(refresh_members, "depose", tell)
    return told


def test_who_wakes_up_behind_a_replacement_looks_again(
    of: Callable[..., ScaledGroup],
    request_: Request,
    deposed: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = of(2)
    standby = group.members[1]
    former = group.servers()[standby]
    look, frozen = refresh_members.members_now, []

    def freeze(*given: Any) -> Any:
        seen = look(*given)
        if not frozen:
            frozen.append(seen)
            group.replace(standby)  # by somebody else, and with all that belongs to it
        return seen

    snapshot = group_snapshot(request_, group.name)
    monkeypatch.setattr(failover, "members_now", freeze)
    facts = failover.read_members(request_, snapshot, remember=True)

    now = group.servers()[standby]
    assert now != former
    assert {fact.name: fact.server_id for fact in facts}[standby] == now
    assert group.epochs() == [1, 2]
    assert set(deposed) == {former}


def test_who_sees_nothing_but_the_past_gives_up(
    of: Callable[..., ScaledGroup],
    request_: Request,
    deposed: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = of(2)
    standby = group.members[1]
    snapshot = group_snapshot(request_, group.name)
    stale = refresh_members.members_now(request_.cloud(Unguarded()), snapshot)
    servers = iter(f"server-{number}" for number in range(100))

    def busy(*_: Any) -> Any:
        """Others notice a new server, each time that somebody looks."""
        seen = [(standby, next(servers), 1.0)]
        request_.runtime.database.atomically(
            lambda tx: groups.record_members(tx, snapshot.state.id, seen)
        )
        return stale

    monkeypatch.setattr(failover, "members_now", busy)
    with pytest.raises(ActionError) as raised:
        failover.read_members(request_, snapshot, remember=True)

    assert raised.value.code == "CONTENDED"
    assert deposed == []
