# SPDX-License-Identifier: Apache-2.0
"""Read YAML that users write, without trusting it.

A document is built directly from the parser's events, so that nothing forbidden is ever
constructed: no tags, no anchors or aliases (which make YAML bombs), no duplicate keys, no keys that
are not text, only one document, at most 40 levels deep and 256 KiB long. Plain scalars follow the
core schema of YAML 1.2: only ``true`` and ``false`` are booleans (``yes`` and ``on`` are text),
dates stay text, and ``1:30`` is not a number. Numbers that JSON cannot carry (NaN, infinities,
integers beyond 64 bits) are refused.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from mistral_failover.model.errors import InvalidDocument

MAX_BYTES = 256 * 1024
MAX_DEPTH = 40
MAX_INTEGER = 2**63 - 1

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
_QUOTE_IT = "Put the value in quotes if it is meant as text."


def load_document(text: str | bytes, what: str) -> dict[str, Any]:
    """Read one YAML (or JSON) document whose top level is a mapping.

    :param what: the name of the text for messages, as in ``"group file"``.
    :raises InvalidDocument: when a rule of this module is broken; the message ends with the line
        and the column, counted from 1.
    """
    decoded = _decoded(text, what)
    try:
        return _Builder(_Loader(decoded), what).document()
    except yaml.reader.ReaderError as error:
        raise InvalidDocument(
            "",
            f"a character that YAML does not allow ({what}, at position {error.position})",
            "Remove control characters; write them as escapes in double quotes.",
        ) from None
    except yaml.MarkedYAMLError as error:
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise InvalidDocument(
            "",
            f"not YAML: {problem} ({_place(what, error.problem_mark or error.context_mark)})",
            "Check indentation, brackets and quotes there.",
        ) from None


class _TemplateLoader(yaml.SafeLoader):
    """As Heat reads a template: dates are text. In Python, because libyaml's builder would use the
    process's stack for a deep document."""

    yaml_implicit_resolvers = {
        first: [(tag, rule) for tag, rule in rules if not tag.endswith((":timestamp", ":merge"))]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def load_template(text: str, what: str) -> dict[str, Any]:
    """Read a Heat template. Unlike other documents it may have anchors and aliases, but no merge
    keys; its content, with each alias written out, has the same limits.

    :raises InvalidDocument: when it is no YAML or breaks a limit.
    """
    try:
        return check_document(yaml.load(_decoded(text, what), _TemplateLoader), what)  # noqa: S506
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, InvalidDocument):
            raise
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it is nested too deeply or has a wrong value"
        raise InvalidDocument(
            "",
            f"not YAML: {problem} ({_place(what, mark) if mark else what})",
            "Check indentation, brackets and quotes there.",
        ) from None


def check_document(obj: Any, what: str = "document") -> dict[str, Any]:
    """Check an already parsed document (for example from JSON) against the same limits.

    :returns: a copy made of dict, list and plain scalars only.
    :raises InvalidDocument: as :func:`load_document`, without line and column.
    """
    if not isinstance(obj, Mapping):
        raise _not_a_mapping(what)
    return _Checker(what).mapping(obj, "", 1)


def read_document(source: str | bytes | Mapping[str, Any], what: str) -> dict[str, Any]:
    """Read text with :func:`load_document`, and anything else with :func:`check_document`."""
    if isinstance(source, str | bytes):
        return load_document(source, what)
    return check_document(source, what)


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

    def __init__(self, loader: Any, what: str) -> None:
        self._events = _events(loader)
        self._what = what

    def document(self) -> dict[str, Any]:
        next(self._events)  # the start of the stream
        first = next(self._events)
        if isinstance(first, yaml.StreamEndEvent):
            raise _not_a_mapping(self._what, " (it is empty)")
        event = next(self._events)
        if not isinstance(event, yaml.MappingStartEvent):
            raise self._refusal(
                "", f"the {self._what} is not a mapping", event, 'Begin with "key: value" lines.'
            )
        content: dict[str, Any] = self._value(event, "", 1)
        next(self._events)  # the end of the document
        following = next(self._events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise self._refusal("", "a second document begins", following, "Use one file for each.")
        return content

    def _value(self, event: Any, path: str, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._refusal(
                path, "anchors and aliases are not allowed", event, "Write the value out."
            )
        if event.tag is not None:
            raise self._refusal(
                path, f"the tag {event.tag!r} is not allowed", event, "Remove it, or use quotes."
            )
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if depth > MAX_DEPTH:
            raise self._refusal(
                path, f"nested deeper than {MAX_DEPTH} levels", event, "Flatten the document."
            )
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path, depth)
        return self._mapping(path, depth)

    def _sequence(self, path: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, f"{path}[{len(items)}]", depth + 1))
        return items

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        content: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, path, depth)
            place = f"{path}.{key}" if path else key
            if key in content:
                raise self._refusal(
                    place, f'the key "{key}" occurs twice', event, "Keep one of them."
                )
            content[key] = self._value(next(self._events), place, depth + 1)
        return content

    def _key(self, event: Any, path: str, depth: int) -> str:
        if isinstance(event, yaml.CollectionStartEvent):
            raise self._refusal(path, "a key is not text", event, "Use one word as the key.")
        key = self._value(event, path, depth)
        if not isinstance(key, str):
            raise self._refusal(
                path, f"the key {event.value!r} is not text", event, "Put the key in quotes."
            )
        return key

    def _scalar(self, event: Any, path: str) -> Any:
        text: str = event.value
        if any("\ud800" <= character <= "\udfff" for character in text):
            # libyaml refuses such escapes by itself.
            raise self._refusal(
                path, "an escape is half of a surrogate pair", event, "Write the character itself."
            )
        if not event.implicit[0]:  # quoted, or a block
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INTEGER.fullmatch(text):
            # Check the length first: converting a very long run of digits is slow.
            number = int(text, _base(text)) if len(text) <= 66 else MAX_INTEGER + 1
            if abs(number) > MAX_INTEGER:
                raise self._refusal(path, "an integer beyond 64 bits", event, _QUOTE_IT)
            return number
        if _FLOAT.fullmatch(text):
            value = float(text)
            if math.isfinite(value):
                return value
        elif not _NOT_FINITE.fullmatch(text):
            return text
        raise self._refusal(path, "not a finite number", event, _QUOTE_IT)

    def _refusal(self, path: str, problem: str, event: Any, remedy: str) -> InvalidDocument:
        place = _place(self._what, event.start_mark)
        return InvalidDocument(path, f"{problem} ({place})", remedy)


class _Checker:
    """Copies a parsed document and counts its size."""

    def __init__(self, what: str) -> None:
        self._what = what
        # An object that contains another one many times is small in memory and huge as text. So
        # count during the copy instead of measuring the result.
        self._left = MAX_BYTES

    def mapping(self, obj: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
        self._go_down(path, depth)
        content: dict[str, Any] = {}
        for key, value in obj.items():
            if not isinstance(key, str):
                raise InvalidDocument(
                    path, f"the key {key!r} is not text ({self._what})", "Put the key in quotes."
                )
            place = f"{path}.{key}" if path else key
            content[self._text(key, place)] = self._value(value, place, depth + 1)
        return content

    def _value(self, value: Any, path: str, depth: int) -> Any:
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
        if isinstance(value, list | tuple):
            self._go_down(path, depth)
            return [self._value(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
        kind = "number" if isinstance(value, int | float) else type(value).__name__
        raise InvalidDocument(
            path,
            f"a {kind} that JSON cannot carry ({self._what})",
            "Use text, finite numbers of 64 bits, true or false, null, lists and mappings.",
        )

    def _text(self, value: str, path: str) -> str:
        self._spend(len(value))
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise InvalidDocument(path, f"not UTF-8 ({self._what})", "Write whole characters.")
        return str(value)

    def _go_down(self, path: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise InvalidDocument(
                path,
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


def _base(text: str) -> int:
    return {"0o": 8, "0x": 16}.get(text[:2], 10)


def _place(what: str, mark: Any) -> str:
    where = f"line {mark.line + 1}, column {mark.column + 1}"
    return f"{what}, {where}" if what else where


def _too_long(what: str) -> InvalidDocument:
    return InvalidDocument(
        "", f"the {what} is longer than {MAX_BYTES // 1024} KiB", "Split it or shorten it."
    )


def _not_a_mapping(what: str, detail: str = "") -> InvalidDocument:
    return InvalidDocument(
        "", f"the {what} is not a mapping{detail}", 'Begin with "key: value" lines.'
    )
