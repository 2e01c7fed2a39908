# SPDX-License-Identifier: Apache-2.0
"""A stack is read with few calls, and PATCHed to parameters exactly once."""

import pytest

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.patches import patch_parameters, same_value
from mistral_failover.cloud.stacks import members, stack_map


def patches(emulator):
    return [row for row in emulator.critical() if row["kind"] == "patch"]


def parameters(cloud, stack):
    return cloud.heat.stacks.get(stack).parameters


def test_the_resources_of_a_stack_are_known_by_name(cloud, pair):
    resources = stack_map(cloud, pair.name)
    assert set(resources) == {"db_a", "db_b", "data"}
    assert resources["db_a"].physical_id == pair.a
    assert resources["db_a"].type == "OS::Nova::Server"
    assert resources["data"].status == "CREATE_COMPLETE"
    assert resources["data"].created_at


def test_named_servers_are_members(cloud, pair):
    found = {m.name: m.server_id for m in members(cloud, pair.name, servers=["db_a", "db_b"])}
    assert found == {"db_a": pair.a, "db_b": pair.b}


def test_the_servers_of_an_autoscaling_group_are_members(cloud, group):
    found = members(cloud, group, autoscaling_group="db_servers")
    assert len(found) == 2
    assert {m.server_id for m in found} == {server.id for server in cloud.compute.servers()}
    assert all(m.status == "CREATE_COMPLETE" for m in found)
    assert found == sorted(found, key=lambda m: (m.created_at, m.name))


def test_a_member_that_was_marked_unhealthy_shows_it(cloud, group):
    nested = stack_map(cloud, group)["db_servers"].physical_id
    lost = members(cloud, group, autoscaling_group="db_servers")[0]
    cloud.heat.resources.mark_unhealthy(nested, lost.name, True, "its host died")
    found = {m.name: m.status for m in members(cloud, group, autoscaling_group="db_servers")}
    assert found[lost.name] == "CHECK_FAILED"


@pytest.mark.parametrize(
    "choice", [{"servers": ["db_a", "nobody"]}, {"autoscaling_group": "nobody"}]
)
def test_a_name_that_the_stack_lacks_is_reported_with_those_it_has(cloud, pair, choice):
    with pytest.raises(CloudError) as raised:
        members(cloud, pair.name, **choice)
    assert raised.value.code == "NOT_FOUND"
    assert "nobody" in raised.value.message
    assert "data, db_a, db_b" in raised.value.message


@pytest.mark.parametrize("choice", [{"servers": ["data"]}, {"autoscaling_group": "data"}])
def test_a_resource_of_the_wrong_type_is_reported(cloud, pair, choice):
    with pytest.raises(CloudError) as raised:
        members(cloud, pair.name, **choice)
    assert raised.value.code == "BAD_REQUEST"


def test_a_stack_of_another_project_does_not_exist(connect, pair):
    with pytest.raises(CloudError) as raised:
        stack_map(connect("other"), pair.name)
    assert raised.value.code == "NOT_FOUND"


def test_parameters_are_patched_and_followed_to_the_end(cloud, pair, emulator):
    emulator.set_latency(stack_patch=0.2)
    patched = patch_parameters(cloud, pair.name, {"active": "db_b"}, 10)
    assert (patched.status, patched.adopted) == ("UPDATE_COMPLETE", False)
    assert parameters(cloud, pair.name)["active"] == "db_b"
    assert parameters(cloud, pair.name)["copies"] == "1"


def test_a_stack_that_carries_the_parameters_is_left_alone(cloud, pair, emulator):
    patched = patch_parameters(cloud, pair.name, {"active": "db_a", "copies": 1}, 10)
    assert patched.adopted
    assert patches(emulator) == []


def test_a_repeat_sends_nothing(cloud, pair, emulator):
    patch_parameters(cloud, pair.name, {"active": "db_b", "copies": 2}, 10)
    assert patch_parameters(cloud, pair.name, {"active": "db_b", "copies": 2}, 10).adopted
    assert len(patches(emulator)) == 1


def test_a_patch_whose_process_died_after_the_request_is_followed(cloud, pair, emulator):
    emulator.set_latency(stack_patch=0.3)
    stack = cloud.heat.stacks.get(pair.name)
    cloud.heat.stacks.update(stack.identifier, existing=True, parameters={"active": "db_b"})
    patched = patch_parameters(cloud, pair.name, {"active": "db_b"}, 10)
    assert (patched.status, patched.adopted) == ("UPDATE_COMPLETE", True)
    assert len(patches(emulator)) == 1


def test_a_patch_whose_answer_got_lost_is_followed(cloud, pair, emulator):
    emulator.api_fault("patch", "lost")
    patch_parameters(cloud, pair.name, {"active": "db_b"}, 10)
    assert len(patches(emulator)) == 1
    assert parameters(cloud, pair.name)["active"] == "db_b"


def test_an_update_to_other_parameters_is_superseded(cloud, pair, emulator):
    emulator.set_latency(stack_patch=0.3)
    stack = cloud.heat.stacks.get(pair.name)
    cloud.heat.stacks.update(stack.identifier, existing=True, parameters={"active": "db_x"})
    patch_parameters(cloud, pair.name, {"active": "db_b"}, 10)
    assert parameters(cloud, pair.name)["active"] == "db_b"


def test_a_failed_update_is_reported_with_its_reason(cloud, pair, emulator):
    emulator.api_fault("stack_patch", "fail")
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, pair.name, {"active": "db_b"}, 10)
    assert raised.value.code == "STACK_FAILED"
    assert "Injected failure" in raised.value.message


def test_after_a_failed_update_the_same_parameters_are_sent_again(cloud, pair, emulator):
    emulator.api_fault("stack_patch", "fail")
    with pytest.raises(CloudError):
        patch_parameters(cloud, pair.name, {"active": "db_b"}, 10)
    patched = patch_parameters(cloud, pair.name, {"active": "db_b"}, 10)
    assert (patched.status, patched.adopted) == ("UPDATE_COMPLETE", False)


def test_a_hidden_parameter_is_sent_each_time_for_nobody_can_compare_it(cloud, pair, emulator):
    for _ in range(2):
        patch_parameters(cloud, pair.name, {"secret": "t"}, 10)
    assert len(patches(emulator)) == 2


def test_a_parameter_that_the_template_lacks_is_named(cloud, pair, emulator):
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, pair.name, {"acitve": "db_b"}, 10)
    assert raised.value.code == "UNKNOWN_PARAMETER"
    assert "acitve" in raised.value.message
    assert "active, copies, secret" in raised.value.message
    assert patches(emulator) == []


def test_a_stack_that_does_not_exist_is_reported(cloud):
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, "nobody", {"active": "db_b"}, 5)
    assert raised.value.code == "NOT_FOUND"


def test_an_update_that_takes_too_long_ends_with_its_state(cloud, pair, emulator):
    emulator.set_latency(stack_patch=30)
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, pair.name, {"active": "db_b"}, 0.2)
    assert raised.value.code == "TIMEOUT"
    assert "UPDATE_IN_PROGRESS" in raised.value.message


@pytest.mark.parametrize(
    ("wanted", "shown", "same"),
    [
        ("a", "a", True),
        ("a", "b", False),
        (3, "3", True),
        (3, "3.0", True),
        (3, "x", False),
        (True, "True", True),
        (True, "false", False),
        (False, "no", True),
        (["a", "b"], "a,b", True),
        (["a"], '["a"]', True),
        ({"k": 1}, '{"k": 1}', True),
        ({"k": 1}, "{'k': 1}", False),
    ],
)
def test_values_are_compared_as_heat_shows_them(wanted, shown, same):
    assert same_value(wanted, shown) is same
