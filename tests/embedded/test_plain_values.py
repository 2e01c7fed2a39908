# SPDX-License-Identifier: Apache-2.0
"""What makes the conversion to JSON fast changes no result of it."""

from __future__ import annotations

import datetime
import decimal
import importlib.util
import itertools
import json
import uuid
from collections import OrderedDict
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_serialization import jsonutils

from mistral_failover.embedded.speedups import plain_values_first


def module() -> ModuleType:
    """oslo.serialization's module once more; no Mistral of this process has changed it."""
    spec = importlib.util.spec_from_file_location("untouched", jsonutils.__file__)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


ORIGINAL, CHANGED = module(), module()
CHANGED.to_primitive = plain_values_first(CHANGED.to_primitive)


class Instance:
    """Something that JSON does not know."""

    def __init__(self, **values: Any) -> None:
        self.__dict__ = values


class Unlistable(dict[str, Any]):
    """A dict of another class."""


OTHERS = [
    b"bytes",
    datetime.datetime(2026, 11, 21, 3, 0, 0),
    datetime.date(2026, 11, 21),
    uuid.UUID(int=7),
    decimal.Decimal("1.5"),
    ValueError("no"),
    OrderedDict(a=(1, b"b")),
    Unlistable(a=[{"b": ()}]),
    {1, 2},
    len,
    Instance,
    itertools,
    Instance(a={"b": [Instance(c={"d": Instance(e=Instance(f=[1]))})]}),
    {("a", "tuple"): 1},
    {b"bytes": {"in": [b"bytes"]}},
]
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.tuples(inner, st.sampled_from([3, *OTHERS]))
    ),
)


def outcome(of: ModuleType, value: Any, **options: Any) -> Any:
    """What becomes of a value; or the error."""
    try:
        return of.to_primitive(value, **options)
    except ValueError as error:
        return type(error)


def compare(value: Any) -> None:
    for options in (
        {},
        {"convert_instances": True},
        {"convert_instances": True, "fallback": repr},
        {"convert_instances": True, "level": 4},
        {"convert_datetime": False, "fallback": repr},
    ):
        assert outcome(CHANGED, value, **options) == outcome(ORIGINAL, value, **options)
        assert str(outcome(CHANGED, value, **options)) == str(outcome(ORIGINAL, value, **options))


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: type(value).__name__)
def test_what_json_does_not_know_is_converted_as_before(value: Any) -> None:
    compare(value)
    compare([{"deep": (value, {"deeper": value})}])


@given(PLAIN)
def test_what_json_knows_is_converted_as_before(value: Any) -> None:
    compare(value)


def test_the_text_is_the_same() -> None:
    value = {"a": [1, (2.5, None)], "b": {"c": True}}

    assert CHANGED.dumps(value) == ORIGINAL.dumps(value) == json.dumps(value)
