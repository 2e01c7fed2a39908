# SPDX-License-Identifier: Apache-2.0
"""A resource type is one YAML file, and one module with its operations, how it is observed, and how
the doctor checks it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover.actions import doctor, orders, recovery
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.group import parse_group
from mistral_failover.resources.fence.rung import Examined
from mistral_failover.resources.fence.storage import Storage
from mistral_failover.settings import Settings
from mistral_failover.ui import topology
from support.commands import failover
from support.packages import Install
from support.pages import ROOT

sys.path.insert(0, str(ROOT / "docs" / "_ext"))
import from_code  # noqa: E402

ADDRESS = """
failover_type_version: 2026-11-21
name: house_address
description: An address that a member announces
replace: delete_first
quiesce_covers: true
storage_covers: true
provides: address
repairable: true
services: [House]
member: member
properties:
  member: {type: string, required: true, immutable: true}
  address: {type: string, minLength: 7, required: true, immutable: true}
attributes:
  announced: {description: The address}
operations:
  create: {function: announce, stage: activate}
  delete: {function: withdraw, stage: quiesce}
words:
  create: Announce {name} on {member}
  delete: Withdraw {name} from {member}
"""
MODULE = """
from mistral_failover.cloud.errors import CloudError
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence

CALLS = []
ANNOUNCED = []  # if anything is here, nothing else is announced

def observe(view, record, group):
    if ANNOUNCED and record.physical_id not in ANNOUNCED:
        return ObservedPresence(Presence.GONE, f"{record.physical_id} is not announced")
    return AS_RECORDED

def examine(subject):
    address = subject.spec.properties["address"]
    if address in ANNOUNCED:
        raise CloudError("IN_USE", f"{address} is in use", remedy="Choose another one.")
    return f"{', '.join(subject.members.values())} of {subject.group} can announce {address}"

def announce(tools, operation):
    address = operation["properties"]["address"]
    CALLS.append(("announce", operation["member"]["name"]))
    return {"physical_id": address, "attributes": {"announced": address}}

def withdraw(tools, operation):
    CALLS.append(("withdraw", operation["member"]["name"]))
    return {}

OPERATIONS = (announce, withdraw)
"""
FILES = {
    "house_types/__init__.py": "",
    "house_types/address.yaml": ADDRESS,
    "house_addresses.py": MODULE,
}
ENTRY_POINTS = {
    "mistral_failover.types": "house = house_types",
    "mistral_failover.resources": "house_address = house_addresses",
}
RESOURCES = {
    "address": {
        "type": "house_address",
        "properties": {"member": {"get_param": "active"}, "address": "192.0.2.7"},
    },
    "routing": {
        "type": "stack_parameters",
        "properties": {"parameters": {"active": {"get_attr": ["address", "announced"]}}},
    },
}


@pytest.fixture(autouse=True)
def house(install: Install) -> None:
    """A package with the type ``house_address``."""
    install(FILES, ENTRY_POINTS)


def test_a_plan_names_its_operations_and_a_failover_carries_them_out(
    protect: Callable[..., Any],
) -> None:
    group = protect(resources=RESOURCES, fence=["stop", "confirm"])
    group.order(orders.Begin(group.name, lost=[]))

    plan = group.plan(lost=["db_a"])
    found = group.done(doctor.Doctor(group.name))["findings"]
    group.order(orders.Begin(group.name, lost=["db_a"]))

    assert [step["what"] for step in plan["steps"]] == [
        "Fence db_a",
        "Withdraw address from db_a",
        "Announce address on db_b",
        "Update the stack (routing) (if needed)",
    ]
    assert [each["level"] for each in found if "house_address" in each["sentence"]] == []
    assert sys.modules["house_addresses"].CALLS == [
        ("announce", "db_a"),
        ("withdraw", "db_a"),
        ("announce", "db_b"),
    ]
    (record,) = [
        row
        for row in group.status()["resources"]
        if row["type"] == "house_address" and row["status"] == "CREATE_COMPLETE"
    ]
    assert (record["member"], record["attributes"]) == ("db_b", {"announced": "192.0.2.7"})


GROUP_FILES = [
    ({}, ""),
    ({"address": ""}, "at least 7 characters are needed"),
    ({"adress": "192.0.2.7"}, 'unknown key "adress"'),
]
"""Properties that differ, and what the command says about them."""


def test_the_command_line_checks_group_files_that_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # no cell is broken
    document = yaml.safe_load((ROOT / "examples" / "postgresql.yaml").read_text("utf-8"))
    file = tmp_path / "group.yaml"

    for properties, said in GROUP_FILES:
        stated = {**RESOURCES["address"]["properties"], **properties}  # type: ignore[dict-item]
        resources = {**RESOURCES, "address": {**RESOURCES["address"], "properties": stated}}
        file.write_text(yaml.safe_dump({**document, "resources": resources}), encoding="utf-8")
        done = failover("group", "validate", str(file))
        told = done.stdout + done.stderr
        assert done.returncode == (1 if said else 0), f"{properties}: {told}"
        assert said in told, f"{properties}: {told}"


def test_a_quiesce_covers_it(protect: Callable[..., Any]) -> None:
    start = {"type": "activation", "depends_on": "address"}
    start["properties"] = {"member": {"get_param": "active"}, "start": "start", "stop": "stop"}
    group = protect(resources={**RESOURCES, "application": start}, fence=["quiesce"])
    group.order(orders.Begin(group.name, lost=[]))

    group.order(orders.Begin(group.name, lost=["db_a"]))

    (proof,) = [row for row in group.status()["resources"] if row["type"] == "fence"]
    assert proof["attributes"]["rung"] == "quiesce"


def test_an_observation_tells_that_the_group_no_longer_serves(
    protect: Callable[..., Any],
) -> None:
    group = protect(resources=RESOURCES, fence=["stop", "confirm"])
    group.order(orders.Begin(group.name, lost=[]))
    group.done(recovery.Observe(group.name))
    before = group.status()["service"]["status"]

    sys.modules["house_addresses"].ANNOUNCED.append("another one")
    group.done(recovery.Observe(group.name))

    service = group.status()["service"]
    assert (before, service["status"]) == ("SERVING", "DOWN")
    assert "192.0.2.7 is not announced" in " ".join(service["reasons"])


def test_the_doctor_checks_it_in_the_group_file(protect: Callable[..., Any]) -> None:
    group = protect(resources=RESOURCES)

    def checked() -> tuple[str, str]:
        findings = group.done(doctor.Doctor(group.name))["findings"]
        (row,) = [each for each in findings if each["check"] == "addresses"]
        return row["level"], row["sentence"]

    free = checked()
    sys.modules["house_addresses"].ANNOUNCED.append("192.0.2.7")

    assert free == ("ok", f"address: db_a, db_b of {group.name} can announce 192.0.2.7")
    assert checked() == ("error", "address: 192.0.2.7 is in use [IN_USE]")


def test_the_operations_of_its_service_have_a_budget(protect: Callable[..., Any]) -> None:
    group = protect(resources=RESOURCES)

    group.done(orders.Begin(group.name, lost=[]))

    waiting = {row["resource"]: row["services"] for row in group.status()["ready"]}
    assert waiting["address"] == ["House"]


def test_the_web_page_draws_it_as_an_address() -> None:
    assert topology.kind_of("house_address") is topology.Kind.ADDRESS


@pytest.mark.parametrize("covered", [True, False])
def test_the_rung_storage_covers_it_if_it_says_so(install: Install, covered: bool) -> None:
    said = ADDRESS.replace("storage_covers: true", f"storage_covers: {str(covered).lower()}")
    install(FILES | {"house_types/address.yaml": said}, ENTRY_POINTS)
    document = {
        "failover_template_version": "2026-11-21",
        "stack": "payments",
        "members": {"servers": ["db_a", "db_b"]},
        "resources": RESOURCES,
        "fence": ["storage", "confirm"],
    }
    group = parse_group(document, name="payments")
    examined = Examined(group, Settings(), lambda name: False)

    found = Storage("storage").also_missing(examined)

    assert bool(list(found)) is not covered


def test_the_documentation_lists_it() -> None:
    shown = "| `house_address` | An address that a member announces | `member`, `address` |"
    assert shown in from_code._installed()


def test_a_file_that_is_no_type_keeps_no_other_from_being_used(
    install: Install, protect: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    broken = {"house_types/broken.yaml": "name: broken\n"}
    again = {"house_types/again.yaml": ADDRESS.replace("house_address", "activation")}
    install(FILES | broken | again, ENTRY_POINTS)

    assert protect(resources=RESOURCES)
    assert "house_types/broken.yaml is ignored" in caplog.text
    assert (
        "house_types/again.yaml is ignored: a type named activation already exists" in caplog.text
    )


def test_a_group_file_with_a_type_whose_file_is_broken_is_refused_with_the_cause(
    install: Install,
) -> None:
    broken = ADDRESS.replace("replace: delete_first", "replace: never")
    install(FILES | {"house_types/address.yaml": broken}, ENTRY_POINTS)
    document = {
        "failover_template_version": "2026-11-21",
        "stack": "payments",
        "members": {"servers": ["db_a", "db_b"]},
        "resources": RESOURCES,
    }

    with pytest.raises(InvalidDocument) as caught:
        parse_group(document, name="payments")

    assert caught.value.path == "resources.address.type"
    assert "house_types/address.yaml is ignored: replace: " in caught.value.remedy
