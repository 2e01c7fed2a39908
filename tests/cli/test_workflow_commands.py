# SPDX-License-Identifier: Apache-2.0
"""``failover workflows install|diff|remove``, against a real Mistral; each test in a namespace of
its own."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from mistral_failover import workflows
from mistral_failover.cli.workflows import Registry, Text
from mistral_failover.mistral.client import MistralClient

OWN = """\
version: '2.0'

house.greet:
  description: Says something.
  tasks:
    greet:
      action: std.echo output="hello"
"""
TWO = """\
version: '2.0'

house.one:
  tasks:
    greet:
      action: std.noop

house.two:
  tasks:
    greet:
      action: std.noop
"""
SWEEP = "failover.sweep"


def administrator(deployment: Any) -> MistralClient:
    """An administrator of Mistral, who has every project's workflows."""
    mistral = deployment.mistral
    return MistralClient(mistral.url, token=mistral.token, headers={"X-Roles": "admin"})


def states(deployment: Any, namespace: str, *words: str) -> dict[str, str]:
    done = deployment.failover(
        *("workflows", "diff", "--brief", "--namespace", namespace, *words),
        *("-f", "value", "-c", "workflow", "-c", "state"),
    )
    assert done.returncode in (0, 1), done.stderr
    found = dict(line.split() for line in done.stdout.splitlines())
    assert done.returncode == (set(found.values()) != {"same"})
    return found


def test_what_is_missing_is_installed_and_what_is_there_stays_untouched(
    deployment: Any, tmp_path: Path
) -> None:
    files = [tmp_path / "own.yaml", tmp_path / "two.yaml"]
    files[0].write_text(OWN)
    files[1].write_text(TWO)
    words = ("--namespace", "first", *map(str, files))
    before = states(deployment, "first", *map(str, files))

    created = deployment.shown("workflows", "install", *words)
    again = deployment.shown("workflows", "install", *words)

    assert set(before.values()) == {"missing"}
    assert {"house.greet", "house.one", "house.two", SWEEP} <= set(before)
    assert {row["done"] for row in created} == {"created (private)"}
    assert {row["done"] for row in again} == {"same (private)"}
    assert set(states(deployment, "first", *map(str, files)).values()) == {"same"}


def test_a_changed_one_is_shown_line_by_line_and_brought_up_to_date(
    deployment: Any, tmp_path: Path
) -> None:
    name = "second"
    deployment.shown("workflows", "install", "--namespace", name)
    client = deployment.mistral.client
    changed = "version: '2.0'\nfailover.sweep:\n  tasks:\n    t:\n      action: std.noop\n"
    client.update_workflows(changed, namespace=name)
    strange = changed.replace("failover.sweep", "failover.of_last_year")
    client.create_workflows(strange, namespace=name)

    found = states(deployment, name)
    whole = deployment.failover("workflows", "diff", "--namespace", name, "-f", "json")
    deployment.shown("workflows", "install", "--namespace", name)

    assert (found[SWEEP], found["failover.of_last_year"]) == ("changed", "foreign")
    assert "-      action: std.noop" in whole.stdout
    assert "+  description: >-" in whole.stdout
    assert states(deployment, name)[SWEEP] == "same"


def test_only_the_packs_are_removed_by_somebody_who_is_sure(
    deployment: Any, tmp_path: Path
) -> None:
    name = "third"
    own = tmp_path / "own.yaml"
    own.write_text(OWN)
    deployment.shown("workflows", "install", "--namespace", name, str(own))

    unsure = deployment.failover("workflows", "remove", "--namespace", name)
    removed = deployment.shown("workflows", "remove", "--namespace", name, "--yes")
    nothing = deployment.shown("workflows", "remove", "--namespace", name, "--yes")

    assert (unsure.returncode, "--yes" in unsure.stderr) == (1, True)
    assert SWEEP in [row["workflow"] for row in removed]
    assert nothing == []
    left = states(deployment, name, str(own))
    assert left["house.greet"] == "same"
    assert left[SWEEP] == "missing"
    assert states(deployment, "")[SWEEP] == "same", "the ones in another namespace stay"


def populated(deployment: Any, namespace: str) -> None:
    """Let the workflows of a namespace be those that ``mistral-db-manage populate`` installed."""
    deployment.shown("workflows", "install", "--namespace", namespace)
    with sqlite3.connect(deployment.folder / "mistral" / "mistral.sqlite") as database:
        command = "UPDATE workflow_definitions_v2 SET is_system = 1 WHERE namespace = ?"
        database.execute(command, [namespace])


def test_it_is_said_how_those_of_the_operator_are_removed(deployment: Any) -> None:
    name = "operators"
    populated(deployment, name)

    refused = deployment.failover("workflows", "remove", "--namespace", name, "--yes")

    assert refused.returncode == 1
    assert "without the package. [MISTRAL_REFUSED]" in refused.stderr
    assert states(deployment, name)[SWEEP] == "same"


def test_a_project_does_not_try_to_remove_those_of_the_operator(deployment: Any) -> None:
    name = "beside-operators"
    populated(deployment, name)
    mistral = deployment.mistral
    of_project = Registry(
        MistralClient(mistral.url, token=mistral.token, project=lambda: "a-project"), name
    )

    assert of_project.of_operator(SWEEP)
    assert not of_project.mine(SWEEP)
    assert of_project.remove(SWEEP) is None
    assert states(deployment, name)[SWEEP] == "same"


def test_an_order_runs_in_the_namespace_that_the_workflows_are_in(deployment: Any) -> None:
    name = "fourth"
    deployment.shown("workflows", "install", "--namespace", name)
    group = "elsewhere"
    file = deployment.file(group)

    told = deployment.shown("--workflow-namespace", name, "group", "create", str(file))

    client = deployment.mistral.client
    tree = client.sub_executions(told["execution"])
    assert told["status"] == "COMPLETE"
    assert {e["workflow_namespace"] for e in tree} == {name}
    missing = deployment.failover("--workflow-namespace", "nowhere", "sweep")
    assert (missing.returncode, "failover.sweep" in missing.stderr) == (1, True), missing.stderr


def test_what_an_administrator_made_public_is_used_or_kept_and_never_doubled(
    deployment: Any,
) -> None:
    name = "fifth"
    client = administrator(deployment)
    known = {Path(path).stem: Path(path).read_text() for path in workflows.paths()}
    client.create_workflows(known["pause"], namespace=name, scope="public")
    other = known["sweep"].replace("Continues the work", "Continued the work")
    client.create_workflows(other, namespace=name, scope="public")

    forbidden = deployment.failover("workflows", "install", "--namespace", name, "--public", "yes")
    done = deployment.failover("workflows", "install", "--namespace", name, "-f", "json")
    private = deployment.shown("workflows", "install", "--namespace", name, "--public", "no")

    assert (forbidden.returncode, "(403)" in forbidden.stderr) == (1, True)
    assert done.returncode == 1, "one is not as it shall be"
    found = {row["workflow"]: row["done"] for row in json.loads(done.stdout)}
    assert found["failover.pause"] == "same (public)"
    assert found[SWEEP].startswith("kept (public, with another text")
    assert found["failover.resume"] == "created (private)"
    after = {row["workflow"]: row["done"] for row in private}
    assert (after["failover.pause"], after[SWEEP]) == ("updated (private)", "updated (private)")
    assert after["failover.resume"] == "same (private)"


def test_an_administrators_other_projects_are_let_alone(deployment: Any, tmp_path: Path) -> None:
    name = "sixth"
    client = administrator(deployment)
    text = OWN.replace("hello", "theirs")
    for scope, workflow in (("private", "house.greet"), ("public", "house.wave")):
        client.create_workflows(text.replace("house.greet", workflow), namespace=name, scope=scope)
    with sqlite3.connect(deployment.folder / "mistral" / "mistral.sqlite") as database:
        command = "UPDATE workflow_definitions_v2 SET project_id = 'other' WHERE namespace = ?"
        database.execute(command, [name])
    mine = {
        each: Text("a file", OWN.replace("house.greet", each), True)
        for each in ("house.greet", "house.wave")
    }

    def known() -> Registry:
        return Registry(client, name)

    removed = [known().remove(each) for each in mine if known().mine(each)]
    before = {each.name: each.state for each in known().compare(mine)}
    done = [known().install(each, file, None) for each, file in mine.items()]
    changed = Text("a file", OWN.replace("hello", "hello again"), True)
    updated = known().install("house.greet", changed, None)
    theirs = [row for row in client.workflows(namespace=name) if row["project_id"] == "other"]
    own = [known().remove(each) for each in mine if known().mine(each)]

    assert removed == []
    assert before == {"house.greet": "missing", "house.wave": "changed"}
    assert [(each.done.split(" ")[0], each.kept) for each in (*done, updated)] == [
        ("created", False),
        ("kept", True),
        ("updated", False),
    ]
    assert {row["name"]: "theirs" in row["definition"] for row in theirs} == dict.fromkeys(
        mine, True
    )
    assert own == [None]
    assert len(client.workflows(namespace=name)) == 2


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("nothing: workflow\n", "[WORKFLOW_INVALID]"),
        ("a: [\n", "[NO_FILE]"),
        (OWN.replace("house.greet", SWEEP), "[NAME_TAKEN]"),
    ],
)
def test_a_file_that_is_none_is_refused_before_anything_is_uploaded(
    deployment: Any, tmp_path: Path, text: str, code: str
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)

    done = deployment.failover("workflows", "install", "--namespace", "seventh", str(file))

    assert (done.returncode, code in done.stderr) == (1, True), done.stderr
    assert set(states(deployment, "seventh").values()) == {"missing"}
