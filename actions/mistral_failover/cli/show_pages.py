# SPDX-License-Identifier: Apache-2.0
"""The pages of ``failover show`` for people, one for each kind of object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from mistral_failover.cli.base import lasted, when
from mistral_failover.model.text import counted

if TYPE_CHECKING:
    from mistral_failover.mistral.executions import ExecutionTrees, ShownExecution, ShownTask
    from mistral_failover.reports.documents import (
        ChildIncident,
        Details,
        GoalDetails,
        IncidentDetails,
        OperationDetails,
        OperationSummary,
        PlanDetails,
        ResourceDetails,
        TraversalDetails,
    )
    from mistral_failover.store.details import TraversalBrief

_DIGITS = 12
_IN_COLUMN = 24  # characters of a result; a longer one has lines of its own
_STATES = {"ERROR": "red", "FAILED": "red", "BLOCKED": "yellow", "RUNNING": "yellow"}


def page(found: Details) -> RenderableType:
    """Return everything that ``failover.show`` answered, for reading."""
    title = f"{found['kind']} {found['id']}"
    if found["group"]:
        title += f" of {found['group']}"
    parts: list[RenderableType] = [Text(title, style="bold")]
    parts += _KINDS[found["kind"]](found)
    parts += _executions(found["executions"])
    return Group(*parts)


def _facts(rows: Sequence[tuple[str, Any]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        if value not in (None, "", [], {}):
            table.add_row(Text(f"  {name}"), Text(_plain(value)))
    return table


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "-"
    return "-" if value is None else str(value)


def _section(title: str, *rows: RenderableType) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, style="bold")
    yield from rows


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=True, header_style="dim")
    table.add_column("")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row("", *(Text(_plain(cell)) for cell in row))
    return table


def _incident(found: IncidentDetails) -> Iterator[RenderableType]:
    yield _facts(
        [
            ("decision", f"{found['decision']}: {found['sentence']}"),
            ("rule", found["rule"]),
            ("source", found["source"]),
            ("fact", found["fact"]),
            ("order", found["order"]),
            ("heard", f"{counted(found['heard'], 'time')}, last {when(found['last_at'])}"),
            ("arrived", when(found["first_at"])),
            ("decided", when(found["decided_at"])),
            ("counts on", found["counts_on"]),
            ("part of", found["parent"]),
            ("said", found["said"]),
            ("to admit", found["admit"]),
            ("to dismiss", found["dismiss"]),
        ]
    )
    if children := found["children"]:
        columns = ("incident", "group", "decision", "why")
        rows = [(row["incident"], row["group"], row["decision"], _why(row)) for row in children]
        yield from _section("groups with a member there", _table(columns, rows))
    yield from _traversals(found["traversals"])


def _why(child: ChildIncident) -> str:
    evidence = child["evidence"]
    guard = f"; the storm guard still holds it: {evidence}" if evidence else ""
    return f"{child['sentence']}{guard}"


def _traversals(traversals: Sequence[TraversalBrief]) -> Iterator[RenderableType]:
    if traversals:
        rows = [
            (w["id"], w["status"], when(w["started_at"]), when(w["ended_at"]), w["cause"])
            for w in traversals
        ]
        yield from _section(
            "traversals", _table(("id", "status", "started", "ended", "cause"), rows)
        )


def _traversal(found: TraversalDetails) -> Iterator[RenderableType]:
    since = found["started_at"]
    yield _facts(
        [
            ("status", f"{found['status']} after {lasted(found['seconds'])}"),
            ("reason", found["reason"]),
            ("cause", found["cause"]),
            ("goal", f"{found['goal'][:_DIGITS]} ({_plain(found['roles'])})"),
            ("lost", found["lost"]),
            ("incident", found["incident"]),
            ("started", when(since)),
            ("ended", when(found["ended_at"]) if found["ended_at"] else "not yet"),
            ("nodes", found["nodes"]),
        ]
    )
    yield from _operations(found["operations"], since)
    if found["stages"]:
        stages = [
            (s["stage"], s["operations"], lasted(s["seconds"]), lasted(s["work"]))
            for s in found["stages"]
        ]
        yield from _section("stages", _table(("stage", "operations", "lasted", "work"), stages))
        way = found["critical_path"]
        steps = " > ".join(
            f"{s['verb']} {s['resource']} {lasted(s['seconds'])}" for s in way["steps"]
        )
        yield Text(f"  critical path {lasted(way['seconds'])}: {steps}")
    if found["deferrals"]:
        waits = [
            (d["resource"], lasted(d["at"] - since), lasted(d["seconds"]) or "-", d["held_by"])
            for d in found["deferrals"]
        ]
        yield from _section(
            "waited for locks", _table(("resource", "after", "for", "held by"), waits)
        )
    if found["steals"]:
        told = [(lasted(s["at"] - since), s["sentence"]) for s in found["steals"]]
        yield from _section("locks that were broken", _table(("after", ""), told))
    told = [(lasted(max(0.0, h["at"] - since)), h["sentence"]) for h in found["history"]]
    yield from _section("history", _table(("after", ""), told))


def _operations(
    rows: Sequence[OperationSummary], since: float | None = None
) -> Iterator[RenderableType]:
    if not rows:
        return
    shown = [
        (
            row["key"][:8],
            row["verb"],
            row["resource"],
            row["member"],
            row["attempts"],
            when(row["started_at"])
            if since is None
            else lasted(max(0.0, row["started_at"] - since)),
            lasted(row["seconds"]),
            row["result"] if len(row["result"]) <= _IN_COLUMN else "see below",
        )
        for row in rows
    ]
    began = "started" if since is None else "after"
    columns = ("key", "verb", "resource", "member", "tries", began, "lasted", "result")
    yield from _section("operations", _table(columns, shown))
    long = [(row["key"][:8], row["result"]) for row in rows if len(row["result"]) > _IN_COLUMN]
    if long:
        yield _facts(long)


def _goal(found: GoalDetails) -> Iterator[RenderableType]:
    yield _facts(
        [
            ("roles", found["roles"]),
            ("lost", found["lost"]),
            ("reached last", "yes" if found["last_complete"] else None),
        ]
    )
    rows = [
        (name, each["type"], each["properties"], each["requires"])
        for name, each in found["document"]["resources"].items()
    ]
    yield from _section("resources", _table(("name", "type", "properties", "requires"), rows))
    yield from _traversals(found["traversals"])


def _operation(found: OperationDetails) -> Iterator[RenderableType]:
    yield _facts(
        [
            ("what", f"{found['what']} ({found['type']})"),
            ("member", found["member"]),
            ("result", found["result"]),
            ("started", when(found["started_at"])),
            ("lasted", lasted(found["seconds"])),
            ("attempts", found["attempts"]),
            ("owner", found["owner"]),
            ("token", found["token"]),
            ("traversal", found["traversal"]),
            ("resource", found["resource_id"]),
            ("goal", found["goal"]),
            ("asked for", (found["intent"] or {}).get("properties")),
        ]
    )


def _resource(found: ResourceDetails) -> Iterator[RenderableType]:
    lock = found["lock"]
    yield _facts(
        [
            ("name", f"{found['name']} ({found['type']})"),
            ("status", f"{found['status']} {found['reason']}".strip()),
            ("member", found["member"]),
            ("id", found["physical_id"]),
            ("properties", found["properties"]),
            ("attributes", found["attributes"]),
            ("lock", f"{lock['owner']}, token {lock['token']}" if lock else "free"),
            ("requires", found["requires"]),
            ("replaces", found["replaces"]),
            ("replaced by", found["replaced_by"]),
            ("goal", found["goal"]),
        ]
    )
    yield from _operations(found["operations"])


def _plan(found: PlanDetails) -> Iterator[RenderableType]:
    end = when(found["expires_at"])
    yield _facts(
        [
            ("verb", found["verb"]),
            ("inputs", found["inputs"]),
            ("goal", found["goal"]),
            ("expires", f"{end}; it has" if found["expired"] else end),
            ("its steps", found["steps"]),
        ]
    )


_KINDS: Mapping[str, Callable[..., Iterator[RenderableType]]] = {
    "incident": _incident,
    "traversal": _traversal,
    "goal": _goal,
    "operation": _operation,
    "resource": _resource,
    "plan": _plan,
}


def _executions(found: ExecutionTrees) -> Iterator[RenderableType]:
    if found["trees"] or found["left_out"]:
        yield from _section("executions in Mistral")
        for each in found["trees"]:
            yield _branch(each, Tree(_named(each)))
        if found["left_out"]:
            yield Text(f"  {found['left_out']}")


def _branch(execution: ShownExecution, tree: Tree) -> Tree:
    for task in execution["tasks"]:
        branch = tree.add(_state(task["name"], task))
        for each in task["executions"]:
            _branch(each, branch.add(_named(each)))
    return tree


def _named(execution: ShownExecution) -> Text:
    text = _state(execution["workflow"], execution)
    text.append(f"  {execution['id']}", style="dim")
    if execution["operations"]:
        text.append(f"  {', '.join(execution['operations'])}")
    return text


def _state(name: str, row: ShownExecution | ShownTask) -> Text:
    text = Text(f"{name} ")
    text.append(row["state"], style=_STATES.get(row["state"], "dim"))
    text.append(f" {lasted(max(0.0, row['changed'] - row['began']))}")
    return text
