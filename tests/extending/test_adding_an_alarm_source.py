# SPDX-License-Identifier: Apache-2.0
"""A source of alarms is one module and its entry point."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions import alarms, orders, recovery, suspensions
from mistral_failover.alarms.alarm import read
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.store.tables import incidents
from support.packages import Install
from support.pages import ROOT

sys.path.insert(0, str(ROOT / "docs" / "_ext"))
import from_code  # noqa: E402

SOURCE = """
from mistral_failover.alarms.alarm import Alarm, AlarmSource, BodyReader, digest

def read(body):
    reader = BodyReader.of(body, "Hand on the body as the pager posts it.")
    page, server = reader.needed("page"), reader.needed("server")
    return [Alarm(
        source="house_pager", key=digest(["house_pager", page]), firing=True, unique=True,
        sentence=f"the pager says that {server} is dead", servers=(server,),
        payload=reader.kept("page", "server", "what"),
    )]

SOURCE = AlarmSource(
    "page", lambda body: "page" in body, read,
    of_server=lambda payload: payload["what"].startswith("server"),
)
"""
ENTRY_POINTS = {"mistral_failover.alarm_sources": "house_pager = house_pager:SOURCE"}


@pytest.fixture(autouse=True)
def house(install: Install) -> None:
    """A package with the source ``house_pager``."""
    install({"house_pager.py": SOURCE}, ENTRY_POINTS)


def test_its_alarm_starts_a_failover(protect: Callable[..., Any]) -> None:
    group = protect()
    group.order(orders.Begin(group.name, lost=[]))
    body = {"page": "p-1", "server": group.server("db_a")}

    answer = group.done(alarms.AdmitEvent(body))
    again = group.done(alarms.AdmitEvent(body, kind="house_pager"))

    (admission,), (repeat,) = answer["admissions"], again["admissions"]
    assert (admission["decision"], repeat["decision"]) == ("ADMITTED", "DUPLICATE")
    assert f"the pager says that {group.server('db_a')} is dead" in admission["sentence"]


@pytest.mark.parametrize(
    ("what", "dismissed"),
    [("server", True), ("application", False), (None, False)],
    ids=["a server", "an application", "what its source cannot tell"],
)
def test_its_held_alarm_is_dismissed_if_it_is_about_a_server_that_runs(
    protect: Callable[..., Any], what: str | None, dismissed: bool
) -> None:
    group = protect()
    group.order(orders.Begin(group.name, lost=[]))
    group.done(suspensions.Pause(group.name, "we look"))
    body = {"page": group.name, "server": group.server("db_a"), "what": what or ["?"]}
    (held,) = group.done(alarms.AdmitEvent(body))["admissions"]
    earlier = {name: incidents.c[name] - 120 for name in ("decided_at", "first_at", "last_at")}
    mine = incidents.update().where(incidents.c.id == held["incident"])
    group.state.database.atomically(lambda tx: tx.execute(mine.values(**earlier)))

    swept = group.done(recovery.Sweep(group.name))

    assert [row["group"] for row in swept["dismissed"]] == [group.name] * dismissed


def test_it_is_asked_before_signals_whose_words_it_may_use() -> None:
    (alarm,) = read({"page": "p-1", "server": "s-1"})

    assert alarm.source == "house_pager"


def test_who_sends_a_body_of_no_kind_or_a_wrong_one_is_told() -> None:
    with pytest.raises(InvalidDocument, match="house_pager: page"):
        read({"what": "ever"})
    with pytest.raises(InvalidDocument, match="there is no kind pager.*house_pager"):
        read({"page": "p-1"}, "pager")
    with pytest.raises(InvalidDocument, match="server"):
        read({"page": "p-1"})


def test_the_documentation_lists_it() -> None:
    assert "| `house_pager` | page |" in from_code._installed()
