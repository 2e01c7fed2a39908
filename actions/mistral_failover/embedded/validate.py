# SPDX-License-Identifier: Apache-2.0
"""Check workflow files without server and database.

Mistral's own parser finds bad syntax, expressions and task links. It does not check what a task
calls: unknown actions and workflows, missing and unknown inputs appear only when the task runs.
These checks find them before. Names that are expressions are left to the run. They also find YAML
mistakes that Mistral accepts but that change the meaning, and violations of the style rules.
"""

import fnmatch
import functools
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import networkx as nx

from mistral_failover.embedded import boot, definitions
from mistral_failover.model.documents import load_workflow
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.stages import Stage, rank
from mistral_failover.model.text import counted

# Mistral moves inputs that a sub-workflow does not declare into its execution's parameters.
_PARAMETERS = frozenset({"env", "notify"})
_INVALID = "WORKFLOW_INVALID"
_ADVANCE = "failover.advance"
_ORDER = f"call the stages in this order: {', '.join(Stage)}"


@dataclass(frozen=True, order=True)
class Problem:
    """Something wrong with a file.

    :ivar workflow: None when it concerns the file; ``task`` None when it concerns the workflow.
    :ivar error: False for a style rule that is only recommended.
    """

    file: str
    workflow: str | None
    task: str | None
    code: str
    message: str
    remedy: str
    error: bool = True

    def __str__(self) -> str:
        where = ".".join(p for p in (self.workflow, self.task) if p)
        kind = "error" if self.error else "warning"
        place = f"{self.file}: {where}" if where else self.file
        return f"{place}: {kind} {self.code}: {self.message} ({self.remedy})"


def validate(
    paths: Iterable[str | Path],
    *,
    strict: bool = False,
    ignore: Collection[str] = (),
) -> list[Problem]:
    """Check workflow files together; they may call each other and what is installed.

    The installed ones are the actions of the entry points ``mistral.actions`` and the workflows of
    ``mistral.preinstalled_workflows``.

    :param strict: style rules are errors, not warnings. :param ignore: patterns of action and
    workflow names that exist elsewhere, e.g. ``nova.*``. :returns: the problems, in the files'
    order. :raises OSError: a file cannot be read.
    """
    boot.init()
    definitions.check_schemas_once()
    files = [(str(p), Path(p).read_text("utf-8")) for p in paths]
    problems: list[Problem] = []
    parsed: list[tuple[str, Any]] = []
    for file, text in files:
        try:
            loaded = load_workflow(text, "workflow file")
        except InvalidDocument as error:
            message = f"{error.path}: {error.message}" if error.path else error.message
            problems.append(Problem(file, None, None, _INVALID, message, error.remedy))
            continue
        specs, found = _parse(file, text)
        parsed += [(file, s) for s in specs]
        problems += found
        problems += _house(file, text, loaded, strict)
    known = {**_installed_workflows(), **{s.get_name(): s.get_input() for _, s in parsed}}
    for file, spec in parsed:
        problems += _calls(file, spec, known, ignore)
        problems += _chain(file, spec)
    order = {file: i for i, (file, _) in enumerate(files)}
    return sorted(
        set(problems),
        key=lambda p: (order[p.file], p.workflow or "", p.task or "", p.code, p.message),
    )


def main(paths: Iterable[str | Path], *, strict: bool = False, ignore: Collection[str] = ()) -> int:
    """Print the problems, one a line; returns 1 if there is an error among them, else 0."""
    paths = list(paths)
    problems = validate(paths, strict=strict, ignore=ignore)
    for problem in problems:
        print(problem)  # noqa: T201 - this is a command's output
    errors = sum(p.error for p in problems)
    warnings = len(problems) - errors
    found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    print(f"{counted(len(paths), 'file')}: {found}")  # noqa: T201
    return 1 if errors else 0


def _parse(file: str, text: str) -> tuple[list[Any], list[Problem]]:
    # First: the language alone would import the expressions half way, and lose functions.
    import mistral.db.v2.api  # noqa: F401
    from mistral import exceptions as exc
    from mistral.lang import parser

    try:
        specs = parser.get_workflow_list_spec_from_yaml(text, validate=True)
        return list(specs.get_workflows()), []
    except (exc.MistralException, exc.MistralError) as e:
        reason = definitions.reason(e)
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        # The parser expects a mapping of mappings without checking.
        reason = f"not a workflow file: {e}"
    remedy = "see https://docs.openstack.org/mistral/latest/user/wf_lang_v2.html"
    return [], [Problem(file, None, None, _INVALID, reason, remedy)]


def _house(file: str, text: str, loaded: dict[str, Any], strict: bool) -> Iterator[Problem]:
    bodies = {k: v for k, v in loaded.items() if k != "version" and isinstance(v, dict)}
    for name, body in bodies.items():
        for finding in slips(name, body):
            yield Problem(file, *finding)
    for finding in style(text, bodies):
        yield Problem(file, *finding, error=strict)


def _calls(
    file: str, spec: Any, known: dict[str, dict[str, Any]], ignore: Collection[str]
) -> Iterator[Problem]:
    for task in spec.get_tasks():
        inputs = task.get_input() if isinstance(task.get_input(), dict) else None
        where = (file, spec.get_name(), task.get_name())
        workflow, action = task.get_workflow_name(), task.get_action_name()
        for name, check in ((workflow, _check_workflow), (action, _check_action)):
            if not name or "<%" in name or "{{" in name:
                continue
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore):
                continue
            for code, message, remedy in check(name, inputs, known):
                yield Problem(*where, code, message, remedy)


def _chain(file: str, spec: Any) -> Iterator[Problem]:
    """Check a chain, a workflow that calls ``failover.advance``: its stages are in order, each is
    followed by the last one, and they are held if a task of its own is between them."""
    workflow, calls = spec.get_name(), {}
    for task in spec.get_tasks():
        inputs = task.get_input()
        if task.get_action_name() == _ADVANCE and isinstance(inputs, dict):
            calls[task.get_name()] = inputs
    stages: dict[str, Stage] = {}
    for name, inputs in calls.items():
        through = str(inputs.get("through", ""))
        if "<%" in through or "{{" in through:
            return  # the stage is known only at run time
        if through in set(Stage):
            stages[name] = Stage(through)
        elif through:
            message = f"there is no stage {through}"
            yield Problem(file, workflow, name, "CHAIN_STAGE", message, _ORDER)
    if not stages:
        return
    after, on_success = _links(spec)
    for name, stage in stages.items():
        later = nx.descendants(after, name)
        for other in sorted(later & stages.keys()):
            if rank(stages[other]) < rank(stage):
                message = f"the stage {stages[other]} is called after {stage} (task {name})"
                yield Problem(file, workflow, other, "CHAIN_ORDER", message, _ORDER)
        reached = {name} | nx.descendants(on_success, name)
        if not any(stages.get(each) is Stage.END for each in reached):
            message = (
                f"the stage {Stage.END} is not called after {stage}: the chain never completes"
            )
            remedy = f"call {_ADVANCE} with through: {Stage.END} last; it returns the outcome"
            yield Problem(file, workflow, name, "CHAIN_NO_END", message, remedy)
        own = [
            each
            for each in sorted(later - calls.keys())
            if nx.descendants(after, each) & stages.keys()
        ]
        if own and calls[name].get("hold", False) is False:
            message = f"later stages do not wait for the task {own[0]}"
            remedy = "add hold: true to its input"
            yield Problem(file, workflow, name, "CHAIN_NOT_HELD", message, remedy)


def _links(spec: Any) -> tuple[Any, Any]:
    """Return which task follows which, in any case, and when all goes well."""
    after: nx.DiGraph[str] = nx.DiGraph()
    on_success: nx.DiGraph[str] = nx.DiGraph()
    for task in spec.get_tasks():
        name = task.get_name()
        after.add_node(name)
        on_success.add_node(name)
        if not hasattr(spec, "find_outbound_task_names"):
            continue  # a reverse workflow orders its tasks by what they require
        after.add_edges_from((name, other) for other in spec.find_outbound_task_names(name))
        clauses = [*spec.get_on_success_clause(name), *spec.get_on_complete_clause(name)]
        on_success.add_edges_from((name, clause[0]) for clause in clauses)
    return after, on_success


def _check_workflow(
    name: str, inputs: dict[str, Any] | None, known: dict[str, dict[str, Any]]
) -> Iterator[tuple[str, str, str]]:
    from mistral_lib.utils import NotDefined

    if name not in known:
        yield (
            "UNKNOWN_WORKFLOW",
            f"there is no workflow {name}",
            ("give its file too, or correct the name"),
        )
        return
    if inputs is None:
        return
    declared = known[name]
    for missing in sorted(k for k, v in declared.items() if v is NotDefined and k not in inputs):
        yield "MISSING_INPUT", f"{name} needs the input {missing}", "add it under input:"
    for unknown in sorted(set(inputs) - set(declared) - _PARAMETERS):
        yield (
            "UNKNOWN_INPUT",
            f"{name} has no input {unknown}, and Mistral drops it silently",
            f"remove it; known inputs: {', '.join(declared) or 'none'}",
        )


def _check_action(
    name: str, inputs: dict[str, Any] | None, _known: object
) -> Iterator[tuple[str, str, str]]:
    from mistral_lib.actions.providers.base import _compare_parameters
    from mistral_lib.utils import get_dict_from_string

    descriptor = _actions().find(name)
    if descriptor is None:
        yield (
            "UNKNOWN_ACTION",
            f"there is no action {name}",
            ("install its package, or correct the name"),
        )
        return
    if inputs is None or "**" in descriptor.params_spec:
        return
    declared = get_dict_from_string(descriptor.params_spec)
    missing, unknown = _compare_parameters(declared, inputs)
    for key in missing:
        yield "MISSING_INPUT", f"{name} needs the input {key}", "add it under input:"
    for key in unknown:
        yield (
            "UNKNOWN_INPUT",
            f"{name} has no input {key}",
            f"remove it; known inputs: {', '.join(declared) or 'none'}",
        )


@functools.cache
def _actions() -> Any:
    from mistral import config  # noqa: F401 - registers the options that the provider reads
    from mistral.actions.legacy import LegacyActionProvider

    class Installed(LegacyActionProvider):  # type: ignore[misc]
        def _load_action_generators(self) -> None:
            """Generators ask a cloud's client libraries, which need not be installed here."""

    return Installed()


@functools.cache
def _installed_workflows() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for entry in entry_points(group="mistral.preinstalled_workflows"):
        for path in entry.load()():
            specs, _ = _parse(str(path), Path(path).read_text("utf-8"))
            found.update({s.get_name(): s.get_input() for s in specs})
    return found


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
