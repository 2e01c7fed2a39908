# SPDX-License-Identifier: Apache-2.0
"""The documents name what is there, all of it, and nothing else."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from cliff.command import Command
from cliff.lister import Lister
from cliff.show import ShowOne

from mistral_failover import settings, workflows
from mistral_failover.agent import wire
from mistral_failover.alarms import adapters
from mistral_failover.alarms.admission import RULES
from mistral_failover.alarms.aodh import AODH_KEYS
from mistral_failover.cli import connection
from mistral_failover.cli.drill import Drill
from mistral_failover.cli.main import FailoverApp
from mistral_failover.convergence import graph
from mistral_failover.drill import audit
from mistral_failover.embedded.validate import validate
from mistral_failover.model.group import parse_group
from mistral_failover.model.schemas import GROUP, TYPE
from mistral_failover.model.types import load_type, shipped_types
from mistral_failover.testing.run import Run
from mistral_failover.testing.workflows import Workflows
from support.alarm_bodies import WEBHOOK

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "actions" / "mistral_failover"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [
        ROOT / "README.md",
        *sorted(ROOT.glob("docs/*.md")),
        *sorted(ROOT.glob("examples/**/*.md")),
    ]
}
README = PAGES["README.md"]
REFERENCE = PAGES["docs/reference.md"]
ARCHITECTURE = PAGES["docs/architecture.md"]
TESTING = PAGES["docs/testing-workflows.md"]

_CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


# -- reading the documents


def section(page: str, title: str) -> str:
    """What stands below a heading, up to the next one of its level."""
    level = next(line for line in page.splitlines() if line.lstrip("#") == f" {title}")
    hashes = level.partition(" ")[0]
    body = page.split(f"\n{level}\n", 1)[1]
    return re.split(rf"^#{{1,{len(hashes)}}} ", body, flags=re.MULTILINE)[0]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of a section's tables, by each name that their first cell holds in backticks."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        for name in re.findall(r"`([^`]+)`", cells[0]) if line.startswith("|") else ():
            found[name] = [cell.strip().strip("|").strip() for cell in cells[1:]]
    return found


def named_inputs(cell: str) -> list[str]:
    """The inputs in a cell such as ``group`; `to`?: a member`."""
    without_values = re.sub(r"\(.*?\)", "", cell)
    parts = re.split(r"[;,] (?=`)", without_values)
    return [match.group(1) for part in parts if (match := re.match(r"`(\w+)`", part))]


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, text) of every block in a language."""
    return [
        (page, text)
        for page, content in PAGES.items()
        for found, text in _BLOCK.findall(content)
        if found == language
    ]


def anchor(heading: str) -> str:
    """The anchor that a heading gets."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


# -- reading the code


def actions() -> dict[str, list[str]]:
    """The inputs of each action."""
    return {
        point.name: list(inspect.signature(point.load().__init__).parameters)[1:]
        for point in entry_points(group="mistral.actions")
        if point.name.startswith("failover.")
    }


def workflow_inputs() -> dict[str, list[str]]:
    """The inputs of each workflow."""
    found = {}
    for path in workflows.paths():
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        for name, body in document.items():
            if name != "version":
                given = body.get("input", [])
                found[name] = [next(iter(i)) if isinstance(i, dict) else i for i in given]
    return found


def error_codes() -> set[str]:
    """Every code that a user can meet; the emulator's are those of its own API."""
    codes = {"FAILED", "BLOCKED"}  # a traversal's status, as the code of its report
    codes |= {"INTERRUPTED"}  # an execution that a sweep ended, in what Mistral says of its state
    for path in SOURCES.rglob("*.py"):
        if "emulator" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        codes |= set(_codes_of(tree, findings="embedded" in path.parts))
    for path in SOURCES.glob("cli/*.py"):
        codes |= set(re.findall(r"\[([A-Z][A-Z_]+)\]\"", path.read_text(encoding="utf-8")))
    for path in workflows.paths():
        codes |= set(re.findall(r"^\s+code: (\w+)$", Path(path).read_text("utf-8"), re.MULTILINE))
    return codes - {"CONVERGENCE"}  # a base class that nobody raises


def _codes_of(tree: ast.AST, *, findings: bool) -> Iterator[str]:
    for node in ast.walk(tree):
        candidates: list[ast.expr | None] = []
        if isinstance(node, ast.Call) and _is_error(node.func):
            candidates = list(node.args[:1])
        elif isinstance(node, ast.ClassDef):
            candidates = [
                each.value
                for each in node.body
                if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "code"
            ]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self.code":
            candidates = [node.value]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "REMEDIES":
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
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Problem":
            yield from (
                a.value
                for a in node.args
                if isinstance(a, ast.Constant) and isinstance(a.value, str) and a.value.isupper()
            )


def _is_error(function: ast.expr) -> bool:
    name = ast.unparse(function)
    return name.endswith("Error") or name == "super().__init__"


# -- what the reference must have


def test_every_action_is_documented_with_its_inputs() -> None:
    found = rows(section(REFERENCE, "Actions"))

    assert {name: named_inputs(cells[0]) for name, cells in found.items()} == actions()


def test_every_workflow_is_documented_with_its_inputs() -> None:
    found = rows(section(REFERENCE, "Workflows"))

    assert {name: named_inputs(cells[0]) for name, cells in found.items()} == workflow_inputs()


def test_every_option_is_documented_with_its_default() -> None:
    ((_, options),) = settings.list_opts()
    found = rows(section(REFERENCE, "Options"))

    def shown(default: Any) -> str:
        return "none" if default is None else f"{default:g}"

    assert {name: cells[0] for name, cells in found.items()} == {
        option.name: shown(option.default) for option in options
    }


def test_every_error_code_is_documented_and_no_other() -> None:
    assert set(rows(section(REFERENCE, "Error codes"))) == error_codes()


COMMANDS = {
    f"failover {point.name.replace('_', ' ')}": point
    for point in entry_points(group="failover.cli")
}


def command_rows() -> dict[str, list[str]]:
    table, _, _ = section(REFERENCE, "Command line").partition("| option |")
    return rows(table)


def test_every_command_is_documented_and_no_other() -> None:
    assert set(command_rows()) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_documented_with_all_of_its_options(name: str) -> None:
    listed = re.findall(r"`(--[\w-]+)`", command_rows()[name][0])

    assert set(listed) == own_options(COMMANDS[name].load())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_says_more_than_its_name(name: str) -> None:
    command = COMMANDS[name].load()

    assert len(inspect.getdoc(command) or "") > 40


def test_what_the_openstack_client_has_are_the_same_commands() -> None:
    its = {point.name.removeprefix("failover_"): point.value for point in OPENSTACK}
    ours = {point.name: point.value for point in entry_points(group="failover.cli")}
    own = {"drill", "emulator_break", "exporter", "server"}

    assert its == {name: value for name, value in ours.items() if name not in own}


OPENSTACK = entry_points(group="openstack.failover.v1")


def test_every_option_of_the_program_is_documented() -> None:
    _, _, table = section(REFERENCE, "Command line").partition("| option |")
    parser = argparse.ArgumentParser()
    connection.add_options(parser, [])

    assert set(rows(table)) == options_of(parser)


def test_the_readme_explains_every_option_of_the_drill() -> None:
    explained = {o for o in rows(README) if o.startswith("--")}

    assert explained == own_options(Drill)


def own_options(command: Any) -> set[str]:
    """The options that a command adds to those of cliff."""
    bases = [base for base in (Lister, ShowOne, Command) if issubclass(command, base)]
    return options_of(parser_of(command)) - options_of(parser_of(bases[0]))


def parser_of(command: Any) -> argparse.ArgumentParser:
    if inspect.isabstract(command):
        command = type("Plain", (command,), dict.fromkeys(command.__abstractmethods__))
    parser: argparse.ArgumentParser = command(FailoverApp(), None).get_parser("failover")
    return parser


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {
        option
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and option != "--help"
    }


@pytest.mark.parametrize(
    ("title", "schema"), [("Group files", GROUP), ("Types", TYPE)], ids=["group", "type"]
)
def test_every_key_of_a_file_is_documented(title: str, schema: dict[str, Any]) -> None:
    assert set(schema["properties"]) <= set(rows(section(REFERENCE, title)))


def test_every_shipped_type_is_documented_with_its_properties_and_attributes() -> None:
    found = rows(section(REFERENCE, "Types"))

    for name, shipped in shipped_types().items():
        text = " ".join(found[name])
        known = {*shipped.schema["properties"], *shipped.attributes}
        assert sorted(k for k in known if f"`{k}`" not in text) == []


# -- what the architecture must have


def test_the_invariants_have_the_numbers_of_the_audit() -> None:
    numbered = {
        int(match.group(1))
        for _, function in inspect.getmembers(audit, inspect.isfunction)
        if (match := re.match(r"(\d)\. ", function.__doc__ or ""))
    }
    listed = {int(n) for n in re.findall(r"^(\d)\. ", section(ARCHITECTURE, "Invariants"), re.M)}

    assert numbered == listed == set(range(1, 10))


def test_the_rules_of_the_graph_are_those_of_its_module() -> None:
    assert graph.__doc__
    rules = dict(re.findall(r"^(\w+\(.*?\) -> \w+\(.*?\)) {2,}(.*)$", graph.__doc__, re.M))
    documented = {
        line.split(" | ")[0].strip("| ").replace("→", "->"): line.split(" | ")[1].strip("| ")
        for line in section(ARCHITECTURE, "The graph").splitlines()
        if "→" in line
    }

    assert documented == rules


def test_the_rooms_are_those_of_the_import_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [c["layers"] for c in contracts if c["type"] == "layers"]
    picture = section(ARCHITECTURE, "Rooms").split("```")[1].splitlines()[1:]

    assert [re.split(r" {2,}", line)[0] for line in picture] == layers


def test_what_an_operation_holds_is_documented_key_by_key() -> None:
    from mistral_failover.actions import documents

    assert documents.__doc__
    table = documents.__doc__.split("\n==============  ")[2]
    keys = {
        key
        for line in table.splitlines()[1:]
        for key in line[:14].replace(",", " ").split()
        if not key.startswith("=")
    }
    assert set(rows(section(REFERENCE, "Operations"))) == keys


def test_the_plugin_s_methods_are_there() -> None:
    text = TESTING
    methods = set(re.findall(r"`(\w+)\(", text)) | {"state", "output", "input", "tasks"}

    known = {*dir(Workflows), *dir(Run), *Run.__dataclass_fields__}
    assert sorted(methods - known) == []


# -- what holds of every page


@pytest.mark.parametrize("page", PAGES)
def test_what_is_called_failover_something_exists(page: str) -> None:
    words = set(re.findall(r"`(failover\.\w+)`", PAGES[page]))
    groups = {"failover.cli", "failover.sqlite"}
    exchanges = {wire.COMMANDS, wire.RESULTS, wire.HEARTBEATS, wire.DEAD}

    assert sorted(words - set(actions()) - set(workflow_inputs()) - groups - exchanges) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if re.match(r"https?://", target):
            continue
        name, _, part = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        if not path.exists():
            broken.append(target)
        elif part:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
            broken += [] if part in map(anchor, headings) else [target]
    assert broken == []


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page: str) -> None:
    named = re.findall(
        r"`((?:tests|workflows|docs|examples|bench|drill|store|convergence)/[\w./]*)`", PAGES[page]
    )

    assert [
        n
        for n in named
        if not (ROOT / n).exists() and not (SOURCES / n).exists() and "NNNN" not in n
    ] == []


def test_every_group_file_and_type_in_a_page_is_accepted_and_is_that_of_an_example() -> None:
    examples = [
        "\n".join(line for line in path.read_text("utf-8").splitlines() if line[:1] != "#").strip()
        for path in ROOT.glob("examples/**/*.yaml")
    ]
    texts = [text.strip() for _, text in blocks("yaml")]
    types = [load_type(text) for text in texts if text.startswith("failover_type_version")]
    groups = [text for text in texts if text.startswith("failover_template_version")]
    flows = [text for text in texts if text.startswith("version:")]

    assert (len(types), len(groups), len(flows)) == (1, 2, 2)
    for text in groups:
        parse_group(text, types=types)
    for text in texts:
        if text.startswith(("failover_", "version:")):
            assert text in examples, f"no example reads:\n{text}"


WORKFLOW_RESOURCES = {
    name: resource["properties"]
    for _, text in blocks("yaml")
    if "OS::Mistral::Workflow" in text
    for name, resource in yaml.safe_load(text).items()
    if isinstance(resource, dict) and resource.get("type") == "OS::Mistral::Workflow"
}


def test_the_alarm_s_template_hands_the_whole_body_to_the_shipped_workflow() -> None:
    properties = WORKFLOW_RESOURCES["on_lost"]
    (task,) = properties["tasks"]

    assert tuple(properties["input"]) == AODH_KEYS
    assert task["input"] == {key: f"<% $.{key} %>" for key in AODH_KEYS}


def test_the_webhook_s_template_declares_every_key_that_alertmanager_posts() -> None:
    properties = WORKFLOW_RESOURCES["on_alert"]
    (task,) = properties["tasks"]

    assert set(properties["input"]) == set(WEBHOOK)
    handed_on = {key: WEBHOOK[key] for key in task["input"]["body"]}
    (alarm,) = adapters.read(handed_on, task["input"]["kind"])
    assert alarm.firing


@pytest.mark.parametrize("name", WORKFLOW_RESOURCES)
def test_what_heat_makes_of_a_template_s_workflow_is_valid(name: str, tmp_path: Path) -> None:
    properties = WORKFLOW_RESOURCES[name]
    tasks = {
        task["name"]: {k: task[k] for k in task if k != "name"} for task in properties["tasks"]
    }
    body = {"input": list(properties["input"]), "tasks": tasks}
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"version": "2.0", name: body}), encoding="utf-8")

    assert [p for p in validate([file]) if p.error] == []


def test_every_rule_of_admission_is_documented_in_its_order() -> None:
    rules = re.findall(r"^\| \d+ \| `(\w+)`", PAGES["docs/alarms.md"], re.M)

    assert rules == ["unknown", *RULES]


def test_every_kind_of_alarm_is_documented() -> None:
    assert set(adapters.KINDS) <= set(
        rows(section(PAGES["docs/alarms.md"], "How each kind arrives"))
    )


def test_the_configuration_names_options_that_exist() -> None:
    named = {name for _, text in blocks("ini") for name in re.findall(r"^(\w+) =", text, re.M)}
    ((_, options),) = settings.list_opts()

    assert named
    assert named <= {option.name for option in options}


def test_the_snippet_of_a_test_is_that_of_the_example() -> None:
    (text,) = [text for _, text in blocks("python") if "def test_" in text]

    assert text.strip() in (ROOT / "examples/own_type/test_own_type.py").read_text("utf-8")
