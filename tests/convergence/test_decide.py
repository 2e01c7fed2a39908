# SPDX-License-Identifier: Apache-2.0
"""What a node has to do: one line per case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.convergence.decide import decide
from mistral_failover.convergence.records import Action, Record, Status
from mistral_failover.model.types import load_type
from support.world import type_file

TYPE = load_type(type_file("shared"))
REVIVED = replace(TYPE, revive=True)
INDELIBLE = replace(TYPE, operations={k: v for k, v in TYPE.operations.items() if k != "delete"})
FROZEN = replace(TYPE, operations={k: v for k, v in TYPE.operations.items() if k == "create"})
MADE: dict[str, Any] = {"action": Action.CREATE, "properties": {"key": 1, "value": 1}}


def record(**fields: Any) -> Record:
    return Record(id="r", group_id="g", name="r", type="shared", **fields)


@pytest.mark.parametrize(
    ("fields", "wanted", "action", "reason"),
    [
        ({}, {}, "create", "it does not exist yet"),
        (MADE, {"key": 1, "value": 1}, "none", "it is as the goal wants it"),
        (MADE, {"key": 1, "value": 2}, "update", "value changed"),
        (MADE, {"key": 2, "value": 1}, "replace", "key cannot change in place"),
        (MADE, {"value": 1}, "replace", "key cannot change in place"),
        (MADE, {"key": 1, "value": 2, "worth": 2}, "update", "value, worth changed"),
        (
            {**MADE, "status": Status.FAILED, "reason": "x"},
            {"key": 1, "value": 2},
            "create",
            "its creation failed: x",
        ),
        ({**MADE, "status": Status.FAILED}, {"key": 2}, "replace", "key cannot change in place"),
        (
            {**MADE, "action": Action.UPDATE, "status": Status.FAILED, "reason": "x"},
            {"key": 1, "value": 1},
            "update",
            "its update failed: x",
        ),
        (
            {**MADE, "action": Action.DELETE, "status": Status.FAILED},
            {"key": 1, "value": 1},
            "replace",
            "it is being deleted, but needed again",
        ),
    ],
)
def test_an_update_node_of(
    fields: dict[str, Any], wanted: dict[str, Any], action: str, reason: str
) -> None:
    decision = decide("update", record(**fields), TYPE, wanted)

    assert (decision.action, decision.reason) == (action, reason)


@pytest.mark.parametrize("fields", [{}, MADE])
def test_what_sits_on_a_member_that_was_fenced_or_replaced_since_is_replaced(
    fields: dict[str, Any],
) -> None:
    placed = record(**fields, member="a", epoch=1)

    assert decide("update", placed, TYPE, {"key": 1, "value": 1}, epoch=1).action != "replace"
    decision = decide("update", placed, TYPE, {"key": 1, "value": 1}, epoch=2)
    assert (decision.action, decision.reason) == ("replace", "a was fenced or replaced")
    assert decide("cleanup", placed, TYPE, {}, epoch=2).action != "replace"


@pytest.mark.parametrize(
    ("fields", "action", "reason"),
    [
        ({}, "none", "it was never created"),
        (MADE, "delete", "the goal does not want it"),
        ({**MADE, "status": Status.FAILED}, "delete", "the goal does not want it"),
        (
            {**MADE, "action": Action.DELETE, "status": Status.FAILED},
            "delete",
            "the goal does not want it",
        ),
        (
            {**MADE, "action": Action.DELETE, "status": Status.COMPLETE},
            "none",
            "it is already gone",
        ),
    ],
)
def test_a_cleanup_node_of(fields: dict[str, Any], action: str, reason: str) -> None:
    decision = decide("cleanup", record(**fields), TYPE, {})

    assert (decision.action, decision.reason) == (action, reason)


def test_a_type_without_a_deletion_has_nothing_to_undo() -> None:
    decision = decide("cleanup", record(**MADE), INDELIBLE, {})

    assert (decision.action, decision.reason) == ("none", "there is nothing to undo")


def test_a_type_without_an_update_is_replaced_at_any_change() -> None:
    decision = decide("update", record(**MADE), FROZEN, {"key": 1, "value": 2, "worth": 2})

    assert decision.action == "replace"
    assert decision.reason == "value, worth cannot change in place"


@pytest.mark.parametrize(
    ("fields", "wanted", "action", "reason"),
    [
        (
            {"status": Status.FAILED, "reason": "x"},
            MADE["properties"],
            "create",
            "its deletion failed: x",
        ),
        (
            {"status": Status.FAILED},
            {"key": 1, "value": 2},
            "replace",
            "value changed while it was being deleted",
        ),
        ({"status": Status.FAILED}, {"key": 2}, "replace", "key cannot change in place"),
        (
            {"status": Status.IN_PROGRESS},
            {"key": 1},
            "replace",
            "it is being deleted, but needed again",
        ),
        (
            {"status": Status.COMPLETE},
            {"key": 1},
            "replace",
            "it is being deleted, but needed again",
        ),
    ],
)
def test_where_a_type_revives_it_an_update_node_of_what_was_being_deleted(
    fields: dict[str, Any], wanted: dict[str, Any], action: str, reason: str
) -> None:
    decision = decide(
        "update", record(**{**MADE, "action": Action.DELETE, **fields}), REVIVED, wanted
    )

    assert (decision.action, decision.reason) == (action, reason)


def test_what_is_of_an_earlier_epoch_is_not_revived() -> None:
    left = record(**{**MADE, "action": Action.DELETE, "status": Status.FAILED}, member="a", epoch=1)

    assert decide("update", left, REVIVED, {"key": 1, "value": 1}, epoch=2).action == "replace"
