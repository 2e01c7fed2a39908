# SPDX-License-Identifier: Apache-2.0
"""What holds of every page: links, names, commands, snippets, tables."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from importlib.metadata import entry_points
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

from mistral_failover import workflows
from mistral_failover.agent import wire
from mistral_failover.agent.daemon import main as agent
from mistral_failover.alarms.alarm import read
from mistral_failover.alarms.aodh import AODH_KEYS
from mistral_failover.cli.main import FailoverApp
from mistral_failover.embedded.validate import validate
from mistral_failover.model.group import parse_group
from support.alarm_bodies import WEBHOOK
from support.pages import (
    AGENT,
    MODULES,
    PAGES,
    ROOT,
    SOURCES,
    anchors,
    blocks,
    page,
    table,
    without_blocks,
)

README = PAGES["README.md"]
IN_ARGUMENTS = re.compile(
    r"-hmac\b|-H\s+[\"'](?:X-Auth-Token|Authorization):|--os-(?:password|token)\b"
    r"|--(?:user-)?pass(?:word)?[= ]|\bcurl\b.*\s-u\b|\bmysql\b.*\s-p\w"
    r"|^ *openstack .*/v1/alarms/TOKEN|(?:add_user|change_password) [^\s`]+ +[^#\s]",
    re.MULTILINE,
)
"""A secret among the arguments of a program, which every user of the machine can list."""


def in_pages(find: Callable[[str, str], Iterator[str]]) -> list[str]:
    """What a function of a page's path and text finds, as ``page: finding``."""
    return [f"{name}: {each}" for name, text in PAGES.items() for each in find(name, text)]


# -- form


def test_the_readme_is_short_and_shows_both_commands_on_its_first_screen() -> None:
    first = "\n".join(README.splitlines()[:24])

    assert len(README.split()) <= 1500
    assert "make drill" in first
    assert "make test" in first


def test_no_command_has_a_secret_among_its_arguments() -> None:
    places = [ROOT / name for name in ("examples", "deploy", "devstack", "actions", "agent")]
    found = in_pages(lambda _, text: iter(IN_ARGUMENTS.findall(text.replace("\\\n", " "))))
    for path in (each for place in places for each in place.rglob("*")):
        if path.suffix in {".py", ".sh", ".yaml", ".yml", ".j2", ".service", ".in"}:
            found += [f"{path}: {each}" for each in IN_ARGUMENTS.findall(path.read_text("utf-8"))]

    assert IN_ARGUMENTS.search('curl -H "X-Auth-Token: $T"')
    assert found == []


def test_no_cell_of_a_table_is_longer_than_200_characters() -> None:
    def long(_: str, text: str) -> Iterator[str]:
        for row in table(text):
            yield from (f"{len(cell)}: {cell[:60]}" for cell in row if len(cell) > 200)

    assert in_pages(long) == []


def test_every_row_of_a_table_has_the_cells_of_its_heading() -> None:
    def uneven(_: str, text: str) -> Iterator[str]:
        for lines in re.findall(r"(?:^\|.*\n)+", without_blocks(text), re.M):
            counts = [len(re.findall(r"(?<!\\)\|", line)) for line in lines.splitlines()]
            yield from (str(counts) for _ in range(len(set(counts)) != 1))

    assert in_pages(uneven) == []


def test_every_page_is_in_the_index() -> None:
    index = set(re.findall(r"^[\w/-]+$", page("index"), re.M))
    pages = {Path(name).stem for name in PAGES if name.startswith("docs/")} - {"index"}

    assert sorted(pages - index) == []


# -- links and names


def test_every_link_and_every_anchor_leads_somewhere() -> None:
    def broken(name: str, text: str) -> Iterator[str]:
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, part = target.partition("#")
            if re.match(r"https?://", target):
                continue
            file = ((ROOT / name).parent / path) if path else ROOT / name
            if not file.exists() or part and part not in anchors(file.read_text("utf-8")):
                yield target

    assert in_pages(broken) == []


def test_every_file_that_is_named_exists() -> None:
    folders = (
        "tests|workflows|docs|examples|lab|store|convergence|cli|reports|model|metrics|"
        "alarms|orders|resources|recovery|runtime|groups|cloud|doctor|embedded|server"
    )

    def missing(_: str, text: str) -> Iterator[str]:
        for path in re.findall(rf"`((?:{folders})/[\w./]*)`", text):
            placeholder = re.search("NNNN|KIND|NAME", path)
            there = any((each / path).exists() for each in (ROOT, SOURCES, AGENT)) or placeholder
            yield from () if there else (path,)

    assert in_pages(missing) == []


def test_every_function_that_is_named_exists() -> None:
    def missing(_: str, text: str) -> Iterator[str]:
        for path, name in re.findall(r"`([\w/]+\.py):(\w+)`", text):
            text = MODULES[path].read_text("utf-8")
            if not re.search(rf"^\s*(?:def|class) {name}\b", text, re.M):
                yield f"{path}:{name}"

    assert in_pages(missing) == []


def test_everything_called_failover_something_exists() -> None:
    known = {point.name for point in entry_points(group="mistral.actions")}
    for path in workflows.paths():
        known |= set(yaml.safe_load(Path(path).read_text("utf-8")))
    known |= {"failover.cli", "failover.sqlite"}
    known |= {wire.COMMANDS, wire.RESULTS, wire.HEARTBEATS, wire.DEAD}

    def unknown(_: str, text: str) -> Iterator[str]:
        yield from set(re.findall(r"`(failover\.\w+)`", text)) - known

    assert in_pages(unknown) == []


# -- commands

PLACES = {
    **PAGES,
    **{
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for pattern in ("examples/**/*.yaml", "releasenotes/notes/*.yaml")
        for path in sorted(ROOT.glob(pattern))
    },
}
_PROGRAM = r"(?:\.venv/bin/|openstack )?(failover(?:-agent)?)"
_LITERAL = re.compile(rf"`+{_PROGRAM} ([\w-][^`]*)`+")
_LINE = re.compile(rf"^ *(?:\$ )?{_PROGRAM} ([\w-].*)$", re.MULTILINE)
_ALERT = re.compile(rf'^ *command: "{_PROGRAM} (.*)"$', re.MULTILINE)
_END = re.compile(r" [|>&#;]|\)")
"""Where the shell's own begins."""


def typed(text: str) -> Iterator[tuple[str, ...]]:
    """The words of each command that is a literal, stands on a line of its own in a block, or helps
    against an alert."""
    shown = "\n".join(re.findall(r"^ *```[^`\n]*\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE))
    lines = re.sub(r" *\\\n *", " ", shown)
    for program, command in (
        *_LITERAL.findall(" ".join(without_blocks(text).split())),
        *_LINE.findall(lines),
        *_ALERT.findall(text.replace("{{ $labels.group }}", "GROUP")),
    ):
        plain = re.sub(r" \.\.\.(?= |$)", "", _END.split(command)[0])
        yield from spelled((program, *shlex.split(plain)))


def spelled(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Each command that ``maintenance on|off`` stands for."""
    for at, word in enumerate(words):
        if re.fullmatch(r"[a-z]+(\|[a-z]+)+", word):
            for one in word.split("|"):
                yield from spelled((*words[:at], one, *words[at + 1 :]))
            return
    yield words


def refusal(words: tuple[str, ...]) -> str:
    """Why a command can not be typed so; empty if it can."""
    said = StringIO()
    try:
        with redirect_stderr(said):
            accept(words)
    except (SystemExit, ValueError) as error:
        return f"{' '.join(words)}: {said.getvalue().strip() or error}"
    return ""


def accept(words: tuple[str, ...]) -> None:
    """Parse a command. One that is only named, without arguments, has to exist."""
    program, *rest = words
    if program == "failover-agent":
        if rest != ["settle"]:  # that is only named
            parse(agent._parser(), rest)
        return
    app = FailoverApp(rest)
    _, command = app.parser.parse_known_args(rest)
    if command:  # else options of the program were shown
        factory, name, options = app.command_manager.find_command(command)
        if options:
            parse(factory(app, None).get_parser(name), options)


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Parse what is written; an option that is only named, without its value, gets one."""
    last = parser._option_string_actions.get(words[-1])
    if last is not None and last.nargs is None:
        words = [*words, str(next(iter(last.choices or ["1"])))]
    parser.parse_args(words)


def test_every_command_exists_and_takes_what_is_written() -> None:
    where = {words: name for name, text in PLACES.items() for words in typed(text)}
    refused = {f"{where[words]}: {said}" for words in where if (said := refusal(words))}

    assert len(where) > 100
    assert sorted(refused) == []


def test_no_page_with_commands_is_overlooked() -> None:
    """A page that shows its commands in another way would not be checked at all."""
    read = {name for name, text in PLACES.items() if any(typed(text))}
    for_users = page("index").split(":caption: When")[1].split(":caption: Reference")[0]
    howtos = re.findall(r"^[\w-]+$", for_users, re.M)

    assert len(howtos) > 20
    assert {f"docs/{name}.md" for name in howtos} - read == set()
    assert read >= {"README.md", "docs/tutorial.md", "examples/monitoring/alerts.yaml"}


# -- snippets


def all_blocks(language: str) -> list[str]:
    return [text for content in PAGES.values() for text in blocks(content, language)]


def test_every_group_and_workflow_in_a_page_is_accepted_and_is_that_of_an_example() -> None:
    examples = [
        "\n".join(line for line in path.read_text("utf-8").splitlines() if line[:1] != "#").strip()
        for path in ROOT.glob("examples/**/*.yaml")
    ]
    texts = [text.strip() for text in all_blocks("yaml")]
    groups = [text for text in texts if text.startswith("failover_template_version")]
    flows = [text for text in texts if text.startswith("version:")]

    assert [parse_group(text).stack for text in groups] == ["payments"]
    assert [text for text in (*groups, *flows) if text not in examples] == []


def workflow_resources() -> dict[str, dict[str, Any]]:
    """The properties of each workflow that a page, or the template of the example with alarms, has
    as a resource of a stack."""
    template = (ROOT / "examples/protected-servers.yaml").read_text("utf-8")
    return {
        name: resource["properties"]
        for text in (*all_blocks("yaml"), yaml.safe_dump(yaml.safe_load(template)["resources"]))
        if "OS::Mistral::Workflow" in text
        for name, resource in yaml.safe_load(text).items()
        if isinstance(resource, dict) and resource.get("type") == "OS::Mistral::Workflow"
    }


def test_what_heat_makes_of_a_workflow_in_a_template_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "workflows.yaml"
    document: dict[str, Any] = {"version": "2.0"}
    for name, properties in workflow_resources().items():
        tasks = {
            task["name"]: {k: task[k] for k in task if k != "name"} for task in properties["tasks"]
        }
        document[name] = {"input": list(properties["input"]), "tasks": tasks}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")

    assert set(document) >= {"on_lost", "on_alert", "on_signal"}
    assert [problem for problem in validate([file]) if problem.error] == []


def test_the_template_of_an_alarm_passes_the_whole_body_on() -> None:
    aodh, alertmanager = (workflow_resources()[name] for name in ("on_lost", "on_alert"))
    (task,) = aodh["tasks"]
    (event,) = alertmanager["tasks"]
    body = {key: WEBHOOK[key] for key in event["input"]["body"]}

    assert set(aodh["input"]) == {*AODH_KEYS, "group"}
    assert task["input"] == {key: f"<% $.{key} %>" for key in aodh["input"]}
    assert set(alertmanager["input"]) == set(WEBHOOK)
    assert [alarm.firing for alarm in read(body, event["input"]["kind"])] == [True]


def test_the_test_that_is_shown_is_that_of_the_example() -> None:
    (text,) = [text for text in all_blocks("python") if "def test_" in text]

    assert text.strip() in (ROOT / "examples/own_type/test_own_type.py").read_text("utf-8")
