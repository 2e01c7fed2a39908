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


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "(?:a|aa)+b", "((a{1,9}){1,9}){1,9}b"])
def test_a_pattern_takes_linear_time_or_is_refused(engine: str, text: str) -> None:
    if engine == "re":
        with pytest.raises(patterns.InvalidPattern, match="keep the agent busy") as refused:
            patterns.compiled(text)
        assert "google-re2" in refused.value.remedy
        return
    began = time.process_time()
    assert not patterns.compiled(text).fullmatch(HOSTILE)
    assert time.process_time() - began < 1.0


def test_without_re2_a_long_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "re2", None)
    found = patterns.compiled("[a-z]*")

    assert found.fullmatch("x" * patterns.LONGEST)
    assert not found.fullmatch("x" * (patterns.LONGEST + 1))
