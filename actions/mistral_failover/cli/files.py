# SPDX-License-Identifier: Apache-2.0
"""Reading group files and type files before anything is sent to a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mistral_failover.cli.arguments import argument
from mistral_failover.cli.connection import CommandFailed, with_full_stop

if TYPE_CHECKING:
    from mistral_failover.model.errors import InvalidDocument
    from mistral_failover.runtime.errors import ProblemFacts

GET_FILE = "get_file"

FILES = (
    argument("file", type=Path, metavar="FILE", help="the group file (YAML)"),
    argument(
        "--type",
        type=Path,
        action="append",
        default=[],
        dest="types",
        metavar="FILE",
        help="a type file that the group file uses; may be repeated",
    ),
)
"""The arguments for the files."""


@dataclass(frozen=True)
class Problem:
    """A fault in a file: its place, a stable code, what is wrong, and the remedy. ``line``: counted
    from 1, None if it is not known; ``field``: the path, empty for the whole file."""

    file: str
    line: int | None
    field: str
    code: str
    message: str
    remedy: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        field = f"{self.field}: " if self.field else ""
        return f"{place}: {field}{with_full_stop(self.message)} {self.remedy}"


class DocumentRefused(CommandFailed):
    """A group file, or a type file, is refused; nothing was changed. ``given``: what was read, if
    it is a document; the cloud may say more of it."""

    def __init__(self, found: Sequence[Problem], given: Definition | None = None) -> None:
        lines = [f"{each} [{each.code}]" for each in found]
        super().__init__("\n".join([*lines, "Nothing was changed. [INVALID_DOCUMENT]"]))
        self.found, self.given = tuple(found), given


@dataclass(frozen=True)
class Definition:
    """A parsed group file and its types: ``document`` and ``types`` are their content, ``name`` the
    group's name, ``file`` the group file and ``line`` the line of a path in it."""

    name: str
    document: dict[str, Any]
    types: list[dict[str, Any]]
    file: str
    line: Callable[[str], int | None]

    def placed(self, problems: Iterable[Mapping[str, str] | ProblemFacts]) -> list[Problem]:
        """Return what an action says of the group file, with file and line."""
        return [Problem(self.file, self.line(each["field"]), **each) for each in problems]


def problems(file: Path, types: Iterable[Path]) -> list[Problem]:
    """Return every problem of the files, unless one hides another."""
    return _read(file, types, None)[2]


def read(file: Path, types: Iterable[Path], name: str | None) -> Definition:
    """Return the definition in the files. Raises DocumentRefused with every problem."""
    definition, given, found = _read(file, types, name)
    if definition is None:
        raise DocumentRefused(found, given)
    return definition


def _read(
    file: Path, types: Iterable[Path], name: str | None
) -> tuple[Definition | None, Definition | None, list[Problem]]:
    """Return the definition, None if it is refused; what was given, None if it is no document; and
    the problems."""
    from mistral_failover.model.documents import line_finder, read_document
    from mistral_failover.model.errors import InvalidDocument
    from mistral_failover.model.group import parse_group
    from mistral_failover.model.problems import group_problems
    from mistral_failover.model.types import load_type

    types, loaded, found = list(types), [], []
    for path in types:
        text = _text(path)
        try:
            loaded.append(load_type(text))
        except InvalidDocument as error:
            found.append(_problem(path, error, line_finder(text)))
    text = _text(file)
    source, line = _with_files(text, file), line_finder(text)
    found += [
        _problem(file, each, line) for each in group_problems(source, name=name, types=loaded)
    ]
    kinds = [t.to_dict() for t in loaded]
    if found:
        try:
            document = dict(read_document(source, "group file"))
        except InvalidDocument:
            return None, None, found
        given = Definition(name or "", document, kinds, str(file), line)
        return None, given if len(kinds) == len(list(types)) else None, found
    group = parse_group(source, name=name, types=loaded)
    definition = Definition(group.name, group.definition, kinds, str(file), line)
    return definition, definition, []


def _problem(file: Path, error: InvalidDocument, line: Callable[[str], int | None]) -> Problem:
    where = error.line or line(error.path)
    return Problem(str(file), where, error.path, error.code, error.message, error.remedy)


def _with_files(text: str, file: Path) -> str | dict[str, Any]:
    """Return a group file with the text of each file that it names by ``get_file``, as in Heat. A
    text that is no document stays as it is, for its problems to be found."""
    from mistral_failover.model.documents import read_document
    from mistral_failover.model.errors import InvalidDocument

    if GET_FILE not in text:
        return text
    try:
        document = read_document(text, "group file")
    except InvalidDocument:
        return text
    if "resources" not in document:
        return document
    return {**document, "resources": _FileInclusion(file).tree(document["resources"])}


class _FileInclusion:
    """Puts the texts of files in place of their names. They have the limit of a group file
    together, so that no file is read that the group could not have."""

    def __init__(self, file: Path) -> None:
        from mistral_failover.model.documents import MAX_BYTES

        self._file, self._left, self._most = file, MAX_BYTES, MAX_BYTES

    def tree(self, value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {GET_FILE} and isinstance(value[GET_FILE], str):
                return self._text(value[GET_FILE])
            return {key: self.tree(inner) for key, inner in value.items()}
        return [self.tree(inner) for inner in value] if isinstance(value, list) else value

    def _text(self, name: str) -> str:
        path = self._beside(name)
        self._left -= path.stat().st_size if path.is_file() else 0
        if self._left < 0:
            raise CommandFailed(
                f"{self._file}: get_file: {name}: the files of the group are longer than "
                f"{self._most // 1024} KiB together. Shorten them. [NO_FILE]"
            )
        return _text(path)

    def _beside(self, name: str) -> Path:
        """Return the path of a file in the group file's folder, or below it: a group file that was
        written by another person must not send other files."""
        folder = self._file.resolve().parent
        if "://" in name:
            raise CommandFailed(
                f"{self._file}: get_file takes the path of a file, not a URL: {name}. Copy the "
                "file to the folder of the group file. [NO_FILE]"
            )
        try:
            found = (folder / name).resolve()
        except (OSError, ValueError, RuntimeError):  # a NUL byte, a link to itself
            found = folder
        if not found.is_relative_to(folder):
            raise CommandFailed(
                f"{self._file}: get_file: {name} is not in the folder of the group file or below "
                "it. Copy the file there. [NO_FILE]"
            )
        if found.exists() and not found.is_file():
            raise CommandFailed(
                f"{self._file}: get_file: {name!r} is not a file. Name a file in the folder of the "
                "group file. [NO_FILE]"
            )
        return found


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise CommandFailed(f"{path} cannot be read: {reason}. [NO_FILE]") from None
