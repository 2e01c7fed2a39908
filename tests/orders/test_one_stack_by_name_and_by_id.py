# SPDX-License-Identifier: Apache-2.0
"""Two groups on the same servers are noticed, whether their files name the stack or give its id."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from mistral_lib.actions import Result

from mistral_failover.actions.groups import Define
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.store.database import ProjectStore
from mistral_failover.store.transaction import ProjectTransaction
from support.scaled_groups import ScaledGroup, definition, emulated, of, shared, stack, state

__all__ = ["emulated", "of", "shared", "state"]

AN_ID_OF_NO_STACK = "4f8f1c1e-6a0e-4c1f-9c3c-0d8f4c0b7a11"


@pytest.fixture
def group(of: Callable[..., ScaledGroup]) -> ScaledGroup:
    """A group whose file names its stack."""
    return of(2)


def stack_id(emulated: EmulatedCloud, name: str) -> str:
    """The id of the stack of this name, which is made if there is none."""
    made = emulated.client.create_stack(name, stack(2), adopt=True)
    emulated.client.add_application(name, start="start", stop="stop", stack=name)
    return str(made["id"])


def defined(group: ScaledGroup, name: str, stack: str) -> Any:
    """Define a group of this name over a stack; its answer, or the error it is refused with."""
    answer = group.run(Define(definition(stack), name=name))
    return answer.error if isinstance(answer, Result) else answer


def test_a_group_that_gives_the_id_of_a_stack_does_not_get_servers_of_one_that_names_it(
    group: ScaledGroup, emulated: EmulatedCloud
) -> None:
    refused = defined(group, f"{group.name}-again", stack_id(emulated, group.name))

    assert refused["code"] == "INVALID_DOCUMENT"
    assert f"belongs to the group {group.name}" in refused["message"]
    places = [each["field"] for each in refused["problems"]]
    assert set(places) <= {"members.autoscaling_group", "members.servers[0]", "members.servers[1]"}


def test_a_group_that_names_a_stack_does_not_get_servers_of_one_that_gives_its_id(
    group: ScaledGroup, emulated: EmulatedCloud
) -> None:
    other = f"{group.name}-other"
    assert defined(group, f"{other}-by-id", stack_id(emulated, other))["created"]

    refused = defined(group, other, other)

    assert refused["code"] == "INVALID_DOCUMENT"
    assert f"belongs to the group {other}-by-id" in refused["message"]


def test_members_of_the_same_names_in_another_stack_are_others(
    group: ScaledGroup, emulated: EmulatedCloud
) -> None:
    other = f"{group.name}-other"

    assert defined(group, other, stack_id(emulated, other))["created"]


@pytest.mark.parametrize("gone", ["no-such-stack", AN_ID_OF_NO_STACK])
def test_a_stack_that_does_not_exist_is_no_other_one(group: ScaledGroup, gone: str) -> None:
    assert defined(group, f"{group.name}-of-{gone}", gone)["created"]


def test_a_group_may_give_the_id_of_the_stack_that_it_named(
    group: ScaledGroup, emulated: EmulatedCloud
) -> None:
    changed = defined(group, group.name, stack_id(emulated, group.name))

    assert changed["created"] is False


def test_of_two_groups_that_are_defined_at_the_same_moment_one_is_refused(
    group: ScaledGroup, emulated: EmulatedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"{group.name}-at-once"
    written = {other: other, f"{other}-by-id": stack_id(emulated, other)}
    both, before, first = threading.Barrier(2), ProjectStore.atomically, threading.local()

    def atomically(store: ProjectStore, function: Callable[[ProjectTransaction], Any]) -> Any:
        if not vars(first):  # neither has written; what they have read by now is outdated soon
            first.waited = both.wait(timeout=30)
        return before(store, function)

    monkeypatch.setattr(ProjectStore, "atomically", atomically)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda one: defined(group, *one), written.items()))

    ends = sorted(answer.get("code", "defined") for answer in answers)
    assert ends == ["INVALID_DOCUMENT", "defined"]
