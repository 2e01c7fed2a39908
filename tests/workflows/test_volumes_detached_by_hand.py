# SPDX-License-Identifier: Apache-2.0
"""A volume that was detached and attached again by hand, while the application was stopped by hand:
all is there again, and nothing serves. A live migration changes the attachment, too, and the
application goes on."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.lab.emulator.server import EmulatedCloud
from support.looks import healed, observe, service
from support.operators import Operator


@pytest.fixture
def serving(group: Any) -> Any:
    """A group that serves on db_a, and was seen to."""
    group.activate()
    observe(group)
    assert service(group) == ("SERVING", [])
    return group


def stop(group: Any) -> None:
    """Stop the application by hand."""
    (epoch,) = (each["epoch"] for each in group.status()["members"] if each["name"] == "db_a")
    given = {"command_id": f"by-hand-{group.name}", "epoch": epoch}
    group.cloud.run_command(group.server("db_a"), "stop", **given)
    assert group.runs_on() == []


def take_and_give_back(group: Any, operator: Operator) -> None:
    """Stop the application, detach the volume and attach it again by hand. Nova's records have
    whole seconds."""
    stop(group)
    time.sleep(1.0)
    operator.detach(group.volume(), group.server("db_a"))
    operator.attach(group.volume(), group.server("db_a"))
    time.sleep(1.0)


def migrate(group: Any, emulated: EmulatedCloud) -> None:
    """Migrate the holder's server live: another attachment, and Nova detached nothing."""
    held = emulated.emulation.state.attachments
    (old,) = (each for each in held.values() if each.volume_id == group.volume())
    new = replace(old, id=f"{old.id[:-6]}a1b2c3")
    held[new.id] = new
    del held[old.id]


def test_an_application_whose_volume_was_away_is_started_again(
    serving: Any, operator: Operator
) -> None:
    take_and_give_back(serving, operator)

    run = healed(serving)

    assert run.state == "SUCCESS"
    assert serving.runs_on() == ["db_a"]
    assert observe(serving)[0]["service"] == "SERVING"
    assert service(serving) == ("SERVING", [])
    assert observe(serving) == [], "what was detached before the start is not said again"


def test_the_reason_names_the_volume_and_when_it_was_detached(
    serving: Any, operator: Operator
) -> None:
    take_and_give_back(serving, operator)
    observe(serving)

    status, (reason,) = service(serving)

    assert status == "DOWN"
    assert reason.startswith(f"database on db_a: volume {serving.volume()} was detached at ")
    assert reason.endswith(" and attached again, and the application was not started since")


def test_a_live_migration_changes_nothing(serving: Any, emulated: EmulatedCloud) -> None:
    migrate(serving, emulated)

    assert observe(serving) == []

    assert service(serving) == ("SERVING", [])


def test_after_a_live_migration_a_detachment_is_noticed_all_the_same(
    serving: Any, emulated: EmulatedCloud, operator: Operator
) -> None:
    migrate(serving, emulated)
    observe(serving)
    take_and_give_back(serving, operator)

    observe(serving)

    assert service(serving)[0] == "DOWN"


def test_where_nova_hides_the_actions_of_a_server_nothing_is_concluded(
    serving: Any, operator: Operator
) -> None:
    take_and_give_back(serving, operator)
    serving.cloud.api_fault("server_actions", status=403, times=10)

    observe(serving)

    assert service(serving) == ("SERVING", [])
