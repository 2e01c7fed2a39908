# SPDX-License-Identifier: Apache-2.0
"""A group file takes the text of other files along, before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from mistral_failover.cli import files
from mistral_failover.cli.connection import CommandFailed

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


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"shapes/a.yaml cannot be read: No such file"):
        files.read(group(tmp_path, "shapes/a.yaml"), [], None)


@pytest.mark.parametrize("name", ["/etc/passwd", "../secret.yaml", "link.yaml"])
def test_no_file_from_elsewhere_is_sent(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret.yaml").write_text("secret", "utf-8")
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")

    with pytest.raises(CommandFailed, match="is not in the folder of the group file"):
        files.read(group(folder, name), [], None)
