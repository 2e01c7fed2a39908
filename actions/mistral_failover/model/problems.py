# SPDX-License-Identifier: Apache-2.0
"""Find every problem of a group file at once, for its author."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mistral_failover.model.documents import load_yaml_1_1, read_document
from mistral_failover.model.errors import InvalidDocument, UnknownMember, UnknownResource
from mistral_failover.model.goal import STACK_TEMPLATE
from mistral_failover.model.group import Group, parse_group
from mistral_failover.model.types import ResourceType, installed_types
from mistral_failover.model.validation import did_you_mean, every_error, nearest

_MOST = 200
_STAND_INS: Mapping[str, Any] = {
    "failover_template_version": "2026-11-21",
    "stack": "a_stack",
    "members": {"servers": ["a_member"]},
}
"""What takes the place of a part that every group file needs."""
_STEP = re.compile(r"[^.\[\]]+|\[\d+\]")


def group_problems(
    source: str | bytes | Mapping[str, Any],
    *,
    name: str | None = None,
    types: Iterable[ResourceType] = (),
) -> list[InvalidDocument]:
    """Return every problem of a group file, sorted by path. An empty list: the file is accepted.
    ``parse_group`` raises only the most important one."""
    return problems_and_rest(source, name=name, types=types)[0]


def problems_and_rest(
    source: str | bytes | Mapping[str, Any],
    *,
    name: str | None = None,
    types: Iterable[ResourceType] = (),
) -> tuple[list[InvalidDocument], Group | None, frozenset[str]]:
    """Return every problem of a group file, as :func:`group_problems`; the group that is left
    without the refused parts, None if none is left; and the paths of these parts.

    A refused part hides what else is wrong. So the search is repeated on the document without that
    part, and without no more than that part. What only misses it is not a problem of its own.
    """
    try:
        document = read_document(source, "group file")
    except InvalidDocument as error:
        return [error], None, frozenset({""})
    found = list(every_error("group", document))
    loaded, group = list(types), None
    left = _Left(copy.deepcopy(dict(document)), {**installed_types(), **_by_name(loaded)})
    for slip in found:
        left.drop(slip.path)
    for _ in range(_MOST):
        if left.document is None:
            break
        try:
            group = parse_group(left.document, name=name, types=loaded)
            break
        except InvalidDocument as error:
            error.path = left.original(error.path)
            if not left.misses(error):
                found.append(error)
            left.drop(error.path)
    if group is not None:
        judged = (each for each in template_problems(group) if not left.dropped_at(each.path))
        found += judged
    unique = sorted({each.path: each for each in found}.values(), key=lambda each: each.path)
    return unique, group, frozenset(left.dropped)


def below(path: str, part: str) -> bool:
    """Return whether a path is that of a part of a document, or leads into it."""
    return part == "" or path == part or path.startswith((f"{part}.", f"{part}["))


class _Left:
    """What is left of a ``document`` without its refused parts; None if no check is possible
    without them. ``types``: by name, those of its resources. ``dropped``: the paths of the parts.

    In the place of a property that its type knows comes a reference, which is judged only once it
    is resolved. So the properties beside it are still judged.
    """

    def __init__(self, document: dict[str, Any], types: Mapping[str, ResourceType]) -> None:
        self.document: dict[str, Any] | None = document
        self.dropped: set[str] = set()
        self._types = types
        self._members: set[str] = set()  # the names that were dropped
        self._gone: dict[str, set[int]] = {}  # by the path of a list, the items that were dropped

    def misses(self, error: InvalidDocument) -> bool:
        """Return whether a problem is only that a dropped part is not there: something refers to
        it, or what contained it is not complete any more."""
        if isinstance(error, UnknownResource) and f"resources.{error.resource}" in self.dropped:
            return True
        if isinstance(error, UnknownMember) and error.member in self._members:
            return True
        names = not self.dropped.isdisjoint(("members", "members.servers"))
        if names and error.path.partition(".")[0] in ("roles", "members"):
            return True  # it may name a member
        return any(below(each, error.path) for each in self.dropped) or self._misspelt(error.path)

    def _misspelt(self, path: str) -> bool:
        """Return whether a part that is not there was dropped because its key is misspelt."""
        steps, inner = _steps(path), self.document
        for number, step in enumerate(steps):
            within = _inner(inner, step)
            if isinstance(step, str) and within is None:
                others = [_steps(each) for each in self.dropped]
                beside = (each[-1] for each in others if each[:-1] == steps[:number])
                return any(isinstance(key, str) and nearest(key, [step]) for key in beside)
            inner = within
        return False

    def dropped_at(self, path: str) -> bool:
        """Return whether a path leads into a part that was dropped."""
        return any(below(path, each) for each in self.dropped)

    def drop(self, path: str) -> None:
        """Remove the part with this path, or what contains it if that was done before."""
        steps = _steps(path)
        while self.document is not None:
            if not steps or self._removed(steps):
                break
            steps.pop()
        if not steps:
            self.document = None

    def original(self, path: str) -> str:
        """Return a path in what is left as one in the whole document: items before it may be
        gone."""
        found: list[str | int] = []
        for step in _steps(path):
            if isinstance(step, int):
                for gone in sorted(self._gone.get(_written(found), ())):
                    step += gone <= step
            found.append(step)
        return _written(found)

    def _removed(self, steps: list[str | int]) -> bool:
        """Remove a part, given by its original steps; return whether it was there."""
        if _written(steps) in self.dropped and len(steps) > 1:
            return False
        inner: Any = self.document
        here = list(steps)
        for number, step in enumerate(steps):
            if isinstance(step, int):
                before = self._gone.get(_written(steps[:number]), set())
                here[number] = step - sum(gone < step for gone in before)
        for step in here[:-1]:
            inner = _inner(inner, step)
        last, top = here[-1], len(steps) == 1
        if steps[:2] == ["members", "servers"]:
            name = _inner(inner, last) if isinstance(last, int) else last
            self._members |= {name} if isinstance(name, str) and len(steps) == 3 else set()
        if isinstance(inner, list) and isinstance(last, int) and last < len(inner):
            del inner[last]
            self._gone.setdefault(_written(steps[:-1]), set()).add(int(steps[-1]))
        elif not isinstance(inner, dict) or last not in inner:
            return False
        elif top and last in _STAND_INS and inner[last] != _STAND_INS[str(last)]:
            inner[last] = copy.deepcopy(_STAND_INS[str(last)])
        elif top and last in ("resources", "roles", *_STAND_INS):
            self.document = None  # nothing can be checked without it
        elif self._is_known_property(steps):
            inner[last] = {"get_param": next(iter((self.document or {}).get("roles", ["active"])))}
        else:
            del inner[last]
        self.dropped.add(_written(steps))
        return True

    def _is_known_property(self, steps: list[str | int]) -> bool:
        """Return whether steps lead to a property that the type of its resource knows."""
        if len(steps) != 4 or (steps[0], steps[2]) != ("resources", "properties"):
            return False
        kind = _inner(_inner(_inner(self.document, "resources"), steps[1]), "type")
        return kind in self._types and steps[3] in self._types[kind].schema["properties"]


def _by_name(types: Iterable[ResourceType]) -> dict[str, ResourceType]:
    return {each.name: each for each in types}


def _steps(path: str) -> list[str | int]:
    return [int(each[1:-1]) if each.startswith("[") else each for each in _STEP.findall(path)]


def _written(steps: Iterable[str | int]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def _inner(value: Any, step: str | int) -> Any:
    """Return a part of a value; None if it has no such part."""
    if isinstance(value, dict):
        return value.get(step)
    inside = isinstance(value, list) and isinstance(step, int) and step < len(value)
    return value[step] if inside else None


def template_problems(group: Group) -> Iterator[InvalidDocument]:
    """Yield the problems of the templates that a group gives its stack: one that cannot be read, or
    a member that has none. ``parse_group`` does not look for them: it takes too long to read them
    whenever the group is needed."""
    for spec in group.resources.values():
        if spec.type != STACK_TEMPLATE:
            continue
        path, templates = f"resources.{spec.name}.properties", spec.properties["templates"]
        for name, text in templates.items():
            try:
                load_yaml_1_1(text, "template")
            except InvalidDocument as error:
                yield InvalidDocument(f"{path}.templates.{name}", error.message, error.remedy)
        wanted = spec.properties["use"]
        names = [wanted] if isinstance(wanted, str) else []
        if wanted in [{"get_param": role} for role in group.roles]:
            names = list(group.members.servers)
        for name in sorted(set(names) - set(templates)):
            yield InvalidDocument(
                f"{path}.use",
                f'there is no template "{name}"',
                f"Add it to templates. {did_you_mean(name, templates)}",
            )
