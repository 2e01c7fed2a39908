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
from importlib.metadata import entry_points
from pathlib import Path

import mistral_failover

_SOURCES = Path(mistral_failover.__file__).parent
_IN_A_THREAD_OF_ITS_OWN = "NodeWorker"
_BY_ENTRY_POINTS = {
    "mistral_failover.resources.fence.ladder._climb": "mistral_failover.rungs",
    "mistral_failover.alarms.adapters.read": "mistral_failover.alarm_sources",
}
"""Functions that call what the entry points of a group lead to."""
_CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")


def actions() -> dict[str, str]:
    """Each action's class, as ``module.Class``."""
    return {
        point.name: point.value.replace(":", ".")
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
    return frozenset(_codes_in(_definitions()[name]))


def _codes_in(definition: ast.AST) -> Iterator[str]:
    for node in ast.walk(definition):
        found: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name.endswith("Error") or name == "super().__init__":
                found = node.args[:1]
        elif isinstance(node, ast.ClassDef):
            found = [
                each.value
                for each in node.body
                if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "code"
            ]
        for each in found:
            value = each.value if isinstance(each, ast.Constant) else None
            if isinstance(value, str) and _CODE.fullmatch(value):
                yield value


@functools.cache
def _leads_to(name: str) -> frozenset[str]:
    if name.endswith(f".{_IN_A_THREAD_OF_ITS_OWN}"):
        return frozenset()
    definition = _definitions()[name]
    known = _names(_module_of(name)) | _imports(ast.walk(definition))
    only_named = set(_only_named(definition))
    found = set()
    for node in ast.walk(definition):
        if id(node) not in only_named and isinstance(node, ast.Name | ast.Attribute):
            head, _, rest = ast.unparse(node).partition(".")
            if head in known:
                found.add(f"{known[head]}.{rest}" if rest else known[head])
    if name in _BY_ENTRY_POINTS:
        points = entry_points(group=_BY_ENTRY_POINTS[name])
        found |= {point.value.replace(":", ".") for point in points}
    return frozenset(target for each in found if (target := _defined(each)))


def _only_named(definition: ast.AST) -> Iterator[int]:
    """What stands in annotations, in ``except`` and in ``isinstance``, and is not used."""
    for node in ast.walk(definition):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            parts = [node.returns]
        elif isinstance(node, ast.ExceptHandler):
            parts = [node.type]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            parts = [*node.args[1:]]
        yield from (id(each) for part in parts if part for each in ast.walk(part))


def _defined(name: str) -> str | None:
    """The definition behind a name, also where a module only hands it on."""
    if name in _definitions():
        return name
    module, _, last = name.rpartition(".")
    target = _names(module).get(last) if module in _modules() else None
    return target if target in _definitions() else None


@functools.cache
def _modules() -> dict[str, ast.Module]:
    found = {}
    for path in _SOURCES.rglob("*.py"):
        parts = path.relative_to(_SOURCES.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


@functools.cache
def _definitions() -> dict[str, ast.stmt]:
    return {
        f"{module}.{name}": node
        for module, tree in _modules().items()
        for node in tree.body
        for name in _defines(node)
    }


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


@functools.cache
def _names(module: str) -> dict[str, str]:
    """What each name of a module stands for."""
    found: dict[str, str] = {}
    for node in _modules()[module].body:
        found |= {name: f"{module}.{name}" for name in _defines(node)}
    return found | _imports(_modules()[module].body)


def _imports(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """What names imported by these statements stand for, if it is of the package."""
    return {
        each.asname or each.name: f"{node.module}.{each.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        if node.module and node.module.startswith(mistral_failover.__name__)
        for each in node.names
    }


def _module_of(name: str) -> str:
    while name not in _modules():
        name = name.rpartition(".")[0]
    return name
