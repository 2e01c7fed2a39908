# SPDX-License-Identifier: Apache-2.0
"""A group file takes the text of other files along, before anything is sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mistral_failover.cli import files
from mistral_failover.cli.connection import CommandFailed
from mistral_failover.model.documents import MAX_BYTES

GROUP = """\
failover_template_version: 2026-11-21
stack: payments
members: {{servers: [db_a, db_b]}}
resources:
  shape:
    type: stack_template
    properties:
      use: {{get_param: active}}
      templates: {{db_a: {{get_file: {first}}}, db_b: "heat_template_version: 2021-04-16"}}
"""


def group(folder: Path, first: str) -> Path:
    """A group file whose first template is in another file."""
    file = folder / "group.yaml"
    file.write_text(GROUP.format(first=first), encoding="utf-8")
    return file


def test_a_file_s_text_is_sent_instead_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "a.yaml").write_text("heat_template_version: 2021-04-16\n", "utf-8")

    found = files.read(group(tmp_path, "shapes/a.yaml"), [], None)

    templates = found.document["resources"]["shape"]["properties"]["templates"]
    assert templates["db_a"] == "heat_template_version: 2021-04-16\n"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("shapes/a.yaml", r"shapes/a.yaml cannot be read: No such file"),
        *(
            (name, "is not in the folder of the group file")
            for name in ("/etc/passwd", "../secret.yaml", "link.yaml")
        ),
        *(
            (url, "get_file takes the path of a file, not a URL")
            for url in ("https://example.org/a.yaml", "file:///etc/passwd")
        ),
        # A pipe would be waited for.
        *((name, r"is not a file\. .*\[NO_FILE\]") for name in ('"a\\0b"', '""', "shapes", "pipe")),
    ],
)
def test_what_is_no_file_in_the_folder_is_not_sent(tmp_path: Path, name: str, why: str) -> None:
    folder = tmp_path / "folder"
    (folder / "shapes").mkdir(parents=True)
    (tmp_path / "secret.yaml").write_text("secret", "utf-8")
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    os.mkfifo(folder / "pipe")

    with pytest.raises(CommandFailed, match=why):
        files.read(group(folder, name), [], None)


def test_no_more_is_read_than_a_group_may_have(tmp_path: Path) -> None:
    with (tmp_path / "huge.yaml").open("wb") as huge:
        huge.truncate(2**40)

    with pytest.raises(CommandFailed, match=f"longer than {MAX_BYTES // 1024} KiB"):
        files.read(group(tmp_path, "huge.yaml"), [], None)


def test_the_files_of_a_group_are_limited_together(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("#" * (MAX_BYTES - 100), "utf-8")
    file = group(tmp_path, "a.yaml")
    text = file.read_text("utf-8").replace("templates: {", "templates: {db_c: {get_file: a.yaml}, ")
    file.write_text(text, "utf-8")

    with pytest.raises(CommandFailed, match=f"longer than {MAX_BYTES // 1024} KiB"):
        files.read(file, [], None)


def test_a_group_file_without_resources_is_refused_for_that(tmp_path: Path) -> None:
    file = tmp_path / "group.yaml"
    file.write_text(
        "failover_template_version: 2026-11-21\nstack: payments # no get_file\n"
        "members: {servers: [db_a]}\n",
        "utf-8",
    )

    (found,) = files.problems(file, [])

    assert found.message == 'the key "resources" is missing'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("heat_template_version: [", "not YAML"),
        ("- a list", "is not a mapping"),
    ],
)
def test_a_template_that_cannot_be_read_is_a_problem_of_the_group_file(
    tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / "a.yaml").write_text(text, "utf-8")

    (found,) = files.problems(group(tmp_path, "a.yaml"), [])

    assert found.field == "resources.shape.properties.templates.db_a"
    assert problem in found.message
    assert found.remedy


def test_a_member_without_a_template_is_a_problem_of_the_group_file(tmp_path: Path) -> None:
    """A failover to it would end without one."""
    (tmp_path / "a.yaml").write_text("heat_template_version: 2021-04-16\n", "utf-8")
    file = group(tmp_path, "a.yaml")
    file.write_text(file.read_text("utf-8").replace("[db_a, db_b]", "[db_a, db_b, db_c]"), "utf-8")

    (found,) = files.problems(file, [])

    assert found.field == "resources.shape.properties.use"
    assert "db_c" in found.message


def test_each_file_that_cannot_be_read_has_its_line_beside_what_else_is_wrong(
    tmp_path: Path,
) -> None:
    file = group(tmp_path, "a.yaml")
    text = file.read_text("utf-8")
    text = text.replace("db_b: ", "db_b: {get_file: b.yaml}, db_c: ")
    wrong = text.replace("resources:", "x: 1\nresources:")
    file.write_text(wrong, "utf-8")

    found = files.problems(file, [])

    place = "resources.shape.properties.templates"
    assert [(each.line, each.field, each.code) for each in found] == [
        (4, "x", "INVALID_DOCUMENT"),
        (10, f"{place}.db_a", "NO_FILE"),
        (10, f"{place}.db_b", "NO_FILE"),
    ]


def test_problems_are_in_the_order_of_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "group.yaml"
    file.write_text("stack: 7\nmembers: {servers: []}\nzz: 1\naa: 2\nresources: {}\n", "utf-8")

    found = files.problems(file, [])

    lines = [each.line for each in found]
    assert lines == sorted(lines)
    assert None not in lines


def test_a_workflow_is_placed_where_the_file_names_it(tmp_path: Path) -> None:
    file = group(tmp_path, "a.yaml")
    (tmp_path / "a.yaml").write_text("heat_template_version: 2021-04-16\n", "utf-8")
    more = "fence: [stop, {workflow: power.off}]\nworkflow: my.chain\non_event: {workflow: tell}\n"
    file.write_text(file.read_text("utf-8") + more, "utf-8")
    given = files.read(file, [], None)

    places = [given.naming(each) for each in ("power.off", "my.chain", "tell", "other")]

    assert places == ["fence[1].workflow", "workflow", "on_event.workflow", ""]
    assert [given.line(each) for each in places[:3]] == [10, 11, 12]
