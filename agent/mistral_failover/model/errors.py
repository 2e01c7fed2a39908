# SPDX-License-Identifier: Apache-2.0
"""What the model refuses: a stable code, a message and a remedy each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

_LONGEST = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class DocumentProblem(Protocol):
    """A problem of a document: its place, as of `InvalidDocument`, a stable code, what is wrong,
    and what helps."""

    @property
    def path(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def remedy(self) -> str: ...


class InvalidDocument(ValueError):  # noqa: N818 - it names the finding, not the mechanism
    """A group file, type file or goal breaks a rule of its grammar.

    ``path`` leads to the wrong place with dots and indexes, as in
    ``resources.data.properties.server`` or ``members.servers[1]``; it is empty for the whole
    document. ``line``: of the text, counted from 1, if only the reader of the text knows it; see
    `documents.line_finder` for others. ``str()`` is one line: ``path: message. remedy``.
    """

    code = "INVALID_DOCUMENT"

    def __init__(self, path: str, message: str, remedy: str, line: int | None = None) -> None:
        super().__init__(path, message, remedy)
        self.line = line
        self.path = _shown(path)
        self.message = _shown(message)
        self.remedy = _shown(remedy)

    def __str__(self) -> str:
        return _line(self.path, self.message, self.remedy)


class RefusedDocument(ValueError):  # noqa: N818 - as above
    """A group file has ``problems``: all of them, each with ``path``, ``code``, ``message`` and
    ``remedy``."""

    code = "INVALID_DOCUMENT"

    def __init__(self, problems: Sequence[DocumentProblem]) -> None:
        super().__init__(problems)
        self.problems = tuple(problems)
        said = [f"{p.path}: {p.message}" if p.path else p.message for p in self.problems]
        self.message = "; ".join(each.rstrip(".") for each in said)
        self.remedy = (
            self.problems[0].remedy
            if len(self.problems) == 1
            else f"Correct these {len(self.problems)} problems. Nothing was changed."
        )

    def __str__(self) -> str:
        return _line("", self.message, self.remedy)


class UnknownResource(InvalidDocument):
    """A document names a ``resource`` that does not exist."""

    def __init__(self, path: str, resource: str, remedy: str) -> None:
        super().__init__(path, f'unknown resource "{resource}"', remedy)
        self.resource = resource


class UnknownMember(InvalidDocument):
    """A group file names a ``member`` that it does not have."""

    def __init__(self, path: str, member: str, remedy: str) -> None:
        super().__init__(path, f'"{member}" is not a member', remedy)
        self.member = member


class UnresolvedReference(InvalidDocument):
    """A ``get_param``, ``get_attr`` or ``get_resource`` names something that does not exist.

    ``path`` leads to the reference within the resolved tree.
    """

    code = "UNRESOLVED_REFERENCE"


class NoEligibleMember(Exception):  # noqa: N818 - as above
    """No member can take a role.

    ``reasons`` has the reason for each member, in words.
    """

    code = "NO_ELIGIBLE_MEMBER"

    def __init__(self, message: str, remedy: str, reasons: Mapping[str, str]) -> None:
        super().__init__(message, remedy, dict(reasons))
        self.message = message
        self.remedy = remedy
        self.reasons = dict(reasons)

    def __str__(self) -> str:
        return _line("", with_reasons(self.message, self.reasons), self.remedy)


def with_reasons(message: str, reasons: Mapping[str, str]) -> str:
    """Return the message of an error with the reason for each member."""
    each = "; ".join(f"{member}: {reasons[member]}" for member in sorted(reasons))
    return f"{message} ({each})" if each else message


def _shown(text: str) -> str:
    """Return the text as one line of limited length: it contains names from a user's file."""
    clipped = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", clipped)


def _line(path: str, message: str, remedy: str) -> str:
    head = f"{path}: " if path else ""
    return f"{head}{message.rstrip('.')}. {remedy}".rstrip()
