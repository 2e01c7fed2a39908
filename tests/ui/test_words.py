# SPDX-License-Identifier: Apache-2.0
"""Steps in words: every type that is shipped has its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from mistral_failover import types
from mistral_failover.ui import words

TYPES = sorted(path.stem for path in Path(str(types.__file__)).parent.glob("*.yaml"))


@pytest.mark.parametrize(
    ("verb", "kind", "resource", "member", "said"),
    [
        ("create", "volume_attachment", "data", "db_b", "Attach data to db_b"),
        ("delete", "volume_attachment", "data", "db_a", "Detach data from db_a"),
        ("create", "port", "service", "db_b", "Attach service to db_b"),
        ("delete", "port", "service", "db_a", "Detach service from db_a"),
        ("create", "floating_ip", "public", "db_b", "Give public to db_b"),
        ("delete", "floating_ip", "public", "db_a", "Take public from db_a"),
        ("create", "dns_record", "name", "db_b", "Point name to db_b"),
        ("update", "dns_record", "name", "db_b", "Update name on db_b"),
        ("delete", "dns_record", "name", "db_a", "Release name from db_a"),
        ("create", "load_balancer_member", "entry", "db_b", "Enable entry on db_b"),
        ("delete", "load_balancer_member", "entry", "db_a", "Disable entry on db_a"),
        ("create", "virtual_ip", "inner", "db_b", "Give inner to db_b"),
        ("delete", "virtual_ip", "inner", "db_a", "Take inner from db_a"),
        ("update", "virtual_ip", "inner", "db_a", "Update inner on db_a"),
        ("create", "activation", "database", "db_b", "Start database on db_b"),
        ("create", "fence", "fence:db_a", None, "Fence db_a"),
        ("create", "group_member", "replace:db_a", None, "Replace db_a"),
        ("update", "stack_parameters", "routing", None, "Update stack: routing"),
        ("update", "stack_template", "size", None, "Change template: size"),
        ("update", "alarm", "watch", None, "Point alarm: watch"),
        ("create", "acme_alias", "www", "web_a", "Create www on web_a"),
    ],
)
def test_a_step_is_said_in_words(
    verb: str, kind: str, resource: str, member: str | None, said: str
) -> None:
    assert words.step(verb, kind, resource, member) == said


@pytest.mark.parametrize("kind", TYPES)
def test_no_shipped_type_is_left_to_the_general_words(kind: str) -> None:
    assert not words.step("create", kind, "x", None).startswith("Create ")
