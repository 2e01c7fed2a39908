# SPDX-License-Identifier: Apache-2.0
"""One document has one text and one version, however it travelled."""

import hashlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.model.canonical import MAX_DEPTH, canonical_json, version_of
from mistral_failover.model.errors import InvalidDocument

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=4)
    ),
    max_leaves=15,
)


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [reversed_keys(item) for item in value]
    return value


@given(values)
def test_the_order_of_keys_does_not_matter(value: Any) -> None:
    assert canonical_json(reversed_keys(value)) == canonical_json(value)


@given(values)
def test_a_journey_through_json_does_not_change_the_text(value: Any) -> None:
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text
    assert canonical_json(json.loads(json.dumps(value))) == text


@given(values)
def test_the_text_says_the_same_as_the_value(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value


def test_the_text_has_sorted_keys_no_spaces_and_plain_utf_8() -> None:
    assert canonical_json({"b": [1, None], "a": {"é": True}}) == '{"a":{"é":true},"b":[1,null]}'


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.0, "3"), (-0.0, "0"), (0.1, "0.1"), (1e300, "1e+300"), (2.0**53, "9007199254740992.0")],
)
def test_a_whole_float_is_written_as_the_integer_it_equals(value: float, text: str) -> None:
    assert canonical_json(value) == text


def test_true_is_not_one() -> None:
    assert canonical_json(True) != canonical_json(1)


def test_the_version_is_the_sha_256_of_the_text() -> None:
    assert version_of({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


@pytest.mark.parametrize(
    ("value", "path", "fragment"),
    [
        ({"a": [math.nan]}, "a[0]", "finite"),
        ({"a": {"b": -math.inf}}, "a.b", "finite"),
        ({"a": {1: 2}}, "a", "key 1 is not text"),
        ({"a": {1, 2}}, "a", "set"),
        ({"a": "\udc00"}, "a", "surrogate"),
        ({"\udc00": 1}, "", "surrogate"),
    ],
)
def test_what_json_cannot_carry_is_refused(value: Any, path: str, fragment: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        canonical_json(value)
    assert caught.value.path == path
    assert fragment in caught.value.message
    assert caught.value.remedy


def test_a_value_without_a_bottom_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidDocument, match=f"deeper than {MAX_DEPTH}"):
        canonical_json(value)
