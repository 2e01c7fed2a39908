# SPDX-License-Identifier: Apache-2.0
"""What docs/planning.md and docs/active-active.md show does what they say, in the order in which it
stands there; the group has another name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


def shown(page: str, beginning: str, group: str) -> list[list[str]]:
    """The words of each command in the first block of a page that begins so."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (block, *_) = re.findall(
        rf"^```\w+\n(failover {beginning}.*?)^```$", text, re.DOTALL | re.MULTILINE
    )
    lines = block.replace("payments", group).splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_a_plan_touches_nothing_and_exactly_that_is_started(deployment: Any) -> None:
    group = "page-planned"
    deployment.protect(group)
    before = deployment.status(group)["traversal"]["id"]

    told = [deployment.failover(*words) for words in shown("planning.md", "plan", group)]

    assert [done.returncode for done in told] == [0, 0, 0], told
    lost, moved, dry = (done.stdout for done in told)
    assert "Fence db_a" in lost
    assert "Stop database on db_a" in moved
    assert "Stop database on db_a" in dry
    assert deployment.status(group)["traversal"]["id"] == before
    plan = deployment.shown("plan", group, "--verb", "switchover", "--to", "db_b")["plan"]
    (start,) = shown("planning.md", "start --plan", group)
    done = deployment.failover(*start[:-1], plan)
    assert done.returncode == 0, done.stderr
    assert deployment.status(group)["roles"] == {"active": "db_b"}


def test_a_failback_is_looked_at_first_and_takes_the_role_home(deployment: Any) -> None:
    group = "page-home"
    deployment.protect(group)
    deployment.run("failover", group=group, lost=["db_a"], because="a power cut")
    look, go = shown("active-active.md", "failback", group)

    looked = deployment.failover(*look)
    between = deployment.status(group)["roles"]
    gone = deployment.failover(*go)

    assert (looked.returncode, between) == (0, {"active": "db_b"}), looked.stderr
    assert gone.returncode == 0, gone.stderr
    after = deployment.status(group)
    assert (after["roles"], after["lost"]) == ({"active": "db_a"}, [])
