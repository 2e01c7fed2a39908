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


def test_the_shipped_ones_alone_are_well() -> None:
    (found,) = findings()

    assert found.level == "ok"


def test_a_public_one_of_another_project_beside_ones_own_is_an_error() -> None:
    (found,) = findings(row(NAME, OTHER, THEIRS))

    assert found.level == "error"
    assert f"{NAME} has another definition in the project theirs" in found.sentence
    assert "mistral-policy.yaml" in found.remedy


def test_one_of_another_project_in_the_place_of_ones_own_is_an_error() -> None:
    (found,) = findings(row(NAME, OTHER, THEIRS), without=NAME)

    assert found.level == "error"


def test_the_same_text_in_another_project_alone_is_how_operators_install_it() -> None:
    (found,) = findings(row(NAME, REFORMATTED, THEIRS), without=NAME)

    assert found.level == "ok"


def test_two_definitions_with_one_text_are_a_warning() -> None:
    (found,) = findings(row(NAME, SHIPPED[NAME], THEIRS))

    assert found.level == "warn"
    assert "2 visible definitions" in found.sentence


def test_another_namespace_is_no_shadow() -> None:
    (found,) = findings(row(NAME, SHIPPED[NAME], namespace="ours"))

    assert found.level == "ok"


def test_ones_own_of_another_version_is_a_warning() -> None:
    (found,) = findings(row(NAME, OTHER), without=NAME)

    assert (found.level, found.remedy) == ("warn", "failover workflows install")


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
