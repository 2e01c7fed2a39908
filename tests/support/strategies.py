# SPDX-License-Identifier: Apache-2.0
"""Groups and goals as hypothesis draws them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

MEMBERS = ("a", "b", "c")


@st.composite
def group_resources(draw: st.DrawFn, most: int = 8) -> dict[str, Any]:
    """Up to ``most`` resources of every make, in a random order of dependence."""
    names = draw(st.permutations([f"r{i}" for i in range(most)]))
    names = names[: draw(st.integers(0, most))]
    resources: dict[str, Any] = {}
    for place, name in enumerate(names):
        kind = draw(st.sampled_from(["shared", "exclusive", "held"]))
        earlier = names[:place]
        wanted = st.sampled_from(earlier) if earlier else st.nothing()
        requires = draw(st.lists(wanted, unique=True, max_size=3)) if earlier else []
        properties: dict[str, Any] = {"key": draw(st.integers(1, 2))}
        plain: st.SearchStrategy[Any] = st.integers(1, 2) | st.just({"get_param": "active"})
        referring = wanted.map(lambda other: {"get_attr": [other, "echo"]})
        properties["value"] = draw(plain | referring if earlier else plain)
        if kind == "shared" and earlier and draw(st.booleans()):
            properties["key"] = draw(referring)
        if kind == "held":
            properties["member"] = {"get_param": "active"}
        resources[name] = {"type": kind, "properties": properties, "depends_on": requires}
    return resources


@st.composite
def roles(draw: st.DrawFn) -> tuple[str, tuple[str, ...]]:
    """Who is active, and which others are lost."""
    active = draw(st.sampled_from(MEMBERS))
    others = [m for m in MEMBERS if m != active]
    return active, tuple(draw(st.lists(st.sampled_from(others), unique=True)))
