# SPDX-License-Identifier: Apache-2.0
"""An order that names what the group does not have is refused with the name that is probably
meant."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.actions import orders
from support.planned_groups import PlannedGroup, emulated, group, protect, state

__all__ = ["emulated", "group", "protect", "state"]


@pytest.mark.parametrize(
    ("order", "meant"),
    [
        (lambda name: orders.Switchover(name, role="activ"), "active"),
        (lambda name: orders.Failback(name, role="activ"), "active"),
        (lambda name: orders.Plan(name, verb="switchover", role="activ"), "active"),
        (lambda name: orders.Begin(name, lost=["db-a"]), "db_a"),
        (lambda name: orders.Switchover(name, to="db-b"), "db_b"),
    ],
)
def test_the_remedy_names_what_is_meant(group: PlannedGroup, order: Any, meant: str) -> None:
    refused = group.ask(order(group.name))

    assert f'Did you mean "{meant}"?' in refused.error["remedy"]
