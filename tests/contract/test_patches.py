# SPDX-License-Identifier: Apache-2.0
"""A stack is PATCHed to parameters exactly once, and followed to the end.

Measured on Nova 34, Cinder 29, Heat 27, Keystone 30 and Mistral 23:

patch_parameters

- 202 and IN_PROGRESS with the new values at once. A newer PATCH supersedes. If the older one
  works in a nested stack, the newer one may end in UPDATE_FAILED "Stack UPDATE cancelled";
  sending it once more completes it.
- An unknown parameter is ignored without an error (at creation: 400). A wrong value is a 400.
- Booleans are shown as True and False, lists with commas, JSON as JSON.
- With a template, the parameters, environment and files stay (``test_stack_templates.py``). PATCH
  to ``/preview`` says what becomes of each resource; what would be replaced is named without its
  id.
- An update keeps the stack's ``disable_rollback`` unless it names another one. If rollback is
  enabled and an update fails, Heat goes back to the template and parameters of before it, as action
  ROLLBACK; then only its events have the reason.
- While the stack is deleted: 400 NotSupported; after that 404. It can be read by its id for a
  while.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import requests

from contract.rig import UNKNOWN_ID
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stack_updates import (
    declared_parameters,
    patch_parameters,
    refuse_update,
    same_value,
)
from mistral_failover.fault_points import arm, disarm

LIMIT = 240
"""Seconds that an update may take. A real Heat needs ten, and beside other work a minute and
more."""

_numbers = itertools.count(1)


def fresh() -> str:
    """A value that the stack does not have yet."""
    return f"member-{next(_numbers)}"


def parameters(rig: Any, made: Any) -> dict[str, str]:
    return dict(rig.stack(made)["parameters"])


@pytest.fixture
def sent():
    """How often Heat was asked for an update."""
    seen: list[str] = []
    arm(lambda name: seen.append(name) if name == "patch.before" else None)
    yield seen
    disarm()


@pytest.fixture
def at_rest(rig, pair):
    """The stack, with nothing under way."""
    rig.settled(pair)
    if parameters(rig, pair)["broken"] != "False" or parameters(rig, pair)["wait"] != "0":
        assert rig.patch(pair, parameters={"broken": False, "wait": 0}).status_code == 202
        assert rig.settled(pair) == "UPDATE_COMPLETE"
    return pair


def test_parameters_are_patched_once_and_others_stay(cloud, rig, at_rest, sent):
    value, copies = fresh(), parameters(rig, at_rest)["copies"]
    patched = patch_parameters(cloud, at_rest.name, {"active": value}, LIMIT)
    assert (patched.status, patched.adopted) == ("UPDATE_COMPLETE", False)
    assert patched.stack == f"{at_rest.name}/{at_rest.id}"
    assert parameters(rig, at_rest)["active"] == value
    assert parameters(rig, at_rest)["copies"] == copies
    again = patch_parameters(cloud, at_rest.name, {"active": value}, LIMIT)
    assert again.adopted
    assert again.updated_at == patched.updated_at
    assert sent == ["patch.before"]


def test_a_patch_whose_process_died_after_the_request_is_followed(cloud, rig, at_rest, sent):
    value = fresh()
    answer = rig.patch(at_rest, parameters={"active": value, "wait": rig.long_enough(2)})
    assert answer.status_code == 202
    assert rig.stack(at_rest)["stack_status"] == "UPDATE_IN_PROGRESS"
    patched = patch_parameters(cloud, at_rest.name, {"active": value}, LIMIT)
    assert (patched.status, patched.adopted) == ("UPDATE_COMPLETE", True)
    assert sent == []


def test_a_patch_whose_answer_got_lost_is_followed(cloud, rig, at_rest):
    value, lost = fresh(), []

    def lose(name: str) -> None:
        if name == "call.after" and not lost:
            lost.append(name)
            raise requests.ConnectionError("the answer got lost")

    arm(lose)
    try:
        patch_parameters(cloud, at_rest.name, {"active": value}, LIMIT)
    finally:
        disarm()
    assert lost
    assert parameters(rig, at_rest)["active"] == value


def test_an_update_under_way_to_other_parameters_is_superseded(cloud, rig, at_rest):
    first, second = fresh(), fresh()
    answer = rig.patch(at_rest, parameters={"active": first, "wait": rig.long_enough(3)})
    assert answer.status_code == 202
    shown = rig.stack(at_rest)
    assert shown["stack_status"] == "UPDATE_IN_PROGRESS"
    assert shown["parameters"]["active"] == first, "Heat shows at once what is on its way"
    patched = patch_parameters(cloud, at_rest.name, {"active": second}, LIMIT)
    assert (patched.status, patched.adopted) == ("UPDATE_COMPLETE", False)
    assert parameters(rig, at_rest)["active"] == second


def test_a_stack_is_listed_by_its_id_with_the_status_of_its_update(cloud, rig, at_rest):
    assert cloud.listed_status(at_rest.id) == rig.stack(at_rest)["stack_status"]
    answer = rig.patch(at_rest, parameters={"active": fresh(), "wait": rig.long_enough(3)})
    assert answer.status_code == 202
    assert cloud.listed_status(at_rest.id) == "UPDATE_IN_PROGRESS"
    assert rig.settled(at_rest) == cloud.listed_status(at_rest.id)
    assert cloud.listed_status(UNKNOWN_ID) is None


def test_of_two_patches_the_newer_wins(rig, at_rest):
    first, second = fresh(), fresh()
    assert rig.patch(at_rest, parameters={"active": first}).status_code == 202
    assert rig.patch(at_rest, parameters={"active": second}).status_code == 202
    assert rig.settled(at_rest) == "UPDATE_COMPLETE"
    assert parameters(rig, at_rest)["active"] == second


def test_a_failed_update_is_reported_with_its_reason_and_can_be_sent_again(cloud, rig, at_rest):
    value = fresh()
    wanted = {"active": value, "broken": True}
    for action in ("UPDATE", "CREATE"):  # what failed is replaced by the next update
        with pytest.raises(CloudError) as raised:
            patch_parameters(cloud, at_rest.name, wanted, LIMIT)
        assert raised.value.code == "STACK_FAILED"
        assert f"Resource {action} failed: ValueError: resources.slow" in raised.value.message
    shown = rig.stack(at_rest)
    assert shown["stack_status"] == "UPDATE_FAILED"
    assert shown["parameters"]["active"] == value
    patched = patch_parameters(cloud, at_rest.name, {"active": value, "broken": False}, LIMIT)
    assert (patched.status, patched.adopted) == ("UPDATE_COMPLETE", False)


def test_heat_goes_back_if_an_update_fails_and_keeps_the_reason_in_its_events(rig, demo, at_rest):
    first, second = fresh(), fresh()
    assert rig.patch(at_rest, disable_rollback=False, parameters={"active": first}).ok
    rig.settled(at_rest)
    assert rig.stack(at_rest)["disable_rollback"] is False

    assert rig.patch(at_rest, parameters={"active": second, "broken": True}).ok

    rig.until(lambda: rig.stack(at_rest)["stack_status"] == "ROLLBACK_COMPLETE")
    shown = rig.stack(at_rest)
    assert shown["disable_rollback"] is False, "the update did not name it"
    assert (shown["parameters"]["active"], shown["parameters"]["broken"]) == (first, "False")
    assert "ValueError" not in shown["stack_status_reason"]
    events = demo.heat("GET", f"{at_rest.path}/events?sort_dir=desc&limit=100").json()["events"]
    failed = [e for e in events if e["resource_status"] == "UPDATE_FAILED"]
    whole = next(e for e in failed if e["physical_resource_id"] == at_rest.id)
    assert "ValueError" in whole["resource_status_reason"]


def test_our_update_is_not_taken_back_by_heat(cloud, rig, at_rest):
    before, value = fresh(), fresh()
    assert rig.patch(at_rest, disable_rollback=False, parameters={"active": before}).ok
    rig.settled(at_rest)

    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, at_rest.name, {"active": value, "broken": True}, LIMIT)

    assert raised.value.code == "STACK_FAILED"
    assert "ValueError" in raised.value.message
    shown = rig.stack(at_rest)
    assert (shown["stack_status"], shown["disable_rollback"]) == ("UPDATE_FAILED", True)
    assert shown["parameters"]["active"] == value


def test_a_rollback_of_another_client_s_update_is_followed_by_ours(cloud, rig, at_rest):
    value = fresh()
    wanted = {"active": fresh(), "broken": True}
    assert rig.patch(at_rest, disable_rollback=False, parameters=wanted).ok

    patch_parameters(cloud, at_rest.name, {"active": value, "broken": False}, LIMIT)

    assert rig.settled(at_rest) == "UPDATE_COMPLETE"
    assert parameters(rig, at_rest)["active"] == value


def test_a_hidden_parameter_is_sent_each_time_because_it_cannot_be_compared(cloud, at_rest, sent):
    for _ in range(2):
        assert not patch_parameters(cloud, at_rest.name, {"secret": "t"}, LIMIT).adopted
    assert sent == ["patch.before"] * 2


def test_an_unknown_parameter_is_named_for_heat_passes_it_over(cloud, rig, at_rest, sent):
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, at_rest.name, {"acitve": "db_b"}, LIMIT)
    assert raised.value.code == "UNKNOWN_PARAMETER"
    assert "acitve" in raised.value.message
    assert "active, broken, copies" in raised.value.message
    assert sent == []

    assert rig.patch(at_rest, parameters={"acitve": "db_b"}).status_code == 202
    assert rig.settled(at_rest) == "UPDATE_COMPLETE"
    assert "acitve" not in parameters(rig, at_rest)
    answer = rig.api().heat(
        "POST",
        "/stacks",
        {
            "stack_name": rig.name(),
            "template": "heat_template_version: 2021-04-16",
            "parameters": {"acitve": "db_b"},
        },
    )
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "UnknownUserParameter")


def test_a_value_of_the_wrong_type_is_refused(cloud, rig, at_rest):
    before = rig.stack(at_rest)
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, at_rest.name, {"copies": "many"}, LIMIT)
    assert raised.value.code == "BAD_REQUEST"
    assert "Parameter 'copies' is invalid" in raised.value.message
    assert rig.stack(at_rest) == before


def test_heat_shows_values_as_text_and_they_are_recognised(cloud, rig, at_rest, sent):
    wanted = {
        "copies": next(_numbers) + 0.5,
        "shared": False,
        "zones": ["x", "y", fresh()],
        "options": {"k": 2, "list": [1], "fresh": fresh()},
    }
    patch_parameters(cloud, at_rest.name, wanted, LIMIT)
    shown = parameters(rig, at_rest)
    assert shown["copies"] == str(wanted["copies"])
    assert shown["shared"] == "False"
    assert shown["zones"] == ",".join(wanted["zones"])
    assert shown["options"].startswith('{"k": 2, ')
    assert shown["secret"] == "******"
    assert shown["OS::stack_name"] == at_rest.name
    assert all(same_value(value, shown[name]) for name, value in wanted.items())
    assert patch_parameters(cloud, at_rest.name, wanted, LIMIT).adopted
    assert len(sent) == 1


def test_an_update_that_takes_too_long_ends_with_its_state(cloud, rig, at_rest):
    value = fresh()
    # The resource takes that long; a limit of nothing allows for one look after the request.
    answer = rig.patch(at_rest, parameters={"active": value, "wait": rig.long_enough(3)})
    assert answer.status_code == 202
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, at_rest.name, {"active": value}, rig.seconds(0.5))
    assert raised.value.code == "TIMEOUT"
    assert "UPDATE_IN_PROGRESS" in raised.value.message
    assert rig.settled(at_rest) == "UPDATE_COMPLETE"


def test_a_stack_that_does_not_exist_is_reported(cloud):
    for name in ("unknown", UNKNOWN_ID):
        with pytest.raises(CloudError) as raised:
            patch_parameters(cloud, name, {"active": "db_b"}, 10)
        assert raised.value.code == "NOT_FOUND"


def test_a_stack_that_goes_away_takes_no_update(cloud, rig, demo):
    template = {
        "heat_template_version": "2021-04-16",
        "parameters": {"active": {"type": "string", "default": "a"}},
        "resources": {
            "slow": {
                "type": "OS::Heat::TestResource",
                "properties": {"action_wait_secs": {"delete": rig.long_enough(3)}},
            }
        },
    }
    made = rig.make_stack(template)
    assert demo.heat("POST", "/stacks", {"stack_name": made.name, "template": template}).json()[
        "error"
    ]["type"] == ("StackExists")
    assert demo.heat("DELETE", made.path).status_code == 204
    answer = rig.patch(made, parameters={"active": "b"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "NotSupported")
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, f"{made.name}/{made.id}", {"active": "b"}, 10)
    assert raised.value.code == "CONFLICT"
    assert "DELETE_IN_PROGRESS" in raised.value.message
    rig.until(lambda: demo.heat("GET", f"/stacks/{made.name}").status_code == 404)
    # It can be looked at by its id for a while yet, and nothing else.
    assert rig.stack(made)["stack_status"] == "DELETE_COMPLETE"
    assert demo.heat("GET", f"{made.path}/resources").json() == {"resources": []}
    for answer in (rig.patch(made, parameters={"active": "b"}), demo.heat("DELETE", made.path)):
        assert answer.status_code == 404
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, made.name, {"active": "b"}, 10)
    assert raised.value.code == "NOT_FOUND"


def test_a_stack_shows_which_parameters_its_template_declares(cloud, at_rest):
    assert declared_parameters(cloud, at_rest.name) == [
        *("active", "broken", "copies", "kind", "options", "secret", "shared", "wait", "zones")
    ]


@pytest.mark.parametrize("wanted", [{"copies": 3}, {"kind": "b"}, {"acitve": "ignored"}])
def test_what_heat_would_accept_is_not_refused_and_changes_nothing(cloud, rig, at_rest, wanted):
    before = rig.stack(at_rest)

    refuse_update(cloud, at_rest.name, parameters=wanted)

    assert rig.stack(at_rest) == before


@pytest.mark.parametrize("wanted", [{"copies": "many"}, {"kind": "c"}])
def test_heat_refuses_a_value_of_the_wrong_type_or_outside_a_constraint_without_an_update(
    cloud, rig, at_rest, wanted
):
    before = rig.stack(at_rest)

    with pytest.raises(CloudError) as raised:
        refuse_update(cloud, at_rest.name, parameters=wanted)

    (name,) = wanted
    assert (raised.value.code, raised.value.unknown) == ("BAD_REQUEST", False)
    assert name in raised.value.message
    assert rig.stack(at_rest) == before


def test_heat_refuses_a_template_that_lacks_what_it_names_without_an_update(cloud, rig, at_rest):
    before = rig.stack(at_rest)
    lacking = {
        "heat_template_version": "2021-04-16",
        "resources": {
            "sign": {"type": "OS::Heat::Value", "properties": {"value": {"get_param": "no"}}}
        },
    }

    with pytest.raises(CloudError) as raised:
        refuse_update(cloud, at_rest.name, template=lacking)

    assert raised.value.code == "BAD_REQUEST"
    assert rig.stack(at_rest) == before
