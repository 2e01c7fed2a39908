# SPDX-License-Identifier: Apache-2.0
"""Of which roles and members a rehearsal says something."""

from __future__ import annotations

import pytest

from mistral_failover.model.rehearsals import Place, RehearsalOutcome, judged_roles, role_words

ROLES = {"left": "b", "right": "b", "third": "c"}


@pytest.mark.parametrize(
    ("outcome", "failed", "judged"),
    [
        ("PASSED", [], ROLES),
        ("FAILED", [Place("b", "right")], {"right": "b"}),
        ("FAILED", [Place("b")], {"left": "b", "right": "b"}),
        ("FAILED", [Place("c", "third"), Place("b", "left")], {"left": "b", "third": "c"}),
        ("FAILED", [Place()], ROLES),
        ("FAILED", [], ROLES),
        ("ENDED", [Place("b", "right")], {}),
    ],
)
def test_a_failed_step_is_about_its_role_its_member_or_all(
    outcome: str, failed: list[Place], judged: dict[str, str]
) -> None:
    assert judged_roles(RehearsalOutcome(outcome), ROLES, failed) == judged


def test_the_words_name_each_role_and_its_member() -> None:
    assert role_words({"right": "b", "left": "c"}) == "left on c, right on b"
