# SPDX-License-Identifier: Apache-2.0
"""What a page lists is what the code has: everything, and nothing else."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from cliff.command import Command
from cliff.lister import Lister
from cliff.show import ShowOne

from mistral_failover import settings, workflows
from mistral_failover.alarms.admission import RULES
from mistral_failover.alarms.alarm import sources
from mistral_failover.cli import connection
from mistral_failover.cli.drill import Drill
from mistral_failover.cli.main import FailoverApp
from mistral_failover.cloud.fields import microversion
from mistral_failover.cloud.volume_holders import KEEPING, LEFT_DEVICES
from mistral_failover.doctor.all_checks import CHECKS, GROUP_CHECKS
from mistral_failover.fault_points import BROKER_POINTS, POINTS
from mistral_failover.lab.drill import audit
from mistral_failover.lab.testing.workflows import Run, Workflows
from mistral_failover.mistral import operation_documents
from mistral_failover.model.group import INTERNAL_TYPES
from mistral_failover.model.rungs import rung_kinds
from mistral_failover.model.schemas import GROUP, PROPERTY, TYPE
from mistral_failover.model.types import installed_types
from mistral_failover.model.verbs import plannable
from mistral_failover.orders.switchover import ENDINGS
from mistral_failover.resources.offered import all_needs
from mistral_failover.store.tables import metadata
from support.pages import (
    MODULES,
    PAGES,
    ROOT,
    SOURCES,
    listed,
    page,
    rows,
    section,
    subsections,
    table,
)
from support.reachable import dotted, makes_an_error

sys.path.insert(0, str(ROOT / "docs" / "_ext"))
import columns  # noqa: E402
import from_code  # noqa: E402

Found = Any
Case = Callable[[], tuple[Found, Found]]
CASES: dict[str, Case] = {}
TABLES = {name.removeprefix("failover_"): each for name, each in metadata.tables.items()}
REFERENCE = page("reference")


def both_ways(case: Case) -> Case:
    """Add a case: a function that returns what a page lists, and what the code has."""
    CASES[case.__name__] = case
    return case


@pytest.mark.parametrize("name", CASES)
def test_a_page_lists_what_the_code_has_and_nothing_else(name: str) -> None:
    shown, existing = CASES[name]()

    assert existing
    assert shown == existing


# -- reference.md


@both_ways
def actions_with_their_inputs() -> tuple[Found, Found]:
    titles = ("Actions", "Actions for workflows", "Actions of the shipped types")
    shown = {
        name: sorted(
            listed(re.split(r"^(?:Returns|Fails with)", body.split("\nInputs:")[1], flags=re.M)[0])
        )
        for title in titles
        for name, body in subsections(section(REFERENCE, title)).items()
    }
    existing = {
        point.name: sorted(list(inspect.signature(point.load().__init__).parameters)[1:])
        for point in entry_points(group="mistral.actions")
        if point.name.startswith("failover.")
    }
    return shown, existing


def _inputs(body: str) -> str:
    """The list of an action's inputs."""
    return re.split(r"^(?:Returns|Fails with)", body.split("\nInputs:\n")[1], flags=re.M)[0]


@both_ways
def workflows_with_their_inputs() -> tuple[Found, Found]:
    def inputs(cell: str) -> list[str]:
        own = re.sub(r" as for .*?(?=;|$)|\(.*?\)", "", cell)
        return re.findall(r"`(\w+)`", own)

    shown = {
        name: inputs(cells[0]) for name, cells in rows(section(REFERENCE, "Workflows")).items()
    }
    existing = {}
    for path in workflows.paths():
        for name, body in yaml.safe_load(Path(path).read_text("utf-8")).items():
            if name != "version":
                given = body.get("input", [])
                existing[name] = [next(iter(i)) if isinstance(i, dict) else i for i in given]
    return shown, existing


@both_ways
def options_of_the_configuration_with_their_defaults() -> tuple[Found, Found]:
    shown = {name: cells[0] for name, cells in rows(section(REFERENCE, "Options")).items()}
    return shown, {
        each.name: "none" if each.default is None else f"{each.default:g}" for each in options()
    }


@both_ways
def microversions_that_rungs_and_volumes_need() -> tuple[Found, Found]:
    cells = table(section(page("install"), "Requirements"))
    shown = {
        (service, re.split("[; ]", least)[0])
        for _, service, least in (row for row in cells if len(row) == 3)
        if service in ("Cinder", "Nova")
    }
    existing = {
        (each.service, max((f.since for f in need.features), key=microversion))
        for need in all_needs()
        for each in need.features
    }
    return shown, existing | {(each.service, each.since) for each in (KEEPING, LEFT_DEVICES)}


@both_ways
def error_codes() -> tuple[Found, Found]:
    return set(rows(section(REFERENCE, "Error codes"))), codes_of_the_sources()


@both_ways
def commands() -> tuple[Found, Found]:
    shown = rows(section(REFERENCE, "Command line").partition("| option |")[0])
    return {name for name in shown if name.startswith("failover")}, set(COMMANDS)


@both_ways
def options_of_the_program() -> tuple[Found, Found]:
    shown = rows(section(REFERENCE, "Command line").partition("| option |")[2])
    parser = argparse.ArgumentParser()
    connection.add_options(parser, [])
    return {name for name in shown if name.startswith("--")}, options_of(parser)


@both_ways
def keys_of_a_group_file() -> tuple[Found, Found]:
    text = section(REFERENCE, "Group files").split("\n### ")[0]
    top = re.findall(r"^- .*$", text, re.M)
    return listed("\n".join(top)), set(GROUP["properties"])


@both_ways
def keys_of_a_type_file() -> tuple[Found, Found]:
    top = re.findall(r"^- .*$", section(REFERENCE, "A type of your own"), re.M)
    return listed("\n".join(top)), set(TYPE["properties"])


@both_ways
def keywords_of_a_property_of_a_type_file() -> tuple[Found, Found]:
    (item,) = re.findall(
        r"^- `properties`: (.*?)(?=^- )", section(REFERENCE, "A type of your own"), re.M | re.S
    )
    return set(re.findall(r"`(\w+)`", item)), set(PROPERTY["properties"])


@both_ways
def verbs_that_can_be_planned() -> tuple[Found, Found]:
    body = subsections(section(REFERENCE, "Actions"))["failover.plan"]
    (item,) = re.findall(r"^- `verb`\?: (.*)$", body, re.M)
    return set(re.findall(r"`([\w-]+)`", item)), set(plannable())


@both_ways
def types_with_their_properties_and_attributes() -> tuple[Found, Found]:
    parts = subsections(section(REFERENCE, "Types"))
    shown = {}
    for name, body in parts.items():
        if re.fullmatch(r"\w+", name):
            attributes = re.search(r"Attributes?: (.*?)\.$", body, re.M | re.S)
            found = re.findall(r"`(\w+)`", attributes[1]) if attributes else []
            shown[name] = (listed(body), set(found))
    existing = {
        name: (set(each.schema["properties"]), set(each.attributes))
        for name, each in installed_types().items()
    }
    return shown, existing


@both_ways
def types_that_only_the_engine_uses() -> tuple[Found, Found]:
    parts = subsections(section(REFERENCE, "Types"))
    return {name for name, body in parts.items() if "Only the engine uses it" in body}, {
        *INTERNAL_TYPES
    }


@both_ways
def keys_of_an_operation() -> tuple[Found, Found]:
    existing = set(operation_documents.OperationDocument.__annotations__)
    return set(rows(section(REFERENCE, "Operations"))), existing


# -- the other pages


@both_ways
def options_of_the_drill() -> tuple[Found, Found]:
    shown = rows(section(page("tutorial"), "Options of the drill"))
    return {name for name in shown if name.startswith("--")}, own_options(Drill)


@both_ways
def columns_of_the_state_store() -> tuple[Found, Found]:
    assert set(columns.TABLES) == set(columns.COLUMNS) == set(TABLES)
    own = {name: set(each) for name, each in columns.COLUMNS.items()}
    existing = {
        name: {c.name for c in each.columns} - (set(columns.EVERYWHERE) - own[name])
        for name, each in TABLES.items()
    }
    return own, existing


@both_ways
def columns_and_indexes_on_the_generated_page() -> tuple[Found, Found]:
    parts = dict(p.split("\n", 1) for p in from_code._state().split("\n## failover_")[1:])
    shown = {name: (set(rows(body)), body.count("\n- index: ")) for name, body in parts.items()}
    existing = {
        name: ({c.name for c in each.columns}, len(each.indexes)) for name, each in TABLES.items()
    }
    return shown, existing


@both_ways
def fault_points_on_the_generated_page() -> tuple[Found, Found]:
    return set(rows(from_code._fault_points())), {*POINTS, *BROKER_POINTS}


@both_ways
def invariants_of_the_audit() -> tuple[Found, Found]:
    shown = re.findall(r"^(\d)\. ", section(page("safety"), "Invariants"), re.M)
    existing = {
        found[1]
        for _, function in inspect.getmembers(audit, inspect.isfunction)
        if (found := re.match(r"(\d)\. ", function.__doc__ or ""))
    }
    return set(shown), existing


@both_ways
def modules_of_the_import_contract() -> tuple[Found, Found]:
    picture = section(page("architecture"), "Modules").split("```")[1].splitlines()[1:]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    return [re.split(r" {2,}", line)[0] for line in picture], layers


@both_ways
def rungs() -> tuple[Found, Found]:
    ladder = section(page("fencing"), "The ladder").split("\n### ")[0]
    return listed(ladder), set(rung_kinds())


@both_ways
def ends_of_a_planned_move() -> tuple[Found, Found]:
    shown = rows(section(page("fencing"), "Planned moves"))
    return {name for name in shown if name.isupper()}, set(ENDINGS)


@both_ways
def checks_of_the_doctor() -> tuple[Found, Found]:
    existing = {name for name, _ in (*CHECKS, *GROUP_CHECKS)} | {"connection", "package"}
    return set(rows(section(REFERENCE, "The doctor's checks"))), existing


@both_ways
def rules_of_admission_in_their_order() -> tuple[Found, Found]:
    return re.findall(r"^\| \d+ \| `(\w+)`", page("alarms"), re.M), ["unknown", *RULES]


@both_ways
def kinds_of_alarms() -> tuple[Found, Found]:
    kinds = table(section(page("alarms"), "How each kind arrives").split("\n### ")[0])
    return {cells[0].strip("`") for cells in kinds}, set(sources())


FILES_WITH_SECRETS = {"agent_key_file", "fence_devices_file"}


@both_ways
def secrets() -> tuple[Found, Found]:
    existing = {each.name for each in options() if each.secret} | FILES_WITH_SECRETS
    named = re.findall(r"`(\w+)`", section(page("security"), "Where secrets are stored"))
    return set(named) & {each.name for each in options()}, existing


@both_ways
def options_that_open_a_port() -> tuple[Found, Found]:
    existing = {
        (name, option)
        for name in COMMANDS
        for option in own_options(COMMANDS[name].load())
        if "listen" in option or option.endswith("-port")
    }
    text = section(page("security"), "What listens")
    return {
        (name, option) for name, option in existing if f"`{name}`" in text and f"`{option}`" in text
    }, existing


@both_ways
def methods_of_the_pytest_plugin() -> tuple[Found, Found]:
    text = page("testing-workflows")
    shown = set(re.findall(r"`(\w+)\(", text)) | {"state", "output", "input", "tasks"}
    return shown, shown & {*dir(Workflows), *dir(Run), *Run.__dataclass_fields__}


@both_ways
def options_in_the_examples_of_mistral_conf() -> tuple[Found, Found]:
    shown = {
        name
        for text in PAGES.values()
        for block in re.findall(r"```ini\n(.*?)```", text, re.S)
        for part in re.findall(r"^\[failover\]\n(.*?)(?=^\[|\Z)", block, re.M | re.S)
        for name in re.findall(r"^(\w+) =", part, re.M)
    }
    return shown, shown & {each.name for each in options()}


def test_every_rule_of_the_engine_names_tests_that_exist() -> None:
    conftest = (ROOT / "tests" / "convergence" / "conftest.py").read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(conftest)) or ""
    rules = re.findall(r"^- .*?(?=^- |^\S|\Z)", text, re.M | re.S)
    without = [rule[:80] for rule in rules if "  tests/" not in rule]
    named = re.findall(r"^  (tests/[\w/]+\.py)(?:::(\w+))?$", text, re.M)
    missing = [(path, name) for path, name in named if name not in functions(path) | {""}]
    missing += [(path, name) for path, name in named if not (ROOT / path).exists()]

    assert len(rules) > 40
    assert (without, missing) == ([], [])


def test_what_the_openstack_client_has_are_the_same_commands() -> None:
    its = {
        point.name.removeprefix("failover_"): point.value
        for point in entry_points(group="openstack.failover.v1")
    }
    ours = {point.name: point.value for point in entry_points(group="failover.cli")}
    own = {"drill", "emulator_break", "exporter", "server", "ui"}

    assert its == {name: value for name, value in ours.items() if name not in own}


def test_the_help_of_each_command_says_more_than_its_name() -> None:
    short = [n for n, point in COMMANDS.items() if len(inspect.getdoc(point.load()) or "") <= 40]

    assert short == []


# -- reading the code

COMMANDS = {
    f"failover {point.name.replace('_', ' ')}": point
    for point in entry_points(group="failover.cli")
}
_CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")


def options() -> list[Any]:
    """The options of ``[failover]``."""
    ((_, found),) = settings.list_opts()
    return list(found)


def own_options(command: Any) -> set[str]:
    """The options that a command adds to those of cliff."""
    (base, *_) = [each for each in (Lister, ShowOne, Command) if issubclass(command, each)]
    return options_of(parser_of(command)) - options_of(parser_of(base))


def parser_of(command: Any) -> argparse.ArgumentParser:
    if inspect.isabstract(command):
        command = type("Plain", (command,), dict.fromkeys(command.__abstractmethods__))
    parser: argparse.ArgumentParser = command(FailoverApp(), None).get_parser("failover")
    return parser


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    strings = {option for action in parser._actions for option in action.option_strings}
    return {option for option in strings if option.startswith("--")} - {"--help"}


@cache
def functions(path: str) -> set[str]:
    """The functions of a file; none if it does not exist."""
    if not (ROOT / path).exists():
        return set()
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def codes_of_the_sources() -> set[str]:
    """Every code that a user can meet; the emulator's are those of its own API."""
    codes = {"FAILED", "BLOCKED"}  # a traversal's status, as the code of its report
    codes |= {"INTERRUPTED"}  # an execution that a sweep ended, in what Mistral says of its state
    for path in MODULES.values():
        if "emulator" not in path.parts:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            codes |= set(_codes_of(tree, findings="embedded" in path.parts))
    for path in [*SOURCES.glob("cli/*.py"), SOURCES / "ui" / "command.py"]:
        codes |= set(re.findall(r"\[([A-Z][A-Z_]+)\]\"", path.read_text(encoding="utf-8")))
    for path in workflows.paths():
        codes |= set(re.findall(r"^\s+code: (\w+)$", Path(path).read_text("utf-8"), re.MULTILINE))
    return codes - {"CONVERGENCE"}  # a base class that is never raised


def _codes_of(tree: ast.AST, *, findings: bool) -> Iterator[str]:
    for node in ast.walk(tree):
        candidates: list[ast.expr | None] = []
        if isinstance(node, ast.Call) and makes_an_error(node.func):
            candidates = list(node.args[:1])
        elif isinstance(node, ast.ClassDef):
            candidates = [
                each.value
                for each in node.body
                if isinstance(each, ast.Assign) and dotted(each.targets[0]) == "code"
            ]
        elif isinstance(node, ast.Assign) and dotted(node.targets[0]) == "self.code":
            candidates = [node.value]
        elif isinstance(node, ast.Assign) and dotted(node.targets[0]) == "REMEDIES":
            candidates = list(node.value.keys) if isinstance(node.value, ast.Dict) else []
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            candidates = [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "code"]
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple) and findings:
            candidates = list(node.value.elts)
        for each in candidates:
            value = each.value if isinstance(each, ast.Constant) else None
            if isinstance(value, str) and _CODE.fullmatch(value):
                yield value
        if isinstance(node, ast.Call) and dotted(node.func) == "Problem":
            yield from (
                a.value
                for a in node.args
                if isinstance(a, ast.Constant) and isinstance(a.value, str) and a.value.isupper()
            )
