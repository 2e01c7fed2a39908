# SPDX-License-Identifier: Apache-2.0
"""Nothing that a group without a stack says names a stack or Heat, whatever goes wrong: its owner
has neither."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import doctor
from support.activation import done
from support.operators import Operator
from support.waiting import until

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())
WORDS = re.compile(r"\b(stacks?|heat|templates?)\b", re.IGNORECASE)


def texts(value: Any) -> Iterator[str]:
    """Yield each text in a document, but for the keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts(each)


def said(group: Any, *more: Any) -> list[str]:
    """All that the group says now."""
    findings = done(doctor.Doctor(group.name).run(CONTEXT))["findings"]
    findings = [{key: value for key, value in row.items() if key != "check"} for row in findings]
    status = group.status()
    rows = [group.observed(), status, findings, group.told(), group.shown(), *more]
    return list(texts(rows))


def wrong(found: list[str]) -> list[str]:
    return [text for text in found if WORDS.search(text)]


def server_gone(group: Any) -> Any:
    Operator(group.cloud).delete_server(group.server("db_a"))
    until(lambda: group.server("db_a") not in group.cloud.guests())
    return group.run("failover", group=group.name, lost=["db_a"]).output


def standby_gone(group: Any) -> Any:
    Operator(group.cloud).delete_server(group.server("db_b"))
    until(lambda: group.server("db_b") not in group.cloud.guests())
    return group.run("switchover", group=group.name, to="db_b").output


def volume_gone(group: Any) -> Any:
    volume = group.volume()
    Operator(group.cloud).stop_server(group.server("db_a"))
    until(lambda: not group.cloud.guests()[group.server("db_a")]["running"])
    group.api.compute.delete_volume_attachment(group.server("db_a"), volume)
    until(lambda: group.holders() == [])
    group.api.block_storage.delete_volume(volume)
    until(lambda: group.api.block_storage.find_volume(volume) is None)
    return [
        group.run("switchover", group=group.name, to="db_b").output,
        group.define(group.file(limits={"cooldown": 5})),
    ]


def names_that_lead_nowhere(group: Any) -> Any:
    file = group.file()
    file["members"]["servers"]["db_b"] = {"name": "nowhere"}
    file["resources"]["data"]["properties"]["volume"] = {"id": group.server("db_a")}
    file["resources"] |= {
        "entry": {"type": "floating_ip", "properties": {"floating_ip": "192.0.2.1"}},
        "port": {"type": "port", "properties": {"port": "nowhere"}},
        "pool": {"type": "load_balancer_member", "properties": {"pool": "nowhere"}},
    }
    for name in ("entry", "port", "pool"):
        file["resources"][name]["properties"]["server"] = {"get_param": "active"}
    return group.define(file)


def compute_dead(group: Any) -> Any:
    alarm = group.fails("compute_down")
    return [alarm["alarm_name"], group.run("on_alarm", **alarm).output]


def refused(operation: str, status: int) -> Callable[[Any], Any]:
    def play(group: Any) -> Any:
        group.cloud.api_fault(operation, status=status, times=3)
        moved = group.run("switchover", group=group.name, to="db_b").output
        group.cloud.api_fault(operation, status=status, times=3)
        return [moved, group.define(group.file(limits={"cooldown": 5}))]

    return play


PLAYS: dict[str, Callable[[Any], Any]] = {
    "the server of the holder is gone": server_gone,
    "the server of the standby is gone": standby_gone,
    "the volume is gone": volume_gone,
    "names lead nowhere": names_that_lead_nowhere,
    "a compute service is dead": compute_dead,
    **{
        f"{operation} answers {status}": refused(operation, status)
        for operation in ("attach", "detach", "server_show", "server_list", "volume_show")
        for status in (400, 403, 404, 409)
    },
}


@pytest.mark.parametrize("play", PLAYS)
def test_what_goes_wrong_is_said_without_the_words_of_heat(
    loose: Callable[..., Any], play: str
) -> None:
    group = loose()
    assert "created" in group.define()
    assert group.activate()["status"] == "COMPLETE", group.told()

    outcome = PLAYS[play](group)
    group.cloud.clear_api_faults()

    assert wrong(said(group, outcome)) == []
