# SPDX-License-Identifier: Apache-2.0
"""The functions of HOT: what a template may have in place of a value.

Heat's Template Guide, "Intrinsic functions" and "Conditions". A function that is not among
`FUNCTIONS` is refused when the template is read, by its name.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


class TemplateError(Exception):
    """A template or its parameters are wrong; `kind` is Heat's exception name."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Scope:
    """Where functions find what they name.

    :ivar values: the parameters.
    :ivar physical_id: a resource's physical id, None when it has none yet.
    :ivar attribute: a resource's attribute, by its name and the way into it.
    :ivar files: what came with the template, by name.
    :ivar conditions: the template's.
    """

    values: Mapping[str, Any]
    physical_id: Callable[[str], str | None]
    attribute: Callable[[str, list[Any]], Any]
    files: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, Any] = field(default_factory=dict)


def resolve(value: Any, scope: Scope) -> Any:
    """Replaces the functions in a value.

    :raises TemplateError: an unknown parameter, condition or file, or a function's argument is
        wrong.
    """
    if isinstance(value, list):
        return [resolve(each, scope) for each in value]
    if not isinstance(value, dict):
        return value
    name = function_of(value)
    if name is None:
        return {key: resolve(each, scope) for key, each in value.items()}
    try:
        return FUNCTIONS[name](value[name], scope)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise _invalid(f'"{name}" is invalid: {error}') from None


def holds(condition: Any, scope: Scope) -> bool:
    """Whether a condition holds: the name of one, a function, or a word for yes or no.

    :raises TemplateError: there is no condition of that name.
    """
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, str):
        if condition not in scope.conditions:
            raise _invalid(f'Invalid condition "{condition}"')
        return holds(scope.conditions[condition], scope)
    return bool(resolve(condition, scope))


def function_of(value: Mapping[str, Any]) -> str | None:
    """The name of the function that an object is; None if it is an ordinary one."""
    name = next(iter(value), None) if len(value) == 1 else None
    return name if name in FUNCTIONS else None


def unknown_functions(value: Any) -> Iterator[str]:
    """The functions of Heat that are used in a value and are not among `FUNCTIONS`."""
    if isinstance(value, Mapping):
        if len(value) == 1 and (name := next(iter(value))) in _MISSING:
            yield name
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str):
        for each in value:
            yield from unknown_functions(each)


def walk(found: Any, path: Iterable[Any]) -> Any:
    """What is at the end of a way into a value; None if it ends before."""
    for step in path:
        if isinstance(found, list):
            index = int(step)
            found = found[index] if -len(found) <= index < len(found) else None
        else:
            found = found.get(step) if isinstance(found, Mapping) else None
    return found


def text(value: Any) -> str:
    """A value within a text, as Heat writes it there."""
    if value is None:
        return ""
    if isinstance(value, Mapping | list | bool):
        return json.dumps(value)
    return str(value)


def _invalid(message: str) -> TemplateError:
    return TemplateError("StackValidationFailed", message)


def _get_param(argument: Any, scope: Scope) -> Any:
    name, *path = argument if isinstance(argument, list) else [argument]
    if name not in scope.values:
        raise TemplateError("UserParameterMissing", f"The Parameter ({name}) was not provided.")
    return walk(scope.values[name], resolve(path, scope))


def _get_attr(argument: Any, scope: Scope) -> Any:
    name, *path = argument
    return scope.attribute(str(name), resolve(path, scope))


def _get_file(argument: Any, scope: Scope) -> str:
    name = str(resolve(argument, scope))
    if name not in scope.files:
        raise _invalid(f'No content found in the "files" section for get_file path: {name}')
    return scope.files[name]


def _str_replace(argument: Any, scope: Scope) -> str:
    given = {str(key): text(resolve(v, scope)) for key, v in argument["params"].items()}
    template = text(resolve(argument["template"], scope))
    # In one pass, the longest first: what was put in is not looked at again.
    names = "|".join(re.escape(name) for name in sorted(given, key=len, reverse=True) if name)
    return re.sub(names, lambda found: given[found[0]], template) if names else template


def _list_join(argument: Any, scope: Scope) -> str:
    delimiter, *lists = resolve(argument, scope)
    return str(delimiter).join(text(each) for each in _concatenated(lists))


def _str_split(argument: Any, scope: Scope) -> Any:
    delimiter, joined, *index = resolve(argument, scope)
    parts = str(joined).split(delimiter)
    return parts[int(index[0])] if index else parts


def _concatenated(lists: list[Any]) -> list[Any]:
    return [each for one in lists for each in one or []]


def _list_concat(argument: Any, scope: Scope) -> list[Any]:
    return _concatenated(resolve(argument, scope))


def _list_concat_unique(argument: Any, scope: Scope) -> list[Any]:
    found: list[Any] = []
    for each in _list_concat(argument, scope):
        if each not in found:
            found.append(each)
    return found


def _map_merge(argument: Any, scope: Scope) -> dict[str, Any]:
    return {key: v for each in resolve(argument, scope) for key, v in (each or {}).items()}


def _map_replace(argument: Any, scope: Scope) -> dict[str, Any]:
    given, changes = resolve(argument, scope)
    keys, values = changes.get("keys") or {}, changes.get("values") or {}
    return {
        keys.get(key, key): values.get(each, each) if isinstance(each, str) else each
        for key, each in given.items()
    }


def _repeat(argument: Any, scope: Scope) -> list[Any]:
    loops = {name: resolve(each, scope) for name, each in argument["for_each"].items()}
    together = resolve(argument.get("permutations", True), scope) in (False, "false")
    rounds = zip(*loops.values(), strict=True) if together else itertools.product(*loops.values())
    return [
        resolve(_filled(argument["template"], dict(zip(loops, values, strict=True))), scope)
        for values in rounds
    ]


def _filled(template: Any, values: dict[str, Any]) -> Any:
    if isinstance(template, list):
        return [_filled(each, values) for each in template]
    if isinstance(template, dict):
        return {_filled(key, values): _filled(each, values) for key, each in template.items()}
    if not isinstance(template, str):
        return template
    if template in values:
        return values[template]
    for name, each in values.items():
        template = template.replace(name, text(each))
    return template


def _digest(argument: Any, scope: Scope) -> str:
    algorithm, words = resolve(argument, scope)
    return hashlib.new(str(algorithm), str(words).encode(), usedforsecurity=False).hexdigest()


def _filter(argument: Any, scope: Scope) -> list[Any]:
    dropped, given = resolve(argument, scope)
    return [each for each in given or [] if each not in dropped]


def _if(argument: Any, scope: Scope) -> Any:
    condition, first, *second = argument
    if holds(condition, scope):
        return resolve(first, scope)
    return resolve(second[0], scope) if second else None


def _equals(argument: Any, scope: Scope) -> bool:
    first, second = resolve(argument, scope)
    return bool(first == second)


def _contains(argument: Any, scope: Scope) -> bool:
    wanted, given = resolve(argument, scope)
    return wanted in given


FUNCTIONS: Mapping[str, Callable[[Any, Scope], Any]] = {
    "get_param": _get_param,
    "get_resource": lambda argument, scope: scope.physical_id(str(argument)),
    "get_attr": _get_attr,
    "get_file": _get_file,
    "str_replace": _str_replace,
    "str_replace_strict": _str_replace,
    "str_replace_vstrict": _str_replace,
    "list_join": _list_join,
    "str_split": _str_split,
    "list_concat": _list_concat,
    "list_concat_unique": _list_concat_unique,
    "map_merge": _map_merge,
    "map_replace": _map_replace,
    "repeat": _repeat,
    "digest": _digest,
    "filter": _filter,
    "if": _if,
    "equals": _equals,
    "contains": _contains,
    "not": lambda argument, scope: not holds(argument, scope),
    "and": lambda argument, scope: all(holds(each, scope) for each in argument),
    "or": lambda argument, scope: any(holds(each, scope) for each in argument),
}

_MISSING = frozenset({"yaql", "make_url", "resource_facade"})
