# SPDX-License-Identifier: Apache-2.0
"""A stack is read with few calls: its resources by name, and the servers that are members.

Measured on Nova 34, Cinder 29, Heat 27, Keystone 30 and Mistral 23:

stack_map, members

- By name or id: a 302 to both.
- All resources are listed from the start, INIT_COMPLETE and without an id until their turn.
- A member of a group has ``parent_resource``. If the member is a stack, its server is one level
  below.
- A replaced member keeps its name, with a new id and a new creation time.
- A resource of an alias is listed with the alias, and with the id of the server that is behind it;
  or, with a link "nested", with the id of the stack. The stack's environment, as given, says which.
"""

import pytest

from contract.conftest import of
from contract.rig import UNKNOWN_ID, Made
from contract.templates import ALIASED_FILES, ALIASES, REGISTRY
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stack_members import locate, members
from mistral_failover.cloud.stacks import stack_map, stack_shown
from mistral_failover.cloud.volumes import resolve_volume


def rows_of(demo, stack, depth=0):
    query = f"?nested_depth={depth}" if depth else ""
    return demo.heat("GET", f"{stack.path}/resources{query}").json()["resources"]


def test_the_resources_of_a_stack_are_known_by_name(cloud, pair):
    for name in (pair.name, pair.id, f"{pair.name}/{pair.id}"):
        resources = stack_map(cloud, name)
        assert set(resources) == {"db_a", "db_b", "data", "slow"}
    assert resources["db_a"].physical_id == pair.ids["db_a"]
    assert resources["db_a"].type == "OS::Nova::Server"
    assert resources["data"].status == "CREATE_COMPLETE"
    assert resources["data"].created_at.endswith("Z")


def test_heat_lists_these_fields_of_a_resource(demo, pair, groups):
    for row in rows_of(demo, pair):
        assert set(row) == {
            "resource_name",
            "logical_resource_id",
            "physical_resource_id",
            "resource_type",
            "resource_status",
            "resource_status_reason",
            "creation_time",
            "updated_time",
            "required_by",
            "links",
        }
    parents = {row["resource_name"]: row.get("parent_resource") for row in rows_of(demo, groups, 2)}
    assert [parents[name] for name in ("plain", "deep", "data")] == [None, None, None]
    assert list(parents.values()).count("plain") == 2
    (stack,) = [name for name, parent in parents.items() if parent == "deep"]
    assert parents["node"] == stack
    nested = {
        row["resource_name"]: "nested" in [link["rel"] for link in row["links"]]
        for row in rows_of(demo, groups, 2)
    }
    assert [nested[name] for name in ("plain", "deep", stack, "node", "data")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_stack_is_found_by_a_redirect_from_its_name_or_id(demo, pair):
    for wanted in (pair.name, pair.id):
        for rest in ("", "/resources", "/resources?nested_depth=2"):
            answer = demo.heat("GET", f"/stacks/{wanted}{rest}")
            assert answer.status_code == 302
            assert answer.headers["Location"].endswith(pair.path + rest)


def test_named_servers_are_members(cloud, pair):
    found = {m.name: m.server_id for m in members(cloud, pair.name, servers=["db_a", "db_b"])}
    assert found == {name: pair.ids[name] for name in ("db_a", "db_b")}


def test_the_servers_of_an_autoscaling_group_are_members(cloud, demo, groups):
    found = members(cloud, groups.name, autoscaling_group="plain")
    assert len(found) == 2
    for member in found:
        assert demo.server(member.server_id)["status"] == "ACTIVE"
        assert member.status in ("CREATE_COMPLETE", "CHECK_COMPLETE")
    assert found == sorted(found, key=lambda m: (m.created_at, m.name))


def test_a_member_that_is_a_stack_with_a_server_is_that_server(cloud, demo, groups):
    (member,) = members(cloud, groups.name, autoscaling_group="deep")
    rows = {row["resource_name"]: row for row in rows_of(demo, groups, 2)}
    assert rows[member.name]["resource_type"] == "member.yaml"
    assert member.server_id == rows["node"]["physical_resource_id"]
    assert demo.server(member.server_id)["status"] == "ACTIVE"


def test_a_member_that_is_marked_unhealthy_shows_it_and_is_replaced_under_its_name(
    cloud, rig, demo, groups
):
    before = members(cloud, groups.name, autoscaling_group="plain")
    nested = stack_map(cloud, groups.name)["plain"].physical_id
    lost, kept = before
    cloud.heat.resources.mark_unhealthy(nested, lost.name, True, "its host died")
    found = {m.name: m.status for m in members(cloud, groups.name, autoscaling_group="plain")}
    assert found[lost.name] == "CHECK_FAILED"
    (row,) = [row for row in rows_of(demo, groups, 1) if row["resource_name"] == lost.name]
    assert row["resource_status_reason"] == "its host died"
    assert row["physical_resource_id"] == lost.server_id

    assert rig.patch(groups).status_code == 202
    assert rig.settled(groups) == "UPDATE_COMPLETE"
    after = members(cloud, groups.name, autoscaling_group="plain")
    assert {m.name for m in after} == {m.name for m in before}
    servers = {m.name: m for m in after}
    assert servers[kept.name] == kept
    assert servers[lost.name].server_id != lost.server_id
    assert servers[lost.name].created_at >= lost.created_at
    assert after[0].name == kept.name or servers[lost.name].created_at == kept.created_at
    rig.until(lambda: demo.server(lost.server_id) is None)


def test_a_mark_can_be_taken_back(demo, pair):
    path = f"{pair.path}/resources/db_b"
    marked = demo.heat("PATCH", path, {"mark_unhealthy": True})
    assert (marked.status_code, marked.text) == (200, "null")
    shown = demo.heat("GET", path).json()["resource"]
    assert shown["resource_status"] == "CHECK_FAILED"
    assert demo.heat("PATCH", path, {"mark_unhealthy": False}).status_code == 200
    shown = demo.heat("GET", path).json()["resource"]
    assert shown["resource_status"] == "CHECK_COMPLETE"
    assert shown["resource_status_reason"] == "state changed by resource_mark_unhealthy api"
    answer = demo.heat("PATCH", path, {})
    assert answer.status_code == 400
    assert "mark_unhealthy" in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def aliases(rig):
    """A stack whose types have names of its own."""
    files = {name: of(text, rig) for name, text in ALIASED_FILES.items()}
    environment = {"resource_registry": REGISTRY}
    made = rig.make_stack(of(ALIASES, rig), files, environment=environment)
    yield made
    rig.remove_stack(made)


def test_heat_lists_the_alias_and_shows_what_is_behind_it(demo, aliases):
    rows = {row["resource_name"]: row for row in rows_of(demo, aliases, 5)}
    assert rows["single"]["resource_type"] == "Own::Server"
    assert demo.server(rows["single"]["physical_resource_id"])["status"] == "ACTIVE"
    assert rows["deep"]["resource_type"] == "Own::Node"
    nested = {
        name: "nested" in [link["rel"] for link in row["links"]] for name, row in rows.items()
    }
    assert (nested["single"], nested["deep"], nested["disk"]) == (False, True, False)
    registry = demo.heat("GET", f"{aliases.path}/environment").json()["resource_registry"]
    assert {name: registry[name] for name in REGISTRY} == REGISTRY
    assert registry["resources"] == {}


def test_an_alias_has_the_type_of_heat_that_is_behind_it(cloud, aliases):
    resources = stack_map(cloud, aliases.name)
    assert resources["single"].type == "OS::Nova::Server"
    assert resources["disk"].type == "OS::Cinder::Volume"
    assert resolve_volume(cloud, aliases.name, "disk") == aliases.ids["disk"]


def test_members_may_have_aliases_and_be_deep_in_stacks(cloud, demo, aliases):
    found = {m.name: m.server_id for m in members(cloud, aliases.name, servers=["single", "deep"])}
    assert found["single"] == aliases.ids["single"]
    assert demo.server(found["deep"])["status"] == "ACTIVE"
    (grown,) = members(cloud, aliases.name, autoscaling_group="crew")
    assert demo.server(grown.server_id)["status"] == "ACTIVE"
    assert grown.server_id not in found.values()
    assert locate(cloud, aliases.name, "deep").server_id == found["deep"]
    inner = locate(cloud, aliases.name, "deep", resource="inner")
    assert (inner.stack, inner.server_id) == (aliases.ids["deep"], found["deep"])


def test_a_group_without_servers_is_reported_with_what_it_has(cloud, aliases):
    with pytest.raises(CloudError) as raised:
        members(cloud, aliases.name, autoscaling_group="hollow")
    assert raised.value.code == "BAD_REQUEST"
    for seen in ("hollow", "Own::Hollow", "marker", "OS::Heat::TestResource"):
        assert seen in raised.value.message


@pytest.mark.parametrize(
    "choice", [{"servers": ["db_a", "unknown"]}, {"autoscaling_group": "unknown"}]
)
def test_a_name_that_the_stack_lacks_is_reported_with_those_it_has(cloud, pair, choice):
    with pytest.raises(CloudError) as raised:
        members(cloud, pair.name, **choice)
    assert raised.value.code == "NOT_FOUND"
    assert "unknown" in raised.value.message
    assert "data, db_a, db_b" in raised.value.message


@pytest.mark.parametrize(
    ("look", "meant"),
    [
        (lambda cloud, stack: resolve_volume(cloud, stack, "dta"), "data"),
        (lambda cloud, stack: members(cloud, stack, servers=["db_aa"]), "db_a"),
    ],
)
def test_a_name_that_is_nearly_right_is_reported_with_the_one_that_is_meant(
    cloud, pair, look, meant
):
    with pytest.raises(CloudError) as raised:
        look(cloud, pair.name)
    assert raised.value.remedy.startswith(f'Did you mean "{meant}"?')


@pytest.mark.parametrize("choice", [{"servers": ["data"]}, {"autoscaling_group": "data"}])
def test_a_resource_of_the_wrong_type_is_reported(cloud, pair, choice):
    with pytest.raises(CloudError) as raised:
        members(cloud, pair.name, **choice)
    assert raised.value.code == "BAD_REQUEST"


@pytest.mark.parametrize("whose", ["unknown", "another project's"])
def test_a_stack_out_of_reach_does_not_exist(connect, cloud, demo, other, pair, whose):
    if whose == "unknown":
        reader, api, path = cloud, demo, f"unknown/{UNKNOWN_ID}"
    else:
        reader, api, path = connect("other"), other, f"{pair.name}/{pair.id}"
    for wanted in path.split("/"):
        with pytest.raises(CloudError) as raised:
            stack_map(reader, wanted)
        assert raised.value.code == "NOT_FOUND"
    for answer in (
        api.heat("GET", f"/stacks/{path}"),
        api.heat("PATCH", f"/stacks/{path}", {"parameters": {}}),
        api.heat("DELETE", f"/stacks/{path}"),
        api.heat("GET", f"/stacks/{path}/resources"),
    ):
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert error["type"] == "EntityNotFound"
        assert error["message"] == f"The Stack ({path.split('/')[0]}) could not be found."


def test_a_resource_that_a_stack_lacks_is_a_404(demo, pair):
    answer = demo.heat("GET", f"{pair.path}/resources/nothing")
    assert answer.status_code == 404
    assert answer.json()["error"] == {
        "type": "ResourceNotFound",
        "traceback": None,
        "message": f"The Resource (nothing) could not be found in Stack {pair.name}.",
    }


def test_a_stack_that_is_made_again_has_the_name_and_another_id(cloud, demo, rig):
    template = {
        "heat_template_version": "2021-04-16",
        "resources": {"data": {"type": "OS::Cinder::Volume", "properties": {"size": 1}}},
    }
    first = rig.make_stack(template)
    rig.remove_stack(first)
    answer = demo.heat("POST", "/stacks", {"stack_name": first.name, "template": template})
    assert answer.status_code == 201, answer.text
    again = Made(first.name, str(answer.json()["stack"]["id"]), {})

    try:
        assert rig.settled(again) == "CREATE_COMPLETE"
        assert again.id != first.id
        assert stack_shown(cloud, first.name).id == again.id
        assert str(stack_shown(cloud, first.id).stack_status) == "DELETE_COMPLETE"
    finally:
        rig.remove_stack(again)


def test_what_a_stack_retains_outlives_it(demo, rig):
    volume = {
        "type": "OS::Cinder::Volume",
        "deletion_policy": "Retain",
        "properties": {"size": 1},
    }
    made = rig.make_stack({"heat_template_version": "2021-04-16", "resources": {"data": volume}})
    rig.remove_stack(made)

    path = f"/volumes/{made.ids['data']}"
    assert demo.cinder("GET", path).json()["volume"]["status"] == "available"
    assert demo.cinder("DELETE", path).status_code == 202
    rig.until(lambda: demo.cinder("GET", path).status_code == 404)
