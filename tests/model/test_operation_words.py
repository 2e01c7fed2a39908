# SPDX-License-Identifier: Apache-2.0
"""What an operation does, in words."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.model.operation_words import operation_words
from mistral_failover.model.types import installed_types, load_type

SMALL = {
    "failover_type_version": "2026-11-21",
    "name": "house",
    "member": "server",
    "properties": {"server": {"type": "string", "immutable": True}},
    "operations": {"create": {"workflow": "acme.x"}},
}


@pytest.mark.parametrize(
    ("verb", "kind", "resource", "member", "said"),
    [
        ("create", "volume_attachment", "data", "db_b", "Attach data to db_b"),
        ("delete", "port", "service", "db_a", "Detach service from db_a"),
        ("create", "activation", "database", "db_b", "Start database on db_b"),
        ("create", "fence", "fence:db_a", None, "Fence db_a"),
        ("create", "group_member", "replace:db:a", None, "Bring back db:a"),
        ("update", "stack_parameters", "routing", None, "Update the stack (routing)"),
        ("create", "acme_alias", "www", "web_a", "Create www on web_a"),
        ("delete", "acme_alias", "www", None, "Delete www"),
    ],
)
def test_a_step_is_named_in_the_words_of_its_type(
    verb: Any, kind: str, resource: str, member: str | None, said: str
) -> None:
    assert operation_words(verb, resource, member, installed_types().get(kind)) == said


@pytest.mark.parametrize("name", sorted(installed_types()))
def test_every_shipped_operation_has_words(name: str) -> None:
    shipped = installed_types()[name]

    assert shipped.words.keys() == shipped.operations.keys()


def test_a_name_in_braces_is_no_placeholder() -> None:
    of_type = load_type({**SMALL, "words": {"create": "Move {name} to {member}"}})

    assert operation_words("create", "ip", "{name}", of_type) == "Move ip to {name}"
    assert operation_words("create", "ip", None, of_type) == "Move ip to ?"
    assert operation_words("delete", "ip", "a", of_type) == "Delete ip on a"
