# SPDX-License-Identifier: Apache-2.0
"""Steps in words."""

from __future__ import annotations

from mistral_failover.model.goal import (
    ACTIVATION,
    ALARM,
    ATTACHMENT,
    FENCE_PREFIX,
    FENCE_TYPE,
    REPLACE_PREFIX,
    REPLACE_TYPE,
)
from mistral_failover.model.stages import Stage

_VERBS = {
    (ATTACHMENT, "create"): "Attach",
    (ATTACHMENT, "delete"): "Detach",
    ("port", "create"): "Attach",
    ("port", "delete"): "Detach",
    ("dns_record", "create"): "Point",
    ("dns_record", "delete"): "Release",
    ("floating_ip", "create"): "Give",
    ("floating_ip", "delete"): "Take",
    ("load_balancer_member", "create"): "Enable",
    ("load_balancer_member", "delete"): "Disable",
    ("virtual_ip", "create"): "Give",
    ("virtual_ip", "delete"): "Take",
    (ACTIVATION, "create"): "Start",
    (ACTIVATION, "update"): "Restart",
    (ACTIVATION, "delete"): "Stop",
    (FENCE_TYPE, "create"): "Fence",
    (FENCE_TYPE, "delete"): "Unfence",
    (REPLACE_TYPE, "create"): "Replace",
    ("stack_parameters", "create"): "Update stack:",
    ("stack_parameters", "update"): "Update stack:",
    ("stack_template", "create"): "Change template:",
    (ALARM, "create"): "Point alarm:",
    (ALARM, "update"): "Point alarm:",
    ("stack_template", "update"): "Change template:",
}
_MOVED = frozenset({ATTACHMENT, "dns_record", "floating_ip", "port", "virtual_ip"})
_BEFORE = {"create": "to", "delete": "from"}
_PREFIXES = {FENCE_TYPE: FENCE_PREFIX, REPLACE_TYPE: REPLACE_PREFIX}
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
    what = resource.removeprefix(_PREFIXES.get(kind, ""))
    if not member:
        return f"{words} {what}"
    return f"{words} {what} {_BEFORE.get(verb, 'on') if kind in _MOVED else 'on'} {member}"
