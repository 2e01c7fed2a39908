# SPDX-License-Identifier: Apache-2.0
"""A stack that was deleted and made again under its name is another stack: the group says so,
moves nothing, and takes it after one word of an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import doctor, groups, reports
from mistral_failover.reports.advice import advice
from support.activation import done
from support.operators import Operator

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())
ADOPT = "failover group adopt-stack {}"


def outliving(template: dict[str, Any]) -> dict[str, Any]:
    """The template, with servers and a volume that outlive their stack."""
    for name, resource in template["resources"].items():
        template["resources"][name] = {**resource, "deletion_policy": "Retain"}
    return template


def make_again(group: Any, operator: Operator, application: str = "") -> None:
    """Delete the group's stack and make it again, with the same template. ``application``: the name
    of that on the new servers, if the former ones keep theirs."""
    template = group.cloud.template(group.name)
    operator.delete_stack(group.name)
    group.cloud.create_stack(group.name, template)
    group.cloud.add_application(
        application or group.name, start="start", stop="stop", needs_volume=True, stack=group.name
    )


@pytest.fixture
def made_again(group: Any, operator: Operator) -> Any:
    """A group that served on a stack which was deleted and made again."""
    group.activate()
    make_again(group, operator)
    return group


def test_the_status_says_it_in_one_sentence_and_names_the_command(made_again: Any) -> None:
    service = made_again.observed()

    (reason,) = service["reasons"]
    assert (service["status"], service["another_stack"]) == ("DOWN", True)
    assert reason.startswith(f"stack {made_again.name} was deleted and made again")
    (command,) = [each.command for each in advice(made_again.status())]
    assert command == ADOPT.format(made_again.name)


def test_a_stack_that_was_deleted_is_named_with_the_ways_out(
    group: Any, operator: Operator
) -> None:
    group.activate()
    operator.delete_stack(group.name)

    service = group.observed()

    (reason,) = service["reasons"]
    assert (service["status"], service["stack_gone"]) == ("DOWN", True)
    assert reason.startswith(f"stack {group.name} does not exist any more")
    commands = [each.command for each in advice(group.status())]
    assert commands[0] == f"failover group delete {group.name}"
    error = group.run("activate_first", group=group.name).output["error"]
    assert f"stack {group.name} does not exist any more" in error["message"]
    assert all(command in error["remedy"] for command in commands)
    group.run("remove", group=group.name).assert_succeeded()


@pytest.mark.parametrize("order", ["failover", "activate_first", "switchover"])
def test_no_order_moves_anything_until_then(made_again: Any, order: str) -> None:
    before = made_again.status()
    more = {"lost": []} if order == "failover" else {}
    since = max(row["seq"] for row in made_again.cloud.audit())

    run = made_again.run(order, group=made_again.name, **more)

    error = run.output["error"] or run.output["result"]
    assert error["code"] == "STACK_REPLACED"
    assert ADOPT.format(made_again.name) in error["remedy"]
    assert made_again.status()["members"] == before["members"]
    requests = made_again.cloud.audit(since, kind="request")
    changes = {row["method"] for row in requests if "/auth/tokens" not in row["path"]}
    assert changes <= {"GET", "HEAD"}


def test_an_alarm_about_the_former_server_moves_nothing(made_again: Any) -> None:
    former = made_again.status()["members"][0]["server"]

    run = made_again.run("on_alarm", **made_again.cloud.alarm_body(former))

    assert "STACK_REPLACED" in str(run.output)
    assert made_again.status()["status"] == "COMPLETE"


def test_the_doctor_finds_it(made_again: Any) -> None:
    row = made_again.examined("stack")

    assert row["level"] == "error"
    assert ADOPT.format(made_again.name) in row["remedy"]


@pytest.mark.parametrize("again", [False, True])
def test_the_doctor_advises_nothing_that_needs_the_former_stack(
    group: Any, operator: Operator, again: bool
) -> None:
    group.activate()
    if again:
        make_again(group, operator)
    else:
        operator.delete_stack(group.name)

    found = done(doctor.Doctor(group.name).run(CONTEXT))["findings"]

    wrong = [row for row in found if row["level"] == "error" and row["group"]]
    assert {row["check"] for row in wrong} == {"service", "stack"}, wrong
    command = "group adopt-stack" if again else "group delete"
    assert all(command in row["remedy"] for row in wrong), wrong


def test_nothing_is_repaired_on_a_stack_that_is_not_the_group_s(made_again: Any) -> None:
    """No order begins there, so each would leave a refusal, and a part that FAILED."""
    made_again.observed()
    made_again.run("sweep", group=made_again.name)

    said = [row["sentence"] for row in reports.History(made_again.name).run(CONTEXT)]
    assert not any("REFUSED" in each for each in said), said
    assert {row["status"] for row in made_again.status()["resources"]} == {"CREATE_COMPLETE"}


def test_one_word_takes_the_new_stack_and_the_group_serves_there(
    made_again: Any, operator: Operator
) -> None:
    answer = done(groups.AdoptStack(made_again.name).run(CONTEXT))
    run = made_again.run("activate_first", group=made_again.name)

    run.assert_succeeded()
    assert (answer["former"] is not None, answer["kept"]) == (True, [])
    assert (made_again.holders(), made_again.runs_on()) == (["db_a"], ["db_a"])
    parameters = operator.stack(made_again.name)["parameters"]
    assert parameters["active"] == "db_a", "the new stack has them, too"
    assert made_again.observed()["status"] in ("SERVING", "DEGRADED")
    assert [row["epoch"] for row in made_again.status()["members"]] == [2, 2]
    again = done(groups.AdoptStack(made_again.name).run(CONTEXT))
    assert again["former"] is None, "it is said once"
    made_again.run("on_alarm", **made_again.fails()).assert_succeeded()
    assert made_again.runs_on() == ["db_b"]


def test_servers_and_volumes_that_outlived_their_stack_are_not_taken_for_gone(
    protect: Callable[..., Any], operator: Operator
) -> None:
    group = protect(template=outliving)
    group.activate()
    former = group.server("db_a")
    volume = str(group.cloud.resources(group.name)["data_volume"]["physical_resource_id"])
    make_again(group, operator, "another")
    (reason, *_) = group.observed()["reasons"]
    assert "was deleted and made again" in reason
    assert volume in group.cloud.guests()[former]["volumes"]

    answer = done(groups.AdoptStack(group.name).run(CONTEXT))
    run = group.run("activate_first", group=group.name)

    assert [row["volume"] for row in answer["kept"]] == [volume]
    run.assert_failed_with("FAILED")
    assert "VOLUME_REPLACED" in group.status()["reason"]
    assert group.cloud.writers(volume) == [], "it was detached from the former server"
    assert group.name not in group.cloud.guests()[former]["applications"]
