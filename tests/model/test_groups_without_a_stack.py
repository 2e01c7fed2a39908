# SPDX-License-Identifier: Apache-2.0
"""A group file without a stack: how it names things, and what it cannot have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mistral_failover.cli import files
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.goal import render_goal
from mistral_failover.model.group import parse_group
from mistral_failover.model.named import Identity, Named, Thing

EXAMPLE = Path(__file__).parents[2] / "examples" / "group-without-stack.yaml"
ACTIVE = {"get_param": "active"}


def file(**more: Any) -> dict[str, Any]:
    data = {"volume": {"tag": "role=data"}, "server": ACTIVE}
    return {
        "failover_template_version": "2026-11-21",
        "name": "payments",
        "members": {"servers": {"db_a": {"name": "db-a"}, "db_b": None}},
        "resources": {"data": {"type": "volume_attachment", "properties": data}},
        **more,
    }


def volume(value: Any) -> dict[str, Any]:
    given = {"volume": value, "server": ACTIVE}
    return {"resources": {"data": {"type": "volume_attachment", "properties": given}}}


def test_what_it_names_is_found_by_the_cloud() -> None:
    group = parse_group(file())

    assert (group.name, group.stack, group.members.servers) == ("payments", None, ("db_a", "db_b"))
    assert group.named == (
        Named("members.servers.db_a", Thing.SERVER, "name", "db-a"),
        Named("members.servers.db_b", Thing.SERVER, "name", "db_b"),
        Named("resources.data.properties.volume", Thing.VOLUME, "tag", "role=data"),
    )


def test_a_goal_has_the_ids_and_the_stored_file_the_names() -> None:
    found: dict[str, Identity] = {
        each.path: {"id": f"id of {each.value}", "created_at": None}
        for each in parse_group(file()).named
    }

    group = parse_group(file(), identities=found)

    goal = render_goal(group, {"active": "db_a"}, ())
    assert goal.document["resources"]["data"]["properties"]["volume"] == "id of role=data"
    assert goal.document["stack"] is None
    assert {name: each["id"] for name, each in group.members.known.items()} == {
        "db_a": "id of db-a",
        "db_b": "id of db_b",
    }
    assert group.definition == file()


def test_an_id_is_taken_as_it_is() -> None:
    identity = "8f2b1a3c-0d4e-4f5a-9b6c-7d8e9f0a1b2c"
    for value in (identity, {"id": identity}):
        group = parse_group(file(**volume(value)))
        assert group.resources["data"].properties["volume"] == identity
        assert [each.thing for each in group.named] == [Thing.SERVER, Thing.SERVER]


def test_with_a_stack_a_list_of_names_stays_what_it_was() -> None:
    members = {"servers": ["db_a", "db_b"]}
    group = parse_group(file(stack="payments", members=members, **volume("data_volume")))

    assert group.named == ()
    assert group.resources["data"].properties["volume"] == "data_volume"


SERVERS = {"servers": ["db_a"]}
FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"name": None}, "name", "null", "Write text"),
    (
        {"members": {"autoscaling_group": "nodes"}},
        "members.autoscaling_group",
        "belongs to a stack",
        "members.servers",
    ),
    (
        {"members": {**SERVERS, "restart": ["start", "replace"]}},
        "members.restart[1]",
        "Heat makes another server",
        "[start, evacuate]",
    ),
    (
        {"members": {**SERVERS, "replace": "lost"}},
        "members.replace",
        "the group has no stack",
        "restart: [start]",
    ),
    (
        {"members": {**SERVERS, "when_no_standby": "replace"}},
        "members.when_no_standby",
        "the group has no stack",
        "restart: [start]",
    ),
    (
        {
            "resources": {
                "routing": {"type": "stack_parameters", "properties": {"parameters": {"a": 1}}}
            }
        },
        "resources.routing.type",
        "changes the group's stack",
        "floating_ip",
    ),
    (
        {"members": {"servers": {"db_a": {"nmae": "x"}}}},
        "members.servers.db_a.nmae",
        'unknown key "nmae"',
        'Did you mean "name"?',
    ),
    (
        {"members": {"servers": {"db_a": {"name": "x", "id": "y"}}}},
        "members.servers.db_a",
        "does not name a server",
        "one of the keys",
    ),
    (volume({"tag": 7}), "resources.data.properties.volume", "does not name a volume", "tag"),
    (
        volume({"name": ACTIVE}),
        "resources.data.properties.volume",
        "does not name a volume",
        "tag",
    ),
    (
        {"stack": "payments"},
        "members.servers",
        "with a stack",
        "list of names",
    ),
]


@pytest.mark.parametrize(("changes", "path", "fragment", "remedy"), FAULTS)
def test_what_it_cannot_have_is_refused_with_what_to_use_instead(
    changes: dict[str, Any], path: str, fragment: str, remedy: str
) -> None:
    with pytest.raises(InvalidDocument) as caught:
        parse_group(file(**changes))

    assert caught.value.path == path
    assert fragment in caught.value.message
    assert remedy in caught.value.remedy


def test_it_needs_a_name() -> None:
    document = file()
    del document["name"]

    with pytest.raises(InvalidDocument, match="name: a group without a stack needs a name"):
        parse_group(document)

    assert parse_group(document, name="payments").name == "payments"


def test_a_refusal_has_its_line(tmp_path: Path) -> None:
    text = EXAMPLE.read_text("utf-8").replace("members:\n", "members:\n  replace: lost\n")
    given = tmp_path / "group.yaml"
    given.write_text(text, "utf-8")

    with pytest.raises(files.DocumentRefused) as caught:
        files.read(given, (), None)

    (found,) = caught.value.found
    line = 1 + text.splitlines().index("  replace: lost")
    assert (found.line, found.field) == (line, "members.replace")


def test_a_bringing_back_by_start_needs_no_stack() -> None:
    members = {**SERVERS, "replace": "lost", "restart": ["start", "evacuate"]}

    group = parse_group(file(members=members))

    assert group.members.cold
    assert not group.members.makes_servers
