# SPDX-License-Identifier: Apache-2.0
"""Read YAML and JSON from outside, without trusting it.

These functions are the only way to do so: ruff refuses another use of ``yaml.load`` or
``json.loads`` (``banned-api`` in ``pyproject.toml``).

YAML is built directly from the parser's events, so that nothing forbidden is ever constructed: no
tags, no duplicate keys, no keys that are not text, only one document, at most 40 levels deep and
256 KiB long. Numbers that JSON cannot carry (NaN, infinities, integers beyond 64 bits) are refused,
and so are anchors and aliases, which make YAML bombs. There are three dialects:

* `load_document`: plain scalars follow the core schema of YAML 1.2: only ``true`` and ``false`` are
  booleans (``yes`` and ``on`` are text), dates stay text, and ``1:30`` is not a number.
* `load_yaml_1_1`: YAML 1.1 as Heat reads a template, and the agent its file. Aliases are allowed,
  and count as often as they occur.
* `load_workflow`: YAML 1.1 as Mistral reads it, for which ``&`` and ``*`` begin plain text.

The two older ones have no merge keys (``<<``): to expand them takes PyYAML before 6.0.4 a minute
for a document of 1 KiB.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union

import yaml

from mistral_failover.model.errors import InvalidDocument

MAX_BYTES = 256 * 1024
MAX_DEPTH = 40
MAX_INTEGER = 2**63 - 1
MAX_JSON_BYTES = 64 * 1024 * 1024
"""The longest JSON that is read, unless the caller sets a smaller limit: no listing of a service is
near it."""
MAX_JSON_VALUES = 1_000_000
"""Values in JSON: each takes far more memory than its text."""
MAX_JSON_DEPTH = 200
"""Levels of JSON: what works on a value calls itself for each level."""
MAX_JSON_DIGITS = 4300
"""Digits of an integer in JSON, as Python limits them unless its environment says otherwise: to
convert a long one takes a time that grows with the square of its length."""

# Use libyaml if the wheel has it: it is ten times faster and gives the same events.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LONGEST_INTEGER = 66
"""Characters of an integer in YAML: 64 bits in base 2, with a prefix."""
_HALF = re.compile("[\ud800-\udfff]")
_QUOTE_IT = "Put the value in quotes if it is meant as text."

# What the parsers raise for text that is not YAML. Those in pure Python let what their conversions
# raise pass: of an escape beyond Unicode, or a version with a million digits.
_PARSER_ERRORS = (yaml.YAMLError, ValueError, OverflowError, RecursionError)

_Path = Optional[tuple["_Path", Union[str, int]]]
"""The place of a value: that of what contains it, and its key or index. It becomes text only in a
refusal: to write each place out takes long if keys are long."""


def load_document(text: str | bytes, what: str) -> dict[str, Any]:
    """Read one YAML (or JSON) document whose top level is a mapping.

    :param what: the name of the text for messages, as in ``"group file"``.
    :raises InvalidDocument: when a rule of this module is broken; the message ends with the line
        and the column, counted from 1. It shows no value, since that may be a secret.
    """
    return _read(text, what, _Dialect(_core))


def line_finder(text: str | bytes) -> Callable[[str], int | None]:
    """Return a function from a path, as of `InvalidDocument`, to the line of a document, counted
    from 1: of the key or item there, or of the nearest one around it, at last of the first key of
    the document. None if it has none, or if the text is no document."""
    try:
        builder = _Builder(_Loader(_decoded(text, "")), "", _Dialect(_core))
        builder.document()
    except (InvalidDocument, *_PARSER_ERRORS):
        return lambda path: None  # noqa: ARG005 - the parameter of the function that is returned
    top = _Lines()
    for place, line in builder.lines:
        top.add(place, line)
    first = min((line for _, line in builder.lines), default=None)
    return lambda path: top.nearest(path) or first


class _Lines:
    """The line of a part of a document, and of those in it by key, or ``[index]``."""

    def __init__(self) -> None:
        self._line: int | None = None
        self._inside: dict[str, _Lines] = {}

    def add(self, place: _Path, line: int) -> None:
        steps: list[str] = []
        while place is not None:
            place, step = place
            steps.append(f"[{step}]" if isinstance(step, int) else step)
        part = self
        for each in reversed(steps):
            part = part._inside.setdefault(each, _Lines())
        part._line = line

    def nearest(self, path: str) -> int | None:
        """Return the line of what a path leads to, or of what contains that."""
        for length in range(len(path), 0, -1):
            part = self._inside.get(path[:length])
            if part is not None and path[length : length + 1] in ("", ".", "["):
                return part.nearest(path[length:].removeprefix(".")) or part._line
        return None


def load_yaml_1_1(text: str | bytes, what: str) -> dict[str, Any]:
    """Read a Heat template as Heat reads it, or an agent's file, except for tags, merge keys and
    keys that occur twice. The content, with each alias written out, has the limits of other
    documents.

    :raises InvalidDocument: as :func:`load_document`.
    """
    return check_document(_read(text, what, _Dialect(_of_heat, aliases=True)), what)


def load_workflow(text: str | bytes, what: str) -> dict[str, Any]:
    """Read a workflow file as Mistral reads it, except for tags, merge keys, dates, and keys that
    occur twice.

    :raises InvalidDocument: as :func:`load_document`.
    """
    return _read(text, what, _Dialect(_of_mistral, loader=_MistralsLoader))


def _values(text: str | bytes) -> tuple[int, int]:
    """Return how many values JSON may have at most, and how many lists and mappings: each value
    follows one of these characters."""
    if isinstance(text, str):
        nested = text.count("[") + text.count("{")
        return nested + text.count(","), nested
    nested = text.count(b"[") + text.count(b"{")
    return nested + text.count(b","), nested


def load_json(text: str | bytes, what: str, longest: int = MAX_JSON_BYTES) -> Any:
    """Read JSON, at most ``longest`` bytes or characters and 200 levels deep. NaN and infinities,
    which JSON does not have and some services in Python send, become None.

    :param what: the name of the text for messages, as in ``"answer"``.
    :raises InvalidDocument: when it is no JSON or breaks a limit.
    """
    if len(text) > longest:
        raise _too_long(what, longest)
    values, nested = _values(text)
    if values > MAX_JSON_VALUES:
        raise InvalidDocument("", f"the {what} has too many values", "Send fewer at once.")
    try:
        value = json.loads(  # noqa: TID251 - this is the function to use
            text, parse_int=_json_integer, parse_float=_json_float, parse_constant=_none
        )
        if nested <= MAX_JSON_DEPTH or _is_within(value, MAX_JSON_DEPTH):
            return value
    except (ValueError, RecursionError):
        pass
    raise InvalidDocument("", f"the {what} is not JSON", "Send JSON.") from None


def check_document(obj: Any, what: str = "document") -> dict[str, Any]:
    """Check an already parsed document (for example from JSON) against the same limits.

    :returns: a copy made of dict, list and plain scalars only.
    :raises InvalidDocument: as :func:`load_document`, without line and column.
    """
    if not isinstance(obj, Mapping):
        raise _not_a_mapping(what)
    return _Checker(what).mapping(obj, None, 1)


def read_document(source: str | bytes | Mapping[str, Any], what: str) -> dict[str, Any]:
    """Read text with :func:`load_document`, and anything else with :func:`check_document`."""
    if isinstance(source, (str, bytes)):
        return load_document(source, what)
    return check_document(source, what)


def _json_integer(text: str) -> int:
    if len(text) > MAX_JSON_DIGITS:
        raise ValueError
    return int(text)


def _json_float(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _none(_: str) -> None:
    return None


def _is_within(value: Any, levels: int) -> bool:
    """Return whether lists and mappings are nested at most so deep. Level by level: a function that
    calls itself would need the limit that it checks."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(levels):
        level = [
            part
            for each in level
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, (dict, list))
        ]
        if not level:
            return True
    return False


class _MistralsLoader(yaml.SafeLoader):
    """Gives the events that Mistral's loader gives (``mistral.utils.safe_yaml``): what looks like
    an anchor or an alias is plain text, and plain text may begin with ``@``."""

    def fetch_alias(self) -> None:
        self.fetch_plain()

    def fetch_anchor(self) -> None:
        self.fetch_plain()

    def check_plain(self) -> bool:
        return self.peek() == "@" or bool(super().check_plain())


class _NotAllowed(Exception):  # noqa: N818 - it names the finding
    """A plain scalar means something that no document may have."""


def _core(text: str) -> Any:
    """Return what a plain scalar means in the core schema of YAML 1.2."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return _integer(text, lambda: int(text, base))
    if _FLOAT.fullmatch(text):
        return _finite(text, lambda: float(text))
    if _NOT_FINITE.fullmatch(text):
        raise _NotAllowed("not a finite number")
    return text


def _of_heat(text: str) -> Any:
    """As Heat reads a template: dates are text."""
    return _in_yaml_1_1(text, dates=True)


def _of_mistral(text: str) -> Any:
    return _in_yaml_1_1(text, dates=False)


def _in_yaml_1_1(text: str, *, dates: bool) -> Any:
    rules = yaml.SafeLoader.yaml_implicit_resolvers
    kinds = (tag for tag, rule in rules.get(text[:1], ()) if rule.match(text))
    kind = next(kinds, "str").rpartition(":")[2]
    node = yaml.ScalarNode(kind, text)
    if kind == "null":
        return None
    if kind == "bool":
        return _CONVERSIONS.construct_yaml_bool(node)
    if kind == "int":
        return _integer(text, lambda: _CONVERSIONS.construct_yaml_int(node))
    if kind == "float":
        return _finite(text, lambda: _CONVERSIONS.construct_yaml_float(node))
    if kind == "merge":
        raise _NotAllowed("merge keys are not allowed")
    if kind == "value" or (kind == "timestamp" and not dates):
        raise _NotAllowed("a date is not allowed" if kind == "timestamp" else '"=" is not allowed')
    return text


_CONVERSIONS: Any = yaml.constructor.SafeConstructor()


def _integer(text: str, convert: Callable[[], int]) -> int:
    try:
        if len(text) <= _LONGEST_INTEGER and abs(number := convert()) <= MAX_INTEGER:
            return number
    except ValueError:  # as "0x_" of YAML 1.1
        raise _NotAllowed("not a number") from None
    raise _NotAllowed("an integer beyond 64 bits")


def _finite(text: str, convert: Callable[[], float]) -> float:
    # Text of any length may be a float in the core schema, and takes no long time.
    try:
        if math.isfinite(value := convert()):
            return value
    except (ValueError, OverflowError):
        raise _NotAllowed("not a number") from None
    raise _NotAllowed("not a finite number")


@dataclass(frozen=True)
class _Dialect:
    """``scalar``: returns what a plain scalar means. ``loader``: gives the events; None for the
    fastest."""

    scalar: Callable[[str], Any]
    aliases: bool = False
    loader: Any = None


def _read(text: str | bytes, what: str, dialect: _Dialect) -> dict[str, Any]:
    decoded = _decoded(text, what)
    try:
        return _Builder((dialect.loader or _Loader)(decoded), what, dialect).document()
    except InvalidDocument:
        raise
    except yaml.reader.ReaderError as error:
        raise InvalidDocument(
            "",
            f"a character that YAML does not allow ({what}, at position {error.position})",
            "Remove control characters; write them as escapes in double quotes.",
        ) from None
    except _PARSER_ERRORS as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        said = (getattr(error, "context", None), getattr(error, "problem", None))
        problem = " ".join(filter(None, said)) or "it has a wrong escape or directive"
        raise InvalidDocument(
            "",
            f"not YAML: {problem} ({_place(what, mark) if mark else what})",
            "Check indentation, brackets and quotes there.",
            mark.line + 1 if mark else None,
        ) from None


def _decoded(text: str | bytes, what: str) -> str:
    if len(text) > MAX_BYTES:
        raise _too_long(what)
    try:
        if isinstance(text, bytes):
            return text.decode("utf-8-sig")
        if len(text.encode("utf-8")) > MAX_BYTES:
            raise _too_long(what)
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise InvalidDocument(
            "", f"the {what} is not UTF-8: {error.reason}", "Save the file as UTF-8."
        ) from None
    return text


class _Builder:
    """Turns the events of one document into plain values."""

    def __init__(self, loader: Any, what: str, dialect: _Dialect) -> None:
        self._events = _events(loader)
        self._what = what
        self._dialect = dialect
        self._anchors: dict[str, Any] = {}
        self.lines: list[tuple[_Path, int]] = []
        """The places of keys and items, each with its line."""

    def document(self) -> dict[str, Any]:
        next(self._events)  # the start of the stream
        first = next(self._events)
        if isinstance(first, yaml.StreamEndEvent):
            raise _not_a_mapping(self._what, " (it is empty)")
        event = next(self._events)
        if not isinstance(event, yaml.MappingStartEvent):
            raise self._refusal(
                None, f"the {self._what} is not a mapping", event, 'Begin with "key: value" lines.'
            )
        content: dict[str, Any] = self._value(event, None, 1)
        next(self._events)  # the end of the document
        following = next(self._events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise self._refusal(
                None, "a second document begins", following, "Use one file for each."
            )
        return content

    def _value(self, event: Any, path: _Path, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            if not self._dialect.aliases:
                raise self._refusal(
                    path, "anchors and aliases are not allowed", event, "Write the value out."
                )
            if isinstance(event, yaml.AliasEvent):
                return self._aliased(event, path)
        if event.tag is not None:
            raise self._refusal(path, "a tag is not allowed", event, "Remove it, or use quotes.")
        value = self._content(event, path, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _aliased(self, event: Any, path: _Path) -> Any:
        # A value has its anchor once it is complete, so none can contain itself.
        if event.anchor not in self._anchors:
            raise self._refusal(
                path, "an alias without an anchor before it", event, "Write the value out."
            )
        return self._anchors[event.anchor]

    def _content(self, event: Any, path: _Path, depth: int) -> Any:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if depth > MAX_DEPTH:
            raise self._refusal(
                path, f"nested deeper than {MAX_DEPTH} levels", event, "Flatten the document."
            )
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path, depth)
        return self._mapping(path, depth)

    def _sequence(self, path: _Path, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            place = (path, len(items))
            self.lines.append((place, event.start_mark.line + 1))
            items.append(self._value(event, place, depth + 1))
        return items

    def _mapping(self, path: _Path, depth: int) -> dict[str, Any]:
        content: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, path, depth)
            if key in content:
                raise self._refusal(
                    (path, key), f'the key "{key}" occurs twice', event, "Keep one of them."
                )
            self.lines.append(((path, key), event.start_mark.line + 1))
            content[key] = self._value(next(self._events), (path, key), depth + 1)
        return content

    def _key(self, event: Any, path: _Path, depth: int) -> str:
        if isinstance(event, yaml.CollectionStartEvent):
            raise self._refusal(path, "a key is not text", event, "Use one word as the key.")
        key = self._value(event, path, depth)
        if not isinstance(key, str):
            shown = "a key" if isinstance(event, yaml.AliasEvent) else f"the key {event.value!r}"
            raise self._refusal(path, f"{shown} is not text", event, "Put the key in quotes.")
        return key

    def _scalar(self, event: Any, path: _Path) -> Any:
        text: str = event.value
        if _HALF.search(text):
            # libyaml refuses such escapes by itself.
            raise self._refusal(
                path, "an escape is half of a surrogate pair", event, "Write the character itself."
            )
        if not event.implicit[0]:  # quoted, or a block
            return text
        try:
            return self._dialect.scalar(text)
        except _NotAllowed as error:
            raise self._refusal(path, str(error), event, _QUOTE_IT) from None

    def _refusal(self, path: _Path, problem: str, event: Any, remedy: str) -> InvalidDocument:
        place, line = _place(self._what, event.start_mark), event.start_mark.line + 1
        return InvalidDocument(_written(path), f"{problem} ({place})", remedy, line)


class _Checker:
    """Copies a parsed document and counts its size."""

    def __init__(self, what: str) -> None:
        self._what = what
        # An object that contains another one many times is small in memory and huge as text. So
        # count during the copy instead of measuring the result.
        self._left = MAX_BYTES

    def mapping(self, obj: Mapping[Any, Any], path: _Path, depth: int) -> dict[str, Any]:
        self._go_down(path, depth)
        content: dict[str, Any] = {}
        for key, value in obj.items():
            if not isinstance(key, str):
                raise InvalidDocument(
                    _written(path),
                    f"the key {key!r} is not text ({self._what})",
                    "Put the key in quotes.",
                )
            place = (path, key)
            content[self._text(key, place)] = self._value(value, place, depth + 1)
        return content

    def _value(self, value: Any, path: _Path, depth: int) -> Any:
        self._spend(1)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, int) and abs(value) <= MAX_INTEGER:
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        if isinstance(value, Mapping):
            return self.mapping(value, path, depth)
        if isinstance(value, (list, tuple)):
            self._go_down(path, depth)
            return [self._value(item, (path, i), depth + 1) for i, item in enumerate(value)]
        kind = "number" if isinstance(value, (int, float)) else type(value).__name__
        raise InvalidDocument(
            _written(path),
            f"a {kind} that JSON cannot carry ({self._what})",
            "Use text, finite numbers of 64 bits, true or false, null, lists and mappings.",
        )

    def _text(self, value: str, path: _Path) -> str:
        self._spend(len(value))
        if _HALF.search(value):
            message = f"not UTF-8 ({self._what})"
            raise InvalidDocument(_written(path), message, "Write whole characters.")
        return str(value)

    def _go_down(self, path: _Path, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise InvalidDocument(
                _written(path),
                f"nested deeper than {MAX_DEPTH} levels ({self._what})",
                "Flatten the document.",
            )

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _too_long(self._what)


def _events(loader: Any) -> Iterator[Any]:
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


def _written(path: _Path) -> str:
    """Return a place with dots and indexes, as in ``a.b[1]``."""
    parts: list[str | int] = []
    while path is not None:
        path, part = path
        parts.append(part)
    text = ""
    for each in reversed(parts):
        if isinstance(each, int):
            text += f"[{each}]"
        else:
            text = f"{text}.{each}" if text else each
    return text


def _place(what: str, mark: Any) -> str:
    where = f"line {mark.line + 1}, column {mark.column + 1}"
    return f"{what}, {where}" if what else where


def _too_long(what: str, longest: int = MAX_BYTES) -> InvalidDocument:
    return InvalidDocument(
        "", f"the {what} is longer than {longest // 1024} KiB", "Split it or shorten it."
    )


def _not_a_mapping(what: str, detail: str = "") -> InvalidDocument:
    return InvalidDocument(
        "", f"the {what} is not a mapping{detail}", 'Begin with "key: value" lines.'
    )
