# SPDX-License-Identifier: Apache-2.0
"""``failover group ...``: groups from their definition to their end."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING, Any

import yaml
from cliff.lister import Lister
from cliff.show import ShowOne

from mistral_failover.cli import base, emulator, files, order
from mistral_failover.cli.arguments import BECAUSE, GROUP, YES, Declared, argument
from mistral_failover.cli.base import ActionCommand, GroupCommand, for_people, when
from mistral_failover.cli.connection import CommandFailed, with_full_stop
from mistral_failover.cli.order import Order
from mistral_failover.cli.plan import step_lines
from mistral_failover.cli.status_screen import role_holders, suspended
from mistral_failover.model.text import clean, clean_value, counted

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.doctor.all_checks import DoctorReport, FindingDocument
    from mistral_failover.orders.define_group import DefinedGroup

ACTIVATE, REMOVE = "failover.activate_first", "failover.remove"


class _Bringing(ActionCommand, ShowOne):
    """Change what is known of a group, and bring the group up by that."""

    arguments: Declared = (
        argument(
            "--no-activate",
            action="store_true",
            help="only record it: no goal is set, nothing is changed",
        ),
        BECAUSE,
        order.TIMEOUT,
    )

    def brought_up(
        self, parsed_args: argparse.Namespace, name: str, because: str
    ) -> dict[str, Any]:
        """Converge the group to its definition; return the result."""
        inputs = {"group": name, "because": parsed_args.because or because}
        facts = order.follow(
            self.app,
            ACTIVATE,
            inputs,
            group=name,
            wait=parsed_args.timeout,
            people=for_people(parsed_args),
        )
        self.exit_code = order.exit_code(facts)
        return facts


class _DefinitionCommand(_Bringing):
    """Define a group from files, and converge it to the definition."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Carry the command out; programs get every problem of a refused file as data."""
        try:
            facts = self.carried_out(parsed_args)
        except files.DocumentRefused as refusal:
            refused = self._with_the_clouds(refusal, stack_exists=not parsed_args.no_activate)
            if for_people(parsed_args):
                raise refused from None
            self.exit_code = base.FAILED
            problems = [asdict(each) for each in refused.found]
            facts = {"code": "INVALID_DOCUMENT", "problems": problems}
        shown = order.worded(facts) if for_people(parsed_args) else facts
        return list(shown), list(shown.values())

    def carried_out(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Carry the command out; return the facts to show. Raises DocumentRefused."""
        raise NotImplementedError

    def _with_the_clouds(
        self, refused: files.DocumentRefused, *, stack_exists: bool
    ) -> files.DocumentRefused:
        """Return a refusal of a file that was not sent, with what the cloud says of the rest of it,
        if Mistral answers: all that is wrong is said at once."""
        given = refused.given
        if given is None:
            return refused
        try:
            self.run_action(
                "failover.define",
                definition=given.document,
                name=given.name or None,
                types=given.types,
                dry_run=True,
                stack_exists=stack_exists,
            )
        except CommandFailed as failed:
            known = {each.field for each in refused.found}
            more = [each for each in given.placed(failed.problems) if each.field not in known]
            if more:
                return files.DocumentRefused([*refused.found, *more])
        return refused

    arguments: Declared = (
        *files.FILES,
        argument("--name", help="the group's name (default: name in the file, or the stack's)"),
        argument(
            "--dry-run",
            action="store_true",
            help="check the file against the cloud, show what would change, and change nothing",
        ),
    )

    def known(self, name: str) -> bool:
        """Return whether the project has a group of this name."""
        return name in self.run_action("failover.status")["groups"]

    def defined(
        self, given: files.Definition, *, dry_run: bool = False, stack_exists: bool = False
    ) -> DefinedGroup:
        """Return the answer of failover.define; report on standard error what does not refuse it,
        once for each command. ``stack_exists``: it has to. Raises DocumentRefused."""
        # Before the agents are asked what they offer.
        with emulator.lesson(self.app, given.name, given.document) as lesson:
            try:
                found: DefinedGroup = self.run_action(
                    "failover.define",
                    definition=given.document,
                    name=given.name,
                    types=given.types,
                    dry_run=dry_run,
                    stack_exists=stack_exists,
                )
            except CommandFailed as refused:
                if not refused.problems:
                    raise
                raise files.DocumentRefused(given.placed(refused.problems)) from None
            if dry_run:
                lesson.tell()
            else:
                lesson.keep()
        if dry_run or found["created"]:
            self._tell(given, found)
        return found

    def _tell(self, given: files.Definition, found: DefinedGroup) -> None:
        """Tell what an answer of failover.define says of a group file that is accepted."""
        for problems, meaning in (
            (found["wrong_before"], "Wrong before, and not changed"),
            (found["unchecked"], "Not checked"),
        ):
            for each in given.placed(problems):
                self.app.stderr.write(f"{meaning}: {clean(str(each))}\n")
        for workflow in found["missing"]:
            (problem,) = given.placed([_no_workflow(given, workflow)])
            self.app.stderr.write(f"{clean(str(problem))}\n")


def _no_workflow(given: files.Definition, workflow: str) -> dict[str, str]:
    return {
        "field": given.naming(workflow),
        "code": "NO_WORKFLOW",
        "message": f"Mistral has no workflow {workflow}, which the group file names",
        "remedy": "Next: failover workflows install FILE",
    }


class Create(_DefinitionCommand):
    """Define a group and bring it up: volumes are attached, the application runs.

    What it names must exist. The command follows the group to the end, and shows what is missing
    for a failover. If it is BLOCKED or FAILED, correct the cause and run 'failover group activate'.
    Check the file first with --dry-run.
    """

    def carried_out(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Check, define, follow."""
        given = files.read(parsed_args.file, parsed_args.types, parsed_args.name)
        if self.known(given.name) and not self._restored(given.name):
            raise CommandFailed(
                f"The group {given.name} exists already. Change it with 'failover group update', "
                "or choose another --name. [GROUP_EXISTS]"
            )
        brings_up = not parsed_args.no_activate
        answer = self.defined(given, dry_run=parsed_args.dry_run, stack_exists=brings_up)
        facts: dict[str, Any] = {
            key: answer[key] for key in ("group", "id", "stack", "roles", "resources")
        }
        if parsed_args.dry_run:
            self.app.stderr.write("Nothing was stored: this is a dry run.\n")
            facts |= _steps(answer, people=for_people(parsed_args))
        elif brings_up:
            facts |= self.brought_up(parsed_args, given.name, "the group was created")
            facts |= _left(given.name, facts)
        if not parsed_args.dry_run:
            found = self._found(given.name)
            missing = _missing(found)
            for row in found:
                if (row["check"], row["level"]) == ("fence", "ok"):
                    self.app.stderr.write(f"{row['sentence']}\n")
            facts["missing"] = _missing_lines(missing) if for_people(parsed_args) else missing
        return facts

    def _restored(self, name: str) -> bool:
        """Return whether the group that exists has only what is older than the world: then it is
        created again."""
        return bool(self.run_action("failover.status", group=name)["restored"])

    def _found(self, name: str) -> list[FindingDocument]:
        """Return what the doctor finds about a failover of the group."""
        try:
            report: DoctorReport = self.run_action("failover.doctor", group=name)
            rows = report["findings"]
        except CommandFailed as failed:  # the group itself exists
            rows = [_not_checked(name, failed)]
        return [row for row in rows if row["group"] == name]


def _missing(found: list[FindingDocument]) -> list[dict[str, str]]:
    """Return what of it is missing."""
    return [
        {key: row[key] for key in ("check", "level", "sentence", "remedy")}
        for row in found
        if row["level"] != "ok"
    ]


def _not_checked(name: str, failed: CommandFailed) -> FindingDocument:
    sentence = f"not checked: {failed.wrong.rstrip('.')}"
    remedy = f"failover doctor {shlex.quote(name)}"
    return {
        "check": "doctor",
        "level": "warn",
        "sentence": sentence,
        "remedy": remedy,
        "group": name,
    }


def _missing_lines(missing: list[dict[str, str]]) -> str:
    """Return each thing that is missing, and what helps."""
    return "\n".join(f"{row['sentence']}\n> {row['remedy']}" for row in missing) or "nothing"


def _left(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Explain what exists of a group whose activation was refused."""
    if "status" in facts or "code" not in facts:
        return {}
    group = shlex.quote(name)
    return {
        "defined": (
            f"{name} is defined but has no goal. Correct the cause and run: failover group update "
            f"FILE --name {group}. Or delete it: failover group delete {group}"
        )
    }


class Update(_DefinitionCommand):
    """Change a group's definition and converge to it; the active member stays.

    It first checks the file against the cloud and shows what changes, which steps follow, and which
    of them interrupt the service. With --dry-run it only does that. An update that interrupts the
    service asks for confirmation unless --yes is given.
    """

    arguments = (YES,)

    def carried_out(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Check, show what changes, ask, define, follow."""
        given = files.read(parsed_args.file, parsed_args.types, parsed_args.name)
        if not self.known(given.name):
            raise CommandFailed(
                f"There is no group {given.name}. Create it with 'failover group create', or give "
                "its --name. [UNKNOWN_GROUP]"
            )
        needed = not parsed_args.no_activate
        answer = self.defined(given, dry_run=True, stack_exists=needed)
        people = for_people(parsed_args)
        changes = answer["lines"]
        facts: dict[str, Any] = {
            "group": given.name,
            "changes": ("\n".join(changes) or "none") if people else answer["differences"],
        }
        if parsed_args.dry_run:
            return facts | _steps(answer, people=people)
        if parsed_args.no_activate:
            self.defined(given)
            return facts
        for line in (*answer["lines"], *_step_lines(answer)):
            self.app.stderr.write(f"{clean(line)}\n")
        if question := _question(given.name, answer):
            base.confirm(question, yes=parsed_args.yes)
        self.defined(given)
        how = "changed" if changes else "given again, unchanged"
        return facts | self.brought_up(parsed_args, given.name, f"its definition was {how}")


def _step_lines(answer: DefinedGroup) -> list[str]:
    return step_lines(answer["steps"] or [], interrupting=True)


def _steps(answer: DefinedGroup, *, people: bool) -> dict[str, Any]:
    """Return the facts about the steps that a dry run found."""
    why = answer["why_no_steps"]
    if not people:
        return {"steps": answer["steps"], "why_no_steps": why}
    if why is None:
        return {"steps": "\n".join(_step_lines(answer)) or "none"}
    told = f"{with_full_stop(why['message'])} {why['remedy']} [{why['code']}]"
    return {"steps": f"not known: {told}"}


def _question(group: str, answer: DefinedGroup) -> str:
    """Return what to ask before an update; empty if it does not interrupt the service."""
    if (why := answer["why_no_steps"]) is not None:
        said = f"{why['message'].rstrip('.')} [{why['code']}]"
        return f"It is not known what the update of {group} would do: {said}. Update it"
    taken = [step["what"] for step in answer["steps"] or [] if step["interrupts"]]
    return f"The update interrupts {group} ({'; '.join(taken)}). Update it" if taken else ""


class AdoptStack(_Bringing):
    """Let a group take the stack that has its stack's name now, and bring it up.

    For a stack that was deleted and made again. Servers and volumes of the former one count as gone
    only if Nova and Cinder say so; what still runs is fenced. If a volume of the former stack still
    exists, the group file has to name the volume to use.
    """

    arguments = (GROUP,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Take the stack, follow."""
        name, people = parsed_args.group, for_people(parsed_args)
        answer = self.run_action("failover.adopt_stack", group=name)
        self.app.stderr.write(f"{clean(answer['sentence'])}\n")
        facts = {key: answer[key] for key in ("group", "stack", "former", "kept")}
        if people:
            rows = [f"{each['name']}: {each['volume']}" for each in answer["kept"]]
            facts |= {"former": answer["former"] or "the same", "kept": clean("\n".join(rows))}
        if not parsed_args.no_activate:
            known = self.run_action("failover.status", group=name, definition=True)
            with emulator.lesson(self.app, name, known["definition"]["document"]) as lesson:
                lesson.keep()
            facts |= self.brought_up(parsed_args, name, "its stack was made again")
        shown = order.worded(facts) if people else facts
        return list(shown), list(shown.values())


class Validate(base.FittedOutput, Lister):
    """Check a group file and its types on this machine, without a server.

    It shows every problem, its place, and the remedy. Exit code 1 when there is one.
    """

    auth_required = False

    arguments = files.FILES

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
        """Check."""
        self._found = files.problems(parsed_args.file, parsed_args.types)
        if not self._found:
            self.app.stderr.write(f"{parsed_args.file}: no problems found\n")
        columns = ["file", "line", "field", "code", "message", "remedy"]
        return columns, [[clean_value(each) for each in astuple(row)] for row in self._found]

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Any, data: Any) -> int:
        """Avoid an empty line for people when there is no problem."""
        if for_people(parsed_args) and not self._found:
            return 0
        return int(super().produce_output(parsed_args, column_names, data))

    def run(self, parsed_args: argparse.Namespace) -> int:
        """1 when there is a problem."""
        code = int(super().run(parsed_args))
        return code or (base.FAILED if self._found else base.COMPLETE)


class List(ActionCommand, Lister):
    """List the project's groups: whether they serve, and on which members.

    For one of them: failover status GROUP
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Query and format."""
        answer = self.run_action("failover.status")
        if answer["total"] > len(answer["overview"]):
            self.app.stderr.write(
                f"Showing {len(answer['overview'])} of {answer['total']} groups.\n"
            )
        if not answer["overview"]:
            self.app.stderr.write(
                "There are no groups yet. To create one: failover group create --help\n"
            )
        return overview(answer, people=for_people(parsed_args))


def overview(answer: dict[str, Any], *, people: bool) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of the answer of failover.status without a group."""
    rows = answer["overview"]
    if not people:
        keys = ["name", "stack", "service", "status", "reason", "cause", "since", "roles", "lost"]
        keys += ["pause", "maintenance", "held"]
        return keys, [[row[key] for key in keys] for row in rows]
    columns = ["group", "service", "status", "roles", "lost", "since", "alarms"]
    return columns, [
        [
            row["name"],
            row["service"].replace("_", " "),
            row["status"],
            role_holders(row) or "-",
            ", ".join(row["lost"]) or "-",
            when(row["since"]),
            "; ".join([f"{row['held']} held"] * bool(row["held"]) + suspended(row)) or "-",
        ]
        for row in rows
    ]


class Show(GroupCommand, ShowOne):
    """Show a group's definition and status.

    It shows how what is defined differs from what is in force, too.

    Only its file, for editing: failover group show GROUP -f value -c definition > group.yaml
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Query and format: as text for people and as values alone, as a whole for machines."""
        found = self.run_action("failover.status", group=parsed_args.group, definition=True)
        keys = ["group", "stack", "service", "status", "reason", "roles", "lost", "members", "goal"]
        facts = {key: found[key] for key in keys} | {"service": found["service"]["status"]}
        types = found["definition"]["types"]
        document = found["definition"]["document"]
        if parsed_args.formatter in ("table", "value", "shell"):
            facts["stack"] = found["stack"] or "-"
            facts["roles"] = role_holders(found) or "-"
            facts["lost"] = ", ".join(found["lost"]) or "-"
            facts["members"] = "\n".join(
                f"{m['name']}: server {m['server'] or '-'}, epoch {m['epoch']}"
                for m in found["members"]
            )
            document = yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip()
            types = ", ".join(each["name"] for each in types) or "-"
            facts["in_force"] = "\n".join(found["in_force"]["lines"]) or "what is defined"
        else:
            facts["in_force"] = found["in_force"]
        facts |= {"types": types, "definition": document}
        return list(facts), list(facts.values())


class Delete(Order):
    """Take a group out of service and delete it.

    The application is quiesced and the volumes are detached. Then the group's definition, goals and
    history are deleted. Servers, volumes and the stack stay.

    To end the protection and leave everything running, use 'failover group release'.

    It asks for confirmation unless --yes is given. A group that cannot be taken out of service is
    not deleted: correct the cause and run the command again. Alarms that wait for the group are
    dismissed.
    """

    workflow = REMOVE

    arguments = (
        GROUP,
        argument(
            "--lost",
            action="append",
            metavar="MEMBER",
            help="a member to fence instead of quiescing it; may be repeated",
        ),
        YES,
        BECAUSE,
    )

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the lost members."""
        return {"lost": parsed_args.lost}

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Ask, take it out of service, delete it."""
        group = parsed_args.group
        status = self.run_action("failover.status", group=group)
        held = self.run_action("failover.held", group=group, limit=1)["total"]
        question = f"Stop the application of {group}, detach its volumes, and delete the group"
        if held:
            question += f" (it dismisses what is held for it: {counted(held, 'alarm')})"
        base.confirm(question, yes=parsed_args.yes)
        facts: dict[str, Any] = {"group": group}
        if status["traversal"] is not None:
            columns, values = super().take_action(parsed_args)
            facts |= dict(zip(columns, values, strict=True))
            if parsed_args.no_wait or self.exit_code != base.COMPLETE:
                facts["deleted"] = (
                    f"no: {group} is still defined. Once it is out of service (failover status "
                    f"{group}), run: failover group delete {group}"
                )
                return list(facts), list(facts.values())
        answer = self.run_action("failover.undefine", group=group)
        facts |= {"deleted": answer["sentence"], "dismissed": answer["dismissed"]}
        if for_people(parsed_args):
            facts["dismissed"] = "\n".join(a["sentence"] for a in answer["dismissed"]) or "-"
        return list(facts), list(facts.values())


class Release(GroupCommand, ShowOne):
    """End the protection of a group and leave everything as it is.

    The application keeps running, volumes stay attached, and nothing in the cloud is changed. The
    group's definition, goals and history are deleted. Alarms that wait for it are dismissed. Alarms
    in Aodh stay, and what they send later is held as alarms of an unknown group: delete them or
    point them elsewhere. Trusts and credentials stay, too.

    It is refused while the group is being changed or a member is lost. It asks for confirmation
    unless --yes is given.
    """

    arguments = (YES,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Ask, then release it."""
        group = parsed_args.group
        question = f"End the protection of {group} and leave everything running"
        base.confirm(question, yes=parsed_args.yes)
        answer = self.run_action("failover.undefine", group=group, release=True)
        facts = {"released": answer["sentence"], "dismissed": answer["dismissed"]}
        if for_people(parsed_args):
            facts["dismissed"] = "\n".join(a["sentence"] for a in answer["dismissed"]) or "-"
        return list(facts), list(facts.values())


class Activate(Order):
    """Bring up a group that is not in service.

    It was only defined, or taken out of service, or its activation was interrupted.

    A group that is up is converged to its definition; the active member stays.
    """

    workflow = ACTIVATE

    arguments = (
        GROUP,
        BECAUSE,
        argument(
            "--to",
            metavar="MEMBER",
            help=("the member to activate (default: as the group file says)"),
        ),
    )

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the member to activate."""
        return {"to": parsed_args.to}
