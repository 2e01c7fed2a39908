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


@st.composite
def changed(draw: st.DrawFn, resources: dict[str, Any]) -> dict[str, Any]:
    """The resources of a group file after a change: some left out, some new ones, which others
    may require, and some with other values; the rest as before but for what is not there."""
    gone = draw(st.sets(st.sampled_from(sorted(resources) or ["none"]), min_size=1, max_size=2))
    new = draw(st.lists(st.sampled_from(["n0", "n1"]), unique=True))
    result: dict[str, Any] = {}
    for name in new:
        kind = draw(st.sampled_from(["shared", "exclusive", "held"]))
        held: dict[str, Any] = {"member": {"get_param": "active"}}
        properties = held if kind == "held" else {}
        result[name] = {"type": kind, "properties": properties, "depends_on": []}
    for name, entry in resources.items():
        if name in gone:
            continue
        properties = {
            key: draw(st.integers(1, 2)) if _target(value) in gone else value
            for key, value in entry["properties"].items()
        }
        if draw(st.integers(0, 3)) == 0:
            properties[draw(st.sampled_from(["key", "value"]))] = draw(st.integers(1, 2))
        requires = [other for other in entry["depends_on"] if other not in gone]
        requires += draw(st.lists(st.sampled_from(new), unique=True)) if new else []
        result[name] = {"type": entry["type"], "properties": properties, "depends_on": requires}
    return result


def _target(value: Any) -> str | None:
    return value["get_attr"][0] if isinstance(value, dict) and "get_attr" in value else None
