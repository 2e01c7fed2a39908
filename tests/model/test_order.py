# SPDX-License-Identifier: Apache-2.0
"""An order: what it says, and that nothing of it is lost where it is stored."""

from __future__ import annotations

import json

import pytest

from mistral_failover.model.order import Order

ORDERS = [
    (Order("failover"), False, {}),
    (Order("failover", lost=()), False, {"lost": []}),
    (Order("failover", lost=("db_a",), from_alarm=True), False, None),
    (Order("failover", to="db_b", recovered=("db_c",)), True, None),
    (Order("failover", to={"active": "db_b"}), True, {"to": {"active": "db_b"}}),
    (Order("switchover", role="active"), False, {"role": "active"}),
    (Order("switchover", to="db_b"), True, {"to": "db_b"}),
    (Order("failback"), True, {}),
    (Order("rollback"), True, {}),
    (Order("rollback", goal="abcdef0", plan="a plan"), True, None),
    (Order("replace", member="db_a", server="s", resource="r"), False, None),
    (Order("remove", lost=("db_a",)), False, {"lost": ["db_a"]}),
]


@pytest.mark.parametrize(("order", "pinned", "inputs"), ORDERS)
def test_an_order_says_whether_other_members_may_take_the_roles(
    order: Order, pinned: bool, inputs: dict[str, object] | None
) -> None:
    assert order.pinned is pinned
    assert inputs is None or order.inputs == inputs
    assert Order.read(json.loads(json.dumps(order.document()))) == order
