# SPDX-License-Identifier: Apache-2.0
"""A request whose rights end in the middle leaves what it could not do to somebody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import base, orders, recovery, reports
from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.cloud import boot_disks, servers
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Outcome, Ready, Record
from mistral_failover.mistral.operation_documents import outcome_of
from mistral_failover.resources import worker
from mistral_failover.resources.fence import ladder as fence_ladder
from mistral_failover.resources.operation_context import OperationContext
from mistral_failover.runtime import rights
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store.groups import MemberRow
from support.foreign_names import rows

VOLUME = {
    "data": {
        "type": "volume_attachment",
        "properties": {"volume": "data_volume", "server": {"get_param": "active"}},
    }
}
EXPIRED = {"code": "TOKEN_EXPIRED", "message": "Keystone does not accept the token"}
GONE = {"code": "TRUST_GONE", "message": "the trust was deleted"}
LEFT = "Attach data to db_a: abandoned, the rights of the request ended"


def record_of(state: Runtime, ready: Ready) -> Record:
    return state.database.reading(lambda tx: tx.record(ready.node.resource_id))


def incarnate(monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome) -> list[dict[str, Any]]:
    """Let operations in place come to these outcomes, the last one for ever; what was asked for."""
    operations: list[dict[str, Any]] = []

    def run(_request: Any, _guard: Any, _function: str, operation: Any) -> Outcome:
        operations.append(operation)
        return outcomes[min(len(operations), len(outcomes)) - 1]

    monkeypatch.setattr(worker, "carried_out", run)
    return operations


@pytest.fixture
def ready(started: Callable[..., Ready]) -> Ready:
    """A node whose operation is carried out in place."""
    return started(resources=VOLUME)


@pytest.mark.parametrize("error", [EXPIRED, GONE], ids=lambda e: e["code"])
def test_an_operation_that_is_refused_for_its_rights_is_left_to_somebody_else(
    state: Runtime,
    context: ActionContext,
    ready: Ready,
    monkeypatch: pytest.MonkeyPatch,
    error: dict[str, str],
) -> None:
    operations = incarnate(monkeypatch, Outcome(error=error), Outcome(physical_id="v1"))

    refused = recovery.Advance(ready.traversal_id, "move_volumes").run(context)

    assert len(operations) == 1  # the same rights are not tried again
    assert refused.error["code"] == "RIGHTS_ENDED"
    assert refused.error["said"][-1].startswith(LEFT)
    record = record_of(state, ready)
    assert (record.status, record.owner, record.generation) == ("FAILED", None, 0)
    assert error["code"] in record.reason

    (chain,) = recovery.Sweep().run(context)["chains"]
    again = recovery.Advance(chain["traversal"], "end").run(context)

    first, second = operations
    assert second["key"] == first["key"]
    assert (first["unknown"], second["unknown"]) == (False, True)
    assert again["outcome"]["status"] == "COMPLETE"
    assert reports.Status("payments").run(context)["status"] == "COMPLETE"


def test_the_traversal_says_what_it_waits_for_as_long_as_it_does(
    state: Runtime, context: ActionContext, ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    incarnate(monkeypatch, Outcome(error=GONE), Outcome(physical_id="v1"))
    refused = recovery.Advance(ready.traversal_id, "end").run(context)

    status = reports.Status("payments").run(context)
    report = recovery.Report("payments", ready.traversal_id).run(context)

    assert status["status"] == "IN_PROGRESS"
    assert status["reason"].startswith("data: the rights of the request ended")
    assert "[TRUST_GONE]" in status["reason"]
    assert refused.error["code"] == report.error["code"] == "RIGHTS_ENDED"
    assert "failover sweep" in report.error["remedy"]
    assert report.error["report"]["status"] == "IN_PROGRESS"
    assert any("rights" in row["sentence"] for row in reports.History("payments").run(context))

    recovery.Advance(ready.traversal_id, "end").run(context)
    assert reports.Status("payments").run(context)["reason"] == ""
    assert recovery.Report("payments", ready.traversal_id).run(context)["status"] == "COMPLETE"


def test_who_is_refused_too_often_fails_the_traversal(
    state: Runtime, context: ActionContext, ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = incarnate(monkeypatch, Outcome(error=EXPIRED))

    for _ in range(rights.ATTEMPTS):
        assert reports.Status("payments").run(context)["status"] == "IN_PROGRESS"
        recovery.Advance(ready.traversal_id, "end").run(context)

    assert len({operation["key"] for operation in operations}) == 1
    status = reports.Status("payments").run(context)
    assert status["status"] == "FAILED"
    assert "[TOKEN_EXPIRED]" in status["reason"]


def test_what_was_refused_in_the_middle_may_have_taken_effect() -> None:
    assert outcome_of(None, EXPIRED).unknown
    assert outcome_of(None, GONE).unknown
    assert not outcome_of(None, {"code": "QUOTA", "message": "too many"}).unknown


@pytest.mark.parametrize("rung", ["quiesce", "stop", "delete"])
def test_a_service_that_cannot_be_asked_says_nothing_about_a_member(
    monkeypatch: pytest.MonkeyPatch, rung: str
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise CloudError("TRUST_GONE", "the trust was deleted")

    class Channel:
        run = staticmethod(refused)
        depose = staticmethod(lambda to, epoch: None)

    monkeypatch.setattr(servers, "stop", refused)
    monkeypatch.setattr(servers, "delete_server", refused)
    monkeypatch.setattr(boot_disks, "must_stay", refused)
    member = MemberRow("db_a", "s-a", 1.0, 4, None)
    target = fence_ladder.FenceTarget(member, ("s-a",), (("s-a", "stop"),), (), lambda: None)
    ladder = [{"kind": rung, "limit": 5}]
    names = {"key": "k", "group": "g", "stack": "g", "group_id": "i"}
    operation = {**names, "properties": {"ladder": ladder}}

    with pytest.raises(CloudError) as raised:
        fence_ladder.fence(OperationContext(None, None, Channel(), lambda: None), operation, target)  # type: ignore[arg-type]
    assert raised.value.code == "TRUST_GONE"


DOUBTFUL = [
    CloudError("TOKEN_EXPIRED", "401"),
    CloudError("SERVER_ERROR", "503"),
    ChannelError("REFUSED", "401"),
    ChannelError("UNREACHABLE", "403 behind the channel"),
    ActionError("FENCE_UNPROVEN", "no operator could be asked", "Confirm it.", blocked=True),
]
CERTAIN = [
    CloudError("QUOTA", "too many"),
    ActionError("UNKNOWN_MEMBER", "who", "See failover.status."),
    ChannelError("NO_ANSWER", "it is silent"),
]


class Failing(base.FailoverAction):
    """An action that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def answer(self, request: Request) -> Any:
        raise self.error


@pytest.mark.parametrize("error", DOUBTFUL, ids=lambda e: e.code)
def test_what_may_come_of_lost_rights_is_answered_as_that_if_keystone_says_so(
    state: Runtime,
    context: ActionContext,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    refusal = CloudError("TRUST_GONE", "the trust was deleted")
    monkeypatch.setattr(Request, "refusal", lambda self: refusal)
    assert Failing(error).run(context).error["code"] == "TRUST_GONE"

    monkeypatch.setattr(Request, "refusal", lambda self: None)
    assert Failing(error).run(context).error["code"] == error.code  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", CERTAIN, ids=lambda e: e.code)
def test_keystone_is_not_asked_about_other_failures(
    state: Runtime,
    context: ActionContext,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Request, "refusal", asked.append)

    assert Failing(error).run(context).error["code"] == error.code  # type: ignore[attr-defined]
    assert asked == []


def test_a_request_that_names_another_cloud_touches_no_project(state: Runtime) -> None:
    security = SecurityContext(project_id="p", auth_token="a-token", is_target=True)

    answer = reports.Status().run(ActionContext(security, ExecutionContext()))

    assert answer.error["code"] == "FORBIDDEN"
    assert "X-Target-" in answer.error["remedy"]


def test_a_token_that_somebody_pasted_into_their_words_is_not_written_down(
    state: Runtime, context: ActionContext, begun: Ready
) -> None:
    token = "gAAAAABk-0123456789abcdefghijklmnopqrstuvwxyz"
    because = f"with X-Auth-Token: {token} and password=hunter2 it worked"

    orders.Rollback("payments", because=because).run(context)
    orders.Remove("payments", because=because).run(context)
    kept = str(reports.History("payments").run(context)) + str(rows(state.database))

    assert "it worked" in kept
    assert token not in kept
    assert "hunter2" not in kept
