# SPDX-License-Identifier: Apache-2.0
"""Resolve a group file against the cloud: does everything that it names exist, and is it fit?

A failover finds out too late. So a group file is resolved before it is stored, and the doctor
resolves what is defined and not yet in force. All that is wrong is found at once. What cannot be
asked now is *unchecked*: a service that does not answer must not keep an operator from correcting a
group file.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from mistral_failover.agent.wire import UNKNOWN_COMMAND
from mistral_failover.cloud import boot_disks
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import NO_RIGHTS, CloudError
from mistral_failover.cloud.stacks import stack_map, stack_shown
from mistral_failover.groups import agent_health, refresh_members
from mistral_failover.groups.candidates import HeatMember
from mistral_failover.model import remedies
from mistral_failover.model.group import Group, ResourceSpec
from mistral_failover.model.validation import nearest
from mistral_failover.resources import offered
from mistral_failover.resources.modules import ExaminedResource, examined, examiner
from mistral_failover.runtime.deadlines import DeadlineGuard
from mistral_failover.runtime.request import Request

LIMIT = 25.0
"""Seconds for all questions: Mistral gives an action that is waited for 60 by default."""
AT_ONCE = 8
"""Resources that are examined at the same time."""
NO_STACK = ("stack", "NOT_FOUND")
"""Path and code of a stack that does not exist. If the group is new, it is unchecked."""
_NAMES = 1000
"""Names of stacks among which one is looked for that may be meant."""
_OPEN = {"CONFIG", "CONFLICT", "LEASE_LOST", "TIMEOUT", "VOLUME_BUSY", *NO_RIGHTS}
"""Codes that say nothing about the group file: the question has no answer now."""


@dataclass(frozen=True)
class Problem:
    """Something in a group file. ``path``: its place, as of `InvalidDocument`; ``code``: stable,
    of the service's refusal or our own."""

    path: str
    code: str
    message: str
    remedy: str


@dataclass(frozen=True)
class Resolution:
    """What the cloud says of a group file. ``wrong``: a failover would fail; ``unchecked``: what
    could not be asked, each with the reason; ``servers``: by id, the members, as far as they are
    known."""

    wrong: tuple[Problem, ...]
    unchecked: tuple[Problem, ...]
    servers: Mapping[str, str] = field(default_factory=dict)


_Found = list[tuple[str, CloudError]]
"""Errors of the cloud with their paths."""


def resolve(
    request: Request, group: Group, group_id: str, *, anew: bool, limit: float = LIMIT
) -> Resolution:
    """Ask the cloud for everything that a group file names.

    ``anew``: nothing of the group is in force, so its stack may be about to be made: then what the
    stack lacks is unchecked. ``limit``: seconds for all questions. Never raises CloudError.
    """
    guard = DeadlineGuard(time.monotonic() + limit, request.runtime.settings.http_timeout)
    try:
        cloud = request.cloud(guard)
    except CloudError as error:
        return Resolution((), (problem_of("", error),))
    with ThreadPoolExecutor(AT_ONCE, "failover-resolve") as pool:
        needs = pool.submit(_needs, cloud, group)
        servers, found, comes = _of_stack(cloud, group, anew=anew)
        wrong: list[Problem] = []
        unchecked: list[Problem] = []
        if servers is not None:
            agents = pool.submit(_commands, request, group, group_id, servers)
            members = {each.server_id: each.name for each in servers}
            look = partial(_of_resource, cloud, group, members, _recorded(request, group_id))
            for each in pool.map(look, group.resources.values()):
                found += each
            found += _services(cloud, group)
            found += _boot_disks(cloud, group, servers)
            unknown, silent = agents.result()
            wrong += unknown
            unchecked += silent
        lacking, unasked = needs.result()
        wrong += lacking
        found += unasked
    for path, refused in found:
        kind = unchecked if comes or says_nothing(refused) else wrong
        kind.append(problem_of(path, refused))
    return Resolution(
        _sorted(wrong), _sorted(unchecked), {each.server_id: each.name for each in servers or ()}
    )


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(dict.fromkeys(problems), key=lambda each: (each.path, each.message)))


def says_nothing(error: CloudError) -> bool:
    """Return whether an error says nothing about the group file."""
    return error.transient or error.code in _OPEN


def problem_of(path: str, error: CloudError) -> Problem:
    """Return an error of the cloud as a problem of a place in a group file."""
    return Problem(path, error.code, error.message, error.remedy)


def _of_stack(
    cloud: Cloud, group: Group, *, anew: bool
) -> tuple[list[HeatMember] | None, _Found, bool]:
    """Return the members, None if the stack cannot be asked; what is wrong; and whether the stack
    is still to be made, or is being made, of a group that is new. Without a stack the members are
    known already."""
    if group.stack is None:
        return refresh_members.members_of(cloud, group), [], False
    try:
        stack_map(cloud, group.stack)
        status = str(stack_shown(cloud, group.stack).stack_status) if anew else ""
    except CloudError as error:
        if error.code != "NOT_FOUND":
            return None, [("stack", error)], False
        return None, [("stack", _no_stack(cloud, group.stack))], anew
    members, found = _members(cloud, group)
    return members, found, status in ("INIT_IN_PROGRESS", "CREATE_IN_PROGRESS")


def _no_stack(cloud: Cloud, stack: str) -> CloudError:
    """Return the error of a stack that does not exist, with the one that may be meant."""
    try:
        listed = cloud.heat.stacks.list(limit=_NAMES)
        names = [str(each.stack_name) for each in itertools.islice(listed, _NAMES)]
    except CloudError:
        names = []
    near = nearest(stack, names)
    hint = f'Did you mean "{near}"? ' if near else ""
    remedy = f"{hint}Correct the name, or make the stack first."
    return CloudError(NO_STACK[1], f"there is no stack {stack}", remedy=remedy)


def _members(cloud: Cloud, group: Group) -> tuple[list[HeatMember], _Found]:
    """Return the members that the stack has, and an error for each that it has not."""
    one = bool(group.members.autoscaling_group)
    try:
        return refresh_members.members_of(cloud, group), []
    except CloudError as error:
        if one or error.code not in ("NOT_FOUND", "BAD_REQUEST"):
            return [], [("members.autoscaling_group" if one else "members.servers", error)]
    members: list[HeatMember] = []
    found: _Found = []
    for number, name in enumerate(group.members.servers):
        try:
            only = replace(group, members=replace(group.members, servers=(name,)))
            members += refresh_members.members_of(cloud, only)
        except CloudError as error:
            found.append((f"members.servers[{number}]", error))
    return members, found


def _recorded(request: Request, group_id: str) -> frozenset[str]:
    """Return the servers that have something of a group by its records."""
    records = request.store.reading(lambda tx: list(tx.records(group_id)))
    found = (record.attributes.get("server_id") for record in records)
    return frozenset(str(server) for server in found if server)


def _of_resource(
    cloud: Cloud,
    group: Group,
    members: Mapping[str, str],
    recorded: frozenset[str],
    spec: ResourceSpec,
) -> _Found:
    resource = ExaminedResource(
        cloud, group.name, group.stack, spec, members, group.resources, recorded
    )
    _, wrong = examined(resource, group.types[spec.type])
    path = f"resources.{spec.name}"
    return [(f"{path}.properties.{e.field}" if e.field else path, e) for e in wrong]


def _services(cloud: Cloud, group: Group) -> _Found:
    """Ask the services of the types that nothing examines: may the caller read there?"""
    asked: dict[str, CloudError | None] = {}
    found: _Found = []
    for spec in group.resources.values():
        if examiner(spec.type) is not None:
            continue
        for service in group.types[spec.type].services:
            if service not in asked:
                asked[service] = offered.ask(cloud, service).error
            if (refused := asked[service]) is not None:
                found.append((f"resources.{spec.name}", refused))
    return found


def _boot_disks(cloud: Cloud, group: Group, members: Iterable[HeatMember]) -> _Found:
    """Return an error for each member whose next server would lack the disk it boots from."""
    if not group.members.makes_servers:
        return []
    found: _Found = []
    for member in members:
        try:
            boot_disks.kept_boot_disk(cloud, group.stack, member.server_id)
        except CloudError as error:
            if error.code != "NOT_FOUND":
                found.append(("members", error))
    return found


def _needs(cloud: Cloud, group: Group) -> tuple[list[Problem], _Found]:
    """Return what the services do not offer that the rungs and volumes need."""
    needs = [each for each in offered.needs_of(group) if each.features]
    try:
        unmet = list(offered.unmet(cloud, needs))
    except CloudError as error:
        return [], [(needs[0].path, error)]
    return [Problem(each.path, "NOT_OFFERED", each.sentence, each.remedy) for each in unmet], []


def _commands(
    request: Request, group: Group, group_id: str, members: Iterable[HeatMember]
) -> tuple[list[Problem], list[Problem]]:
    """Return the commands that an agent does not offer, and the agents that were not heard."""
    servers = {each.name: each.server_id for each in members}
    if not agent_health.sends_commands(group) or not servers:
        return [], []
    beats = agent_health.heard_agents(request, group, group_id, servers)
    heard = {name: beat for name, beat in beats.items() if not agent_health.silent(beat)}
    unknown = []
    for path, command in agent_health.named_commands(group):
        without = [n for n, beat in heard.items() if agent_health.lacking(beat, [command])]
        if without:
            agents = f"agent{'s' if without[1:] else ''} of {', '.join(sorted(without))}"
            unknown.append(
                Problem(
                    path,
                    UNKNOWN_COMMAND,
                    f"the {agents} {'do' if without[1:] else 'does'} not offer the command "
                    f"{command}",
                    _offers(heard[without[0]].commands or ()),
                )
            )
    silent = ", ".join(sorted(servers.keys() - heard.keys()))
    if not silent:
        return unknown, []
    why = f"no agent is heard on {silent}, so the commands there are not checked"
    remedy = f"Start the agent, then: {remedies.command('DIAGNOSE', group.name)}"
    return unknown, [Problem("members", "NO_ANSWER", why, remedy)]


def _offers(commands: Iterable[str]) -> str:
    words = ", ".join(sorted(commands)) or "none"
    return f"There is: {words}. Correct the name, or add it to the allow-list on the member."


def differs(old: Group | None, new: Group, path: str) -> bool:
    """Return whether the part of a group file with this path differs from that of ``old``. With
    another stack, or without ``old``, every part does."""
    if old is None or old.stack != new.stack:
        return True
    top, _, rest = path.partition(".")
    before, after = old.definition, new.definition
    part = ".".join(path.split(".")[:2])
    if any(
        old.identities.get(each) != one
        for each, one in new.identities.items()
        if each.startswith(part)
    ):
        return True  # the same name, and something else behind it
    if top == "resources":
        name = rest.partition(".")[0]
        return bool(before["resources"].get(name) != after["resources"].get(name))
    key = top.partition("[")[0]
    return bool(before.get(key) != after.get(key))
