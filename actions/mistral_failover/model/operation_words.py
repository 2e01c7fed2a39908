# SPDX-License-Identifier: Apache-2.0
"""What an operation does, in words: the same in the journal, in plans, in the status and on the
page."""

from __future__ import annotations

import re

from mistral_failover.model.types import ResourceType, Verb

_PLACEHOLDER = re.compile(r"\{(name|member)\}")


def operation_words(
    verb: Verb, name: str, member: str | None, resource_type: ResourceType | None
) -> str:
    """Return what an operation does to a resource, such as ``Attach data to db_b``.

    The words are those of the type. A type without words, or one that is not defined any more
    (None), gets the verb: ``Create data on db_b``. The engine's own resources are called by their
    member: ``Fence db_a``.
    """
    _, _, of_engine = name.partition(":")  # a group file's names have no colon
    named = {"name": of_engine or name, "member": member or "?"}
    words = resource_type.words.get(verb) if resource_type else None
    if words is None:
        words = f"{verb.capitalize()} {{name}}" + (" on {member}" if member else "")
    return _PLACEHOLDER.sub(lambda found: named[found[1]], words)
