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


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([command(2), command(1, "2")], "pg-start ran in epoch 1"),
        ([command(1), FINISHED, NOTICE, command(1, "2")], ""),
        ([command(1), FINISHED, NOTICE, DEPOSED, STARTED], "pg started on s, deposed by 2"),
        ([command(1), NOTICE, DEPOSED, STARTED], ""),
    ],
    ids=["after a newer one", "after the notice", "by itself on a deposed guest", "by it there"],
)
def test_what_an_old_epoch_starts_is_found(events: list[Any], said: str) -> None:
    (found,) = no_old_epoch(events)

    assert str(found).startswith(f"invariant 8: {said}")
