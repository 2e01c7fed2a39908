# SPDX-License-Identifier: Apache-2.0
"""Steps in words."""

from __future__ import annotations

from mistral_failover.model.goal import ATTACHMENT, FENCE_PREFIX, FENCE_TYPE
from mistral_failover.model.stages import Stage

_VERBS = {
    (ATTACHMENT, "create"): "Attach",
    (ATTACHMENT, "delete"): "Detach",
    ("activation", "create"): "Start",
    ("activation", "update"): "Restart",
    ("activation", "delete"): "Stop",
    (FENCE_TYPE, "create"): "Fence",
    (FENCE_TYPE, "delete"): "Unfence",
    ("stack_parameters", "create"): "Update stack:",
    ("stack_parameters", "update"): "Update stack:",
}
_BEFORE = {"create": "to", "delete": "from", "update": "on"}
STAGES = {
    Stage.FENCE: "Fence",
    Stage.QUIESCE: "Quiesce",
    Stage.MOVE_VOLUMES: "Move volumes",
    Stage.ACTIVATE: "Activate",
    Stage.UPDATE_STACK: "Update stack",
    Stage.END: "Finish",
}


def step(verb: str, kind: str, resource: str, member: str | None) -> str:
    """Return a step in words, such as ``Attach data to db_b``. ``kind``: the resource's type."""
    words = _VERBS.get((kind, verb), verb.capitalize())
    what = resource.removeprefix(FENCE_PREFIX) if kind == FENCE_TYPE else resource
    if not member:
        return f"{words} {what}"
    return f"{words} {what} {_BEFORE.get(verb, 'on') if kind == ATTACHMENT else 'on'} {member}"
