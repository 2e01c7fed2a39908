# SPDX-License-Identifier: Apache-2.0
"""The audit of invariant 8: no command of an older epoch runs, nothing starts on the deposed."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.lab.drill.audit import no_old_epoch


def event(kind: str, server: str = "s", **facts: Any) -> dict[str, Any]:
    return {"kind": kind, "server": server, **facts}


def command(epoch: int, identity: str = "1", server: str = "s") -> dict[str, Any]:
    return event("command_started", server, command="pg-start", id=identity, epoch=epoch)


STARTED = event("application_started", application="pg")
FINISHED = event("command_finished", id="1", verb="start", exit_code=0)
NOTICE = event("notice", epoch=2)
DEPOSED = event("deposed", epoch=2, applications=[])


@pytest.mark.parametrize(
    "events",
    [
        [command(1), STARTED, FINISHED, command(2, "2")],
        [command(1), FINISHED, NOTICE, DEPOSED, command(2, "2"), STARTED],
        [NOTICE, command(1, server="another")],
        [command(2), command(1, "2", server="another")],
        [{"kind": "request", "path": "/"}, command(1), STARTED],
    ],
)
def test_commands_of_epochs_that_grow_are_well(events: list[Any]) -> None:
    assert list(no_old_epoch(events)) == []


def test_a_command_of_an_epoch_older_than_one_that_ran_is_found() -> None:
    (found,) = no_old_epoch([command(2), command(1, "2")])

    assert str(found) == "invariant 8: pg-start ran in epoch 1"


def test_a_command_that_starts_after_the_notice_of_a_newer_epoch_is_found() -> None:
    (found,) = no_old_epoch([command(1), FINISHED, NOTICE, command(1, "2")])

    assert found.invariant == 8


def test_an_application_that_starts_by_itself_on_a_deposed_guest_is_found() -> None:
    (found,) = no_old_epoch([command(1), FINISHED, NOTICE, DEPOSED, STARTED])

    assert str(found) == "invariant 8: pg started on s, deposed by 2"


def test_an_application_that_an_old_command_starts_on_a_deposed_guest_is_found() -> None:
    (found,) = no_old_epoch([command(1), NOTICE, DEPOSED, STARTED])

    assert found.invariant == 8
