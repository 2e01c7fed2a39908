# SPDX-License-Identifier: Apache-2.0
"""What messages tell an operator to type can be typed, and typing it fences no healthy member."""

from __future__ import annotations

import ast
import functools
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from cliff.commandmanager import CommandManager

from mistral_failover.doctor.all_checks import CHECKS, GROUP_CHECKS
from mistral_failover.model.remedies import REMEDIES, command
from mistral_failover.runtime.errors import start_command
from support.pages import MODULES

DANGEROUS = "failover.failover"
SOME = "<some>"
NAMES = sorted((name for name, _ in CommandManager("failover.cli")), key=len, reverse=True)
VALUE = r"'[^']*'|<some>|[A-Z]+\b|[\w-]*[0-9_][\w-]*|{\w+}|obeyed-\w+"
ALONE = [name.split() for name in NAMES]
COMMAND = re.compile(
    rf"\bfailover ({'|'.join(NAMES)})\b(?! [a-z]+\b(?!-))((?: (?:--[a-z-]+|{VALUE}))*)"
)
"""A command in a sentence, with what stands there for values."""
NAMED = re.compile(r"(?<!mistral_)failover")
"""What a source contains that names one, or a workflow: not the package's own name alone."""


def texts(tree: ast.AST) -> Iterator[str]:
    """The texts of a module but its docstrings; whatever is put into one stands there as SOME."""
    silent = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            silent.update(id(part) for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else SOME for part in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in silent:
            yield str(node.value)


@functools.cache
def written() -> tuple[tuple[str, str], ...]:
    """The texts of the files that may name a command or workflow, but for the templates of the
    remedies. Parsing all takes long."""
    sources = ((name, path.read_text(encoding="utf-8")) for name, path in MODULES.items())
    return tuple(
        (name, text)
        for name, source in sources
        if NAMED.search(source) and not name.endswith("remedies.py")
        for text in texts(ast.parse(source))
    )


def commands(said: str) -> list[list[str]]:
    """The commands in a message."""
    return [shlex.split(f"{match[1]}{match[2]}") for match in COMMAND.finditer(said)]


def parsed(words: list[str]) -> Any:
    """What a command makes of its words. Raises SystemExit."""
    factory, name, rest = CommandManager("failover.cli").find_command(words)
    app: Any = None
    return factory(app, None).get_parser(name).parse_args(rest)


def takes(words: list[str]) -> bool:
    """Whether it can be typed; a command alone is only named, and what is put in last may be
    several options."""
    if words in ALONE:
        return True
    for given in [words, words[:-1]] if words[-1] == SOME else [words]:
        try:
            parsed(given)
        except SystemExit as end:
            if end.code == 0:
                return True  # --help
        else:
            return True
    return False


def test_no_message_names_the_workflow_that_declares_role_holders_lost() -> None:
    named = [(file, text) for file, text in written() if DANGEROUS in text and text != DANGEROUS]

    assert named == []


def test_every_command_in_a_message_exists_and_takes_what_is_written() -> None:
    found = [(file, words) for file, text in written() for words in commands(text)]

    wrong = [f"{file}: failover {' '.join(words)}" for file, words in found if not takes(words)]
    assert wrong == []
    assert len(found) > 50


ARGUMENT = (
    r"--?[\w-]+|'[^']*'|\w+='[^']*'|[\w:./-]*(?:=\S+)?(?:<some>|{\w+})[\w:.-]*|[\w./-]+(?:=\S+)?"
)
SPOKEN = re.compile(rf"\b(failover|openstack)((?: (?:{ARGUMENT}))+)")
"""A command within a sentence, with the words that follow it."""
LOOKS = {"alarms", "doctor", "history", "list", "locks", "plan", "show", "status", "validate"}
"""Words of the commands that change nothing."""
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*|'\.\.\.'")
"""What the reader has to put in."""
FOR_SETTING_UP = {function.__module__ for _, function in CHECKS} - {
    function.__module__ for _, function in GROUP_CHECKS
}
"""The modules of the doctor's checks that concern no group: they find how the package was set up,
and name steps of the installation."""


def typed_out(text: str) -> list[str]:
    """The commands in a text that change something and lack nothing to be typed: none that only
    looks, and none with something to fill in (as how to correct a group file)."""
    found = []
    for match in SPOKEN.finditer(text):
        program, words = match[1], [each.rstrip(".") or each for each in match[2].split()]
        if program == "failover" and not is_a_command(words):
            continue
        if program == "openstack" and not re.match(OPENSTACK, match[2]):
            continue
        looks = LOOKS.intersection(words) or "--dry-run" in words
        if not looks and not any(PLACEHOLDER.fullmatch(word) for word in words):
            found.append(match[0])
    return found


OPENSTACK = r"(?: --os-[\w-]+ \S+)* (?!failover)(?:[a-z]+|<some>) [a-z]+"
"""How a command of OpenStack begins."""


def is_a_command(words: list[str]) -> bool:
    """Whether a sentence goes on with a command of the package that can be typed so; a command that
    lacks its arguments is only named."""
    name = next((n.split() for n in NAMES if words[: n.count(" ") + 1] == n.split()), None)
    if name is None:
        return False
    for length in range(len(words), len(name) - 1, -1):
        try:
            parsed(words[:length])
        except SystemExit:
            continue
        return True
    return False


def test_what_leads_out_of_a_state_is_a_remedy_and_no_sentence_of_an_adapter_or_the_doctor() -> (
    None
):
    """A command that the product can write out and that changes something belongs into
    ``model.remedies``, which quotes its values, and a play types it. A sentence may name a command
    that looks, or one that the reader completes: how to correct what was given."""
    found = []
    for file, source in MODULES.items():
        module = f"mistral_failover.{file.removesuffix('.py').replace('/', '.')}"
        if not re.match("(cloud|resources|doctor)/", file) or module in FOR_SETTING_UP:
            continue
        text = source.read_text(encoding="utf-8")
        if re.search("failover |openstack ", text):
            found += [(file, each) for t in texts(ast.parse(text)) for each in typed_out(t)]

    assert found == []


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("Delete it: openstack server delete <some>.", 1),
        ("Keep it: openstack --os-compute-api-version 2.95 server evacuate <some>", 1),
        ("Continue: failover sweep", 1),
        ("Delete it: openstack <some> delete --force <some>", 1),
        ("Then failover start <some>; or failover rollback <some>", 2),
        ("See openstack volume message list", 0),
        ("Correct it, then: failover group update FILE --name <some>", 0),
        ("an operator can lift it by failover unfence", 0),
        ("the failover starts the application", 0),
        ("ask the operator of this openstack cloud", 0),
    ],
)
def test_the_rule_knows_a_command_that_changes_something(text: str, commands: int) -> None:
    assert len(typed_out(text)) == commands


@pytest.mark.parametrize("code", REMEDIES)
def test_the_command_of_each_remedy_can_be_typed_whatever_the_group_is_called(code: str) -> None:
    several = {"lost", "recovered", "able"}
    fields = {name: ["a b"] if name in several else "c d" for name in REMEDIES[code].fields}

    first, *words = shlex.split(command(code, "two words", **fields))

    if first == "failover":
        typed = parsed(words)
        assert getattr(typed, "group", "two words") == "two words"
        assert getattr(typed, "lost", None) in (None, ["a b"])
    else:
        assert first in ("openstack", "nova-manage")


def test_the_command_that_continues_declares_no_member_lost_and_quotes_names() -> None:
    going_on = parsed(shlex.split(start_command("two words"))[1:])
    fencing = parsed(shlex.split(start_command("two words", lost="db_a"))[1:])

    assert (going_on.group, going_on.lost, going_on.fact) == ("two words", None, None)
    assert (fencing.group, fencing.lost) == ("two words", ["db_a"])


@pytest.mark.parametrize("on_failure", ["stop", "rollback"])
def test_a_command_that_a_message_names_fences_no_member(deployment: Any, on_failure: str) -> None:
    """After a move that came back, and one that failed or fell back."""
    group = f"obeyed-{on_failure}"
    deployment.protect(group, on_failure=on_failure)
    ended, typed = {}, []
    for order in (["switchover", group], ["start", group, "--lost", "", "--to", "db_b"]):
        deployment.cloud.api_fault("command_start", "fail")
        done = deployment.failover(*order, "-f", "json")
        assert done.returncode == 1, done.stdout
        ended[order[0]] = json.loads(done.stdout)
        said = done.stdout + done.stderr + deployment.failover("status", group).stdout
        typed += [words for words in commands(said) if group in words]

    for words in typed:
        deployment.failover(*words)

    came_back = ended["switchover"]
    assert came_back["code"] == "RETURNED"
    assert commands(came_back["reason"]) == [], "how to go on to a goal that was given up"
    assert ["start", group] in typed
    status = deployment.status(group)
    assert (status["status"], status["lost"]) == ("COMPLETE", [])
    assert "fence" not in {resource["type"] for resource in status["resources"]}


@pytest.mark.parametrize("source", ["doctor", "plan"])
@pytest.mark.parametrize(
    "begin", [("pause",), ("maintenance", "on", "--minutes", "9")], ids=["pause", "maintenance"]
)
def test_what_holds_alarms_ends_by_the_command_that_is_shown(
    deployment: Any, begin: tuple[str, ...], source: str
) -> None:
    group = f"obeyed-{begin[0]}_{source}"
    deployment.protect(group)
    shown = {"doctor": diagnosed, "plan": risks}[source]
    before = shown(deployment, group)
    assert deployment.failover(*begin, group, "--because", "a test").returncode == 0

    (remedy,) = [row["remedy"] for row in shown(deployment, group) if row not in before]
    (command,) = commands(remedy)
    assert deployment.failover(*command).returncode == 0

    assert shown(deployment, group) == before


def diagnosed(deployment: Any, group: str) -> list[Any]:
    """What the doctor finds wrong with a group's alarms."""
    rows = json.loads(deployment.failover("doctor", group, "-f", "json").stdout)
    return [row for row in rows if row["check"] == "alarms" and row["level"] != "ok"]


def risks(deployment: Any, group: str) -> list[Any]:
    """The risks of a switchover."""
    return list(deployment.shown("plan", group, "--verb", "switchover")["risks"])
