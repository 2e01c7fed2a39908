# SPDX-License-Identifier: Apache-2.0
"""The full addresses of stacks that this process remembers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stacks import stack_map, stack_shown
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.cloud.waits import ProbeResult
from mistral_failover.lab.emulator.client import EmulatorClient
from support.emulated import PAIR, Pair


class Counting(Unguarded):
    """Counts the calls."""

    calls = 0

    def permit(self, method: str) -> float:
        self.calls += 1
        return super().permit(method)


def delete(cloud: Cloud, stack: str) -> None:
    cloud.heat.stacks.delete(stack)

    def look() -> ProbeResult:
        left = [each.stack_status for each in cloud.heat.stacks.list()]
        return ProbeResult(str(left), done=not left)

    cloud.wait(look, what="no stack to be left", limit=10)


@pytest.mark.parametrize("read", [stack_map, stack_shown])
def test_heat_redirects_only_the_first_request(
    connect: Callable[..., Cloud], pair: Pair, read: Callable[[Cloud, str], object]
) -> None:
    guard = Counting()
    cloud = connect(guard=guard)
    taken = []
    for _ in range(3):
        before = guard.calls
        read(cloud, pair.name)
        taken.append(guard.calls - before)

    assert taken[1:] == [1, 1]
    assert taken[0] > 1


def test_a_deleted_stack_is_not_taken_for_one_that_has_its_name_now(
    cloud: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    former = stack_shown(cloud, pair.name).id
    delete(cloud, pair.name)
    emulator.create_stack(pair.name, PAIR)

    assert stack_map(cloud, pair.name)["db_a"].physical_id not in ("", pair.a)
    assert stack_shown(cloud, pair.name).id != former


@pytest.mark.parametrize("read", [stack_map, stack_shown])
def test_a_deleted_stack_is_not_found_by_its_name(
    cloud: Cloud, pair: Pair, read: Callable[[Cloud, str], object]
) -> None:
    read(cloud, pair.name)
    delete(cloud, pair.name)

    with pytest.raises(CloudError) as refused:
        read(cloud, pair.name)

    assert refused.value.code == "NOT_FOUND"
