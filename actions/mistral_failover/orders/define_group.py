# SPDX-License-Identifier: Apache-2.0
"""Define groups."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain
from shlex import quote
from typing import Any, TypedDict

from oslo_utils import uuidutils

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stacks import stack_shown
from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.convergence.records import JournalKind
from mistral_failover.mistral.api import mistral_of
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.differences import DifferenceDocument, in_documents
from mistral_failover.model.errors import InvalidDocument, RefusedDocument
from mistral_failover.model.group import Group, parse_group
from mistral_failover.model.ids import group_id
from mistral_failover.model.problems import below, problems_and_rest, template_problems
from mistral_failover.model.types import ResourceType, load_type
from mistral_failover.orders import operator_order
from mistral_failover.orders.answers import GroupDefinition
from mistral_failover.orders.named_things import FoundThings, find_named
from mistral_failover.orders.plan import planner
from mistral_failover.orders.plan.documents import PlanStep
from mistral_failover.resources.resolution import (
    NO_STACK,
    Problem,
    Resolution,
    differs,
    resolve,
)
from mistral_failover.runtime.deadlines import DeadlineGuard
from mistral_failover.runtime.errors import ActionError, ErrorFacts, ProblemFacts, problem_facts
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents, observations
from mistral_failover.store.transaction import ProjectTransaction

ASK = 3.0
"""The limit for questions to Mistral, in seconds."""
HEAT = 20.0
"""The limit for the question to Heat, in seconds."""
MOST_TYPES = 100
"""Type files that are given with a group file at most."""


class DefinedGroup(TypedDict):
    """A group file that was checked. ``created``: the group was not defined before.
    ``differences`` and ``lines``: its changes, for machines and for people. ``missing``: the
    workflows that it names and Mistral does not have, sorted, as far as Mistral answered.
    ``wrong_before``: what is wrong in parts that are in force and stay as they are. ``unchecked``:
    what the cloud or an agent did not answer. ``steps``: of a dry run, what converging to
    it would do; None if that is not known, with ``why_no_steps``."""

    group: str
    id: str
    stack: str | None
    roles: list[str]
    resources: list[str]
    created: bool
    differences: list[DifferenceDocument]
    lines: list[str]
    missing: list[str]
    wrong_before: list[ProblemFacts]
    unchecked: list[ProblemFacts]
    steps: list[PlanStep] | None
    why_no_steps: ErrorFacts | None


def define(
    request: Request,
    definition: Any,
    name: str | None,
    types: Any,
    *,
    dry_run: bool = False,
    stack_exists: bool = False,
) -> DefinedGroup:
    """Check a group file and its types, resolve it against the cloud, and store it, unless it is a
    ``dry_run``. A file that is refused leaves what was defined before. ``stack_exists``: the group
    is to be brought up at once, so its stack must exist.

    Raises InvalidDocument; RefusedDocument with all that the cloud does not have or offer, or if
    the file names servers that belong to another group of the project; ActionError
    TOO_MANY_GROUPS; CloudError if only Heat can tell whether servers are shared and does not.
    """
    given = [] if types is None else types
    if not isinstance(given, list):
        raise ActionError("BAD_INPUT", "types: a list of type files is expected", "Correct types.")
    if len(given) > MOST_TYPES:
        raise ActionError(
            "BAD_INPUT",
            f"types: {len(given)} type files are given, and the limit is {MOST_TYPES}",
            "Give only the type files that the group file names.",
        )
    loaded = [load_type(document) for document in given]
    parsed = _parsed(request, definition, name, loaded, stack_exists=stack_exists)
    group, found = _found(request, parsed, loaded)
    resolved = _resolved(request, group, found, stack_exists=stack_exists)
    stored = {"document": group.definition, "types": [t.to_dict() for t in loaded]}
    if found.identities:
        stored["identities"] = dict(found.identities)
    stacks: set[str] | None = None  # not asked for yet

    def store(tx: ProjectTransaction) -> tuple[str, Mapping[str, Any] | None]:
        identity = group_id(request.project_id, group.name)
        state = groups.get(tx, identity)
        known = tx.definition(identity) if state else None
        if state and state.restored and not dry_run:
            sentence = f"{group.name} begins again from what the cloud shows, by {request.caller}"
            begin_again(tx, identity, sentence)
            known = None
        if not dry_run:
            groups.define(tx, group.name, stored)
            groups.leave(tx, identity)
            observations.forget_alarms(tx, identity)
        # Afterwards: of two groups that are defined at the same moment, one sees the other.
        others = groups.documents(tx, locked=not dry_run)
        others.pop(group.name, None)
        if known is None:
            _refuse_too_many(len(others) + 1, request.runtime.settings.groups_per_project)
        if stacks is None and _written_otherwise(group, others):
            raise _AskHeat
        mine = stacks or ({group.stack} if group.stack else set())
        _refuse_shared(group, others, mine, known["document"] if known else None)
        _refuse_shared_servers(tx, identity, group, resolved.servers)
        return identity, known

    run = request.store.reading if dry_run else request.store.atomically
    try:
        identity, known = run(store)
    except _AskHeat:
        stacks = _ways_to_write(request, str(group.stack))
        identity, known = run(store)
    steps, why = _steps(request, group) if dry_run else ([], None)
    changed = in_documents(comparable(known), comparable(stored)) if known else []
    return {
        "group": group.name,
        "id": identity,
        "stack": group.stack,
        "roles": list(group.roles),
        "resources": sorted(group.resources),
        "created": known is None,
        "differences": [each.as_dict() for each in changed],
        "lines": [str(each) for each in changed],
        "missing": _missing_workflows(request, group),
        "wrong_before": [problem_facts(each) for each in resolved.wrong],
        "unchecked": [problem_facts(each) for each in resolved.unchecked],
        "steps": steps,
        "why_no_steps": why,
    }


def begin_again(tx: ProjectTransaction, identity: str, because: str) -> None:
    """Forget what the store has of a restored group, apart from its file, its history and its held
    alarms. An alarm that was admitted, and had started nothing by then, is held: it was dealt
    with, or an operator decides."""
    for alarm in incidents.unstarted_of_group(tx, identity):
        sentence = f"{alarm.sentence}; held, since {because}"
        incidents.decide(tx, alarm.id, Decision.HELD, sentence, rule=AdmissionRule.RESTORED)
    groups.begin_again(tx, identity, because)
    tx.journal(identity, because, kind=JournalKind.RESTORED)


def _steps(request: Request, group: Group) -> tuple[list[PlanStep] | None, ErrorFacts | None]:
    """Return what converging to a definition would do, or why that is not known."""
    try:
        return planner.steps_to(request, group), None
    except operator_order.NothingToDo:
        return [], None
    except Exception as error:  # the dry run itself has its answer
        return None, request.caught(error, f"planning what {group.name} would do")


def _parsed(
    request: Request,
    definition: Any,
    name: str | None,
    types: list[ResourceType],
    *,
    stack_exists: bool,
) -> Group:
    """Return a group. Raises RefusedDocument with everything that breaks the grammar, and all that
    the cloud says of the rest."""
    try:
        group = parse_group(definition, name=name, types=types)
    except InvalidDocument as first:
        found, rest, dropped = problems_and_rest(definition, name=name, types=types)
        more: list[Problem] = []
        if rest is not None and "stack" not in dropped:
            more = [
                each
                for each in _wrong(
                    request, *_found(request, rest, types), stack_exists=stack_exists
                )[0]
                # What is not there cannot be judged, nor what it was a part of.
                if not any(below(each.path, gone) or below(gone, each.path) for gone in dropped)
            ]
        raise RefusedDocument([*(found or [first]), *more]) from None
    if wrong := list(template_problems(group)):
        raise RefusedDocument(wrong)
    return group


def _found(request: Request, group: Group, types: list[ResourceType]) -> tuple[Group, FoundThings]:
    """Return a group with the ids of what its file names, and what was found of that."""
    found = find_named(request, group, _known(request, group.name))
    if not group.named:
        return group, found
    named = parse_group(group.definition, name=group.name, types=types, identities=found.identities)
    return named, found


def _known(request: Request, name: str) -> Mapping[str, Any] | None:
    """Return what is defined for a group now; None if nothing is."""

    def read(tx: ProjectTransaction) -> Mapping[str, Any] | None:
        identity = group_id(request.project_id, name)
        return tx.definition(identity) if groups.get(tx, identity) else None

    return request.store.reading(read)


def _resolved(
    request: Request, group: Group, found_by_name: FoundThings, *, stack_exists: bool
) -> Resolution:
    """Return what the cloud says of a group file, if it can be accepted: what is wrong with it was
    in force before, and is not changed. So an operator can always correct another part.
    ``found_by_name``: what is behind its names; what is missing there is not said again. Raises
    RefusedDocument with everything else that is wrong."""
    wrong, found = _wrong(request, group, found_by_name, stack_exists=stack_exists)
    if wrong:
        raise RefusedDocument(wrong)
    return found


def _wrong(
    request: Request, group: Group, found_by_name: FoundThings, *, stack_exists: bool
) -> tuple[list[Problem], Resolution]:
    """Return what refuses a group file by what the cloud says of it, and all that it says."""
    identity = group_id(request.project_id, group.name)
    of = request.runtime.definitions

    def read(tx: ProjectTransaction) -> Group | None:
        state = groups.get(tx, identity)
        if state is None or state.restored or not state.in_force:
            return None
        return of.group(tx, state, state.in_force)

    before = request.store.reading(read)
    found = found_by_name.of(resolve(request, group, identity, anew=before is None))
    refused = [each for each in found.wrong if differs(before, group, each.path)]
    if stack_exists:
        refused += [each for each in found.unchecked if (each.path, each.code) == NO_STACK]
    if missing := found_by_name.missing:
        return sorted({*missing, *refused}, key=lambda each: each.path), found
    return refused, found


class _AskHeat(Exception):  # noqa: N818 - no error: the transaction runs again
    """Only Heat can tell whether two group files mean the same stack."""


def _refuse_too_many(number: int, most: int) -> None:
    """Refuse a new group if the project would have more than ``most``. Raises ActionError
    TOO_MANY_GROUPS."""
    if number > most:
        raise ActionError(
            "TOO_MANY_GROUPS",
            f"the project has {number - 1} groups, and the limit is {most}",
            "Delete a group that you no longer need: failover group delete NAME. Or ask the "
            "operator of the cloud to raise [failover] groups_per_project.",
        )


def _written_otherwise(group: Group, others: Mapping[str, Sequence[Mapping[str, Any]]]) -> bool:
    """Return whether a file of another group names the same members, and one of the two names its
    stack while the other one gives its id."""
    by_id, names = uuidutils.is_uuid_like(group.stack), _members(group.definition)
    if group.stack is None:
        return False
    return any(
        document.get("stack") is not None
        and uuidutils.is_uuid_like(document["stack"]) != by_id
        and names & _members(document)
        for document in chain.from_iterable(others.values())
    )


def _ways_to_write(request: Request, stack: str) -> set[str]:
    """Return how group files may write a stack: its name and its id. Raises CloudError."""
    guard = DeadlineGuard(time.monotonic() + HEAT, request.runtime.settings.http_timeout)
    try:
        shown = stack_shown(request.cloud(guard), stack)
    except CloudError as error:
        if error.code != "NOT_FOUND":
            raise
        return {stack}
    if shown.stack_status.startswith("DELETE"):  # another stack may have its name by now
        return {stack}
    return {stack, str(shown.stack_name), str(shown.id)}


def _refuse_shared(
    group: Group,
    others: Mapping[str, Sequence[Mapping[str, Any]]],
    stacks: set[str],
    known: Mapping[str, Any] | None,
) -> None:
    """Refuse members that another group of the project has: both would start and stop what runs on
    these servers, and fence them under each other. A group keeps those that it shares already,
    because it has to be operated. ``others``: the files of the other groups; ``stacks``: the ways
    to write the group's stack; ``known``: its file until now. Raises RefusedDocument."""

    def of_stack(document: Mapping[str, Any] | None) -> set[str]:
        return _members(document) if document and document.get("stack") in stacks else set()

    wanted = of_stack(group.definition) - of_stack(known)
    for name, documents in others.items():
        if shared := wanted & set().union(*map(of_stack, documents)):
            raise RefusedDocument(
                [
                    InvalidDocument(
                        _place_of(group, member),
                        f"{member} of stack {group.stack} belongs to the group {name}",
                        _of_another(name),
                    )
                    for member in sorted(shared)
                ]
            )


def _refuse_shared_servers(
    tx: ProjectTransaction, identity: str, group: Group, servers: Mapping[str, str]
) -> None:
    """Refuse servers that another group of the project has as members, as `_refuse_shared` does of
    one stack: whatever names them. ``servers``: by id, the member of this group, as far as the
    cloud has said. Raises RefusedDocument."""
    own = {each.server_id for each in groups.members_in(tx) if each.group_id == identity}
    theirs = groups.servers_of_others(tx, identity)
    shared = sorted(servers.keys() & theirs.keys() - own)
    if shared:
        raise RefusedDocument(
            [
                InvalidDocument(
                    _place_of(group, servers[each]),
                    f"server {each} of {servers[each]} belongs to the group {theirs[each]}",
                    _of_another(theirs[each]),
                )
                for each in shared
            ]
        )


def _of_another(group: str) -> str:
    """Return what helps if a member belongs to another group."""
    return (
        f"Add the resources to {group}, with a role of their own if they move alone; or delete "
        f"that group first: failover group delete {quote(group)}"
    )


def _place_of(group: Group, member: str) -> str:
    """Return the path at which a group file names a member."""
    given = group.definition["members"]
    servers = given.get("servers", ())
    if member not in servers:
        return "members.autoscaling_group" if "autoscaling_group" in given else "members"
    inside = member if isinstance(servers, Mapping) else None
    return f"members.servers{f'.{inside}' if inside else f'[{servers.index(member)}]'}"


def _members(document: Mapping[str, Any]) -> set[str]:
    """Return the resources of its stack that a group file names as its members."""
    of = document["members"]
    named = [*of.get("servers", ()), of.get("autoscaling_group")]
    return {str(each) for each in named if each}


def _missing_workflows(request: Request, group: Group) -> list[str]:
    """Return the workflows that a group names and Mistral does not show to this project. Return
    none if Mistral does not answer in time."""
    rungs = {rung.get("workflow") for rung in group.fence}
    hook = {group.on_event.workflow} if group.on_event else set()
    named = {name for name in {group.workflow, *rungs, *hook} if name}
    if not named:
        return []
    try:
        mistral = mistral_of(request, DeadlineGuard(time.monotonic() + ASK, ASK))
        if mistral is None:
            return []
        return sorted(mistral.lacking(named))
    except CloudError:  # the doctor reports it too
        return []


def comparable(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored definition for comparison, with the types that its resources have by name.
    Others are kept for records and goals of before. ``ids``: what was found behind its names, by
    their place in the file."""
    document = stored["document"]
    used = {each["type"] for each in document["resources"].values()}
    types = {each["name"]: each for each in stored["types"] if each["name"] in used}
    ids = {path: each["id"] for path, each in stored.get("identities", {}).items()}
    return {**document, "types": types, **({"ids": ids} if ids else {})}


def definition(request: Request, name: str) -> GroupDefinition:
    """Return a group's definition as it was given. Raises UnknownGroup."""

    def read(tx: ProjectTransaction) -> Mapping[str, Any]:
        identity = group_id(request.project_id, name)
        if groups.get(tx, identity) is None:
            raise UnknownGroup(name, groups.names(tx))
        return tx.definition(identity)

    found = request.store.reading(read)
    return {"document": found["document"], "types": found["types"]}
