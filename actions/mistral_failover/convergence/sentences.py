# SPDX-License-Identifier: Apache-2.0
"""The sentences of the journal: one for each change of a step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mistral_failover.convergence.records import Record
from mistral_failover.model.goal import Goal, vacant_roles
from mistral_failover.model.operation_words import operation_words
from mistral_failover.model.text import clean
from mistral_failover.model.types import ResourceType, Verb

_ID = re.compile(r"[0-9]{2}|^v?[0-9.]+$")  # ids have digits, the names of collections have none


def operation_words_of(verb: Verb, record: Record, resource_type: ResourceType | None) -> str:
    """Return what an operation does, such as ``Attach data to db_b``. ``resource_type``: None if it
    is not defined any more."""
    return operation_words(verb, record.name, record.member, resource_type)


def request_words(asked: str) -> str:
    """Return what was asked of a service in few words, without ids: ``DELETE
    os-volume_attachments``. ``asked``: its method and path."""
    method, _, path = asked.partition(" ")
    words = [part for part in path.split("/") if part and not _ID.search(part)]
    return " ".join([method, *words[-1:]])


def because(error: Mapping[str, Any], *, remedy: bool = True) -> str:
    """Return an error's message, ``remedy`` and code in one line."""
    parts = [str(error.get("message", "failed")).rstrip(".") + "."]
    if remedy and error.get("remedy"):
        parts.append(str(error["remedy"]))
    return clean(f"{' '.join(parts)} [{error.get('code', 'FAILED')}]")


def where(goal: Goal) -> str:
    """Return which member holds which role in a goal: ``active on db_a``."""
    held = [f"{role} on {member}" for role, member in sorted(goal.document["roles"].items())]
    held += [f"{role} waits for a new server" for role in vacant_roles(goal)]
    return " and ".join(held) or "nothing active"


def room_made(vacant: Sequence[str]) -> str:
    """Return what is so now that everything is ready for a member that takes these roles."""
    return f"{' and '.join(vacant)} can go to a member again: the lost one was fenced and released"


def reached(goal: Goal | None, *, back: bool = False) -> str:
    """Return what is so now that a goal is reached: ``Done: db_b is active``. ``back``: a rollback
    led to it."""
    roles = sorted(goal.document["roles"].items()) if goal else []
    held = " and ".join(f"{member} is {role}" for role, member in roles)
    return f"{'Rolled back' if back else 'Done'}: {held or 'no member has a role'}"
