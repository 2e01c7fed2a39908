# SPDX-License-Identifier: Apache-2.0
"""From Nova's notification of a death to the standby active, with no hand touching anything.

Nova notifies, Ceilometer makes an event of it, Aodh's alarm fires, Heat takes the signal and starts
the stack's workflow, and that hands the alarm to failover.on_alarm.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.protected_stacks import (
    admitted,
    dies,
    is_repaired,
    stands_on,
    until_its_alarms_ended,
)
from testcloud.templates import GROUP, SERVERS
from testcloud.tenant import ProtectedStack, Tenant, until

pytestmark = pytest.mark.timeout(1200)


# test_rights_that_end.py has the third pair: servers, and a signed URL.
@pytest.mark.parametrize(("template", "path"), [(SERVERS, "trust"), (GROUP, "signed")])
def test_the_standby_takes_over_when_nova_says_that_the_active_server_died(
    template: str, path: str, protect: Callable[..., ProtectedStack], operator: Tenant
) -> None:
    stack = protect(template, path=path)
    first = stack.active()
    assert first is not None
    stands_on(stack, first)

    dies(stack, operator, first)
    second = stack.wait_until_active(first)

    stands_on(stack, second)
    (incident,) = admitted(stack)
    assert first in incident["sentence"]


def test_the_alarm_follows_the_active_member_and_fires_again(
    protect: Callable[..., ProtectedStack], operator: Tenant
) -> None:
    stack = protect(GROUP, path="trust")
    first = stack.active()
    assert first is not None
    dies(stack, operator, first)
    second = stack.wait_until_active(first)
    is_repaired(stack, operator, first)

    dies(stack, operator, second)

    assert stack.wait_until_active(second) == first
    stands_on(stack, first)
    assert len(admitted(stack)) == 2


def test_the_stack_goes_though_its_active_server_is_in_error(
    protect: Callable[..., ProtectedStack], operator: Tenant
) -> None:
    stack = protect(SERVERS)
    member = stack.active()
    assert member is not None
    volume = stack.volume()
    operator.action("failover.status")  # the operator sees none of the tenant's groups
    stack.tenant.action("failover.pause", group=stack.name, because="the stack is going")
    before = len(stack.status()["incidents"])
    operator.cloud.compute.reset_server_state(stack.servers()[member], "error")
    # Heat deletes no workflow of whose executions one runs.
    until(lambda: len(stack.status()["incidents"]) > before, "the alarm", 120)
    until_its_alarms_ended(stack)

    stack.tenant.delete_stack(stack.name)

    assert operator.cloud.block_storage.find_volume(volume, ignore_missing=True) is None
