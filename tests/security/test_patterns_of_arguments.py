# SPDX-License-Identifier: Apache-2.0
"""No value of an argument keeps an agent busy, with google-re2 and without it."""

from __future__ import annotations

import time

import pytest

from mistral_failover.agent.daemon import patterns

HOSTILE = "a" * 40 + "!"


@pytest.fixture(params=["re2", "re"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which engine the node has."""
    if request.param == "re":
        monkeypatch.setattr(patterns, "re2", None)
    return str(request.param)


@pytest.mark.parametrize("text", ["[0-9a-f-]{36}", "/dev/[a-z0-9]+", "(on|off)", ".*", "(?:x)?y"])
@pytest.mark.usefixtures("engine")
def test_ordinary_patterns_are_accepted(text: str) -> None:
    assert patterns.compiled(text) is not None


@pytest.mark.usefixtures("engine")
def test_the_whole_value_must_match() -> None:
    found = patterns.compiled("/dev/[a-z]+")

    assert found.fullmatch("/dev/vdb")
    assert not found.fullmatch("/dev/vdb; reboot")
    assert not found.fullmatch("/dev/vdb\n")


@pytest.mark.usefixtures("engine")
def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(patterns.InvalidPattern, match="not a valid regular expression"):
        patterns.compiled("(")


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|a)*b", "(?:a|aa)+b", "((a{1,9}){1,9}){1,9}b", "(?:a?a?)*b"]
)
def test_a_pattern_takes_linear_time_or_is_refused(engine: str, text: str) -> None:
    if engine == "re":
        with pytest.raises(patterns.InvalidPattern, match="keep the agent busy") as refused:
            patterns.compiled(text)
        assert "google-re2" in refused.value.remedy
        return
    began = time.process_time()
    assert not patterns.compiled(text).fullmatch(HOSTILE)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "text",
    [
        "(.*)(.*)(.*)(.*)[xy]",
        r"(.*)(.*)(.*)\1\2\3x",
        "(.*?)(.*?)(.*?)(.*?)(.*?)[xy]",
        "(?=(.*)(.*)(.*)(.*)[xy])a",
        "a?" * 22 + "[xy]",
        "(?:a|aa)" * 22 + "[xy]",
        "[a-z]+-[a-z]+-[a-z]+-[a-z]+",
    ],
)
def test_without_re2_repetitions_one_after_another_leave_room_for_short_values_only(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(patterns, "re2", None)
    found = patterns.compiled(text)

    began = time.process_time()
    for length in (patterns.SHORTEST, 100, 200, 300, patterns.LONGEST, 100_000):
        assert not found.fullmatch("a" * length)
    assert time.process_time() - began < 5.0, "it would take hours"


@pytest.mark.parametrize("text", [".*" * 12, "(a|b|ab)" * 20, "a?" * 30, "a{0,3}" * 20])
def test_without_re2_a_pattern_with_no_room_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(patterns, "re2", None)

    with pytest.raises(patterns.InvalidPattern, match="so many repetitions") as refused:
        patterns.compiled(text)
    assert "google-re2" in refused.value.remedy


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[.]".join(["[0-9]{1,3}"] * 4), "192.0.2.111"),
        ("/[a-z/]+", "/" * patterns.LONGEST),
        ("[a-z]+-[0-9]+[.][a-z]+", "x" * 250 + "-1.example"),
        ("(on|off)( now)?", "on now"),
    ],
)
def test_without_re2_ordinary_values_have_room(
    monkeypatch: pytest.MonkeyPatch, text: str, value: str
) -> None:
    monkeypatch.setattr(patterns, "re2", None)

    assert patterns.compiled(text).fullmatch(value)


def test_without_re2_a_long_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "re2", None)
    found = patterns.compiled("[a-z]*")

    assert found.fullmatch("x" * patterns.LONGEST)
    assert not found.fullmatch("x" * (patterns.LONGEST + 1))
