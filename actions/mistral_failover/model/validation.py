# SPDX-License-Identifier: Apache-2.0
"""Check documents against JSON schemas, with findings that people can act on.

A finding never shows a value of the document: properties may contain secrets.
"""

import difflib
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import jsonschema
from jsonschema.exceptions import ValidationError, best_match

from mistral_failover.model import schemas
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.rungs import rung_schema

_LISTED = 20
_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "null": "null",
}
_BOUNDS = {
    "minLength": "at least {} characters are needed",
    "maxLength": "at most {} characters are allowed",
    "minimum": "at least {} is needed",
    "maximum": "at most {} is allowed",
    "exclusiveMinimum": "more than {} is needed",
    "exclusiveMaximum": "less than {} is needed",
    "minItems": "at least {} items are needed",
    "maxItems": "at most {} items are allowed",
    "minProperties": "at least {} keys are needed",
    "maxProperties": "at most {} keys are allowed",
}
_MISSING = ('"{}"', '"{}: ..."')
"""How a key that is missing is named, and how it is added."""
_PATTERNS = {
    schemas.RESOURCE_NAME: (
        "not a valid name",
        'Start with a letter or "_", then use letters, digits, "_" and "-"; at most 64 characters.',
    ),
    schemas.WORKFLOW_NAME: (
        "not a valid name of a workflow",
        'Use letters, digits, "_", "." and "-".',
    ),
    schemas.LABEL: (
        "not a valid name",
        'Leave out "/" and control characters.',
    ),
}


def _validator(schema: Mapping[str, Any]) -> Any:
    return jsonschema.Draft202012Validator(schema)


Grammar = Literal["group", "type", "property", "name"]


@functools.cache
def _grammar(name: Grammar) -> Any:
    if name == "group":
        return _validator({**schemas.GROUP, "$defs": {"rung": rung_schema()}})
    return _validator(
        {"type": schemas.TYPE, "property": schemas.PROPERTY, "name": schemas.NAME}[name]
    )


def check_grammar(grammar: Grammar, document: Any, path: str = "") -> None:
    """Check a document against one of the grammars of the model.

    :raises InvalidDocument: for the most important of its errors.
    """
    _check(_grammar(grammar), document, path)


def every_error(grammar: Grammar, document: Any) -> Iterator[InvalidDocument]:
    """Yield every error that :func:`check_grammar` finds, not only the most important one."""
    for error in _grammar(grammar).iter_errors(document):
        if error.validator == "additionalProperties":
            known = error.schema.get("properties", {})
            for key in error.instance:
                if key not in known:
                    path = _joined("", [*error.absolute_path, key])
                    yield InvalidDocument(path, f'unknown key "{key}"', did_you_mean(key, known))
        else:
            yield _finding(best_match([error]) or error, "")


def check_schema(schema: Mapping[str, Any], value: Any, path: str) -> None:
    """Check a value against a schema made of the keywords that a type file may use.

    :raises InvalidDocument: for the most important of its errors.
    """
    _check(_validator(schema), value, path)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that an unknown one is probably meant to be."""
    return next(iter(difflib.get_close_matches(word, sorted(known), n=1)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a remedy for an unknown word: the nearest known word, and all known words."""
    words = sorted(known)
    if not words:
        return "None is defined."
    near = nearest(word, words)
    hint = f'Did you mean "{near}"? ' if near else ""
    more = ", ..." if len(words) > _LISTED else ""
    return f"{hint}Known: {', '.join(words[:_LISTED])}{more}."


def distinct(names: list[str], path: str) -> tuple[str, ...]:
    """Return the names of a list.

    :raises InvalidDocument: for the first duplicate.
    """
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidDocument(f"{path}[{index}]", f'"{name}" occurs twice', "Keep one of them.")
    return tuple(names)


def _check(validator: Any, value: Any, path: str) -> None:
    error = best_match(validator.iter_errors(value))
    if error is not None:
        raise _finding(error, path)


def _finding(error: ValidationError, prefix: str) -> InvalidDocument:
    path = _joined(prefix, error.absolute_path)
    keyword: Any = error.validator
    rule: Any = error.validator_value
    value: Any = error.instance
    if keyword == "additionalProperties":
        known = error.schema.get("properties", {})  # type: ignore[union-attr]
        key = next(key for key in value if key not in known)
        return InvalidDocument(
            _joined(path, [key]), f'unknown key "{key}"', did_you_mean(key, known)
        )
    if keyword == "required":
        keys = [key for key in rule if key not in value]
        named, added = (", ".join(form.format(key) for key in keys) for form in _MISSING)
        said = f"the keys {named} are missing" if keys[1:] else f"the key {named} is missing"
        return InvalidDocument(path, said, f"Add {added} {_where(path)}.")
    if keyword == "type":
        wanted = " or ".join(_WORDS[word] for word in ([rule] if isinstance(rule, str) else rule))
        return InvalidDocument(path, f"it is {_kind(value)}", f"Write {wanted}.")
    if keyword in ("enum", "const"):
        choices = rule if keyword == "enum" else [rule]
        texts = [choice for choice in choices if isinstance(choice, str)]
        remedy = (
            did_you_mean(value, texts)
            if isinstance(value, str) and len(texts) == len(choices)
            else f"Write one of: {', '.join(map(str, choices[:_LISTED]))}."
        )
        return InvalidDocument(path, "not one of the allowed values", remedy)
    if keyword == "pattern":
        problem, remedy = _PATTERNS.get(
            rule, ("not in the required form", f"It must match {rule}.")
        )
        if error.parent is not None or "propertyNames" in error.absolute_schema_path:
            path = _joined(path, [value])
        return InvalidDocument(path, problem, remedy)
    if keyword in _BOUNDS:
        return InvalidDocument(path, _BOUNDS[keyword].format(rule), "Keep within this bound.")
    # The remaining keywords that are allowed: anyOf and oneOf.
    count = "at least" if keyword == "anyOf" else "exactly"
    return InvalidDocument(
        path,
        f"it must match {count} one of the {len(rule)} forms that its type allows",
        "See the type's description of the property.",
    )


def _joined(prefix: str, steps: Iterable[str | int]) -> str:
    path = prefix
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def _where(path: str) -> str:
    return f"under {path}" if path else "at the top level"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    for kind, word in ((str, "text"), (int | float, "a number"), (list, "a list")):
        if isinstance(value, kind):
            return word
    return "a mapping"
