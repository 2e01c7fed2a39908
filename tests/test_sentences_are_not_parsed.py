# SPDX-License-Identifier: Apache-2.0
"""No code decides anything by the words of a sentence that was written for people: what it needs to
know is a code, a column or an attribute."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pages import MODULES

SENTENCES = {
    "cause",
    "detail",
    "done",
    "message",
    "near",
    "observed",
    "reason",
    "remedy",
    "sentence",
    "stack_status_reason",
    "told",
    "words",
}
"""The names of variables, attributes and keys that hold a sentence."""
PARSING = {
    "count",
    "endswith",
    "find",
    "index",
    "partition",
    "removeprefix",
    "removesuffix",
    "rfind",
    "rindex",
    "rpartition",
    "rsplit",
    "split",
    "startswith",
}
PATTERNS = {"findall", "finditer", "fullmatch", "match", "search", "split", "sub"}

FOREIGN = "another program's text, which has no code for it"
TEMPLATE = "fills the places in a type's wording"
ALLOWED = {
    "agent/broker.py:queue_exists": FOREIGN,
    "cli/plan.py:facts_said": "what a person typed",
    "cloud/errors.py:unreachable_behind": FOREIGN,
    "cloud/servers.py:has_a_task": FOREIGN,
    "cloud/tokens.py:_catalog": FOREIGN,
    "cloud/stack_updates.py:cancelled": FOREIGN,
    "cloud/volumes.py:_refused": FOREIGN,
    "cloud/volumes.py:_while_busy": FOREIGN,
    "model/operation_words.py:operation_words": TEMPLATE,
    "model/types.py:_words": TEMPLATE,
}
"""By file and function: why it may read a sentence."""


def is_sentence(node: ast.expr) -> bool:
    """Whether an expression is a sentence by its name, or made of one: ``str(row["reason"])``."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_") in SENTENCES
        case ast.Subscript(value=value, slice=key):
            named = isinstance(key, ast.Constant) and key.value in SENTENCES
            return named or (isinstance(key, ast.Slice) and is_sentence(value))
        case ast.Call(
            func=ast.Name(id="str"), args=[ast.Name(id="error" | "e") | ast.Attribute(attr="orig")]
        ):
            return True
        case ast.Call(func=ast.Attribute(value=value), args=args):
            return is_sentence(value) or any(map(is_sentence, args))
        case ast.Call(args=args):
            return any(map(is_sentence, args))
        case ast.BoolOp(values=values):
            return any(map(is_sentence, values))
        case ast.IfExp(body=body, orelse=other):
            return is_sentence(body) or is_sentence(other)
        case ast.Constant(value=str(key)):
            return key in SENTENCES
    return False


def parses(node: ast.AST) -> bool:
    """Whether an expression takes a sentence apart, or looks for words in one."""
    match node:
        case ast.Call(func=ast.Attribute(value=subject, attr=method), args=args):
            if method in PARSING and is_sentence(subject):
                return True
            return method in PATTERNS and any(
                is_sentence(each) for each in args if not isinstance(each, ast.Constant)
            )
        case ast.Compare(ops=ops, comparators=right):
            pairs = zip(ops, right, strict=True)
            return any(
                isinstance(op, ast.In | ast.NotIn)
                and is_sentence(container)
                and ast.unparse(container) != "told"  # a set of sentences
                for op, container in pairs
            )
    return False


def parsing_in(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
    """The functions that parse sentences, by the name of the innermost, and how."""
    if isinstance(node, ast.FunctionDef):
        function = node.name
    if isinstance(node, ast.expr) and parses(node):
        yield function, f"line {node.lineno}: {ast.unparse(node)}"
    for child in ast.iter_child_nodes(node):
        yield from parsing_in(child, function)


def found(name: str, path: Path) -> dict[str, str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {f"{name}:{function}": how for function, how in parsing_in(tree, "")}


def test_no_code_parses_a_sentence() -> None:
    everywhere = [found(name, path) for name, path in MODULES.items()]
    parsing = {place: how for each in everywhere for place, how in each.items()}

    assert {p: how for p, how in parsing.items() if p not in ALLOWED} == {}
    assert ALLOWED.keys() - parsing.keys() == set(), "an exception that nothing needs"


@pytest.mark.parametrize(
    "code",
    [
        "reason.startswith('x')",
        "record.reason.rpartition(' ')[2]",
        "str(row['reason']).split()",
        "' '.join((error.message or '').split())",
        "(status.get('reason') or '').partition(': ')",
        "re.match(r'x', error.message)",
        "_PATTERN.search(sentence)",
        "'x' in error.message",
        "told.startswith(begins)",
        "str(error).partition('. ')",
    ],
)
def test_what_parses_a_sentence_is_found(code: str) -> None:
    assert any(parses(node) for node in ast.walk(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["f'{reason}: x'", "path.startswith('x')", "reason in told", "'x' in error.codes"]
)
def test_what_only_says_a_sentence_is_not(code: str) -> None:
    assert not any(parses(node) for node in ast.walk(ast.parse(code)))
