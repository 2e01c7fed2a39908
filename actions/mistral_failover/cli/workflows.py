# SPDX-License-Identifier: Apache-2.0
"""``failover workflows ...``: the package's workflows in Mistral, and files of workflows.

Workflows in Mistral are compared with files by the hash of the text that Mistral keeps. Mistral
keeps the text of a file with one workflow unchanged. It splits and rewrites a file with several, so
those are compared by content.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cliff.command import Command
from cliff.lister import Lister

from mistral_failover.cli import base, connection
from mistral_failover.cli.arguments import YES, Arguments, Declared, argument
from mistral_failover.cli.base import ActionCommand
from mistral_failover.cli.connection import CommandFailed
from mistral_failover.mistral.shipped_workflows import same
from mistral_failover.model.documents import load_workflow
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.text import counted


class Validate(Arguments, Command):
    """Check workflow files offline: syntax, links, expressions, inputs.

    It also finds what Mistral itself finds only when a task runs: unknown actions, wrong inputs,
    missing sub-workflows.

    It prints a line per finding with its remedy; exit code 1 when there is an error.
    """

    auth_required = False

    arguments = (
        argument("files", nargs="+", metavar="FILE", help="workflow files (YAML)"),
        argument(
            "--strict", action="store_true", help="report violations of the style rules as errors"
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Validate; the exit code."""
        from mistral_failover.embedded import validate

        return validate.main(parsed_args.files, strict=parsed_args.strict)


class _RegistryCommand(ActionCommand, Lister):
    """A command about the workflows in Mistral."""

    arguments: Declared = (
        argument(
            "--namespace",
            metavar="NAME",
            help=(
                "Mistral's namespace (default: that of --workflow-namespace, or none). A workflow "
                "looks for its sub-workflows in its own namespace, then in the one without a name"
            ),
        ),
    )

    def namespace(self, parsed_args: argparse.Namespace) -> str:
        """Return the namespace to use."""
        given = parsed_args.namespace
        return connection.namespace(self.app) if given is None else str(given)


_FILES = argument(
    "files",
    nargs="*",
    type=Path,
    metavar="FILE",
    help="files of your own workflows, besides those of this package",
)


class Install(_RegistryCommand):
    """Upload this package's workflows, and files of your own.

    It uploads only workflows that are missing in Mistral or have another text there. Repeat it
    after each upgrade.

    The workflows go into your project, with your token. If an administrator has installed the same
    text as public, that one is used.
    """

    arguments = (
        _FILES,
        argument(
            "--public",
            choices=("yes", "no"),
            help=(
                "whether other projects may use them, which only an administrator may set "
                "(default: unchanged; new ones: no)"
            ),
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
        """Compare, and upload what differs."""
        definitions = read_definitions(parsed_args.files)
        scope = {"yes": "public", "no": "private", None: None}[parsed_args.public]
        with connection.mistral(self.app) as client:
            known = Registry(client, self.namespace(parsed_args))
            made = {name: known.install(name, text, scope) for name, text in definitions.items()}
        if any(each.kept for each in made.values()):
            self.exit_code = base.FAILED
        return ["workflow", "done"], [[name, each.done] for name, each in made.items()]


class Diff(_RegistryCommand):
    """Show which workflows are missing in Mistral, or have another text there.

    It compares those of this package and of your files and shows the lines that differ. It also
    lists workflows named failover.* that do not belong to this package: those of another version or
    of other authors.

    Exit code 1 when anything differs.
    """

    arguments = (
        _FILES,
        argument("--brief", action="store_true", help="without the lines that differ"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
        """Compare."""
        definitions = read_definitions(parsed_args.files)
        with connection.mistral(self.app) as client:
            standings = Registry(client, self.namespace(parsed_args)).compare(definitions)
        if any(each.state != SAME for each in standings):
            self.exit_code = base.FAILED
        columns = ["workflow", "state", "scope"]
        if parsed_args.brief:
            return columns, [_row(each) for each in standings]
        return [*columns, "difference"], [[*_row(each), each.difference] for each in standings]


class Remove(_RegistryCommand):
    """Remove the package's workflows that belong to your project from Mistral.

    Other workflows stay, and so do actions and groups: no failover starts until the workflows are
    installed again. Those that Mistral's operator installed for all projects ('mistral-db-manage
    populate') go when the package is uninstalled and 'populate' runs again.

    It asks for confirmation unless --yes is given.
    """

    arguments = (YES,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
        """Ask, and remove."""
        definitions = read_definitions([])
        with connection.mistral(self.app) as client:
            known = Registry(client, self.namespace(parsed_args))
            there = [name for name in definitions if known.mine(name)]
            kept = [name for name in definitions if known.of_operator(name)]
            if there:
                base.confirm(
                    f"Remove {len(there)} workflows: no alarm is handled after that",
                    yes=parsed_args.yes,
                )
            refused = {name: why for name in there if (why := known.remove(name)) is not None}
        if refused:
            lines = "\n".join(f"{name}: {why}" for name, why in refused.items())
            raise CommandFailed(
                f"{lines}\n{len(refused)} could not be removed. {_POPULATED} [MISTRAL_REFUSED]"
            )
        if kept:
            number = counted(len(kept), "workflow")
            self.app.stderr.write(f"{number} of Mistral's operator stayed. {_POPULATED}\n")
        return ["workflow", "done"], [[name, "removed"] for name in there]


def _row(each: WorkflowState) -> list[Any]:
    return [each.name, each.state, each.scope]


_POPULATED = (
    "What 'mistral-db-manage populate' installed goes when it runs again without the package."
)
SAME, MISSING, CHANGED, FOREIGN = "same", "missing", "changed", "foreign"
PREFIX = "failover."
_FIELDS = "id,project_id,name,namespace,scope,definition"


@dataclass(frozen=True)
class Text:
    """A workflow in a file. ``whole``: it is the file's only one, so Mistral keeps the text."""

    file: str
    text: str
    whole: bool

    def is_in(self, definition: str) -> bool:
        """Return whether Mistral's text equals this one."""
        if hashed(self.text) == hashed(definition):
            return True
        return not self.whole and same(self.text, definition)


@dataclass(frozen=True)
class Installation:
    """What was done to install a workflow, in words. ``kept``: its other text was left as it is."""

    done: str
    kept: bool = False


@dataclass(frozen=True)
class WorkflowState:
    """The state of a workflow in Mistral; ``scope`` is empty if it is missing."""

    name: str
    state: str
    scope: str
    difference: str = ""


def hashed(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def read_definitions(files: Iterable[Path]) -> dict[str, Text]:
    """Return by name the workflows of this package and of ``files``. Raises CommandFailed."""
    from mistral_failover import workflows

    found: dict[str, Text] = {}
    for path in [*map(Path, workflows.paths()), *files]:
        for name, text in _read(path).items():
            if name in found:
                raise CommandFailed(
                    f"{path}: {found[name].file} already contains the workflow {name}. Rename it. "
                    "[NAME_TAKEN]"
                )
            found[name] = text
    return found


def _read(path: Path) -> dict[str, Text]:
    try:
        text = path.read_text("utf-8")
        document = load_workflow(text, "workflow file")
    except (OSError, UnicodeDecodeError, InvalidDocument) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise CommandFailed(f"{path} cannot be read: {reason} [NO_FILE]") from None
    if "version" not in document:
        raise CommandFailed(
            f"{path} is not a workflow file. Check it: failover workflows validate {path} "
            "[WORKFLOW_INVALID]"
        )
    bodies = {name: body for name, body in document.items() if name != "version"}
    if len(bodies) == 1:
        return {str(name): Text(str(path), text, True) for name in bodies}
    return {
        str(name): Text(
            str(path),
            yaml.safe_dump({"version": document["version"], name: body}, sort_keys=False),
            False,
        )
        for name, body in bodies.items()
    }


class Registry:
    """The workflows of one namespace: those of the caller's project, and what others made public.
    An administrator is shown everybody's; those count for nothing here. Methods raise
    MistralError."""

    def __init__(self, client: Any, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._known: dict[str, list[dict[str, Any]]] = {}
        for row in client.workflows(name=f"has:{PREFIX}", fields=_FIELDS):
            self._remember(row)

    def _remember(self, row: dict[str, Any]) -> None:
        if (row.get("namespace") or "") != self._namespace:
            return
        if self._client.owns(row) or row["scope"] == "public":
            self._known.setdefault(row["name"], []).append(row)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        """Return the workflows of a name, one's own before public ones."""
        if name not in self._known and not name.startswith(PREFIX):
            for row in self._client.workflows(name=name, fields=_FIELDS):
                self._remember(row)
        rows = self._known.get(name, [])
        return sorted(rows, key=lambda row: not self._client.owns(row))

    def _own(self, name: str) -> dict[str, Any] | None:
        return next(filter(self._client.owns, self._rows(name)), None)

    def compare(self, definitions: Mapping[str, Text]) -> list[WorkflowState]:
        """Return the state of each workflow, then those with a name like the package's that do not
        belong to it."""
        found = [self._standing(name, text) for name, text in sorted(definitions.items())]
        others = sorted(n for n in self._known if n.startswith(PREFIX) and n not in definitions)
        return found + [WorkflowState(n, FOREIGN, self._rows(n)[0]["scope"]) for n in others]

    def _standing(self, name: str, text: Text) -> WorkflowState:
        rows = self._rows(name)
        if not rows:
            return WorkflowState(name, MISSING, "")
        row = rows[0]
        if text.is_in(row["definition"]):
            return WorkflowState(name, SAME, row["scope"])
        return WorkflowState(
            name, CHANGED, row["scope"], _difference(name, row["definition"], text)
        )

    def install(self, name: str, text: Text, scope: str | None) -> Installation:
        """Make it so that the workflow is there, for ``scope`` (None: as it is); what was done.
        What others made public, and only they may change, is kept."""
        from mistral_failover.mistral.client import MistralError

        rows = self._rows(name)
        fit = [row for row in rows if text.is_in(row["definition"])]
        if fit and scope in (None, fit[0]["scope"]):
            return Installation(f"{SAME} ({fit[0]['scope']})")
        # With an own copy beside a public one, Mistral would take either of them.
        kept = Installation(
            "kept (public, with another text; install into your own --namespace)", kept=True
        )
        own = self._own(name)
        if own is None and rows and scope != "private":
            return kept
        if own is None:
            to = scope or "private"
            self._client.create_workflows(text.text, namespace=self._namespace, scope=to)
            return Installation(f"created ({to})")
        to = scope or str(own["scope"])
        try:
            self._client.update_workflows(
                text.text, id=own["id"], namespace=self._namespace, scope=to
            )
        except MistralError as error:
            if scope is None and to == "public" and error.code in ("MISTRAL_REFUSED", "NOT_FOUND"):
                return kept
            raise
        return Installation(f"updated ({to})")

    def mine(self, name: str) -> bool:
        """Return whether the caller's project has one of this name."""
        own = self._own(name)
        return own is not None and not self._client.is_of_operator(own)

    def of_operator(self, name: str) -> bool:
        """Return whether Mistral's operator has installed one of this name for all projects."""
        return any(map(self._client.is_of_operator, self._rows(name)))

    def remove(self, name: str) -> str | None:
        """Remove the caller's own: return None, or why Mistral refused it."""
        from mistral_failover.mistral.client import MistralError

        own = self._own(name)
        if own is None or not self.mine(name):
            return None
        try:
            self._client.delete_workflow(own["id"], namespace=self._namespace)
        except MistralError as error:
            if error.code == "NOT_FOUND":  # another client did it in the meantime
                return None
            if error.code == "MISTRAL_REFUSED":
                return error.message
            raise
        return None


def _difference(name: str, there: str, text: Text) -> str:
    lines = difflib.unified_diff(
        there.splitlines(), text.text.splitlines(), f"Mistral's {name}", text.file, lineterm=""
    )
    return "\n".join(lines)
