# SPDX-License-Identifier: Apache-2.0
"""What a docstring refers to by name exists."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

from support.pages import MODULES

REFERENCE = re.compile(r":(?:func|class|meth|data|mod):`~?([\w.]+)`")
NAMES = [
    ".".join(("mistral_failover", *name.removesuffix(".py").removesuffix("/__init__").split("/")))
    for name in MODULES
    if "migrations" not in name
]


def references(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Each name in a docstring, and the class around it, if there is one."""
    source = inspect.getsource(module)
    if not REFERENCE.search(source):  # parsing takes long
        return
    for node in ast.walk(ast.parse(source)):
        yield from ((name, "") for name in named(node))
        if isinstance(node, ast.ClassDef):
            yield from ((name, node.name) for each in ast.walk(node) for name in named(each))


def named(node: ast.AST) -> list[str]:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return REFERENCE.findall(node.value) if is_text else []


def leads_somewhere(module: ModuleType, name: str, around: str) -> bool:
    """Whether a name stands for something: in the module, in the class, or by its path."""
    if name.startswith("."):
        return imported(f"{module.__package__}{name}")
    here = [module, *([getattr(module, around)] if around else [])]
    if any(follow(start, name.split(".")) for start in here):
        return True
    return imported(name) or imported(f"mistral_failover.{name}")


def imported(path: str) -> bool:
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        return follow(found, parts[cut:])
    return False


def follow(start: object, names: list[str]) -> bool:
    """Whether the attributes lead on. A field of a dataclass may be an annotation alone."""
    for name in names:
        if not hasattr(start, name):
            return name in getattr(start, "__annotations__", {}) and name == names[-1]
        start = getattr(start, name)
    return True


def unknown(module: ModuleType) -> set[str]:
    """What the docstrings of a module name, and what does not exist."""
    found = set(references(module))
    known = {name for name, around in found if leads_somewhere(module, name, around)}
    return {name for name, _ in found} - known


def test_what_a_docstring_names_exists() -> None:
    found = {name: unknown(importlib.import_module(name)) for name in NAMES}

    assert {name: lost for name, lost in found.items() if lost} == {}


def test_a_name_that_does_not_exist_is_found() -> None:
    module = ModuleType("a_module")
    assert leads_somewhere(module, "runtime.workers.Timers.after", "")
    assert not leads_somewhere(module, "runtime.workers.Timers.before", "")
