# SPDX-License-Identifier: Apache-2.0
"""What somebody of another project may name of a group, for every action and every workflow.

A verb's cases are made of its declaration, an operation's of its action. Another new action or
workflow needs a case here: the tests count them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import entry_points
from itertools import islice
from typing import Any

import sqlalchemy as sa

from mistral_failover.model.verbs import Among, Form, Input, VerbKind, verb_kinds
from mistral_failover.store.database import Database
from mistral_failover.store.tables import metadata
from mistral_failover.store.transaction import SqlTransaction

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"\d+\.\d+")


@dataclass(frozen=True)
class KnownNames:
    """What one project has, and another one may have heard of."""

    group: str
    stack: str
    member: str
    server: str
    traversal: str
    node: str
    resource: str
    incident: str
    goal: str
    document: Mapping[str, Any]

    @property
    def strings(self) -> dict[str, str]:
        """Each thing's name or id, by what it is."""
        texts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "document"}
        ticket = self.document["ticket"]
        return {**texts, "key": ticket["key"], "owner": ticket["lock"]["owner"]}

    def with_others(self, others: Mapping[str, str]) -> KnownNames:
        """The same with other names and ids, those of things that do not exist."""
        text = json.dumps(asdict(self))
        for what, said in sorted(self.strings.items(), key=lambda item: -len(item[1])):
            text = text.replace(said, others[what])
        return KnownNames(**json.loads(text))


def unknown_ones(known: KnownNames) -> KnownNames:
    """References of the same form to things that do not exist."""
    fresh = "0badc0de-0000-4000-8000-{:012d}"
    others = {}
    for number, (what, said) in enumerate(known.strings.items()):
        others[what] = fresh.format(number) if _UUID.fullmatch(said) else f"unknown-{what}"
    others["node"] = f"update:{others['resource']}"
    others["goal"] = "0" * 64
    return known.with_others(others)


def aodh(known: KnownNames) -> dict[str, Any]:
    """An alarm of Aodh's about a member's server."""
    event = {"message_id": "m-1", "traits": [["instance_id", 1, known.server]]}
    said = {"alarm_name": "lost", "alarm_id": "a", "previous": "ok", "current": "alarm"}
    return {**said, "severity": "low", "reason": "", "reason_data": {"event": event}}


Cases = Callable[[KnownNames, str], Iterable[dict[str, Any]]]
"""Inputs that name what a project has; the second argument is the caller's own group."""


def _group(**more: Any) -> Cases:
    return lambda known, own: [{"group": known.group, **more}]


def _operation(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"operation": known.document}


def _alarm(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"alarm": aodh(known)}
    yield {"alarm": aodh(known), "group": known.group, "member": known.member}


def _event(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"body": aodh(known)}
    yield {"body": {"server": known.server, "state": "failed"}, "kind": "signal"}
    yield {"body": {"group": known.group, "member": known.member}, "kind": "signal"}


def _maintenance(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group, "because": "work", "minutes": 5}
    yield {"group": own, "because": "work", "minutes": 5, "members": [known.member]}


def _resume(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group, "because": "done"}
    yield {"group": own, "because": "done", "members": [known.member]}


def _status(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group}
    yield {"group": known.group, "definition": True}


def _dismiss(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"incident": known.incident, "because": "noise"}


def _on_host(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"host": known.server}


def _held_ones(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group, "because": "noise"}
    yield {"incident": known.incident, "because": "noise"}
    yield {"group": own, "incident": known.incident, "because": "noise"}


def _admitted(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"incidents": [known.incident]}


def _advance(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"traversal": known.traversal, "through": "end"}
    yield {"traversal": known.traversal, "through": "fence", "hold": True}


def _chain(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"traversal": known.traversal}


def _named_chain(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"workflow": "failover.converge", "traversal": known.traversal}


def _named_chains(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"chains": list(_named_chain(known, own))}


def _report(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group, "traversal": known.traversal}
    yield {"group": own, "traversal": known.traversal}


def _history(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group}
    yield {"group": own, "traversal": known.traversal}


def _compare(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group, "before": known.goal, "after": known.goal[:7]}
    yield {"group": own, "before": known.goal, "after": known.goal[:7]}


def _plan(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group, "lost": [known.member]}
    yield {"group": known.group, "verb": "switchover", "to": known.member}
    yield {"plan": known.traversal}


def _start_plan(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"plan": known.traversal}
    yield {"plan": known.incident, "because": "it was planned"}


def _show(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    for what in ("traversal", "incident", "goal", "resource", "key"):
        yield {"id": known.strings[what]}
    yield {"id": known.traversal, "group": known.group}


def _forget(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    for group, resource in ((known.group, "thing"), (own, known.resource)):
        yield {"group": group, "resource": resource, "because": "it is mine"}


def _break_lock(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    lock = {"resource": known.resource, "owner": known.strings["owner"]}
    yield lock
    yield {**lock, "force": True, "because": "it is mine"}


def _definition(known: KnownNames) -> dict[str, Any]:
    return {
        "failover_template_version": "2026-11-21",
        "stack": known.stack,
        "members": {"servers": [known.member]},
        "resources": {},
    }


def _define(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"name": known.group, "definition": _definition(known)}


def _enroll(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group}
    yield {"group": known.group, "member": known.member}


def _metrics(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group_limit": known.group}


def _launch(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"workflow": "failover.failover", "input": {"group": known.group}}


def _fence_host(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group, "member": known.member, "because": "it burns"}
    yield {"group": own, "member": known.member, "dry_run": True}


def _unfence_host(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group, "member": known.member, "because": "it is on again"}
    yield {"group": own, "member": known.member, "dry_run": True}


OPERATIONS = tuple(
    point.name.removeprefix("failover.")
    for point in entry_points(group="mistral.actions")
    if point.value.startswith("mistral_failover.actions.operations:")
)
"""The actions of the shipped types."""


def _next(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"group": known.group}
    yield {"group": own, "members": [known.member]}


def _move_first(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    more = {"member": known.member, "server": known.server, "resource": None, "because": "work"}
    yield {"group": known.group, "role": "active", **more}
    yield {"group": own, "role": "active", **more}


_BY_CHOICE = {Among.MEMBERS: "member", Among.LOST: "member", Among.GOALS: "goal"}
_BY_NAME = {"after": "traversal", "holder": "member", "incident": "incident", "server": "server"}


def _verb(verb: VerbKind) -> Cases:
    """Cases of a verb: each of its inputs that names something, in a group of either project."""

    def value(known: KnownNames, name: str, declared: Input) -> Any:
        said = known.strings[_BY_CHOICE.get(declared.among) or _BY_NAME[name]]
        return [said] if declared.form is Form.NAMES else said

    def cases(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
        values = {
            name: value(known, name, declared)
            for name, declared in verb.inputs.items()
            if declared.among in _BY_CHOICE or name in _BY_NAME
        }
        because = {} if verb.because else {"because": "sure"}
        always = because | {
            name: said
            for name, said in values.items()
            if verb.inputs[name].required or name == "member"
        }
        yield {"group": known.group, **because, **values}
        for name, said in values.items():
            yield {"group": own, **always, name: said}

    return cases


def _two(verb: VerbKind) -> Cases:
    """One case for each project's group: the workflow hands its inputs on to the action."""
    return lambda known, own: islice(_verb(verb)(known, own), 2)


def _evidence(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    member = known.strings["member"]
    yield {"group": known.group, "member": member}
    yield {"group": own, "member": member}


VERBS = [verb for verb in verb_kinds().values() if verb.action.startswith("failover.")]
BOTH: dict[str, Cases] = {
    "admit_held": _held_ones,
    "break_lock": _break_lock,
    "dismiss": _dismiss,
    "maintenance": _maintenance,
    "pause": _group(because="work"),
    "resume": _resume,
    "start_admitted": _admitted,
    "start_plan": _start_plan,
    "sweep": _group(),
}
ACTIONS: dict[str, Cases] = {
    **BOTH,
    **{verb.action.removeprefix("failover."): _verb(verb) for verb in VERBS},
    **dict.fromkeys(OPERATIONS, _operation),
    "observe": _group(),
    "preview_rehearsal": _group(),
    "rehearsals": _group(),
    "end_rehearsal": lambda known, own: [{"rehearsal": known.traversal}],
    "forget": _forget,
    "admit": _alarm,
    "adopt_stack": _group(),
    "advance": _advance,
    "admit_event": _event,
    "agents": _group(),
    "compare_goals": _compare,
    "define": _define,
    "dismiss_held": _held_ones,
    "doctor": _group(),
    "enroll": _enroll,
    "evidence": _evidence,
    "fence_host": _fence_host,
    "unfence_host": _unfence_host,
    "goals": _group(),
    "held": _group(),
    "availability": _group(),
    "history": _history,
    "moves": _group(),
    "launch": _launch,
    "metrics": _metrics,
    "locks": _group(),
    "members": _group(),
    "members_on_host": _on_host,
    "next_member": _next,
    "plan": _plan,
    "report": _report,
    "show": _show,
    "status": _status,
    "undefine": _group(),
}


def _on_alarm(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    for given in _alarm(known, own):
        yield {**given.pop("alarm"), **given}


def _protect(known: KnownNames, own: str) -> Iterable[dict[str, Any]]:
    yield {"name": known.group, "definition": _definition(known)}


WORKFLOWS: dict[str, Cases] = {
    **BOTH,
    **{verb.workflow.removeprefix("failover."): _two(verb) for verb in VERBS if verb.workflow},
    "_move_first": _move_first,
    "replace_members": _next,
    "_chain": _named_chain,
    "_chains": _named_chains,
    "converge": _chain,
    "activate_first": _group(),
    "on_alarm": _on_alarm,
    "on_event": _event,
    "protect": _protect,
    "unprotect": _protect,
}


def answer_of(result: object) -> str:
    """An answer as text, without ids and times, which differ from one occasion to the next."""
    error = getattr(result, "error", None)
    said = {"error": error} if error else result
    text = json.dumps(said, sort_keys=True, default=vars)
    return _NUMBER.sub("0.0", _UUID.sub("<id>", text))


def told(known: KnownNames, text: str, inputs: Mapping[str, Any]) -> list[str]:
    """What of a project an answer tells beyond what its caller said."""
    given = json.dumps(inputs)
    return [said for said in known.strings.values() if said in text and said not in given]


def rows(database: Database) -> dict[str, set[str]]:
    """Every row of every table, as text."""

    def read(tx: SqlTransaction) -> dict[str, set[str]]:
        return {
            table.name: {
                json.dumps(dict(row._mapping), sort_keys=True, default=str)
                for row in tx.connection.execute(sa.select(table))
            }
            for table in metadata.sorted_tables
        }

    return database.reading(read)


def changes(before: dict[str, set[str]], after: dict[str, set[str]]) -> list[str]:
    """The rows that were changed or taken away, and those that are new."""
    gone = [row for name, found in before.items() for row in found - after[name]]
    return gone + [row for name, found in after.items() for row in found - before[name]]
