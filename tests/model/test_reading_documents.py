# SPDX-License-Identifier: Apache-2.0
"""Documents are read by strict rules, in bounded time."""

import json
import math
import sys
import time
from collections.abc import Iterator

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mistral_failover.model import documents
from mistral_failover.model.documents import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_JSON_DEPTH,
    check_document,
    line_finder,
    load_document,
    load_json,
    read_document,
)
from mistral_failover.model.errors import InvalidDocument

AT_ONCE = 10.0
"""Seconds of CPU. To expand the document takes hours."""


@pytest.fixture(params=["libyaml", "pure Python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers obey the same rules."""
    if request.param == "pure Python":
        monkeypatch.setattr(documents, "_Loader", yaml.SafeLoader)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML was built without libyaml")


def refusal(text: str | bytes) -> InvalidDocument:
    with pytest.raises(InvalidDocument) as caught:
        load_document(text, "group file")
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("2026-11-21", "2026-11-21"),
        ("2026-11-21T10:00:00Z", "2026-11-21T10:00:00Z"),
        ("yes", "yes"),
        ("on", "on"),
        ("NO", "NO"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'true'", "true"),
        ('"12"', "12"),
        ("12", 12),
        ("-12", -12),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("9223372036854775807", 2**63 - 1),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("=", "="),
        ("1.2.3", "1.2.3"),
        ("inf", "inf"),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(scalar: str, value: object) -> None:
    read = load_document(f"key: {scalar}", "file")["key"]
    assert read == value
    assert type(read) is type(value)


def test_a_merge_key_is_an_ordinary_key() -> None:
    assert load_document("{<<: {a: 1}}", "file") == {"<<": {"a": 1}}


def test_json_and_a_byte_order_mark_are_read_as_well() -> None:
    content = {"a": [1, {"b": "é"}], "c": None}
    assert load_document(json.dumps(content), "file") == content
    assert load_document(b"\xef\xbb\xbf" + json.dumps(content).encode(), "file") == content


REFUSED = {
    "a Python object": ("a: !!python/object/apply:os.system [ls]", "a", "tag", 1, 4),
    "a standard tag": ("a:\n  b: !!str 5", "a.b", "tag", 2, 6),
    "a tag of one's own": ("a: [1, !x 2]", "a[1]", "tag", 1, 8),
    "the tag that means nothing": ("a: ! x", "a", "tag", 1, 4),
    "an anchor": ("a: &x 1", "a", "anchors", 1, 4),
    "an alias": ("a: *x", "a", "anchors", 1, 4),
    "an alias as a key": ("*x : 1", "", "anchors", 1, 1),
    "a key that stands twice": ("a: 1\nb:\n  c: 1\n  c: 2", "b.c", "twice", 4, 3),
    "a key that is a number": ("a:\n  80: x", "a", "'80' is not text", 2, 3),
    "a key that is a boolean": ("true: x", "", "'true' is not text", 1, 1),
    "a key that is null": ("? \n: x", "", "is not text", None, None),
    "a key that is a list": ("[a, b]: x", "", "is not text", 1, 1),
    "a second document": ("a: 1\n---\nb: 2", "", "second document", 2, 1),
    "infinity": ("a: .inf", "a", "finite", 1, 4),
    "minus infinity": ("a: -.INF", "a", "finite", 1, 4),
    "not a number": ("a: [.nan]", "a[0]", "finite", 1, 5),
    "a float that overflows": ("a: 1e999", "a", "finite", 1, 4),
    "an integer beyond 64 bits": ("a: 9223372036854775808", "a", "64 bits", 1, 4),
    "an integer of endless length": ("a: " + "9" * 100_000, "a", "64 bits", 1, 4),
    "a list at the top": ("- a", "", "not a mapping", 1, 1),
    "a scalar at the top": ("a", "", "not a mapping", 1, 1),
    "broken syntax": ("a: [1, 2", "", "not YAML", None, None),
    "a tab as indentation": ("a:\n\tb: 1", "", "not YAML", 2, None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_breaks_a_rule_is_refused_with_its_place(name: str) -> None:
    text, path, fragment, line, column = REFUSED[name]
    error = refusal(text)
    assert error.path == path
    assert fragment in error.message
    if line:
        assert f"group file, line {line}" in error.message
    if column:
        assert f"column {column}" in error.message


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        *((empty, "not a mapping") for empty in ("", "\n", "# only a comment\n", "---\n")),
        *((data, "UTF-8") for data in (b"a: \xff\xfe", "a: x".encode("utf-16"), "a: \ud800")),
        (r'a: "\ud800"', "escape"),
        ("a: \x01", "group file"),
    ],
)
def test_what_is_empty_or_no_text_is_refused(text: str | bytes, fragment: str) -> None:
    assert fragment in refusal(text).message


def test_nesting_is_allowed_down_to_the_limit_and_no_deeper() -> None:
    def nested(depth: int) -> str:
        return "a: " + "[" * (depth - 1) + "]" * (depth - 1)

    load_document(nested(MAX_DEPTH), "file")
    assert "nested deeper" in refusal(nested(MAX_DEPTH + 1)).message


@pytest.mark.parametrize(
    "bomb",
    [
        "a: &a [x]\n"
        + "".join(f"{b}: &{b} [*{a},*{a},*{a}]\n" for a, b in zip("abc", "bcd", strict=True)),
        "a: " + "[" * 200_000,
        "a: " + "{x: " * 60_000,
        "? " * 100_000,
        "- " * 100_000,
        "a: {" + "? " * 100_000,
    ],
    ids=["laughs", "brackets", "braces", "keys", "dashes", "keys in braces"],
)
def test_a_bomb_is_refused_at_once(bomb: str) -> None:
    begun = time.process_time()
    refusal(bomb)
    assert time.process_time() - begun < AT_ONCE


def test_ten_megabytes_are_refused_before_they_are_read() -> None:
    text = "a: " + "x" * 10_000_000
    begun = time.process_time()
    assert "longer than 256 KiB" in refusal(text).message
    assert "longer than 256 KiB" in refusal(text.encode()).message
    assert time.process_time() - begun < AT_ONCE


def test_the_length_is_counted_in_bytes() -> None:
    fits = "a: " + "é" * ((MAX_BYTES - 3) // 2)
    assert len(fits) < MAX_BYTES
    load_document(fits, "file")
    assert "longer" in refusal(fits + "éé").message


def test_a_long_or_broken_name_does_not_flood_the_message() -> None:
    error = refusal('"' + "k" * 1000 + '\\n": 1\n"' + "k" * 1000 + '\\n": 2')
    assert len(str(error)) < 1500


# Parsed documents


def check_refusal(obj: object) -> InvalidDocument:
    with pytest.raises(InvalidDocument) as caught:
        check_document(obj)  # type: ignore[arg-type]
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    ("obj", "path", "fragment"),
    [
        ([], "", "not a mapping"),
        ("text", "", "not a mapping"),
        ({1: 2}, "", "key 1 is not text"),
        ({"a": {None: 2}}, "a", "is not text"),
        ({"a": [0, math.nan]}, "a[1]", "number"),
        ({"a": math.inf}, "a", "number"),
        ({"a": 2**63}, "a", "number"),
        ({"a": {"b": object()}}, "a.b", "object"),
        ({"a": b"x"}, "a", "bytes"),
        ({"a": "\ud800"}, "a", "UTF-8"),
        ({"a": "x" * (MAX_BYTES + 1)}, "", "longer than"),
        ({"a": [None] * (MAX_BYTES + 1)}, "", "longer than"),
    ],
)
def test_a_parsed_document_is_held_to_the_same_limits(
    obj: object, path: str, fragment: str
) -> None:
    error = check_refusal(obj)
    assert error.path == path
    assert fragment in error.message


def test_an_object_that_holds_itself_is_refused() -> None:
    obj: dict[str, object] = {}
    obj["a"] = obj
    assert "nested deeper" in check_refusal(obj).message


def test_an_object_that_shares_its_parts_a_billion_times_is_refused_at_once() -> None:
    obj: list[object] = ["laugh"]
    for _ in range(30):
        obj = [obj, obj]
    begun = time.process_time()
    assert "longer than" in check_refusal({"a": obj}).message
    assert time.process_time() - begun < AT_ONCE


def test_a_checked_document_is_a_copy() -> None:
    given_document = {"a": [{"b": (1, 2)}]}
    copied = check_document(given_document)
    assert copied == {"a": [{"b": [1, 2]}]}
    copied["a"].append(3)
    assert len(given_document["a"]) == 1


def test_text_and_mappings_are_both_read() -> None:
    assert read_document("a: 1", "file") == read_document({"a": 1}, "file") == {"a": 1}


# YAML has no pairs of surrogates in escapes, hence no characters beyond the first plane.
json_texts = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))
# A key has at most 1024 characters, escapes included.
json_keys = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=50)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | json_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_keys, inner, max_size=3),
    max_leaves=10,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(json_keys, json_values, max_size=4))
def test_json_means_the_same_in_yaml(content: dict[str, object]) -> None:
    text = json.dumps(content)
    assert load_document(text, "file") == check_document(json.loads(text)) == content


# JSON


@pytest.fixture
def without_limit() -> Iterator[None]:
    """Python converts integers of any length."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000 + "]" * 100_000,
        "[" * (MAX_JSON_DEPTH + 1) + "]" * (MAX_JSON_DEPTH + 1),
        '{"a":' * (MAX_JSON_DEPTH + 1) + "1" + "}" * (MAX_JSON_DEPTH + 1),
        "9" * 1_000_000,
        "-" + "9" * 5_000,
        "[" + "[]," * 600_000 + "1]",
        b"\xff",
        '"' + "x" * 1_000 + '"',
    ],
)
def test_json_beyond_a_limit_is_refused_at_once(text: str | bytes, without_limit: None) -> None:
    begun = time.process_time()
    with pytest.raises(InvalidDocument) as caught:
        load_json(text, "answer", 1_000 if len(text) == 1_002 else 2_000_000)
    assert time.process_time() - begun < AT_ONCE
    assert caught.value.remedy


def test_json_may_have_what_python_services_send() -> None:
    text = b'{"a": [NaN, -Infinity, 1e999, 1.5, 18446744073709551616, "\\ud800", true], "b": {}}'
    assert load_json(text, "answer") == {
        "a": [None, None, None, 1.5, 2**64, "\ud800", True],
        "b": {},
    }
    deepest: object = load_json("[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH, "answer")
    assert isinstance(deepest, list)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(json_values)
def test_json_reads_as_it_was_written(value: object) -> None:
    assert load_json(json.dumps(value), "answer") == value


LINES = """\
stack: payments
members:
  servers: [db_a,
    db_b]
resources:
  data:
    properties: {volume: data_volume,
                 server: db_a}
  "a.b": {c: 1}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("stack", 1),
        ("members.servers", 3),
        ("members.servers[1]", 4),
        ("members.servers[7]", 3),
        ("resources.data.properties.volume", 7),
        ("resources.data.properties.server", 8),
        ("resources.data.type", 6),
        ("resources.a.b.c", 9),
        ("resources.dat", 5),
        ("fence[0]", 1),
        ("", 1),
    ],
)
def test_a_path_leads_to_its_line_or_to_that_of_what_is_around_it(
    path: str, line: int | None
) -> None:
    assert line_finder(LINES)(path) == line


@pytest.mark.parametrize("text", ["a: [", "- a", "a: 1\na: 2", b"\xff"])
def test_what_is_no_document_has_no_lines(text: str | bytes) -> None:
    assert line_finder(text)("a") is None


def test_a_refusal_of_the_reader_has_the_line() -> None:
    with pytest.raises(InvalidDocument) as twice:
        load_document("a: 1\nb: 2\na: 3\n", "file")
    with pytest.raises(InvalidDocument) as broken:
        load_document("a: 1\nb: [\n", "file")

    assert (twice.value.line, broken.value.line) == (3, 3)
