# SPDX-License-Identifier: Apache-2.0
"""Canonical JSON: one text for one document, so that its hash can be its version.

The rules: keys are sorted by code point, without spaces. The text is UTF-8 with only the escapes
that JSON requires. Numbers are written by value. A float that is a whole number below 2**53 is
written as that integer, because JSON does not distinguish 3 from 3.0, and a document must keep its
version through YAML, JSON and a database. Other finite floats are written in Python's shortest form
that reads back as the same number. NaN and the infinities are not JSON and are refused.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from mistral_failover.model.errors import InvalidDocument

MAX_DEPTH = 100
"""More than any accepted document needs, including what rendering adds around it."""

_EXACT_INTEGERS = 2**53


def canonical_json(obj: Any) -> str:
    """Return the canonical JSON text of a plain value.

    :raises InvalidDocument: for a value or a key that JSON cannot carry faithfully.
    """
    plain = _plain(obj, "", 0)
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def version_of(document: Any) -> str:
    """Return the version of a document: 64 hex digits, the SHA-256 of its canonical JSON."""
    return hashlib.sha256(canonical_json(document).encode("utf-8")).hexdigest()


def _plain(value: Any, path: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidDocument(
            path, f"nested deeper than {MAX_DEPTH} levels", "Flatten the document."
        )
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, float):
        return _number(value, path)
    if isinstance(value, Mapping):
        return {
            _key(key, path): _plain(item, f"{path}.{key}" if path else str(key), depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise InvalidDocument(
        path,
        f"a value of type {type(value).__name__} has no JSON form",
        "Use text, numbers, true or false, null, lists and mappings only.",
    )


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidDocument(path, f"the key {key!r} is not text", "Put the key in quotes.")
    return _text(key, path)


def _text(value: str, path: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidDocument(
            path, "the text holds half of a surrogate pair", "Write the whole character."
        ) from None
    return str(value)


def _number(value: float, path: str) -> int | float:
    if not math.isfinite(value):
        raise InvalidDocument(path, "not a finite number", "Write a finite number, or null.")
    if value.is_integer() and abs(value) < _EXACT_INTEGERS:
        return int(value)
    return value
