# SPDX-License-Identifier: Apache-2.0
"""protect and unprotect: which tasks run, and in which order. Only the actions are replaced."""

from __future__ import annotations

from typing import Any

import pytest
from mistral_lib.actions import Result

from mistral_failover.lab.testing.workflows import Run, Workflows

GONE = {"status": "COMPLETE", "reason": ""}
STUCK = Result(error={"code": "FAILED", "message": "it does not stop", "remedy": "look"})
REMOVING = {"group": "g", "traversal": "t", "workflow": "failover.converge"}


def unprotect(pack: Workflows, *reports: Any, known: tuple[str, ...] = ("g",)) -> Run:
    status = {"groups": list(known), "roles": {"active": "a", "spare": "b"}}
    pack.replace("failover.status", status)
    pack.replace("failover.remove", REMOVING)
    for report in reports:
        ended = report if isinstance(report, Result) else {"again": False, "outcome": report}
        pack.replace("failover.advance", ended)
    return pack.run("failover.unprotect", {"name": "g", "because": "the stack goes"})


def test_a_group_is_defined_and_then_brought_up_by_an_execution_of_its_own(pack: Workflows) -> None:
    pack.replace("failover.define", {"id": "i", "group": "g"})
    pack.replace("failover.launch", {"workflow": "failover.activate_first", "execution": "e"})

    run = pack.run("failover.protect", {"name": "g", "definition": "text"}).assert_succeeded()

    assert run.output == {"resource_id": "i", "group": "g", "execution": "e"}
    (launch,) = pack.calls("failover.launch")
    assert launch["workflow"] == "failover.activate_first"
    assert launch["input"]["group"] == "g"


def test_a_member_with_a_role_is_fenced_before_the_stack_goes(pack: Workflows) -> None:
    run = unprotect(pack, GONE).assert_succeeded()

    (removed,) = pack.calls("failover.remove")
    assert (removed["group"], removed["lost"]) == ("g", ["a", "b"])
    assert run.output["outcome"] == GONE


@pytest.mark.parametrize("end", [STUCK, {"status": "IN_PROGRESS", "reason": ""}])
def test_the_stack_stays_when_its_group_does_not_go(pack: Workflows, end: Any) -> None:
    assert unprotect(pack, end).state == "ERROR"


def test_a_group_that_does_not_exist_is_out_of_service(pack: Workflows) -> None:
    unprotect(pack, known=()).assert_succeeded()

    assert pack.calls("failover.remove") == []
