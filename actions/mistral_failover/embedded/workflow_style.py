# SPDX-License-Identifier: Apache-2.0
"""Style of workflow files, and YAML mistakes that Mistral accepts but that change the meaning.

Works on the text and the loaded YAML alone; needs no Mistral.
"""

import re
from collections.abc import Iterator
from typing import Any

MAX_LINES = 80

# (workflow or None, task or None, code, message, remedy)
Finding = tuple[str | None, str | None, str, str, str]

_EXPRESSION = re.compile(r"<%(.*?)%>", re.DOTALL)
_STRING = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_CALL = re.compile(r"([A-Za-z_]\w*)?\(|\)")
_NOTHING_GIVEN = re.compile(r"\b[A-Za-z_]\w*\(\s*\)")
_INLINE = re.compile(r"(?:^|\s)([-\w]+)=")


def slips(name: str, body: dict[str, Any]) -> Iterator[Finding]:
    """Report what Mistral would run differently from how it reads: always errors."""
    for task, spec in _tasks(body).items():
        for text in _texts(spec):
            if text.count("<%") != text.count("%>"):
                yield (
                    name,
                    task,
                    "EXPRESSION_SPLIT",
                    f"{text!r} is half an expression",
                    "a comma inside {...} or [...] ends the value: write it in block style",
                )
        for key in ("action", "workflow"):
            dropped = _dropped_inline(spec.get(key))
            if dropped:
                yield (
                    name,
                    task,
                    "INLINE_INPUT_DROPPED",
                    f"Mistral drops the unquoted inline input {', '.join(dropped)}",
                    "add it under input:",
                )


def style(text: str, workflows: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    """Report style violations: warnings, or errors in strict mode."""
    lines = len(text.splitlines())
    if lines > MAX_LINES:
        yield (
            None,
            None,
            "TOO_LONG",
            f"{lines} lines, more than {MAX_LINES}",
            "move a part into a sub-workflow or into an action",
        )
    if len(workflows) != 1:
        yield (
            None,
            None,
            "ONE_WORKFLOW_A_FILE",
            f"it holds {len(workflows)} workflows",
            "give each workflow its own file",
        )
    for name, body in workflows.items():
        if not body.get("description"):
            yield (
                name,
                None,
                "NO_DESCRIPTION",
                "it has no description",
                "describe what it does and what its inputs and outputs mean",
            )
        if "output-on-error" not in body:
            yield (
                name,
                None,
                "NO_OUTPUT_ON_ERROR",
                "it has no output for a failure",
                "add output-on-error with the error's code and message",
            )
        for task, spec in _tasks(body).items():
            for expression in _expressions(spec):
                if call_depth(expression) > 1:
                    yield (
                        name,
                        task,
                        "NESTED_EXPRESSION",
                        f"it has calls within calls: <%{expression}%>",
                        "compute the value in an action, or publish it in two steps",
                    )


def call_depth(expression: str) -> int:
    """Return how deeply function calls are nested in arguments; ``f(x).g(y)`` is 1. A call without
    arguments, as ``task()``, is read like a name and counts as one."""
    depth = deepest = 0
    open_calls: list[bool] = []
    for match in _CALL.finditer(_NOTHING_GIVEN.sub("_", _STRING.sub("''", expression))):
        if match.group() == ")":
            depth -= open_calls.pop() if open_calls else False
            continue
        is_call = match.group(1) is not None and match.group(1) not in ("and", "or", "not", "in")
        open_calls.append(is_call)
        depth += is_call
        deepest = max(deepest, depth)
    return deepest


def _tasks(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    tasks = dict(body.get("tasks") or {})
    if isinstance(body.get("task-defaults"), dict):
        tasks["task-defaults"] = body["task-defaults"]
    return {k: v for k, v in tasks.items() if isinstance(v, dict)}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for k, v in value.items():
            yield from _texts(k)
            yield from _texts(v)
    elif isinstance(value, list):
        for v in value:
            yield from _texts(v)


def _expressions(value: Any) -> Iterator[str]:
    for text in _texts(value):
        yield from _EXPRESSION.findall(text)


def _dropped_inline(command: Any) -> list[str]:
    if not isinstance(command, str) or " " not in command:
        return []
    bare = _EXPRESSION.sub("<%%>", command)
    bare = _STRING.sub("''", bare)
    kept = re.compile(r"([-\w]+)=(''|<%%>|\{\{.*?\}\}|\[.*\]|true|false|null|\d+)(?=\s|$)")
    return [k for k in _INLINE.findall(bare) if k not in {m[0] for m in kept.findall(bare)}]
