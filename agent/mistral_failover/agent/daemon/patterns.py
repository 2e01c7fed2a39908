# SPDX-License-Identifier: Apache-2.0
"""Patterns for the arguments of commands: a server's operator writes them, and text from outside is
compared with them. No text may keep the agent busy for long.

With google-re2 installed (the extra ``agent``) the time is linear in the length of the text.
Python's own ``re`` tries one way to match after the other. Without google-re2 a pattern is refused
if their number grows exponentially with the text: if a repetition contains another one, a choice or
something optional. Otherwise it grows with a power of the text's length, as in ``.*.*.*x``: then
texts are only so long that it stays below `STEPS`, and a pattern that leaves no useful length is
refused.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterator
from typing import Any, Protocol

try:
    import re2
except ImportError:  # it is optional
    re2 = None

LONGEST = 512
"""Maximum length of a text, in characters, without google-re2."""
SHORTEST = 32
"""The least maximum; a pattern that would need a lower one is refused."""
STEPS = 5_000_000
"""Ways to match one text that are tried at most; the worst pattern that was found took 0.25 s."""
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_INSTALL = "or install google-re2 (the extra: mistral-failover-agent[re2])"


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
    """Compile a regular expression that takes limited time. Raises InvalidPattern."""
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

    def __init__(self, pattern: re.Pattern[str], longest: int) -> None:
        self._pattern, self._longest = pattern, longest

    def fullmatch(self, text: str, /) -> object | None:
        """See Pattern."""
        return self._pattern.fullmatch(text) if len(text) <= self._longest else None


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
            "a repetition contains another one, a choice or something optional, so a value could "
            "keep the agent busy",
            f"Write it without, for example [a-z.]+ instead of ([a-z]+[.]?)+, {_INSTALL}.",
        )
    longest = _longest(parsed)
    if longest < SHORTEST:
        raise InvalidPattern(
            "it has so many repetitions, choices and optional parts that a value could keep the "
            "agent busy",
            f"Write it with fewer, for example [a-z.]* instead of [a-z]*[.]?[a-z]*, {_INSTALL}.",
        )
    return _Bounded(pattern, longest)


def _longest(parsed: Any) -> int:
    """Return the length up to which the ways to match a text stay below `STEPS`, `LONGEST` at
    most; 0 if that is less than `SHORTEST`."""
    choices, ranges = 1, []
    for operation, argument in _parts(parsed):
        if operation == "BRANCH":
            choices *= len(argument[1])
        elif operation in _REPEATS:
            ranges.append(int(argument[1]) - int(argument[0]) + 1)
    ranges.sort()

    def ways(length: int) -> int:
        # Those of small ranges multiply; those of large ones share the text between them.
        return choices * min(
            math.prod(ranges[:small]) * math.comb(length + len(ranges) - small, length)
            for small in range(len(ranges) + 1)
        )

    if ways(SHORTEST) > STEPS:
        return 0
    return bisect.bisect_right(range(LONGEST + 1), STEPS, key=ways) - 1


def _parts(parsed: Any) -> Iterator[tuple[str, Any]]:
    """The operations of a parsed expression, at any depth, with their arguments."""
    for operation, argument in parsed:
        yield str(operation), argument
        for inner in _inner(argument):
            yield from _parts(inner)


def _nested(part: Any, *, within: bool) -> bool:
    """Whether a part of a parsed expression has a repetition, a choice or something optional
    ``within`` a repetition."""
    for operation, argument in part:
        varies = str(operation) == "BRANCH"
        repeats = str(operation) in _REPEATS and argument[1] > 1
        optional = str(operation) in _REPEATS and argument[0] != argument[1]
        if within and (varies or repeats or optional):
            return True
        if any(_nested(inner, within=within or repeats) for inner in _inner(argument)):
            return True
    return False


def _inner(argument: Any) -> Iterator[Any]:
    """The expressions within an operation's argument, at any depth."""
    if isinstance(argument, re._parser.SubPattern):  # type: ignore[attr-defined]
        yield argument
    elif isinstance(argument, (list, tuple)):
        for each in argument:
            yield from _inner(each)
