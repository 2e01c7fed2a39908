# SPDX-License-Identifier: Apache-2.0
"""A stack gets another template, unless that would take what a group needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from contract.conftest import of
from contract.rig import Made, Rig
from contract.templates import PAIR
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.heat_replacements import KeptParts, refuse_template
from mistral_failover.cloud.stack_updates import patch_template

NOTE = """
heat_template_version: 2021-04-16
resources:
  note: {type: OS::Heat::TestResource, properties: {value: kept}}
"""


@pytest.fixture(scope="module")
def templated(rig: Rig) -> Iterator[Made]:
    """A stack of these tests' own, with a file, a parameter of its environment, and one of an
    update, which are not the defaults."""
    environment = {"parameters": {"options": {"k": 2}}}
    made = rig.make_stack(template(rig), {"note.yaml": NOTE}, environment=environment)
    try:
        assert rig.patch(made, parameters={"copies": 2}).status_code == 202
        rig.until(lambda: rig.stack(made)["stack_status"] == "UPDATE_COMPLETE")
        yield made
    finally:
        rig.remove_stack(made)


@pytest.fixture
def intact(rig: Rig, templated: Made) -> Made:
    """The stack, without an update that an earlier test left running."""
    rig.settled(templated)
    return templated


def template(rig: Rig) -> dict[str, Any]:
    """The stack's template, as an object to be changed."""
    found: dict[str, Any] = yaml.safe_load(of(PAIR, rig))
    found["heat_template_version"] = str(found["heat_template_version"])
    found["resources"]["note"] = {"type": "note.yaml"}
    return found


def kept(made: Made) -> KeptParts:
    """What the group payments keeps of the stack."""
    members = {made.ids[name]: name for name in ("db_a", "db_b")}
    return KeptParts("payments", members, {made.ids["data"]: "data"})


def test_a_stack_gets_another_template_and_keeps_its_parameters_environment_and_files(
    cloud: Cloud, rig: Rig, templated: Made
) -> None:
    wanted = template(rig)
    wanted["resources"]["sign"] = {
        "type": "OS::Heat::TestResource",
        "properties": {"value": "db_b"},
    }

    patched = patch_template(cloud, templated.name, wanted, 120, lambda: kept(templated))

    assert (patched.status, patched.adopted) == ("UPDATE_COMPLETE", False)
    parameters = rig.stack(templated)["parameters"]
    assert (parameters["copies"], json.loads(parameters["options"])) == ("2", {"k": 2})
    rows = rig.api().heat("GET", f"{templated.path}/resources").json()["resources"]
    ids = {row["resource_name"]: row["physical_resource_id"] for row in rows}
    assert ids["sign"]
    assert {name: ids[name] for name in kept_names()} == {
        name: templated.ids[name] for name in kept_names()
    }

    again = patch_template(cloud, templated.name, wanted, 120, lambda: kept(templated))
    assert again.adopted, "it has the template already"

    back = patch_template(cloud, templated.name, template(rig), 120, lambda: kept(templated))
    assert not back.adopted


def kept_names() -> tuple[str, ...]:
    """The resources that no update may take; that of the file is a stack."""
    return ("db_a", "db_b", "data", "note")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("db_a", None),
        ("data", None),
        ("db_b", {"availability_zone": "elsewhere"}),
        ("data", {"availability_zone": "elsewhere"}),
    ],
    ids=["a server that it lacks", "a volume that it lacks", "another server", "another volume"],
)
def test_a_template_that_takes_what_a_group_needs_is_refused(
    cloud: Cloud, rig: Rig, intact: Made, name: str, change: dict[str, Any] | None
) -> None:
    before = rig.stack(intact)["updated_time"]
    wanted = template(rig)
    if change is None:
        del wanted["resources"][name]
    else:
        wanted["resources"][name]["properties"] |= change

    with pytest.raises(CloudError) as caught:
        patch_template(cloud, intact.name, wanted, 60, lambda: kept(intact))

    assert caught.value.code == "TEMPLATE_REPLACES"
    assert intact.ids[name] in caught.value.message
    assert rig.stack(intact)["updated_time"] == before, "nothing was sent"


def test_a_template_that_changes_a_volume_in_place_is_not_refused(
    cloud: Cloud, rig: Rig, intact: Made
) -> None:
    wanted = template(rig)
    wanted["resources"]["data"]["properties"]["volume_type"] = "multiattach"

    refuse_template(cloud, f"{intact.name}/{intact.id}", wanted, kept(intact))


def test_a_template_that_deletes_an_address_is_refused(
    cloud: Cloud, rig: Rig, intact: Made
) -> None:
    """Any id of the stack's resources may be an address."""
    wanted = template(rig)
    del wanted["resources"]["slow"]
    keep = KeptParts("payments", addresses={intact.ids["slow"]: "entry"})

    with pytest.raises(CloudError) as caught:
        patch_template(cloud, intact.name, wanted, 60, lambda: keep)

    assert caught.value.code == "TEMPLATE_REPLACES"
    assert "the address of entry" in caught.value.message


def test_a_template_that_is_wrong_changes_nothing(cloud: Cloud, rig: Rig, intact: Made) -> None:
    before = rig.stack(intact)["updated_time"]
    wanted = template(rig)
    wanted["resources"]["slow"]["properties"]["value"] = {"get_resource": "nothing"}

    with pytest.raises(CloudError) as caught:
        patch_template(cloud, intact.name, wanted, 60, lambda: kept(intact))

    assert caught.value.code == "BAD_REQUEST"
    assert rig.stack(intact)["updated_time"] == before
