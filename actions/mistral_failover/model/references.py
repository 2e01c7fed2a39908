# SPDX-License-Identifier: Apache-2.0
"""Intrinsic functions: ``get_param``, ``get_attr`` and ``get_resource``.

They have the same meaning and form as in a Heat template: a mapping with that one key.

===============================  =================================================
``{get_param: role}``            the member that holds the role
``{get_attr: [name, a, b, 0]}``  attribute ``a`` of a resource, then into it: mappings
                                 by key, lists by index
``{get_resource: name}``         the physical id of a resource
===============================  =================================================

The result of a function is data. It is never searched for functions again.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from mistral_failover.model.errors import InvalidDocument, UnresolvedReference

__all__ = [
    "FUNCTIONS",
    "Reference",
    "UnresolvedReference",
    "find_references",
    "holds_reference",
    "resolve_attributes",
    "resolve_params",
]

Kind = Literal["get_param", "get_attr", "get_resource"]
FUNCTIONS: frozenset[str] = frozenset({"get_param", "get_attr", "get_resource"})


@dataclass(frozen=True)
class Reference:
    """One intrinsic function in a tree."""

    kind: Kind
    target: str
    """The name of the parameter or resource."""
    path: tuple[str | int, ...] = ()
    """For ``get_attr``: the attribute and the steps into it; empty otherwise."""
    where: str = ""
    """The place in the tree, as in ``parameters.nodes[0]``."""


def find_references(tree: Any) -> list[Reference]:
    """Return every reference in a tree of plain values, in the order of reading.

    :raises InvalidDocument: when a function is malformed.
    """
    found: list[Reference] = []

    def note(reference: Reference, node: Any) -> Any:
        found.append(reference)
        return node

    _walk(tree, "", note)
    return found


def holds_reference(tree: Any) -> bool:
    """Return whether the tree contains an intrinsic function."""
    return bool(find_references(tree))


def resolve_params(tree: Any, params: Mapping[str, Any]) -> Any:
    """Return a copy of the tree with every ``get_param`` replaced by its value.

    ``get_attr`` and ``get_resource`` stay as they are.

    :raises UnresolvedReference: for a parameter that has no value.
    """

    def replace(reference: Reference, node: Any) -> Any:
        if reference.kind != "get_param":
            return copy.deepcopy(node)
        if reference.target not in params:
            raise UnresolvedReference(
                reference.where,
                f'the parameter "{reference.target}" has no value',
                f"Known parameters: {_listed(params)}.",
            )
        return copy.deepcopy(params[reference.target])

    return _walk(tree, "", replace)


def resolve_attributes(tree: Any, data: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return a copy of the tree with every ``get_attr`` and ``get_resource`` replaced.

    :param data: what is known about each resource, by name: ``{"id": physical id or None,
        "attributes": {name: value}}``.
    :raises UnresolvedReference: for a resource that is not in ``data``, one without a physical id,
        an attribute or a step that does not exist, and a remaining ``get_param``.
    """

    def replace(reference: Reference, node: Any) -> Any:
        where, target = reference.where, reference.target
        if reference.kind == "get_param":
            raise UnresolvedReference(
                where,
                f'the parameter "{target}" was not resolved',
                "Resolve the parameters first.",
            )
        if target not in data:
            raise UnresolvedReference(
                where,
                f'the resource "{target}" is unknown',
                f"Known resources: {_listed(data)}.",
            )
        known = data[target]
        if reference.kind == "get_attr":
            return copy.deepcopy(_descend(known.get("attributes") or {}, reference))
        if known.get("id") is None:
            raise UnresolvedReference(
                where,
                f'the resource "{target}" has no physical id',
                "Its type must return an id when it is created; use get_attr otherwise.",
            )
        return known["id"]

    return _walk(tree, "", replace)


def _descend(attributes: Any, reference: Reference) -> Any:
    value = attributes
    for depth, step in enumerate(reference.path):
        place = ".".join([reference.target, *map(str, reference.path[: depth + 1])])
        if isinstance(value, Mapping):
            # A mapping that was read from JSON has only text keys.
            key = str(step)
            if key in value:
                value = value[key]
                continue
            remedy = f"Existing keys: {_listed(value)}."
        elif isinstance(value, list | tuple):
            index = _index(step)
            if index is not None and index < len(value):
                value = value[index]
                continue
            remedy = f"It is a list of {len(value)} items; the first is 0."
        else:
            remedy = f"What precedes it is {_kind_of(value)}; shorten the path."
        raise UnresolvedReference(reference.where, f'there is no "{place}"', remedy)
    return value


def _index(step: str | int) -> int | None:
    if isinstance(step, int):
        return step if step >= 0 else None
    return int(step) if step.isascii() and step.isdigit() and len(step) < 10 else None


def _walk(node: Any, where: str, visit: Callable[[Reference, Any], Any]) -> Any:
    """Copy a tree and replace each reference by what ``visit`` returns for it."""
    if isinstance(node, Mapping):
        if not FUNCTIONS.isdisjoint(node):
            return visit(_parse(node, where), node)
        return {
            key: _walk(value, f"{where}.{key}" if where else str(key), visit)
            for key, value in node.items()
        }
    if isinstance(node, list | tuple):
        return [_walk(value, f"{where}[{i}]", visit) for i, value in enumerate(node)]
    return node


def _parse(node: Mapping[str, Any], where: str) -> Reference:
    name = next(key for key in node if key in FUNCTIONS)
    if len(node) != 1:
        others = ", ".join(sorted(str(key) for key in node if key != name))
        raise InvalidDocument(
            where,
            f"{name} must be the only key of its mapping (also found: {others})",
            "Give it its own mapping.",
        )
    kind = cast(Kind, name)
    argument = node[name]
    if kind == "get_attr":
        if (
            not isinstance(argument, list | tuple)
            or len(argument) < 2
            or not _is_name(argument[0])
            or not all(_is_step(step) for step in argument[1:])
        ):
            raise InvalidDocument(
                where,
                "get_attr takes a list of a resource, an attribute and further steps",
                "Write it as {get_attr: [data, device]}.",
            )
        return Reference(kind, argument[0], tuple(argument[1:]), where)
    if not _is_name(argument):
        raise InvalidDocument(
            where, f"{name} takes one name", f"Write it as {{{name}: name}}, the name as text."
        )
    return Reference(kind, argument, (), where)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_step(value: Any) -> bool:
    return _is_name(value) or (isinstance(value, int) and not isinstance(value, bool))


def _kind_of(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(map(str, names))) or "none"
