# SPDX-License-Identifier: Apache-2.0
"""Reading group files and type files before anything is sent to a server."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mistral_failover.cli.connection import CommandFailed


@dataclass(frozen=True)
class Problem:
    """A fault in a file: its place, the problem, and the remedy."""

    file: str
    field: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class Definition:
    """A parsed group file and its types: ``document`` and ``types`` are their content, ``name`` the
    group's name."""

    name: str
    document: dict[str, Any]
    types: list[dict[str, Any]]


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the options for the files."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the group file (YAML)")
    parser.add_argument(
        "--type",
        type=Path,
        action="append",
        default=[],
        dest="types",
        metavar="FILE",
        help="a type file that the group file uses; may be repeated",
    )


def problems(file: Path, types: Iterable[Path], name: str | None = None) -> list[Problem]:
    """Return every problem of the files, unless one hides another."""
    return _read(file, types, name)[1]


def read(file: Path, types: Iterable[Path], name: str | None) -> Definition:
    """Return the definition in the files. Raises CommandFailed with every problem."""
    definition, found = _read(file, types, name)
    if definition is None:
        lines = [
            f"{each.file}: {each.field + ': ' if each.field else ''}{each.problem}. {each.remedy}"
            for each in found
        ]
        raise CommandFailed("\n".join([*lines, "Nothing was changed. [INVALID_DOCUMENT]"]))
    return definition


def _read(
    file: Path, types: Iterable[Path], name: str | None
) -> tuple[Definition | None, list[Problem]]:
    from mistral_failover.model.errors import InvalidDocument
    from mistral_failover.model.group import parse_group
    from mistral_failover.model.problems import group_problems
    from mistral_failover.model.types import load_type

    loaded, found = [], []
    for path in types:
        try:
            loaded.append(load_type(_text(path)))
        except InvalidDocument as error:
            found.append(Problem(str(path), error.path, error.message, error.remedy))
    text = _text(file)
    found += [
        Problem(str(file), each.path, each.message, each.remedy)
        for each in group_problems(text, name=name, types=loaded)
    ]
    if found:
        return None, found
    group = parse_group(text, name=name, types=loaded)
    return Definition(group.name, group.definition, [t.to_dict() for t in loaded]), []


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise CommandFailed(f"{path} cannot be read: {reason}. [NO_FILE]") from None
