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
    it is a document; the cloud may say more of it. The problems of each file are in the order of
    its lines."""

    def __init__(self, found: Sequence[Problem], given: Definition | None = None) -> None:
        files = list(dict.fromkeys(each.file for each in found))
        found = sorted(found, key=lambda each: (files.index(each.file), each.line or 0, each.field))
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

    def naming(self, workflow: str) -> str:
        """Return the path at which the group file names a workflow first."""
        rungs = enumerate(self.document.get("fence", []))
        hook = self.document.get("on_event", {})
        named = [
            ("workflow", self.document.get("workflow")),
            *((f"fence[{n}].workflow", r.get("workflow")) for n, r in rungs if isinstance(r, dict)),
            ("on_event.workflow", hook.get("workflow")),
        ]
        return next((path for path, name in named if name == workflow), "")

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
    from mistral_failover.model.types import load_type, type_problems

    types, loaded = list(types), []
    found: list[Problem] = []
    for path in types:
        text = _text(path)
        if wrong_in_type := type_problems(text):
            found += (_problem(path, each, line_finder(text)) for each in wrong_in_type)
        else:
            loaded.append(load_type(text))
    text = _text(file)
    included = _FileInclusion(file)
    source, line = _with_files(text, included), line_finder(text)
    missing = [Problem(str(file), line(where), where, *said) for where, said in included.problems]
    judged = group_problems(source, name=name, types=loaded)
    wrong = [*missing, *(_problem(file, each, line) for each in judged)]
    found += {each.field: each for each in reversed(wrong)}.values()  # once for each place
    found.sort(key=lambda each: (each.file == str(file), each.line or 0, each.field))
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


def _with_files(text: str, included: _FileInclusion) -> str | dict[str, Any]:
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
    return {**document, "resources": included.tree(document["resources"], "resources")}


_STAND_IN = "heat_template_version: 2021-04-16\n"
"""What takes the place of a file that is not there, so that what is around it is judged."""


class _NotIncluded(Exception):  # noqa: N818 - it names the finding
    """A file cannot be put in the place of its name: what is wrong, and the remedy."""


class _FileInclusion:
    """Puts the texts of files in place of their names. They have the limit of a group file
    together, so that no file is read that the group could not have. ``problems``: what is wrong
    with the names, each with its path in the group file; code, message and remedy."""

    def __init__(self, file: Path) -> None:
        from mistral_failover.model.documents import MAX_BYTES

        self._file, self._left, self._most = file, MAX_BYTES, MAX_BYTES
        self.problems: list[tuple[str, tuple[str, str, str]]] = []

    def tree(self, value: Any, path: str) -> Any:
        """Return a part of the group file, with its path, with the texts in it."""
        if isinstance(value, dict):
            if value.keys() == {GET_FILE} and isinstance(value[GET_FILE], str):
                try:
                    return self._text(value[GET_FILE])
                except _NotIncluded as error:
                    message, remedy = error.args
                    self.problems.append((path, ("NO_FILE", message, remedy)))
                    return _STAND_IN
            return {key: self.tree(inner, f"{path}.{key}") for key, inner in value.items()}
        if isinstance(value, list):
            return [self.tree(inner, f"{path}[{n}]") for n, inner in enumerate(value)]
        return value

    def _text(self, name: str) -> str:
        path = self._beside(name)
        self._left -= path.stat().st_size if path.is_file() else 0
        if self._left < 0:
            raise _NotIncluded(
                f"get_file: {name}: the files of the group are longer than "
                f"{self._most // 1024} KiB together",
                "Shorten them.",
            )
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _NotIncluded(_unreadable(path, error), "Correct the name, or the file.") from None

    def _beside(self, name: str) -> Path:
        """Return the path of a file in the group file's folder, or below it: a group file that was
        written by another person must not send other files."""
        folder = self._file.resolve().parent
        if "://" in name:
            raise _NotIncluded(
                f"get_file takes the path of a file, not a URL: {name}",
                "Copy the file to the folder of the group file.",
            )
        try:
            found = (folder / name).resolve()
        except (OSError, ValueError, RuntimeError):  # a NUL byte, a link to itself
            found = folder
        if not found.is_relative_to(folder):
            raise _NotIncluded(
                f"get_file: {name} is not in the folder of the group file or below it",
                "Copy the file there.",
            )
        if found.exists() and not found.is_file():
            raise _NotIncluded(
                f"get_file: {name!r} is not a file", "Name a file in the folder of the group file."
            )
        return found


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{_unreadable(path, error)}. [NO_FILE]") from None


def _unreadable(path: Path, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or "it is not UTF-8"
    return f"{path} cannot be read: {reason}"
