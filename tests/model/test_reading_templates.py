# SPDX-License-Identifier: Apache-2.0
"""Heat's templates and Mistral's workflows are read as these services read them, in bounded
time."""

import resource
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from mistral.utils import safe_yaml

from mistral_failover.model.documents import load_workflow, load_yaml_1_1
from mistral_failover.model.errors import InvalidDocument

AT_ONCE = 10.0
"""Seconds of CPU. To expand or convert it takes minutes."""
PAIRS = tuple(zip("abcdefgh", "bcdefghi", strict=True))
"""Each anchor with the next one, which has it many times."""


def test_a_heat_template_may_have_aliases_and_its_dates_are_text() -> None:
    text = "heat_template_version: 2021-04-16\na: &a {flavor: m1}\nb: *a\n"

    found = load_yaml_1_1(text, "template")

    assert found == {
        "heat_template_version": "2021-04-16",
        "a": {"flavor": "m1"},
        "b": {"flavor": "m1"},
    }


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1]\n" + "".join(f"{c}: &{c} [{', '.join([f'*{p}'] * 20)}]\n" for p, c in PAIRS),
        "a: &a {k: 1}\n"
        + "".join(f"{c}: &{c} {{<<: [{', '.join([f'*{p}'] * 20)}]}}\n" for p, c in PAIRS),
        "a: &a [*a]",
        "[" * 5_000,
        "a: " + "[" * 5_000,
        "a: !!python/object/apply:os.system [id]",
        "- a list",
        "a: \x00",
    ],
    ids=["aliases", "merges", "itself", "deep", "deep inside", "a tag", "a list", "control"],
)
def test_a_heat_template_is_bounded_too(text: str) -> None:
    with pytest.raises(InvalidDocument):
        load_yaml_1_1(text, "template")


MERGED = "a: &a {k: 1}\n" + "".join(
    f"{c}: &{c}\n  !!merge <<: [{', '.join([f'*{p}'] * 20)}]\n" for p, c in PAIRS
)
"""Each mapping merges the one before it twenty times, by the tag of a merge key."""


@pytest.mark.parametrize("load", [load_yaml_1_1, load_workflow])
@pytest.mark.parametrize(
    "text",
    [
        MERGED,
        "a: {<<: {b: 1}}",
        "a: {!!merge x: {b: 1}}",
        "a: !!str 5",
        "a: !!timestamp x",
        "a: !!timestamp 0001-01-01 00:00:00 +23:00",
        "a: !!bool ''",
        "a: !!int ''",
        "a: !!binary é",
        "a: !!omap x",
        "a: 0b_",
        "a: 0x" + "f" * 200_000,
        "a: " + "1" * 200_000,
        "a: 1" + ":59" * 80_000,
        "a: 1" + ":59" * 80_000 + ".5",
        "a: .inf",
        "a: =",
        "a: 1\na: 2",
        "1: a",
        "yes: a",
        '"\\ud800": a',
        "a: *a",
        "%YAML " + "1" * 10_000 + ".1\n---\na: 1",
    ],
)
def test_what_a_constructor_would_choke_on_is_refused_at_once(
    load: Callable[[str, str], dict[str, Any]], text: str
) -> None:
    if load is load_workflow and text == "a: *a":
        pytest.skip("plain text for Mistral")
    begun = time.process_time()
    with pytest.raises(InvalidDocument) as caught:
        load(text, "template")
    assert time.process_time() - begun < AT_ONCE
    assert caught.value.remedy


def test_a_place_costs_nothing_until_it_is_shown() -> None:
    text = "? " + "k" * 120_000 + "\n: [" + "1," * 60_000 + "]"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    load_yaml_1_1(text, "template")
    assert time.process_time() - begun < AT_ONCE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB


PLAIN = """
a: yes
b: Off
c: 010
d: 0x1f
e: 0b11
f: 1_000
g: 1:30
h: 1:30.5
i: -.5
j: 1e3
k: 1.0e+3
l: ~
m:
n: 'yes'
o: |
  text
p: [1, {q: r}]
s: "2.0"
t: <% $.x %>
"""


def test_plain_text_means_what_it_means_to_the_service() -> None:
    assert load_yaml_1_1(PLAIN, "template") == yaml.safe_load(PLAIN)
    assert load_workflow(PLAIN, "workflow") == safe_yaml.load(PLAIN)
    odd = "a: &x 1\nb: *x\nc: @d\n"
    assert load_workflow(odd, "workflow") == safe_yaml.load(odd)


def test_a_workflow_has_no_date_which_a_quoted_one_would_equal() -> None:
    assert load_yaml_1_1("a: 2026-01-01", "template") == {"a": "2026-01-01"}
    with pytest.raises(InvalidDocument):
        load_workflow("a: 2026-01-01", "workflow")


pieces = st.sampled_from(
    ["a", "1", ":", ": ", "? ", "- ", "&a ", "*a", "!!", "!!merge ", "!!int ", "<<", "[", "]", "{"]
    + ["}", ",", "\n", "  ", '"', "'", "\\", "|", ">", "%YAML ", "---", "0x", "_", ".", "\\U", "é"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(pieces, max_size=40).map("".join), st.sampled_from([load_yaml_1_1, load_workflow]))
def test_any_text_is_read_or_refused(text: str, load: Callable[[str, str], dict[str, Any]]) -> None:
    with suppress(InvalidDocument):
        assert isinstance(load(text, "template"), dict)
