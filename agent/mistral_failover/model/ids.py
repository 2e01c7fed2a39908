# SPDX-License-Identifier: Apache-2.0
"""Ids that every process derives in the same way from the same parts."""

from __future__ import annotations

from uuid import UUID, uuid5

NAMESPACE = UUID("6f1a1c0e-54f5-5d0c-9c53-0b8f2f6a7d11")
"""The namespace of all derived ids. With them a repeat finds the records of its first run."""


def derived_id(*parts: str) -> str:
    """Return an id that is always the same for the same parts."""
    return str(uuid5(NAMESPACE, "/".join(parts)))


def group_id(project_id: str, name: str) -> str:
    """Return the id of a project's group. It is derived, so that a second definition finds the
    first one, and an agent knows the id before the group is defined."""
    return derived_id("group", project_id, name)
