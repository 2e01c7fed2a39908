# SPDX-License-Identifier: Apache-2.0
"""Heat's templates are read as Heat reads them, in bounded time."""

import pytest

from mistral_failover.model.documents import load_template
from mistral_failover.model.errors import InvalidDocument

PAIRS = tuple(zip("abcdefgh", "bcdefghi", strict=True))
"""Each anchor with the next one, which has it many times."""


def test_a_heat_template_may_have_aliases_and_its_dates_are_text() -> None:
    text = "heat_template_version: 2021-04-16\na: &a {flavor: m1}\nb: *a\n"

    found = load_template(text, "template")

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
        load_template(text, "template")
