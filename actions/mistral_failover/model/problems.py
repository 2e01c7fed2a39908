# SPDX-License-Identifier: Apache-2.0
"""Find every problem of a group file at once, for its author."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mistral_failover.model.documents import load_yaml_1_1, read_document
from mistral_failover.model.errors import InvalidDocument, UnknownResource
from mistral_failover.model.goal import STACK_TEMPLATE
from mistral_failover.model.group import Group, parse_group
from mistral_failover.model.types import ResourceType
from mistral_failover.model.validation import did_you_mean, every_error

_MOST = 100
_STAND_IN = {"servers": ["a_member"]}


def group_problems(
    source: str | bytes | Mapping[str, Any],
    *,
    name: str | None = None,
    types: Iterable[ResourceType] = (),
) -> list[InvalidDocument]:
    """Return every problem of a group file, sorted by path. An empty list: the file is accepted.
    ``parse_group`` raises only the most important one.

    A grammar error in a part hides errors in its meaning. So the search is repeated on the document
    without that part. A reference to the removed part is not a problem.
    """
    try:
        document = read_document(source, "group file")
    except InvalidDocument as error:
        return [error]
    found = list(every_error("group", document))
    left: dict[str, Any] | None = dict(document)
    dropped: set[str] = set()
    for slip in found:
        left = left and _without(left, slip.path, dropped)
    if left is not None:
        found += _meaning(left, name, list(types), dropped)
    return sorted({each.path: each for each in found}.values(), key=lambda each: each.path)


def _meaning(
    left: dict[str, Any], name: str | None, types: list[ResourceType], dropped: set[str]
) -> Iterator[InvalidDocument]:
    """Yield the refusals one by one, each time without the part that was refused before."""
    rest: dict[str, Any] | None = left
    for _ in range(_MOST):
        if rest is None:
            return
        try:
            group = parse_group(rest, name=name, types=types)
        except InvalidDocument as error:
            if not (isinstance(error, UnknownResource) and error.resource in dropped):
                yield error
            rest = _without(rest, error.path, dropped)
        else:
            yield from template_problems(group)
            return


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


def _without(document: dict[str, Any], path: str, dropped: set[str]) -> dict[str, Any] | None:
    """Return the document without the refused part, and add the part's name to ``dropped``. Return
    it unchanged if the part was removed before, and None if no check is possible without the part.
    """
    top, rest = re.match(r"([^.\[]*)[.\[]?([^.\[\]]*)", path).groups()  # type: ignore[union-attr]
    if top == "members":
        return {**document, "members": _STAND_IN}
    if top == "resources" and isinstance(document.get("resources"), Mapping):
        if rest in dropped:
            return document
        dropped.add(rest)
        kept = {key: value for key, value in document["resources"].items() if key != rest}
        return {**document, "resources": kept} if len(kept) < len(document["resources"]) else None
    if top in dropped:
        return document
    if top in ("stack", "roles", "failover_template_version") or top not in document:
        return None
    dropped.add(top)
    return {key: value for key, value in document.items() if key != top}
