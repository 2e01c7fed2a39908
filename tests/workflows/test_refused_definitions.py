# SPDX-License-Identifier: Apache-2.0
"""A group file with a mistake is refused as a whole when it is given, and the application goes on
serving: no mistake is found in the middle of a move."""

from __future__ import annotations

from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import groups, reports
from support.activation import done

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())
ACTIVE = {"get_param": "active"}


def answer(group: Any, document: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What the action answers, or the error that it refuses the file with."""
    found = groups.Define(document, name=group.name, **more).run(CONTEXT)
    return dict(found.error if isinstance(found, Result) else found)


def with_typos(group: Any) -> dict[str, Any]:
    """Three of them: a volume, a parameter of the stack, a command."""
    document = group.document()
    parts = document["resources"]
    parts["data"]["properties"]["volume"] = "data_volum"
    parts["routing"]["properties"]["parameters"] = {"activ": ACTIVE}
    parts["database"]["properties"]["stop"] = "stpo"
    return document


TYPOS = [
    ("resources.data.properties.volume", "NOT_FOUND"),
    ("resources.database.properties.stop", "UNKNOWN_COMMAND"),
    ("resources.routing.properties.parameters.activ", "UNKNOWN_PARAMETER"),
]


def fields(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["field"], each["code"]) for each in found]


@pytest.fixture
def serving(group: Any) -> Any:
    """A group that serves on db_a."""
    group.activate()
    return group


@pytest.mark.parametrize("dry_run", [False, True], ids=["stored", "a dry run"])
def test_all_mistakes_of_an_update_are_said_at_once_and_nothing_is_stored(
    serving: Any, dry_run: bool
) -> None:
    before = serving.document()

    refused = answer(serving, with_typos(serving), dry_run=dry_run)

    assert refused["code"] == "INVALID_DOCUMENT"
    assert fields(refused["problems"]) == TYPOS
    assert all(each["message"] and each["remedy"] for each in refused["problems"])
    assert serving.document() == before
    serving.run("activate_first", group=serving.name).assert_succeeded()
    assert serving.status()["status"] == "COMPLETE"
    assert serving.observed()["status"] == "SERVING"
    assert (serving.runs_on(), serving.holders()) == (["db_a"], ["db_a"])


def test_a_stack_refuses_the_same_update_in_its_workflow(serving: Any) -> None:
    """As a Heat template does that defines the group in its stack."""
    run = serving.run("protect", name=serving.name, definition=with_typos(serving))

    assert run.state == "ERROR"
    assert fields(run.output["error"]["problems"]) == TYPOS
    assert serving.runs_on() == ["db_a"]


def test_a_value_that_heat_does_not_accept_is_refused_in_heat_s_words(protect: Any) -> None:
    """Heat knows the types and constraints; a reference to the role is checked for each member."""

    def constrained(stack: dict[str, Any]) -> dict[str, Any]:
        only = [{"allowed_values": ["none", "db_a"]}]
        return {
            **stack,
            "parameters": {"active": {"type": "string", "default": "none", "constraints": only}},
        }

    with pytest.raises(AssertionError) as caught:
        protect(template=constrained)

    assert "resources.routing.properties.parameters: " in str(caught.value)
    assert "'db_b' is not an allowed value" in str(caught.value)


def test_what_is_wrong_already_does_not_keep_an_operator_from_correcting_another_part(
    serving: Any,
) -> None:
    serving.cloud.add_application(serving.name, start="begin", stop="stop", stack=serving.name)
    document = serving.document() | {"limits": {"per_hour": 7}}

    accepted = answer(serving, document)

    assert accepted["lines"] == ['+ limits: {"per_hour": 7}']
    assert fields(accepted["wrong_before"]) == [
        ("resources.database.properties.start", "UNKNOWN_COMMAND")
    ]


def test_a_service_that_does_not_answer_refuses_nothing_and_is_named(serving: Any) -> None:
    serving.cloud.api_fault("volume_show", times=100)
    document = serving.document()
    document["resources"]["data"]["properties"]["when_host_is_down"] = "delete_server"

    accepted = answer(serving, document)

    assert [f for f, code in fields(accepted["unchecked"])] == ["resources.data.properties.volume"]
    serving.cloud.clear_api_faults()
    assert answer(serving, document)["unchecked"] == []


def test_a_volume_of_another_server_is_refused(serving: Any, protect: Any) -> None:
    other = protect()
    other.activate()
    taken = other.cloud.resources(other.name)["data_volume"]["physical_resource_id"]
    document = serving.document()
    document["resources"]["data"]["properties"]["volume"] = taken

    refused = answer(serving, document)

    assert fields(refused["problems"]) == [("resources.data.properties.volume", "VOLUME_IN_USE")]


def test_a_volume_of_a_member_that_leaves_the_group_is_not_refused(serving: Any) -> None:
    document = serving.document() | {"members": {"servers": ["db_b"]}}
    document["resources"]["data"]["properties"]["when_host_is_down"] = "delete_server"

    assert "created" in answer(serving, document)


def test_a_stack_that_does_not_exist_is_refused_for_a_group_that_serves(serving: Any) -> None:
    refused = answer(serving, serving.document() | {"stack": "paymnts"})

    assert fields(refused["problems"]) == [("stack", "NOT_FOUND")]


def test_a_group_may_be_defined_before_its_stack_exists(serving: Any) -> None:
    document = serving.document() | {"stack": f"{serving.name}-later"}

    accepted = done(groups.Define(document).run(CONTEXT))

    assert accepted["created"]
    assert fields(accepted["unchecked"]) == [("stack", "NOT_FOUND")]


def test_a_group_that_is_brought_up_at_once_needs_its_stack_and_the_nearest_name_is_said(
    serving: Any,
) -> None:
    """Else a mistyped name leaves a group behind that can never be activated."""
    mistyped = serving.name[:-1]
    document = serving.document() | {"stack": mistyped}

    refused = groups.Define(document, name="mistyped", stack_exists=True).run(CONTEXT).error

    assert fields(refused["problems"]) == [("stack", "NOT_FOUND")]
    assert f'"{serving.name}"' in refused["problems"][0]["remedy"]
    known = reports.Status().run(CONTEXT)["groups"]
    assert "mistyped" not in known
