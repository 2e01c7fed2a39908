# SPDX-License-Identifier: Apache-2.0
"""Ids that whoever knows the parts derives alike."""

from __future__ import annotations

from uuid import UUID, uuid5

NAMESPACE = UUID("6f1a1c0e-54f5-5d0c-9c53-0b8f2f6a7d11")
"""All derived ids live here, so that a repeat meets its own traces."""


def derived_id(*parts: str) -> str:
    """An id that is the same for the same parts, whoever derives it."""
    return str(uuid5(NAMESPACE, "/".join(parts)))


def group_id(project_id: str, name: str) -> str:
    """The id of a project's group: derived, so that defining it twice meets itself, and a node
    can know it before the group is defined."""
    return derived_id("group", project_id, name)
