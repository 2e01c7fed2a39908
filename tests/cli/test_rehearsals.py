# SPDX-License-Identifier: Apache-2.0
"""``failover rehearse`` and ``failover rehearsals``, against a real Mistral."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.cli.rehearsals import compared
from support.ui_answers import FAILED_REHEARSAL, REHEARSALS, move, rehearsal

GROUP = "rehearsed"


@pytest.fixture
def deployed(deployment: Any) -> Any:
    """A deployment with a group of the test's own."""
    if GROUP not in deployment.mistral.client.run_action("failover.status", {})["groups"]:
        deployment.protect(GROUP)
    return deployment


def test_a_preview_says_what_would_be_made_and_makes_nothing(deployed: Any) -> None:
    done = deployed.failover("rehearse", GROUP, "--dry-run")
    assert done.returncode == 0, done.stderr
    told = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line[0] != " ")
    assert told["on"] == "active: db_b"
    assert told["room"].startswith("2 GiB")

    planned = deployed.shown("rehearse", GROUP, "--dry-run")
    assert (planned["lost"], planned["roles"], planned["gib"]) == ("db_a", {"active": "db_b"}, 2)


def test_a_rehearsal_that_passes_is_reported_and_listed(deployed: Any) -> None:
    done = deployed.failover("rehearse", GROUP)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].split() == ["rehearsal", "PASSED"]
    assert "Attach the copy of data: " in done.stdout

    rows = deployed.failover("rehearsals", GROUP)
    assert rows.returncode == 0, rows.stderr
    assert "PASSED" in rows.stdout
    assert "rehearsed" in deployed.failover("status", GROUP).stdout

    found = deployed.shown("rehearse", GROUP)
    assert (found["status"], found["clean"]) == ("PASSED", True)
    assert [row["status"] for row in deployed.shown("rehearsals", GROUP)][:2] == ["PASSED"] * 2


def test_a_rehearsal_that_fails_ends_with_1_and_says_what_to_do(deployed: Any) -> None:
    resources = deployed.cloud.resources(GROUP)
    server = str(resources["db_b"]["physical_resource_id"])
    deployed.cloud.fault("server", server, "misconfigured")

    done = deployed.failover("rehearse", GROUP)

    deployed.cloud.fault("server", server, "repaired")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].startswith("rehearsal")
    assert "FAILED" in done.stdout
    assert f"failover rehearse {GROUP}" in done.stdout


def test_it_is_compared_with_the_last_that_passed_and_with_the_last_failover() -> None:
    earlier = [FAILED_REHEARSAL, *REHEARSALS[1:]]
    moves: list[Any] = [move(to_service=None), move(to_service=13.0)]

    told = dict(compared(REHEARSALS[0], earlier, moves))  # type: ignore[arg-type]

    assert told["before"] == "11.2 s at 2027-01-08 02:26:40; now 0.8 s longer"
    assert told["last failover"] == "13.0 s at 2027-01-15 07:57:30"
    same = dict(compared(rehearsal(0), [rehearsal(1)], []))  # type: ignore[arg-type,list-item]
    assert same == {"before": "11.2 s at 2027-01-08 02:26:40; now the same"}
    failed = dict(compared(FAILED_REHEARSAL, [rehearsal(1)], []))  # type: ignore[arg-type,list-item]
    assert failed == {"before": "11.2 s at 2027-01-08 02:26:40"}
