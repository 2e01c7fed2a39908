# SPDX-License-Identifier: Apache-2.0
"""The ways to end the protection of an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import groups, orders, reports
from support.activation import done
from support.operators import Operator

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())


def refused(group: Any, *, release: bool) -> str:
    answer = groups.Undefine(group.name, release=release).run(CONTEXT)
    assert isinstance(answer, Result)
    return str(answer.error["code"])


def test_a_released_group_leaves_everything_running(group: Any) -> None:
    group.activate()
    holders, since = group.holders(), group.cloud.audit()[-1]["seq"]

    done(groups.Undefine(group.name, release=True).run(CONTEXT))

    assert (group.holders(), group.runs_on()) == (holders, ["db_a"])
    asked = group.cloud.audit(since, kind="request")
    assert [row for row in asked if row["method"] not in ("GET", "HEAD")] == []


def test_a_released_group_can_be_protected_again(group: Any) -> None:
    group.activate()
    document = done(reports.Status(group.name, definition=True).run(CONTEXT))["definition"][
        "document"
    ]
    done(groups.Undefine(group.name, release=True).run(CONTEXT))

    done(groups.Define(document, name=group.name).run(CONTEXT))
    group.run("activate_first", group=group.name).assert_succeeded()

    assert (group.holders(), group.runs_on()) == (["db_a"], ["db_a"])


def again(group: Any) -> None:
    """Release a group, and define it again."""
    shown = done(reports.Status(group.name, definition=True).run(CONTEXT))
    done(groups.Undefine(group.name, release=True).run(CONTEXT))
    done(groups.Define(shown["definition"]["document"], name=group.name).run(CONTEXT))


def on_db_b(group: Any) -> Any:
    """Bring a group up, and move it."""
    group.activate()
    group.run("switchover", group=group.name, to="db_b").assert_succeeded()
    return group


def test_a_released_group_is_protected_again_where_it_serves(group: Any) -> None:
    again(on_db_b(group))

    group.run("activate_first", group=group.name).assert_succeeded()

    assert group.status()["roles"] == {"active": "db_b"}
    assert (group.holders(), group.runs_on()) == (["db_b"], ["db_b"])


def test_a_dry_run_of_a_group_that_was_released_shows_the_steps_where_it_serves(group: Any) -> None:
    on_db_b(group)
    shown = done(reports.Status(group.name, definition=True).run(CONTEXT))
    done(groups.Undefine(group.name, release=True).run(CONTEXT))

    document = shown["definition"]["document"]
    dry = done(groups.Define(document, name=group.name, dry_run=True).run(CONTEXT))

    assert dry["why_no_steps"] is None
    assert {step["member"] for step in dry["steps"]} <= {"db_b", None}
    assert [step["resource"] for step in dry["steps"]] == ["data", "database", "routing"]
    assert isinstance(reports.Status(group.name).run(CONTEXT), Result), "nothing was stored"


def test_a_released_group_is_not_brought_up_beside_its_volume(group: Any) -> None:
    again(on_db_b(group))

    run = group.run("activate_first", group=group.name, to="db_a")

    error = run.output["error"]
    assert error["code"] == "SERVES_ALREADY"
    assert f"failover group activate {group.name} --to db_b" in error["remedy"]
    assert (group.holders(), group.runs_on()) == (["db_b"], ["db_b"])


ACTIVE = {"get_param": "active"}
STARTED = {
    "type": "activation",
    "properties": {"member": ACTIVE, "start": "start", "stop": "stop"},
}


def addressed(stack: dict[str, Any]) -> dict[str, Any]:
    """The template, with a port for each server, and a port and a floating IP on no server."""
    net = {"network": "net1"}
    for one in stack["resources"].values():
        if one["type"] == "OS::Nova::Server":
            one["properties"] = {**one["properties"], "networks": [net]}
    stack["resources"] |= {
        "entry": {"type": "OS::Neutron::FloatingIP", "properties": {"floating_network": "public"}},
        "inside": {"type": "OS::Neutron::Port", "properties": net},
    }
    return stack


@pytest.mark.parametrize(
    "address",
    [
        {"type": "floating_ip", "properties": {"floating_ip": "entry", "network": "net1"}},
        {"type": "port", "properties": {"port": "inside"}},
        {"type": "virtual_ip", "properties": {"port": "inside"}},
    ],
    ids=lambda address: str(address["type"]),
)
def test_an_address_tells_where_a_group_without_a_volume_serves(
    protect: Callable[..., Any], address: dict[str, Any]
) -> None:
    properties = {**address["properties"], "server": ACTIVE}
    entry = {**address, "depends_on": "database", "properties": properties}
    group = protect({"database": STARTED, "entry": entry}, template=addressed)
    group.cloud.add_application(group.name, start="start", stop="stop", stack=group.name)
    again(on_db_b(group))

    group.run("activate_first", group=group.name).assert_succeeded()

    assert group.status()["roles"] == {"active": "db_b"}
    assert group.runs_on() == ["db_b"]


def test_a_role_whose_volumes_are_on_two_members_is_given_to_none(
    protect: Callable[..., Any], operator: Operator
) -> None:
    volume = {"type": "OS::Cinder::Volume", "properties": {"size": 1}}

    def two(stack: dict[str, Any]) -> dict[str, Any]:
        stack["resources"]["log_volume"] = volume
        return stack

    log = {"type": "volume_attachment", "properties": {"volume": "log_volume", "server": ACTIVE}}
    data = {"type": "volume_attachment", "properties": {"volume": "data_volume", "server": ACTIVE}}
    group = protect({"data": data, "log": log}, template=two)
    of = {
        name: row["physical_resource_id"] for name, row in group.cloud.resources(group.name).items()
    }
    operator.attach(str(of["data_volume"]), group.server("db_b"))
    operator.attach(str(of["log_volume"]), group.server("db_a"))

    run = group.run("activate_first", group=group.name)

    error = run.output["error"]
    assert error["code"] == "SERVES_TWICE"
    assert {"db_a", "db_b", "data", "log"} <= set(error["message"].replace(",", "").split())
    operator.detach(of["log_volume"], group.server("db_a"))
    group.run("activate_first", group=group.name).assert_succeeded()
    assert group.status()["roles"] == {"active": "db_b"}


def test_a_group_in_service_is_only_released_on_demand(group: Any) -> None:
    group.activate()

    assert refused(group, release=False) == "IN_SERVICE"


def test_a_group_at_work_or_with_a_lost_member_is_not_released(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.activate()
    monkeypatch.setattr(group.state, "eager", False)
    done(orders.Begin(group.name, lost=["db_a"]).run(CONTEXT))
    assert refused(group, release=True) == "NOT_AT_REST"

    group.run("failover", group=group.name).assert_succeeded()
    assert refused(group, release=True) == "NOT_AT_REST"


@pytest.mark.parametrize("lost", [[], ["db_a"]])
@pytest.mark.parametrize("ladder", [["quiesce", "stop"], ["quiesce", "confirm"]])
def test_a_group_whose_stack_was_deleted_first_goes(
    protect: Callable[..., Any], operator: Operator, ladder: list[str], lost: list[str]
) -> None:
    group = protect(fence=ladder)
    group.activate()
    operator.delete_stack(group.name)

    group.run("remove", group=group.name, lost=lost).assert_succeeded()

    done(groups.Undefine(group.name).run(CONTEXT))
