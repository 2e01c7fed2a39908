# SPDX-License-Identifier: Apache-2.0
"""Which of the package's functions a function may reach, and with which codes they can fail: read
from the sources, nothing is run.

A name that leads to a function, class or constant of the package counts as reached, also where it
is only handed on; what is called on an object (``request.cloud()``) is not followed. So a code that
is found may be caught on its way, and one that comes from outside (a service's answer, an agent's)
is not found. What a worker's thread does with a node is recorded and never raised, so nothing
leads there.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from mistral_failover.model.verbs import verb_kinds
from support.pages import MODULES

_IN_A_THREAD_OF_ITS_OWN = "NodeWorker"
_BY_ENTRY_POINTS = {
    "mistral_failover.orders.verbs.verb_named": "mistral_failover.verbs",
    "mistral_failover.resources.fence.ladder._climb": "mistral_failover.rungs",
    "mistral_failover.resources.group_member.bring_back": "mistral_failover.restarts",
    "mistral_failover.alarms.alarm.read": "mistral_failover.alarm_sources",
}
"""Functions that call what the entry points of a group lead to."""
_CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")


def actions() -> dict[str, str]:
    """Each action's class, as ``module.Class``; of a verb's action the class of the verb."""
    verbs = {verb.action: type(verb) for verb in verb_kinds().values()}
    return {
        point.name: f"{verbs[point.name].__module__}.{verbs[point.name].__name__}"
        if point.name in verbs
        else point.value.replace(":", ".").replace(".Plan", "._PlanAction")
        for point in entry_points(group="mistral.actions")
        if point.name.startswith("failover.")
    }


@functools.cache
def reached(start: str) -> frozenset[str]:
    """Everything that a function or class may reach, itself included, each as ``module.name``."""
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        here = ahead.pop()
        if here not in seen:
            seen.add(here)
            ahead += _leads_to(here)
    return frozenset(seen)


@functools.cache
def codes(start: str) -> frozenset[str]:
    """The codes of all errors that are made in what a function or class may reach."""
    return frozenset(code for here in reached(start) for code in _codes_of(here))


@functools.cache
def _codes_of(name: str) -> frozenset[str]:
    """The codes of the errors that are made in one definition."""
    return _definition(name).codes


def _codes_in(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        found: list[ast.expr] = []
        if isinstance(node, ast.Call) and makes_an_error(node.func):
            found = node.args[:1]
        elif isinstance(node, ast.ClassDef):
            found = [
                each.value
                for each in node.body
                if isinstance(each, ast.Assign) and dotted(each.targets[0]) == "code"
            ]
        for each in found:
            value = each.value if isinstance(each, ast.Constant) else None
            if isinstance(value, str) and _CODE.fullmatch(value):
                yield value


def makes_an_error(function: ast.expr) -> bool:
    """Whether what is called is an error by its name, or what an error's own class builds on."""
    match function:
        case ast.Name(id=name):
            return name.endswith("Error")
        case ast.Attribute(
            value=ast.Call(func=ast.Name(id="super"), args=[], keywords=[]), attr="__init__"
        ):
            return True
        case ast.Attribute(attr=name):
            return name.endswith("Error")
    return False


def dotted(node: ast.AST) -> str | None:
    """The source of a name with its attributes, without the cost of ``ast.unparse``; None for
    anything else."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(attributes)]) if isinstance(node, ast.Name) else None


@functools.cache
def _leads_to(name: str) -> frozenset[str]:
    if name.endswith(f".{_IN_A_THREAD_OF_ITS_OWN}"):
        return frozenset()
    definition = _definition(name)
    known = _module(name.rpartition(".")[0]).names | definition.imports
    found = set()
    for used in definition.uses:
        head, _, rest = used.partition(".")
        if head in known:
            found.add(f"{known[head]}.{rest}" if rest else known[head])
    if name in _BY_ENTRY_POINTS:
        points = entry_points(group=_BY_ENTRY_POINTS[name])
        found |= {point.value.replace(":", ".") for point in points}
    return frozenset(target for each in found if (target := _defined(each)))


def _only_named(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """What stands in annotations, in ``except`` and in ``isinstance``, and is not used."""
    for node in nodes:
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            parts = [node.returns]
        elif isinstance(node, ast.ExceptHandler):
            parts = [node.type]
        elif isinstance(node, ast.Call) and dotted(node.func) in ("isinstance", "issubclass"):
            parts = [*node.args[1:]]
        yield from (id(each) for part in parts if part for each in ast.walk(part))


def _defined(name: str) -> str | None:
    """The definition behind a name, also where a module only hands it on."""
    if _is_defined(name):
        return name
    module, _, last = name.rpartition(".")
    target = _module(module).names.get(last) if module in _paths() else None
    return target if target and _is_defined(target) else None


@dataclass(frozen=True)
class _Definition:
    """What a function, class or constant uses and imports, and the codes of its errors."""

    uses: frozenset[str]
    imports: dict[str, str]
    codes: frozenset[str]


@dataclass(frozen=True)
class _Module:
    """What each name of a module stands for, and what the module itself defines."""

    names: dict[str, str]
    definitions: dict[str, _Definition]


@functools.cache
def _module(name: str) -> _Module:
    """Read a module. Its nodes are not kept: each search for garbage would go through them all."""
    body = ast.parse(_paths()[name].read_text(encoding="utf-8")).body
    definitions = {}
    for node in body:
        for defined in _defines(node):
            definitions[defined] = _read(node)
    return _Module({each: f"{name}.{each}" for each in definitions} | _imports(body), definitions)


def _read(definition: ast.stmt) -> _Definition:
    nodes = list(ast.walk(definition))
    only_named = set(_only_named(nodes))
    used = (dotted(node) for node in nodes if id(node) not in only_named)
    return _Definition(frozenset(filter(None, used)), _imports(nodes), frozenset(_codes_in(nodes)))


def _definition(name: str) -> _Definition:
    module, _, last = name.rpartition(".")
    return _module(module).definitions[last]


def _is_defined(name: str) -> bool:
    module, _, last = name.rpartition(".")
    return module in _paths() and last in _module(module).definitions


@functools.cache
def _paths() -> dict[str, Path]:
    """The file of each module."""
    found = {}
    for name, path in MODULES.items():
        parts = ("mistral_failover", *name.removesuffix(".py").split("/"))
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _imports(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """What names imported by these statements stand for, if it is of the package."""
    return {
        each.asname or each.name: f"{node.module}.{each.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        if node.module and node.module.startswith("mistral_failover")
        for each in node.names
    }
