# SPDX-License-Identifier: Apache-2.0
"""What Heat replaces at an update whatever that is about, and what it takes along."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from contract.conftest import of
from contract.rig import Made, Rig
from contract.templates import MARKS
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.heat_replacements import KeptParts, refuse_marked
from mistral_failover.cloud.stacks import stack_map


@pytest.fixture
def marks(rig: Rig) -> Iterator[Made]:
    """A stack of a server that uses ``config``, one that only comes after it, and a volume."""
    made = rig.make_stack(of(MARKS, rig))
    yield made
    rig.remove_stack(made)


def updated(rig: Rig, stack: Made) -> str:
    assert rig.patch(stack, parameters={}).ok
    return rig.settled(stack)


def refusal(cloud: Cloud, stack: Made, keep: KeptParts) -> str:
    with pytest.raises(CloudError) as raised:
        refuse_marked(cloud, stack.name, keep)
    return raised.value.code


def test_a_server_goes_with_what_its_properties_refer_to_and_no_other(
    rig: Rig, cloud: Cloud, marks: Made
) -> None:
    before = {name: one.physical_id for name, one in stack_map(cloud, marks.name).items()}
    cloud.heat.resources.mark_unhealthy(marks.name, "config", True, "a test")

    assert refusal(cloud, marks, KeptParts("g", {before["user"]: "user"})) == "MEMBER_MARKED"
    refuse_marked(cloud, marks.name, KeptParts("g", {before["later"]: "later"}))

    assert updated(rig, marks) == "UPDATE_COMPLETE"
    after = {name: one.physical_id for name, one in stack_map(cloud, marks.name).items()}
    assert {name for name in before if before[name] != after[name]} == {"config", "user"}


def test_a_marked_volume_is_replaced_by_a_new_one_and_deleted_once_it_is_free(
    rig: Rig, cloud: Cloud, marks: Made, demo: Any
) -> None:
    known = stack_map(cloud, marks.name)
    old, server = known["data"].physical_id, known["later"].physical_id
    rig.attach(server, old)
    keep = KeptParts("g", volumes={old: "data"})
    refuse_marked(cloud, marks.name, keep)
    cloud.heat.resources.mark_unhealthy(marks.name, "data", True, "a test")
    assert refusal(cloud, marks, keep) == "VOLUME_MARKED"

    assert updated(rig, marks) == "UPDATE_FAILED"
    assert "Volume in use" in rig.stack(marks)["stack_status_reason"]
    new = stack_map(cloud, marks.name)["data"].physical_id
    assert new != old
    assert refusal(cloud, marks, keep) == "VOLUME_REPLACED", "Heat does not show the old one"

    assert updated(rig, marks) == "UPDATE_FAILED", "it is tried again, and in use again"
    assert demo.detach(server, old).ok
    rig.until(lambda: rig.volume_status(old) == "available")
    assert updated(rig, marks) == "UPDATE_COMPLETE"
    assert rig.volume_status(old) is None
    assert stack_map(cloud, marks.name)["data"].physical_id == new
