# SPDX-License-Identifier: Apache-2.0
"""What the audit of the test cloud reads from what real services leave."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.lab.drill.audit import safe_attachment, single_attachment
from support.cloud_audit import Tail, attachments, calls, in_order, spilled

OURS = "req-61ec0bdd-5d1f-505f-835a-a81a8239626a"
THEIRS = "req-9a56725b-abeb-4581-a866-98ad826404c0 72ddde59110148428c56bd5f437ee3b7 - - default"
NOVA = (
    "2026-11-21 23:47:52.668 27180 INFO nova.api.openstack.requestlog "
    f'[{OURS} {THEIRS}] 127.0.0.1 "DELETE /v2.1/servers/S/os-volume_attachments/V" status: 202 '
    "len: 0 microversion: 2.89 time: 0.359000\n"
)
HEAT = (
    "2026-11-21 23:48:10.915 27191 INFO heat.common.wsgi "
    f"[{OURS} {THEIRS}] Processing request: PATCH /v1/P/stacks/s/I\n"
)


def test_a_call_is_found_with_its_own_id_and_the_moment_it_came() -> None:
    without = NOVA.replace(OURS, "None")

    nova, heat = calls(without + NOVA + HEAT + "goodbye to uWSGI.\n")

    assert (nova["request_id"], nova["method"]) == (OURS, "DELETE")
    assert nova["path"].endswith("/os-volume_attachments/V")
    assert round(nova["t"] - nova["arrived"], 3) == 0.359
    assert (heat["request_id"], heat["method"], heat["path"]) == (
        OURS,
        "PATCH",
        "/v1/P/stacks/s/I",
    )
    assert round(heat["arrived"] - nova["t"], 3) == 18.247


def test_a_look_at_the_versions_belongs_to_no_operation() -> None:
    path = "DELETE /v2.1/servers/S/os-volume_attachments/V"
    assert path in NOVA

    assert list(calls(NOVA.replace(path, "GET /v2.1"))) == []


def second(number: int | None) -> datetime.datetime | None:
    return None if number is None else datetime.datetime(2026, 11, 21, 12, 0, number)


def row(server: str, made: int, attached: int | None, gone: int | None) -> dict[str, Any]:
    return {
        "volume_id": "v",
        "instance_uuid": server,
        "created_at": second(made),
        "attach_time": second(attached),
        "detach_time": second(gone),
        "deleted_at": second(gone),
    }


def held(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return in_order(attachments(rows))


def at(number: float) -> float:
    noon = datetime.datetime(2026, 11, 21, 12, 0, 0, tzinfo=datetime.UTC)
    return noon.timestamp() + number


def test_a_volume_that_goes_from_one_server_to_the_next_has_one_at_a_time() -> None:
    events = held(row("a", 1, 2, 9), row("b", 9, 10, None))

    assert [(event["kind"], event["server"]) for event in events] == [
        ("attach_begin", "a"),
        ("attached", "a"),
        ("detach_begin", "a"),
        ("detached", "a"),
        ("attach_begin", "b"),
        ("attached", "b"),
    ]
    assert [event["seq"] for event in events] == [1, 2, 3, 4, 5, 6]
    assert list(single_attachment(events)) == []


def test_two_servers_with_one_volume_are_found() -> None:
    (found,) = single_attachment(held(row("a", 1, 2, 9), row("b", 6, 7, None)))

    assert found.invariant == 1


def test_two_calls_within_one_second_are_no_finding() -> None:
    assert list(single_attachment(held(row("a", 1, 1, 1), row("b", 1, 1, None)))) == []


def test_an_attachment_that_was_never_made_belongs_to_no_server() -> None:
    assert held(row("a", 1, None, 3)) == []


@pytest.mark.parametrize("second", [6, 9])
def test_a_server_that_nova_moves_to_another_host_keeps_its_volume(second: int) -> None:
    events = held(row("a", 1, 2, 9), row("a", second, 10, None))

    assert [event["kind"] for event in events] == ["attach_begin", "attached"]


def test_a_server_that_gets_a_volume_back_has_it_a_second_time() -> None:
    events = held(row("a", 1, 2, 5), row("a", 6, 7, None))

    assert [event["kind"] for event in events].count("attach_begin") == 2


def test_a_volume_that_goes_while_the_application_runs_on_is_found() -> None:
    running = {"kind": "application_started", "t": at(4), "application": "db", "server": "a"}
    moves = list(attachments([row("a", 1, 2, 9), row("b", 9, 10, None)]))
    stopped = {**running, "kind": "application_stopped", "t": at(8)}

    (found,) = safe_attachment(in_order([*moves, running]))

    assert found.invariant == 2
    assert list(safe_attachment(in_order([*moves, running, stopped]))) == []


def test_a_token_and_a_password_are_found_and_their_owner_is_named() -> None:
    token = "gAAAA" + "Bp_-" * 40
    text = f"X-Auth-Token: {token}; mysql://cloud:0123456789abcdef@host"
    secrets = {"database": "0123456789abcdef", "demo": "fedcba9876543210"}

    found = [str(each) for each in spilled("engine.log", text, secrets)]

    assert found == [
        "invariant 9: engine.log holds a token",
        "invariant 9: engine.log holds the password of database",
    ]
    assert list(spilled("engine.log", "nothing to see", secrets)) == []


def test_only_what_is_written_from_now_on_counts(tmp_path: Path) -> None:
    log, later = tmp_path / "log", tmp_path / "later"
    log.write_text("before\n")
    tails = Tail(log), Tail(later)
    with log.open("a") as file:
        file.write("after\n")

    assert [tail.text() for tail in tails] == ["after\n", ""]

    later.write_text("new\n")
    assert tails[1].text() == "new\n"
