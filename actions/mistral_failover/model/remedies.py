# SPDX-License-Identifier: Apache-2.0
"""The remedies: the commands that lead out of a state.

What finds a problem records a `Need`: the code of the remedy and the values of its fields. The
command is made of it where a person reads it (``reports.advice``). Each remedy has a play in
``tests/cli/test_every_state.py`` that types the command as it is shown; one without a play is not
shown. docs/reference.md has the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from shlex import quote
from string import Formatter
from types import MappingProxyType
from typing import Self, TypedDict

Value = str | tuple[str, ...]
"""The value of a field; several are written as an option each."""


@dataclass(frozen=True)
class Remedy:
    """A command that leads out of a state.

    ``state``: when it is shown, a clause. ``command``: its template; ``{group}`` is the group's
    name, other fields belong to the `Need`. ``leads_to``: the state afterwards, a clause. ``when``:
    the condition for a person to type it, and ``note``, what it does; both may be empty, and may
    have fields. ``optional``: it is another way than the commands before it, or only shows
    something, so those lead out without it.
    """

    code: str
    state: str
    command: str
    leads_to: str
    when: str = ""
    note: str = ""
    optional: bool = False

    @property
    def fields(self) -> frozenset[str]:
        """The names of its fields, without ``group``."""
        parts = (self.command, self.when, self.note)
        named = {name for part in parts for _, name, _, _ in Formatter().parse(part) if name}
        return frozenset(named - {"group"})


_SERVER = "the server of a member is {}"
_SERVES = "the server runs; a look finds the member able to take over"
_CORRECTED = "correct the cause, then"
_GIVEN_BACK = "the group serves"

_ALL = (
    Remedy(
        "ACTIVATE",
        "the group was never activated, or was taken out of service",
        "failover group activate {group}",
        "the group serves",
    ),
    Remedy(
        "BEGIN_AGAIN",
        "the state store is older than what happened since: a backup of it was loaded",
        "failover group create FILE",
        "the group serves where the cloud shows it",
        note="finds where it serves, and begins there",
    ),
    Remedy(
        "MOVE",
        "the server of a member with a role does not run",
        "failover start {group} {lost}",
        "another member serves; the lost one is to be recovered",
        note="moves its roles",
    ),
    Remedy(
        "BRING_BACK",
        "as before, of a group without another member that brings a lost one back",
        "failover start {group} {lost}",
        "the member serves again",
        note="fences it, then brings it back",
    ),
    Remedy(
        "MOVE_SILENT",
        "Nova shows the server of a member with a role as running, and its agent is silent",
        "failover start {group} {lost}",
        "another member serves; the lost one is to be recovered",
        when="if {silent} does not serve any more",
        note="fences it, then moves its roles",
    ),
    Remedy(
        "MOVE_TO_RECOVERED",
        "as before, and only lost members could take over",
        "failover start {group} {lost} {recovered}",
        "the member that was lost before serves",
        when="once {able} can serve again",
        note="moves the roles there",
    ),
    Remedy(
        "PLAN_MOVE",
        "beside a move",
        "failover plan {group} {lost}",
        "nothing changes: it shows the steps",
        when="or, to see first what that does",
        optional=True,
    ),
    Remedy(
        "RECOVER",
        "a member is declared lost",
        "failover recover {group} {member}",
        "the member can take over",
        when="once {member} is healthy",
        note="then failover failback {group}",
    ),
    Remedy(
        "REPLACE",
        "a member has no server any more, or does not run and no member can take its roles",
        "failover replace {group} {member}",
        "the member has a new server, and can take over",
        when="to give {member} a new server",
    ),
    Remedy(
        "NAME_SERVER",
        "as before, of a group without a stack",
        "failover group update FILE --name {group}",
        "the member has the other server, and can take over",
        when="make another server for {member}, name it in the group file, then",
    ),
    Remedy(
        "START_SERVER",
        _SERVER.format("SHUTOFF"),
        "openstack server start {server}",
        _SERVES,
    ),
    Remedy(
        "REBOOT_SERVER",
        "Nova shows the server of a member as running, its agent is silent, and no other member "
        "can take over from it, or a command there was not answered",
        "openstack server reboot --hard {server}",
        _SERVES,
        when="if it does not answer",
    ),
    Remedy(
        "UNPAUSE_SERVER",
        _SERVER.format("PAUSED"),
        "openstack server unpause {server}",
        _SERVES,
    ),
    Remedy(
        "RESUME_SERVER",
        _SERVER.format("SUSPENDED"),
        "openstack server resume {server}",
        _SERVES,
    ),
    Remedy(
        "UNRESCUE_SERVER",
        _SERVER.format("in RESCUE"),
        "openstack server unrescue {server}",
        _SERVES,
    ),
    Remedy(
        "UNSHELVE_SERVER",
        _SERVER.format("SHELVED"),
        "openstack server unshelve {server}",
        _SERVES,
    ),
    Remedy(
        "RESTORE_SERVER",
        _SERVER.format("SOFT_DELETED"),
        "openstack server restore {server}",
        _SERVES,
    ),
    Remedy(
        "UNLOCK_SERVER",
        _SERVER.format("locked"),
        "openstack server unlock {server}",
        "Nova changes the server again",
    ),
    Remedy(
        "CONFIRM_RESIZE",
        _SERVER.format("in VERIFY_RESIZE"),
        "openstack server resize confirm {server}",
        "Nova changes the server again",
    ),
    Remedy(
        "START_AGAIN",
        "the application of a member does not run: it died, or its server was restarted",
        "failover sweep {group}",
        _GIVEN_BACK,
        note="starts the application again",
    ),
    Remedy(
        "DETACH_VOLUME",
        "a volume is attached to another server",
        "openstack server remove volume {server} {volume}",
        "the volume can be attached where it belongs",
        when="once nothing there writes to the volume",
    ),
    Remedy(
        "DELETE_SERVER",
        "Nova cannot take from a server what it has",
        "openstack server delete {server}",
        "Nova releases what the server had",
        when="once its guest is off for certain",
    ),
    Remedy(
        "KEEP_VOLUME",
        "the deletion of a server would delete a volume that must stay",
        "openstack --os-compute-api-version 2.85 server volume update --preserve-on-termination "
        "{server} {volume}",
        "the volume stays, and the failover deletes the server",
    ),
    Remedy(
        "STOP_SERVER",
        "Nova detaches nothing from a server in ERROR, or knows other attachments than Cinder",
        "openstack server stop {server}",
        "the server is off, and what it has can be detached",
    ),
    Remedy(
        "RESET_SERVER",
        "beside that",
        "openstack server set --state active {server}",
        "Nova changes the server again",
        when="or, as an administrator, if the server is healthy",
        optional=True,
    ),
    Remedy(
        "DELETE_ATTACHMENT",
        "Cinder has an attachment of a volume that Nova does not know",
        "openstack --os-volume-api-version 3.27 volume attachment delete {attachment}",
        "the volume can be attached where it belongs",
        when="once no guest on any host uses it",
    ),
    Remedy(
        "REFRESH_ATTACHMENT",
        "Nova lists a volume on a server, and Cinder has no attachment of it",
        "nova-manage volume_attachment refresh {server} {volume} connector.json",
        "Nova can detach the volume",
        when="as an administrator, on the stopped server's host, with what nova-manage "
        "volume_attachment get_connector --json prints in connector.json",
    ),
    Remedy(
        "SET_VOLUME",
        "a volume is in error, or was set to available by force",
        "openstack volume set --state {state} {volume}",
        "the volume can move",
        when="as an administrator",
    ),
    Remedy(
        "MARK_VOLUME",
        "a volume is reserved, attaching or detaching, and nothing works on it",
        "openstack volume set --state {state} {mark} {volume}",
        "the volume can move",
        when="when no request works on it any more, as an administrator",
    ),
    Remedy(
        "ATTACH_VOLUME",
        "a volume is not attached",
        "openstack server add volume {server} {volume}",
        _GIVEN_BACK,
    ),
    Remedy(
        "ANOTHER_VOLUME",
        "a volume does not exist any more",
        "failover group update FILE",
        "the group serves with the other volume",
        when="name another volume in the group file, then",
    ),
    Remedy(
        "DETACH_PORT",
        "a port is on another server",
        "openstack server remove port {server} {port}",
        "the port can be attached where it belongs",
    ),
    Remedy(
        "ATTACH_PORT",
        "a port is on no server",
        "openstack server add port {server} {port}",
        _GIVEN_BACK,
    ),
    Remedy(
        "ASSIGN_FLOATING_IP",
        "a floating IP is on another port, or on none",
        "openstack floating ip set --port {port} {address}",
        _GIVEN_BACK,
    ),
    Remedy(
        "FREE_FLOATING_IP",
        "a floating IP is on a port that is none of a member",
        "openstack floating ip unset --port {floating_ip}",
        "the floating IP can be associated where it belongs",
        when="if nothing there needs it",
    ),
    Remedy(
        "ALLOW_ADDRESS",
        "a port may not use a virtual address any more",
        "openstack port set --allowed-address ip-address={address} {port}",
        _GIVEN_BACK,
    ),
    Remedy(
        "DISABLE_POOL_MEMBER",
        "another member of a load balancer's pool is enabled",
        "openstack loadbalancer member set --disable {pool} {member}",
        "only the active member gets connections",
        when="if clients may reach only one at a time",
    ),
    Remedy(
        "GIVE_RECORDSET",
        "a DNS name belongs to another owner",
        "openstack recordset set --description {owner} {zone} {recordset}",
        "the name is the group's",
        when="if the name is to be the group's",
    ),
    Remedy(
        "UNMARK",
        "Heat has marked a member or a volume as unhealthy",
        "openstack stack resource mark unhealthy --reset {stack} {resource}",
        "an update of the stack keeps it",
        when="if it is healthy",
    ),
    Remedy(
        "UPDATE_STACK",
        "an update of the stack failed",
        "openstack stack update --existing {stack}",
        "the stack is complete",
        when=_CORRECTED,
    ),
    Remedy(
        "ANOTHER_ALARM",
        "an alarm of the group file does not exist any more",
        "failover group update FILE",
        "the group serves, and the alarm watches it",
        when="create the alarm again, name it in the group file, then",
    ),
    Remedy(
        "ENABLE_ALARM",
        "an alarm of the group file is disabled",
        "openstack alarm update --enabled True {alarm}",
        "the alarm watches the group",
    ),
    Remedy(
        "START_OF_ALARM",
        "an alarm was admitted, and its failover has not started",
        "failover sweep {group}",
        "the failover starts",
        note="starts the failover of the alarm, or says why it cannot",
    ),
    Remedy(
        "DECIDE_ALARMS",
        "alarms are held",
        "failover alarms {group}",
        "each row has the commands that admit and dismiss the alarm",
        note="lists the held ones, to admit or dismiss",
    ),
    Remedy(
        "RESUME",
        "a pause holds the alarms",
        "failover resume {group}",
        "alarms count again",
        note="alarms count again",
    ),
    Remedy(
        "END_MAINTENANCE",
        "a maintenance holds the alarms, or keeps a member from roles",
        "failover maintenance off {group}",
        "alarms count again, and the members can take over",
    ),
    Remedy(
        "FENCE_AGAIN",
        "nothing proves that a lost member is off, and another rung might",
        "failover start {group} {lost}",
        "another member serves",
        when="once {answering}",
        note="tries to fence again",
    ),
    Remedy(
        "FENCE_AND_DELETE",
        "as before, while the group is taken out of service",
        "failover group delete {group} {lost}",
        "the group is deleted",
        when="once {answering}",
        note="tries to fence again",
    ),
    Remedy(
        "CONFIRM_FENCED",
        "nothing proves that a lost member is off",
        "failover confirm-fenced {group} {member} --because '...'",
        "another member serves",
        when="once you are sure that {member} is off",
    ),
    Remedy(
        "SWEEP",
        "the failover is BLOCKED by something else, which the reason names",
        "failover sweep {group}",
        "the failover continues",
        when=_CORRECTED,
    ),
    Remedy(
        "START",
        "a step FAILED",
        "failover start {group}",
        "the group serves",
        when=_CORRECTED,
    ),
    Remedy(
        "ROLLBACK",
        "beside that, if no member is lost",
        "failover rollback {group}",
        "the group serves as before",
        when="or, to go back",
        optional=True,
    ),
    Remedy(
        "DELETE",
        "the group was not taken out of service completely",
        "failover group delete {group}",
        "the group is deleted",
        when=_CORRECTED,
    ),
    Remedy(
        "ACTIVATE_INSTEAD",
        "beside that",
        "failover group activate {group}",
        "the group serves",
        when="or, to bring it up",
        optional=True,
    ),
    Remedy(
        "CONTINUE",
        "the failover waits for its chain, or for new credentials",
        "failover sweep {group}",
        "the failover continues",
    ),
    Remedy(
        "CLEAN_UP",
        "the cleanup of a rehearsal stopped at something",
        "failover sweep {group}",
        "nothing of the rehearsal is left",
        when=_CORRECTED,
        note="continues the cleanup of the rehearsal",
    ),
    Remedy(
        "WATCH",
        "a failover is in progress",
        "failover watch {group}",
        "nothing changes: it follows the steps",
        optional=True,
    ),
    Remedy(
        "APPLY",
        "the latest definition is not in force",
        "failover group activate {group}",
        "the definition is in force",
        note="converges to the latest definition",
    ),
    Remedy(
        "REDEFINE",
        "beside that",
        "failover group update FILE",
        "the definition of the file is in force",
        when="or, if it is wrong",
        optional=True,
    ),
    Remedy(
        "END_GROUP",
        "the stack was deleted",
        "failover group delete {group}",
        "the group is deleted",
        when="to end the group",
    ),
    Remedy(
        "ADOPT_LATER",
        "beside that",
        "failover group adopt-stack {group}",
        "the group serves on the new stack",
        when="or once the stack is made again",
        optional=True,
    ),
    Remedy(
        "ADOPT_STACK",
        "the stack was deleted and made again",
        "failover group adopt-stack {group}",
        "the group serves on the new stack",
        when="if the group is to run there",
    ),
    Remedy(
        "REHEARSE",
        "the last rehearsal failed on the standby",
        "failover rehearse {group} --role {role} --to {member}",
        "a rehearsal passes on the standby",
        when="correct that on {member}, then",
    ),
    Remedy(
        "DIAGNOSE",
        "something else is wrong, or could not be seen",
        "failover doctor {group}",
        "each problem is named, with its remedy",
        note="looks, and names what helps",
    ),
)

REMEDIES: Mapping[str, Remedy] = MappingProxyType({each.code: each for each in _ALL})
"""By code, in the order of the table of docs/reference.md."""


class NeedDocument(TypedDict):
    """A remedy that is needed, as JSON: as of `Need`."""

    code: str
    fields: dict[str, str | list[str]]
    instead: bool


@dataclass(frozen=True)
class Need:
    """A remedy that is needed now. ``fields``: the values for it, sorted by name. ``instead``: it
    is another way than the remedies before it, and must not be typed after them."""

    code: str
    fields: tuple[tuple[str, Value], ...] = ()
    instead: bool = False

    @property
    def remedy(self) -> Remedy:
        """The remedy."""
        return REMEDIES[self.code]

    def value(self, name: str) -> tuple[str, ...]:
        """Return the values of a field; none if it has no such field."""
        found = dict(self.fields).get(name, ())
        return (found,) if isinstance(found, str) else found

    def command(self, group: str) -> str:
        """Return the command for a group, as it is typed."""
        values = {name: _typed(name, value) for name, value in self.fields}
        return self.remedy.command.format(group=quote(group), **values)

    def words(self, template: str, group: str) -> str:
        """Return a text of the remedy with its fields."""
        values = {name: _spoken(value) for name, value in self.fields}
        return template.format(group=quote(group), **values)

    def document(self) -> NeedDocument:
        """Return it as JSON."""
        fields = {n: v if isinstance(v, str) else list(v) for n, v in self.fields}
        return {"code": self.code, "fields": fields, "instead": self.instead}

    @classmethod
    def read(cls, document: NeedDocument) -> Self:
        """Return what a :meth:`document` holds."""
        fields = document["fields"].items()
        read = ((n, v if isinstance(v, str) else tuple(v)) for n, v in fields)
        return cls(document["code"], tuple(sorted(read)), document["instead"])


def need(code: str, **fields: str | Iterable[str]) -> Need:
    """Return that a remedy is needed. Raises KeyError for an unknown code, ValueError unless it has
    these fields."""
    if REMEDIES[code].fields != fields.keys():
        raise ValueError(f"{code} has the fields {sorted(REMEDIES[code].fields)}")
    values = ((n, v if isinstance(v, str) else tuple(v)) for n, v in fields.items())
    return Need(code, tuple(sorted(values)))


def instead(needed: Iterable[Need]) -> tuple[Need, ...]:
    """Return remedies as another way than those before them."""
    return tuple(replace(each, instead=True) for each in needed)


STACK_GONE = need("END_GROUP"), need("ADOPT_LATER")
"""What a group needs whose stack was deleted."""


def another_server(stack: str | None, member: str) -> Need:
    """Return what gives a member of a group another server: Heat makes one, or without a stack an
    operator names one."""
    return need("NAME_SERVER" if stack is None else "REPLACE", member=member)


def command(code: str, group: str, **fields: str | Iterable[str]) -> str:
    """Return the command of a remedy for a group. Raises as :func:`need` does."""
    return need(code, **fields).command(group)


@dataclass(frozen=True)
class Advice:
    """A command that helps: ``condition``, when to run it, and ``note``, what it does; both may be
    empty. ``optional``: the commands before it lead out without it."""

    command: str
    condition: str = ""
    note: str = ""
    optional: bool = False

    def __str__(self) -> str:
        before = f"{self.condition}: " if self.condition else ""
        return f"{before}{self.command}" + (f"   ({self.note})" if self.note else "")


def commands(needed: Iterable[Need], group: str) -> list[Advice]:
    """Return the commands of remedies for a group."""
    found: list[Advice] = []
    for each in needed:
        when = each.words(each.remedy.when, group)
        if each.instead and not when.startswith("or"):
            when = f"or, {when}" if when else "or instead"
        elif when == _CORRECTED and any(not before.optional for before in found):
            when = ""  # the commands before it correct the cause
        note = each.words(each.remedy.note, group)
        found.append(Advice(each.command(group), when, note, each.remedy.optional or each.instead))
    return found


def sentence(needed: Iterable[Need], group: str) -> str:
    """Return the commands of remedies in one line of text."""
    words = ""
    for each in commands(needed, group):
        condition = each.condition if words else each.condition[:1].upper() + each.condition[1:]
        said = f"{condition}: {each.command}" if condition else each.command
        between = "; " if each.optional else "; then "
        words += f"{between if words else ''}{said}"
    return words


def _typed(name: str, value: Value) -> str:
    """Return a value as it is typed: several are the option ``--NAME`` each."""
    if isinstance(value, str):
        return quote(value)
    return " ".join(f"--{name} {quote(each)}" for each in value)


def _spoken(value: Value) -> str:
    return value if isinstance(value, str) else " and ".join(value)
