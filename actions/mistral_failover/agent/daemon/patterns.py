# SPDX-License-Identifier: Apache-2.0
"""Patterns for the arguments of commands: a server's operator writes them, and text from outside is
compared with them. No text may keep the agent busy for long.

With google-re2 installed (the extra ``agent``) the time is linear in the length of the text.
Python's own ``re`` may need exponential time if a repetition contains another one, or a choice; so
without google-re2 such a pattern is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol

try:
    import re2
except ImportError:  # it is optional
    re2 = None

LONGEST = 512
"""Maximum length of a text, in characters, without google-re2."""
_INSTALL = "or install google-re2 (the extra: mistral-failover[agent])"


class Pattern(Protocol):
    """A compiled regular expression."""

    def fullmatch(self, text: str, /) -> object | None:
        """Return something if the whole text matches, else None."""
        ...


class InvalidPattern(ValueError):  # noqa: N818 - what it is, not that it is an error
    """The text cannot be used as a pattern. ``remedy``: what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def compiled(text: str) -> Pattern:
    """Compile a regular expression that takes limited time. Raises NotAPattern."""
    return _bounded(text) if re2 is None else _linear(text)


def _linear(text: str) -> Pattern:
    options = re2.Options()
    options.log_errors = False
    try:
        found: Pattern = re2.compile(text, options)
    except re2.error:
        raise InvalidPattern(
            "it is not a valid regular expression",
            "Use the syntax of RE2: like Python's re module, without lookaround and references.",
        ) from None
    return found


class _Bounded:
    """A pattern for Python's own engine, and short texts."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def fullmatch(self, text: str, /) -> object | None:
        """See Pattern."""
        return self._pattern.fullmatch(text) if len(text) <= LONGEST else None


def _bounded(text: str) -> Pattern:
    try:
        pattern = re.compile(text)
        parsed = re._parser.parse(text)  # type: ignore[attr-defined]
    except (re.error, OverflowError, RecursionError):
        raise InvalidPattern(
            "it is not a valid regular expression", "Use the syntax of Python's re module."
        ) from None
    if _nested(parsed, within=False):
        raise InvalidPattern(
            "a repetition contains another one or a choice, so a value could keep the agent busy",
            f"Write it without, for example [a-z.]+ instead of ([a-z]+[.]?)+, {_INSTALL}.",
        )
    return _Bounded(pattern)


def _nested(part: Any, *, within: bool) -> bool:
    """Whether a part of a parsed expression has a repetition or a choice ``within`` a
    repetition."""
    for operation, argument in part:
        repeats = str(operation) in ("MAX_REPEAT", "MIN_REPEAT") and argument[1] > 1
        if within and (repeats or str(operation) == "BRANCH"):
            return True
        if any(_nested(inner, within=within or repeats) for inner in _inner(argument)):
            return True
    return False


def _inner(argument: Any) -> Iterator[Any]:
    """The expressions within an operation's argument, at any depth."""
    if isinstance(argument, re._parser.SubPattern):  # type: ignore[attr-defined]
        yield argument
    elif isinstance(argument, list | tuple):
        for each in argument:
            yield from _inner(each)
