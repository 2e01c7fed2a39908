# SPDX-License-Identifier: Apache-2.0
"""Paths of requests are made by ``cloud.url_paths``, which quotes: no code puts an id into one, or
hands an unquoted one to a client library, in another way."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from support.pages import MODULES
from support.reachable import dotted

QUOTING = {"segment", "stack_segments", "url_path"}
SENDING = {
    "_get", "read_cinder", "delete", "find", "get", "patch", "post", "put", "read", "read_nova",
    "request", "rows", "send",
}  # fmt: skip
PATHS = ("cloud", "mistral", "doctor", "agent/channel")
"""Where almost every text with a slash is a path."""
NOT_SENT = ("cli/emulator.py", "lab/")
"""To the emulated cloud."""
LIBRARIES = (
    ".heat.events.", ".heat.resources.", ".heat.stacks.", ".volumes.attachments.",
    ".volumes.volumes.",
)  # fmt: skip
UNQUOTED = {".attachments.create", ".attachments.list"}
"""They put what they are given into a body, or into a query."""
ALLOWED = {
    "cloud/tokens.py: '/'.join(parts)": "the path of an access rule, which is shown",
    "cloud/stacks.py: '/'.join(parts)": "an address, which stack_segments quotes",
    "mistral/client.py: f'/{path}'": "a path that was made",
    "mistral/client.py: f'{self.url}/{path}'": "for a message",
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for name, file in MODULES.items():
        if not name.startswith(NOT_SENT):
            yield name, ast.parse(file.read_text("utf-8"))


def quotes(node: ast.expr) -> bool:
    """Whether it is a call of a function that quotes."""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in QUOTING


def puts_in(node: ast.AST) -> bool:
    """Whether it puts a value between slashes, or joins parts with them."""
    if isinstance(node, ast.JoinedStr):
        before = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                before += str(part.value)
            elif before.endswith("/") and "://" not in before and not quotes(part.value):
                return True
            else:
                before += "x"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        left = node.left.value if isinstance(node.left, ast.Constant) else ""
        return isinstance(left, str) and "/" in left and not quotes(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        text = node.func.value.value if isinstance(node.func.value, ast.Constant) else ""
        return isinstance(text, str) and "/" in text and node.func.attr in ("format", "join")
    return False


def found(name: str, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if puts_in(node) and name.startswith(PATHS):
            yield f"{name}: {ast.unparse(node)}"
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        called = f".{dotted(node.func) or ast.unparse(node.func)}"
        if called.rpartition(".")[2] in SENDING:
            bad = (each for each in node.args for part in ast.walk(each) if puts_in(part))
            yield from (f"{name}: {ast.unparse(each)}" for each in bad)
        elif any(each in called for each in LIBRARIES) and not called.endswith(tuple(UNQUOTED)):
            for each in node.args:
                if isinstance(each, ast.Name | ast.Attribute) and "reason" not in ast.unparse(each):
                    yield f"{name}: {called}({ast.unparse(each)})"


def test_no_path_is_written_with_an_unquoted_part() -> None:
    wrong = {each for name, tree in sources() for each in found(name, tree)}

    assert wrong - set(ALLOWED) == set()
    assert set(ALLOWED) - wrong == set(), "remove from ALLOWED what is gone"


@pytest.mark.parametrize(
    "source",
    [
        'cloud.read("Neutron", f"/v2.0/ports/{port_id}")',
        'cloud.send("Nova", "DELETE", "/servers/" + server_id)',
        'cloud.read("Nova", "/servers/%s" % server_id)',
        'cloud.read("Nova", "/servers/{}".format(server_id))',
        '"/".join(("/v2/zones", zone_id))',
        'session.get(f"{_ALARMS}/{named}")',
        "self._cloud.heat.stacks.template(stack)",
    ],
)
def test_it_finds_each_way_to_write_one(source: str) -> None:
    assert list(found("cloud/x.py", ast.parse(source)))
