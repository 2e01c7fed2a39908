# SPDX-License-Identifier: Apache-2.0
"""A workflow that another project put in the place of a shipped one is found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.doctor import mistral as checks
from mistral_failover.doctor.checks import Finding
from mistral_failover.mistral import shipped_workflows
from mistral_failover.mistral.api import Mistral

MINE, THEIRS = "mine", "theirs"
NAME = "failover.sweep"
SHIPPED = shipped_workflows.workflows()
REFORMATTED = SHIPPED[NAME] + "\n# the same\n"
OTHER = "version: '2.0'\nfailover.sweep: {tasks: {steal: {action: std.noop}}}\n"


def row(name: str, text: str, project: str = MINE, namespace: str = "") -> dict[str, Any]:
    return {
        "id": f"{name} of {project}",
        "name": name,
        "definition": text,
        "project_id": project,
        "namespace": namespace,
    }


def findings(*more: dict[str, Any], without: str = "") -> list[Finding]:
    """What the doctor says of the shipped workflows and ``more``."""
    rows = [row(name, text) for name, text in SHIPPED.items() if name != without]
    asked = Mistral.__new__(Mistral)
    asked._client = SimpleNamespace(rows=lambda *_path, **_query: [*rows, *more])  # type: ignore[assignment]
    look: Any = SimpleNamespace(
        mistral=asked, without_mistral=False, request=SimpleNamespace(project_id=MINE)
    )
    return list(checks.workflows(look))


BESIDE = f"{NAME} has another definition in the project theirs"
ROWS = {
    "the shipped ones alone": ([], "", ("ok", "", "")),
    "a public one of another project beside one's own": (
        [row(NAME, OTHER, THEIRS)],
        "",
        ("error", BESIDE, "mistral-policy.yaml"),
    ),
    "one of another project in the place of one's own": (
        [row(NAME, OTHER, THEIRS)],
        NAME,
        ("error", "", ""),
    ),
    # That is how operators install it.
    "the same text in another project alone": (
        [row(NAME, REFORMATTED, THEIRS)],
        NAME,
        ("ok", "", ""),
    ),
    "two definitions with one text": (
        [row(NAME, SHIPPED[NAME], THEIRS)],
        "",
        ("warn", "2 visible definitions", ""),
    ),
    "one in another namespace": (
        [row(NAME, SHIPPED[NAME], namespace="ours")],
        "",
        ("ok", "", ""),
    ),
    "one's own of another version": (
        [row(NAME, OTHER)],
        NAME,
        ("warn", "", "failover workflows install"),
    ),
}


@pytest.mark.parametrize(("more", "without", "expected"), ROWS.values(), ids=ROWS)
def test_which_definitions_are_shadows(
    more: list[dict[str, Any]], without: str, expected: tuple[str, str, str]
) -> None:
    (found,) = findings(*more, without=without)

    level, said, remedy = expected
    assert found.level == level
    assert said in found.sentence
    assert remedy in (found.remedy or "")


@pytest.mark.parametrize(
    ("roles", "levels"), [(["member", "reader"], []), (["admin", "member"], ["error"])]
)
def test_an_administrators_token_is_refused_with_the_reason(
    roles: list[str], levels: list[str]
) -> None:
    access = SimpleNamespace(role_names=roles)
    auth = SimpleNamespace(get_access=lambda _session: access)
    session = SimpleNamespace(get_token=lambda: "t", auth=auth)
    security = SimpleNamespace(auth_token="t")
    look: Any = SimpleNamespace(
        cloud=SimpleNamespace(session=session),
        request=SimpleNamespace(context=SimpleNamespace(security=security)),
    )

    found = list(checks.administrator(look))

    assert [each.level for each in found] == levels
    assert all("in all projects" in each.sentence and each.remedy for each in found)
