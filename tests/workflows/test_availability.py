# SPDX-License-Identifier: Apache-2.0
"""How much of the time a group served: outages as they happen, and time in which nothing looked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext
from oslo_config import cfg

from mistral_failover.actions import recovery, reports
from mistral_failover.groups.service import services
from mistral_failover.model.ids import group_id
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import tables
from support.operators import Operator

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())
DAY = 86400


@pytest.fixture
def serving(group: Any) -> Any:
    """A group that serves on db_a, and was seen to."""
    group.activate()
    look(group)
    return group


def look(group: Any) -> None:
    assert isinstance(recovery.Observe(group.name).run(CONTEXT), list)


def report(group: Any, seconds: int = DAY) -> dict[str, Any]:
    found = reports.Availability(group.name, seconds).run(CONTEXT)
    assert isinstance(found, dict), found
    assert sum(found["seconds"].values()) == pytest.approx(seconds, abs=0.1)
    for word, lasted in found["seconds"].items():
        assert sum(slot["seconds"][word] for slot in found["slots"]) == pytest.approx(
            lasted, abs=0.1
        )
    return found


def words(group: Any) -> list[str]:
    """The words that are stored, in order."""
    table = tables.service_changes
    query = (
        table.select()
        .where(table.c.group_id == group_id(DEFAULT_PROJECT, group.name))
        .order_by(table.c.at)
    )
    return group.state.database.reading(
        lambda tx: [str(row.service) for row in tx.connection.execute(query)]
    )


def age(group: Any, seconds: float) -> None:
    """Have everything happen that much earlier."""
    identity = group_id(DEFAULT_PROJECT, group.name)

    def earlier(tx: Any) -> None:
        for table, names in (
            (tables.service_changes, ("at",)),
            (tables.observations, ("at", "since")),
            (tables.traversals, ("started_at", "ended_at")),
            (tables.operations, ("started_at", "ended_at")),
            (tables.incidents, ("first_at", "decided_at", "last_at")),
        ):
            values = {name: table.c[name] - seconds for name in names}
            tx.execute(table.update().where(table.c.group_id == identity).values(**values))

    group.state.database.atomically(earlier)


def test_the_activation_of_a_group_is_an_outage_and_before_it_nothing_is_known(
    serving: Any,
) -> None:
    found = report(serving)

    assert words(serving) == ["DOWN", "SERVING"]
    assert 0 < found["seconds"]["DOWN"] < 60
    assert found["seconds"]["UNKNOWN"] > DAY - 120
    assert found["slots"][0]["worst"] == "UNKNOWN"
    assert 0 <= found["availability"] < 1


def test_at_rest_nothing_is_stored(serving: Any) -> None:
    before = words(serving)
    for _ in range(3):
        look(serving)

    assert words(serving) == before


def test_a_failover_between_two_looks_is_an_outage(serving: Any) -> None:
    age(serving, 3000)
    look(serving)  # after a gap
    serving.fails()
    serving.run("failover", group=serving.name, because="db_a crashed")
    live = report(serving)
    look(serving)
    found = report(serving)

    assert words(serving)[-2:] == ["DOWN", "DEGRADED"], "no standby is left"
    outage = found["not_served"][-1]
    assert outage["service"] == "DOWN"
    assert 0 < outage["until"] - outage["since"] < 60
    status = serving.status()
    assert outage["since"] <= status["traversal"]["started_at"] + 1
    assert outage["until"] <= status["traversal"]["ended_at"]
    assert [move["outcome"] for move in found["moves"]] == ["COMPLETE", "COMPLETE"]
    assert found["moves"][-1]["began_at"] <= outage["since"] + 1
    assert live["not_served"][1:] == found["not_served"][1:], "before a look stored it, as after it"


def test_an_outage_lasts_from_the_look_that_finds_it_to_the_one_that_finds_its_end(
    serving: Any, operator: Operator
) -> None:
    operator.act(serving.server("db_a"), "pause")
    look(serving)
    operator.act(serving.server("db_a"), "unpause")
    assert words(serving)[-1] == "DOWN"
    look(serving)

    assert words(serving)[-2:] == ["DOWN", "SERVING"]


def test_time_in_which_nothing_looked_is_not_known_from_the_last_look_on(serving: Any) -> None:
    age(serving, 3600)
    hidden = report(serving)
    look(serving)
    found = report(serving)

    assert words(serving) == ["DOWN", "SERVING", "UNKNOWN", "SERVING"]
    last = found["not_served"][-1]
    assert last["service"] == "UNKNOWN"
    assert 3590 < last["until"] - last["since"] < 3660
    assert found["seconds"]["SERVING"] < 60
    assert hidden["seconds"]["SERVING"] == pytest.approx(found["seconds"]["SERVING"], abs=2.0)


def test_looks_that_come_in_time_cover_the_time_between_them(serving: Any) -> None:
    age(serving, cfg.CONF.failover.observe_interval * 1.5)
    look(serving)

    assert words(serving) == ["DOWN", "SERVING"]
    assert report(serving)["seconds"]["SERVING"] > 85


def test_all_groups_together_are_the_sum_of_each(serving: Any, protect: Callable[..., Any]) -> None:
    other = protect()
    other.activate()
    age(other, 600)
    look(other)
    both = reports.Availability(None, DAY).run(CONTEXT)

    rows = {row["name"]: row for row in both["groups"]}
    assert {serving.name, other.name} <= rows.keys()
    for word, lasted in both["seconds"].items():
        assert sum(row["seconds"][word] for row in both["groups"]) == pytest.approx(lasted, abs=1)
    assert sum(both["seconds"].values()) == pytest.approx(DAY * len(rows), abs=1)
    assert rows[serving.name]["seconds"]["DOWN"] == pytest.approx(
        report(serving)["seconds"]["DOWN"], abs=0.1
    )
    known = [row["availability"] for row in both["groups"] if row["availability"] is not None]
    assert known == sorted(known)


def test_the_last_word_that_is_stored_is_the_one_that_the_status_shows(
    serving: Any, operator: Operator
) -> None:
    for step in (
        lambda: operator.stop_server(serving.server("db_b")),
        lambda: operator.stop_server(serving.server("db_a")),
        lambda: operator.start_server(serving.server("db_a")),
        lambda: operator.start_server(serving.server("db_b")),
    ):
        step()
        look(serving)
        store = serving.state.database.for_project(DEFAULT_PROJECT)
        found = store.reading(lambda tx: services(serving.state, tx))
        shown = found[group_id(DEFAULT_PROJECT, serving.name)].service
        assert words(serving)[-1] == shown == serving.status()["service"]["status"]
