# SPDX-License-Identifier: Apache-2.0
"""A rung is one module and its entry point."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover.actions import doctor, orders
from mistral_failover.model.rungs import ServerAfter, rung_kinds
from support.commands import failover
from support.packages import Install
from support.pages import ROOT

sys.path.insert(0, str(ROOT / "docs" / "_ext"))
import from_code  # noqa: E402

HOUSE_POWER = """
from mistral_failover.resources.fence.rung import FenceRung, Missing

class HousePower(FenceRung):
    proof = "the board {board} reports the power of its host off"
    limit = 20.0
    fields = {"board": {"type": "string", "minLength": 1}}
    required = ("board",)
    for_dead_host = True

    def missing(self, rung, examined):
        if rung["board"] != "bmc-7":
            yield Missing(f"the board {rung['board']} is not in our list", "Add it to the list.")

    def prove(self, attempt, rung):
        from mistral_failover.cloud.servers import Evidence
        from mistral_failover.runtime.errors import ActionError

        if rung["board"] != "bmc-7":
            raise ActionError("NO_BOARD", "the board does not answer.", "Look at its cable.")
        return Evidence(True, self.kind, f"bmc-7: {attempt.target.member.name} has no power")
"""
ENTRY_POINTS = {"mistral_failover.rungs": "house_power = house_power:HousePower"}
POWER = {"kind": "house_power", "board": "bmc-7"}


SHIPPED = {
    point.name
    for point in entry_points(group="mistral_failover.rungs")
    if point.value.startswith("mistral_failover.")
}


@pytest.fixture(autouse=True)
def house(install: Install) -> None:
    """A package with the rung ``house_power``."""
    install({"house_power.py": HOUSE_POWER}, ENTRY_POINTS)


def test_a_plan_names_it_the_doctor_accepts_it_and_it_fences(protect: Callable[..., Any]) -> None:
    group = protect(fence=[POWER, "confirm"])
    group.order(orders.Begin(group.name, lost=[]))

    found = group.done(doctor.Doctor(group.name))["findings"]
    (fence,) = group.plan(lost=["db_a"])["fences"]
    group.order(orders.Begin(group.name, lost=["db_a"]))

    (checked,) = [each["sentence"] for each in found if each["check"] == "fence"]
    assert checked.startswith("ladder: house_power, confirm; ")
    assert fence["ladder"][0] == {"kind": "house_power", "board": "bmc-7", "limit": 20.0}
    assert fence["longest"] == 20.0
    assert "the board bmc-7 reports the power of its host off (within 20 s)" in fence["sentence"]
    (proof,) = [row for row in group.status()["resources"] if row["type"] == "fence"]
    assert proof["attributes"] == {"rung": "house_power", "observed": "bmc-7: db_a has no power"}
    assert group.status()["roles"] == {"active": "db_b"}


def test_the_doctor_tells_what_it_needs_and_a_failure_of_it_is_told_rung_by_rung(
    protect: Callable[..., Any],
) -> None:
    group = protect(fence=[{**POWER, "board": "bmc-8"}, "confirm"])
    group.order(orders.Begin(group.name, lost=[]))

    found = group.done(doctor.Doctor(group.name))["findings"]
    group.order(orders.Begin(group.name, lost=["db_a"]))

    assert ("the board bmc-8 is not in our list", "Add it to the list.") in [
        (each["sentence"], each["remedy"]) for each in found if each["level"] == "error"
    ]
    assert group.status()["status"] == "BLOCKED"
    assert "house_power: the board does not answer" in group.status()["reason"]


GROUP_FILES: list[tuple[Any, str]] = [
    (POWER, ""),
    ("house_power", "not one of the allowed values"),
    ({"kind": "house_power"}, 'the key "board" is missing'),
    ({**POWER, "board": 7}, "it is a number"),
    ({**POWER, "bord": "x"}, 'unknown key "bord"'),
    ({**POWER, "kind": "house_powr"}, 'Did you mean "house_power"?'),
]
"""Rungs, and what the command says about each."""


def test_the_command_line_checks_group_files_that_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # no cell is broken
    document = yaml.safe_load((ROOT / "examples" / "postgresql.yaml").read_text("utf-8"))
    file = tmp_path / "group.yaml"

    for rung, said in GROUP_FILES:
        file.write_text(yaml.safe_dump({**document, "fence": [rung, "confirm"]}), encoding="utf-8")
        done = failover("group", "validate", str(file))
        told = done.stdout + done.stderr
        assert done.returncode == (1 if said else 0), f"{rung}: {told}"
        assert said in told, f"{rung}: {told}"


def test_it_takes_no_shipped_rung_s_place_and_one_that_is_broken_keeps_no_other_from_being_used(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    stop, gone = "stop = house_power:HousePower", "gone = house_power:Gone"
    points = f"{ENTRY_POINTS['mistral_failover.rungs']}\n{stop}\n{gone}"
    install({"house_power.py": HOUSE_POWER}, {"mistral_failover.rungs": points})

    kinds = rung_kinds()

    assert set(kinds) == {"house_power", *SHIPPED}
    assert kinds["stop"].server_after is ServerAfter.SHUTOFF
    assert "house_power:HousePower is ignored" in caplog.text
    assert "gone" in caplog.text


def test_reading_a_group_file_loads_no_client_of_a_service() -> None:
    script = """
import sys
from mistral_failover.model.rungs import rung_kinds
assert {"stop", "confirm"} <= set(rung_kinds())
heavy = ("openstack", "keystoneauth1", "sqlalchemy", "kombu", "mistral_lib")
print([name for name in heavy if name in sys.modules])
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"


def test_the_documentation_lists_it() -> None:
    assert "| `house_power` | `board` | 20 s | the board `board` reports" in from_code._installed()
