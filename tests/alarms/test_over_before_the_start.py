# SPDX-License-Identifier: Apache-2.0
"""An alarm that was admitted and whose failover has not begun is judged again if its source then
says that it is over: by what Nova and the agents of an emulated cloud say of its member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions.reports import Show
from mistral_failover.alarms import intake
from mistral_failover.alarms.alarm import read
from mistral_failover.orders import alarm_failovers
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from support.alarm_bodies import ALERT, WEBHOOK
from support.scaled_groups import ScaledGroup, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]


class Reported:
    """A group with an alert about its active member, admitted and not started."""

    def __init__(self, group: ScaledGroup, state: Runtime) -> None:
        self.group, self.state = group, state
        self.request = Request(state, group.context(None))
        self.member = group.active()
        self.incident = self.hear("firing")[0].incident

    def hear(self, status: str, **beside: Any) -> list[intake.RecordedAlarm]:
        """Take the alert; nothing is started by it."""
        labels = {"failover_group": self.group.name, "failover_member": self.member}
        ends = "2026-11-21T08:05:00Z" if status == "resolved" else "0001-01-01T00:00:00Z"
        one = {**ALERT, "status": status, "labels": labels, "endsAt": ends}
        (alarm,) = read({**WEBHOOK, "alerts": [{**one, "fingerprint": self.group.name}]}, **beside)
        return intake.take(self.request, alarm)

    def start(self) -> Any:
        return alarm_failovers.start_admitted(self.request, [str(self.incident)])

    def shown(self) -> Any:
        return self.group.done(Show(str(self.incident)))


@pytest.fixture
def reported(of: Callable[..., ScaledGroup], state: Runtime) -> Reported:
    return Reported(of(2), state)


def test_over_and_seen_well_it_is_held_and_starts_nothing(reported: Reported) -> None:
    reported.hear("resolved")

    answer = reported.start()

    assert answer["started"] == []
    assert [row["error"]["code"] for row in answer["refused"]] == ["NOT_ADMITTED"]
    assert reported.shown()["decision"] == "HELD"
    said = [line for line in reported.group.told() if line.startswith("HELD")]
    assert any(f"{reported.member} is seen well" in line for line in said), said
    assert reported.start()["refused"] == [], "it is not tried again"


def test_over_but_not_seen_well_it_starts(reported: Reported) -> None:
    reported.hear("resolved")
    reported.group.breaks(reported.member)

    answer = reported.start()

    assert (answer["refused"], len(answer["started"])) == ([], 1)
    assert answer["started"][0]["lost"] == [reported.member]


def test_what_is_not_over_starts(reported: Reported) -> None:
    assert len(reported.start()["started"]) == 1


def test_what_an_operator_reports_as_well_starts_though_its_source_calls_it_over(
    reported: Reported,
) -> None:
    reported.hear("firing", because="I saw it burn")
    reported.hear("resolved")

    assert len(reported.start()["started"]) == 1
