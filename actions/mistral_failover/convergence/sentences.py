# SPDX-License-Identifier: Apache-2.0
"""The journal's sentences: one per step, which tests look for, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.convergence.records import Record, Verb
from mistral_failover.model.goal import Goal
from mistral_failover.model.text import clean
from mistral_failover.model.types import ResourceType


def doing(verb: Verb, record: Record, resource_type: ResourceType | None) -> str:
    """For example ``attach volume: data on db_b``; the words are those of the action or workflow,
    or the verb if the type is not defined any more."""
    return doing_to(verb, record.name, record.member, resource_type)


def doing_to(verb: Verb, name: str, member: str | None, resource_type: ResourceType | None) -> str:
    """As :func:`doing`, from the resource's name and its member."""
    spec = resource_type.operations.get(verb) if resource_type else None
    words = spec.carried_out_by.rpartition(".")[2].replace("_", " ") if spec else verb
    where = f" on {member}" if member else ""
    return f"{words}: {name}{where}"


def because(error: Mapping[str, Any], *, remedy: bool = True) -> str:
    """An error's message, ``remedy`` and code in one line."""
    parts = [str(error.get("message", "failed")).rstrip(".") + "."]
    if remedy and error.get("remedy"):
        parts.append(str(error["remedy"]))
    return clean(f"{' '.join(parts)} [{error.get('code', 'FAILED')}]")


def where(goal: Goal) -> str:
    """Return which member holds which role in a goal: ``active on db_a``."""
    held = [f"{role} on {member}" for role, member in sorted(goal.document["roles"].items())]
    return " and ".join(held) or "nothing active"
