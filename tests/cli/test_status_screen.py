# SPDX-License-Identifier: Apache-2.0
"""The screen of ``failover status`` and ``watch``, from answers of failover.status."""

from __future__ import annotations

import io
from typing import Any

import pytest

from mistral_failover.cli import groups, locks, order, status_screen
from mistral_failover.cli import status as status_commands
from mistral_failover.cli.base import clock
from mistral_failover.cli.follow import WatchUpdate
from mistral_failover.cli.live import live
from mistral_failover.reports.advice import advice
from support import ui_answers
from support.ui_answers import NOW, TRAVERSAL, member


class App:
    """What a command of cliff's knows of its application."""

    def __init__(self) -> None:
        self.stdout, self.stderr = io.StringIO(), io.StringIO()


RUNNING = {
    "sentence": "Attach data to db_b",
    "resource": "data",
    "member": "db_b",
    "limit": 300,
    "waiting_for": None,
    "waiting_since": None,
}
"""An operation in progress; ``status``, ``seconds`` and ``attempts`` are to be added."""


DIFFERENT = {"differs": True, "lines": ['+ limits: {"per_hour": 7}']}
"""How what is defined differs from what is in force."""


def screen(answer: dict[str, Any] | None = None, width: int = 100) -> str:
    """The screen of ``failover status``."""
    return status_screen.screen(answer or status(), (), width)


def status(word: str = "COMPLETE", **more: Any) -> dict[str, Any]:
    """The answer about a group that stands so, and nothing else of it: db_a has its role."""
    there = {"roles": {"active": "db_a"}, "members": [member("db_a", "s-a")]}
    nothing: dict[str, Any] = {"resources": [], "incidents": []}
    return ui_answers.status(word, **there | nothing | more)


def service(word: str = "SERVING", **more: Any) -> dict[str, Any]:
    """Whether the group serves, in such an answer."""
    return {**status()["service"], "status": word, **more}


def test_the_screen_says_first_whether_the_group_serves() -> None:
    first, why, *_ = screen(
        status(service=service("DOWN", reasons=["its server is gone"], gone=["db_a"]))
    ).splitlines()

    assert first == "payments is DOWN: nothing serves since 07:53:00 (7 min 00 s)"
    assert why == "  - its server is gone"
    assert screen().startswith("payments is SERVING on db_a since 07:53:00 (7 min 00 s)\n")


def test_what_a_look_found_is_shown_with_its_age() -> None:
    found = {"reasons": ["its server is PAUSED"], "gone": ["db_a"]}
    aged = screen(status(service=service("DOWN", seen_at=NOW - 36.0, **found)))
    new = screen(status(service=service("DOWN", seen_at=NOW - 2.0, **found)))

    assert "\n  (seen 36.0 s ago; to look again: failover sweep payments)\n" in aged
    assert "seen 2" not in new


def test_the_next_try_is_not_said_to_be_in_the_past() -> None:
    failure = {**unproven()["failure"], "resource": "data", "since": NOW - 60}

    def said(again_at: float) -> str:
        return screen(status("BLOCKED", failure={**failure, "again_at": again_at}), 400)

    assert f"next try after {clock(NOW + 20)}" in said(NOW + 20)
    assert "next try with the next sweep" in said(NOW - 20)


def test_the_details_say_who_would_take_over() -> None:
    def protection(**more: Any) -> str:
        return status_screen.facts(status(service=service(**more))).get("protected by", "")

    assert protection(standbys=["db_b"], cold=True) == "db_b"
    assert "brought back" in protection(cold=True)
    assert protection() == protection(standbys=["db_b"], seen_at=None) == ""


def test_a_group_is_said_to_be_unprotected_only_if_no_member_could_take_over() -> None:
    def said(**more: Any) -> str:
        return str(status_screen.headline(status(service=service("DEGRADED", **more))))

    alone = said(seen_at=1.0)
    others = [
        said(seen_at=1.0, standbys=["db_b"]),
        said(seen_at=1.0, cold=True),
        said(seen_at=None),
    ]

    assert "protected" in alone
    assert not any("protected" in each for each in others)


@pytest.mark.parametrize("word", ["IN_PROGRESS", "BLOCKED", "FAILED"])
def test_until_the_goal_is_reached_no_member_is_said_to_serve(word: str) -> None:
    moving = status(word, roles={"active": "db_b"})

    assert "db_b" in status_screen.headline(status(roles={"active": "db_b"}))
    assert "db_b" not in status_screen.headline(moving)


@pytest.mark.parametrize("word", ["IN_PROGRESS", "BLOCKED", "FAILED"])
def test_a_group_that_serves_is_said_to_serve_where_it_does_also_until_its_goal_is_reached(
    word: str,
) -> None:
    serves = service("DEGRADED")
    there = status(word, service=serves, serves_on={"active": "db_a"})
    leaving = status(word, service=serves, serves_on={"active": "db_b"})

    assert "it serves on db_a" in status_screen.headline(there)
    assert status_screen.role_holders(there) == "active on db_a"
    assert "it serves on db_b" in status_screen.headline(leaving)
    assert status_screen.role_holders(leaving) == "active on db_b, will be on db_a"


@pytest.mark.parametrize(
    ("presence", "why", "said"),
    [
        ("present", "", "there"),
        (None, "", "there"),
        ("gone", "it is attached to no server", "not there: it is attached to no server"),
        ("changed", "it is on another server", "not there: it is on another server"),
        ("unknown", "Cinder does not answer", "not known: Cinder does not answer"),
    ],
)
def test_a_volume_is_said_to_be_where_the_last_look_found_it(
    presence: str | None, why: str, said: str
) -> None:
    volume = {
        "name": "data",
        "type": "volume_attachment",
        "member": "db_a",
        "status": "CREATE_COMPLETE",
        "attributes": {},
        "presence": presence,
        "why": why,
    }

    assert status_screen.facts(status(resources=[volume]))["volumes"] == f"data on db_a ({said})"


@pytest.mark.parametrize("word", ["COMPLETE", "IN_PROGRESS", "BLOCKED", "FAILED"])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_screen_fits_and_leaves_commands_whole(word: str, width: int) -> None:
    long = status(word, lost=["db_a"], reason="no answer " * 30, remedies=unproven()["remedies"])

    lines = screen(long, width).splitlines()

    assert all(len(line) <= width for line in lines if "failover " not in line)
    for command in (each.command for each in advice(long)):
        assert any(line.endswith(command) for line in lines), command


def test_commands_are_numbered_and_say_when_to_type_them() -> None:
    lines = screen(unproven(), 60).splitlines()

    start = lines.index("Next:")
    assert lines[start + 1 : start + 5] == [
        "  1. Once db_a or its host answers (tries to fence again):",
        "     failover start payments --lost db_a",
        "  2. Or, once you are sure that db_a is off:",
        f"     {COMMAND}",
    ]
    assert "Waiting for: the proof that db_a is off" in lines


def test_a_service_that_was_not_looked_at_says_so() -> None:
    facts = status_screen.facts(status(service=service(seen_at=None)))

    assert "not since" in facts["observed"]


def test_an_alarm_whose_failover_has_not_started_is_waited_for_and_can_be_swept() -> None:
    alarm = {"at": NOW - 60, "sentence": "db_a is lost", "refusal": ""}

    lines = screen(status(unstarted=[alarm])).splitlines()

    assert "Waiting for: the start of a failover, since 07:59:00: db_a is lost" in lines
    assert lines[lines.index("Next:") + 2].strip() == "failover sweep payments"


def test_what_is_under_way_says_for_how_long_and_what_is_in_doubt() -> None:
    row = {**RUNNING, "seconds": 61.0, "status": "unknown", "attempts": 2}
    moving = status("IN_PROGRESS", under_way=[row])

    assert status_screen.facts(moving)["status"] == "IN_PROGRESS for 1 min 30 s, 2 of 5 steps"
    assert status_screen.step(moving) == (
        "step 3 of 5: Attach data to db_b "
        "(1 min 01 s of at most 300 s, attempt 2; its outcome is unknown)"
    )
    assert f"Waiting for: {status_screen.step(moving)[13:]}\n" in screen(moving, 120)
    assert status_screen.help_lines(moving) == ["failover watch payments"]
    assert status_screen.step(status()) == ""


def test_what_is_blocked_after_tries_that_ended_is_not_shown_as_under_way() -> None:
    row = {**RUNNING, "status": "unknown", "attempts": 30}

    assert "its outcome is unknown" not in screen(status("BLOCKED", under_way=[row]))


def test_a_step_that_a_service_does_not_answer_says_so() -> None:
    waits = {"waiting_for": "Cinder: connection refused", "waiting_since": NOW - 30}
    row = {**RUNNING, "seconds": 61.0, "status": "started", "attempts": 1, **waits}

    assert status_screen.step(status("IN_PROGRESS", under_way=[row])).endswith(
        f": waiting for Cinder: connection refused, since {clock(NOW - 30)}"
    )


DELETED = {"name": "db_b", "server": "s-b", "epoch": 2, "condition": "deleted", "needs": []}


@pytest.mark.parametrize(
    ("answer", "commands"),
    [
        (
            status(
                "BLOCKED",
                remedies=[
                    {
                        "member": "db_a",
                        "only_by_confirmation": False,
                    }
                ],
            ),
            [
                "once db_a or its host answers: failover start payments --lost db_a   "
                "(tries to fence again)",
                "failover confirm-fenced",
            ],
        ),
        (
            status(
                "BLOCKED",
                roles={},
                remedies=[{"member": "db_a", "only_by_confirmation": False}],
            ),
            ["failover group delete payments --lost db_a", "failover confirm-fenced payments"],
        ),
        (status("BLOCKED"), ["failover sweep payments"]),
        (status("FAILED"), ["failover start payments", "failover rollback payments"]),
        (status("FAILED", lost=["db_a"]), ["correct the cause, then: failover start payments"]),
        (status("FAILED", last_complete_goal=None), ["failover start payments"]),
        (status("FAILED", roles={}), ["failover group delete payments", "group activate payments"]),
        (status("IN_PROGRESS", reason="rights ended"), ["failover sweep", "failover watch"]),
        (status("COMPLETE"), []),
        (
            status("COMPLETE", lost=["db_b"]),
            ["once db_b is healthy: failover recover payments db_b"],
        ),
        (
            status("COMPLETE", lost=["db_b"], members=[DELETED]),
            ["to give db_b a new server: failover replace payments db_b"],
        ),
        (status("COMPLETE", roles={}), ["failover group activate payments"]),
        (
            status("COMPLETE", in_force=DIFFERENT),
            ["failover group activate payments", "or, if it is wrong: failover group update FILE"],
        ),
        (status("DEFINED", traversal=None, roles={}, goal=None), ["failover group activate"]),
    ],
)
def test_each_state_has_the_commands_that_lead_on(
    answer: dict[str, Any], commands: list[str]
) -> None:
    helps = status_screen.help_lines(answer)

    assert len(helps) == len(commands)
    for line, command in zip(helps, commands, strict=True):
        assert command in line


def test_a_definition_that_is_not_in_force_is_said_with_its_difference() -> None:
    shown = screen(status(in_force=DIFFERENT))

    assert status_screen.NOT_IN_FORCE in shown
    assert "+ limits" in shown
    assert status_screen.NOT_IN_FORCE not in screen()


def test_a_group_s_name_can_be_typed_whatever_is_in_it() -> None:
    assert status_screen.help_lines(status("DEFINED", group="it's"))[0] == (
        "failover group activate 'it'\"'\"'s'"
    )


def test_volumes_and_what_is_in_trouble_are_told() -> None:
    volume = {"type": "volume_attachment", "member": "db_a", "attributes": {"device": "/dev/vdb"}}
    volume |= {"presence": None, "why": ""}
    rows = [
        {**volume, "name": "data", "status": "CREATE_COMPLETE", "reason": ""},
        {**volume, "name": "logs", "status": "DELETE_FAILED", "reason": "it is stuck"},
        {**volume, "name": "new", "status": "INIT_COMPLETE", "attributes": {}, "reason": ""},
    ]

    facts = status_screen.facts(status("FAILED", resources=rows))

    assert facts["volumes"].splitlines() == [
        "data on db_a as /dev/vdb (there)",
        "logs on db_a as /dev/vdb (delete failed)",
        "new on db_a (does not exist yet)",
    ]
    assert facts["failed"] == "logs: it is stuck"


COMMAND = "failover confirm-fenced payments db_a --because '...'"
TRIED = "it is not proven that db_a has stopped writing (stop: gave up. It is ACTIVE; confirm: no)."
REASON = f"{TRIED} Make sure that it is off, then confirm it: {COMMAND} (or so). [FENCE_UNPROVEN]"


def unproven() -> dict[str, Any]:
    """The answer about a group whose fence proved nothing."""
    fence = {"type": "fence", "name": "fence:db_a", "status": "CREATE_FAILED", "reason": REASON}
    remedy = {
        "member": "db_a",
        "only_by_confirmation": False,
        "resource": "fence:db_a",
        "reason": REASON,
        "command": COMMAND,
    }
    failure = {
        "resource": "fence:db_a",
        "what": "Fence db_a",
        "code": "FENCE_UNPROVEN",
        "message": TRIED,
        "remedy": f"Make sure that it is off, then confirm it: {COMMAND} (or so).",
        "needs": [],
    }
    return status(
        "BLOCKED",
        lost=["db_a"],
        reason=f"Fence db_a: {REASON}",
        failure=failure,
        resources=[fence],
        remedies=[remedy],
    )


def test_the_screen_of_what_is_blocked_says_the_reason_once_and_the_command_once() -> None:
    assert status_screen.why(unproven()) == f"Fence db_a: {TRIED} [FENCE_UNPROVEN]"
    assert status_screen.facts(unproven())["failed"] == "fence:db_a (create failed)"
    assert screen(unproven()).count(COMMAND) == 1


def test_a_remedy_that_stands_nowhere_else_stays_in_the_reason() -> None:
    reason = "Attach data to db_b: it is in error. Set it: openstack volume set [VOLUME]"

    assert status_screen.why(status("BLOCKED", reason=reason)) == reason


def test_a_reason_that_was_told_among_the_steps_is_not_told_whole_once_more() -> None:
    answer, stream, terminal = unproven(), io.StringIO(), io.StringIO()
    look = WatchUpdate(answer, [{"id": 1, "at": NOW, "sentence": answer["reason"]}])

    list(status_commands._told(iter([look]), stream))
    list(live(iter([look]), terminal))

    _, last = stream.getvalue().splitlines()
    assert "; Fence db_a [FENCE_UNPROVEN]; once db_a or its host answers" in last
    for told in (stream, terminal):
        assert " ".join(told.getvalue().split()).count("it is not proven") == 1
    ended = {"reason": "its execution was ended", "failure": None}
    assert status_screen.short_reason(**ended) == ended["reason"]


def test_who_holds_a_role_is_told_only_of_a_goal_that_is_reached() -> None:
    assert status_screen.facts(status())["active"] == "active on db_a (server s-a)"
    assert status_screen.facts(status("BLOCKED"))["active"] == "active will be on db_a (server s-a)"


def test_watch_and_the_lists_say_no_sooner_who_holds_a_role() -> None:
    failed = status("FAILED", reason="it broke")

    lines = [status_commands._status_line(each) for each in (status(), status("BLOCKED"), failed)]

    assert lines[0] == "payments is COMPLETE; active on db_a"
    assert lines[1].startswith("payments is BLOCKED; active will be on db_a; ")
    assert lines[2].startswith("payments is FAILED; active will be on db_a; it broke; ")
    row = {"name": "payments", "since": NOW, "held": 0, "service": "DOWN"}
    assert "active will be on db_a" in status_commands._row(status("BLOCKED") | row)
    answer = {"overview": [status("IN_PROGRESS") | row, status() | row]}
    _, listed = groups.overview(answer, people=True)
    assert [cells[3] for cells in listed] == ["active will be on db_a", "active on db_a"]


def test_the_outcome_of_an_order_says_who_is_wanted_until_its_goal_is_reached() -> None:
    roles = {"active": "db_b"}

    assert order.worded({"status": "BLOCKED", "roles": roles}) == {
        "status": "BLOCKED",
        "wanted": "active: db_b",
    }
    for there in ("COMPLETE", "RETURNED"):
        assert order.worded({"status": there, "roles": roles})["roles"] == "active: db_b"


def test_the_current_traversal_is_named_to_be_shown() -> None:
    assert status_screen.facts(status())["traversal"] == TRAVERSAL
    assert "traversal" not in status_screen.facts(status("DEFINED", traversal=None))


def test_a_group_whose_creation_was_refused_is_said_to_be_there() -> None:
    refused = groups._left("my shop", {"state": "ERROR", "code": "NO_ELIGIBLE_MEMBER"})

    assert "failover group update FILE --name 'my shop'" in refused["defined"]
    assert "failover group delete 'my shop'" in refused["defined"]
    assert groups._left("shop", {"status": "FAILED", "code": "FAILED"}) == {}
    assert groups._left("shop", {"status": "COMPLETE"}) == {}


def test_no_lock_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    command = locks.List(App(), None)
    monkeypatch.setattr(command, "run_action", lambda *_, **__: [])

    command.take_action(command.get_parser("failover locks").parse_args([]))

    assert command.app.stderr.getvalue() == "No locks are held.\n"


def test_a_sound_file_is_said_so_and_no_empty_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(groups.files, "problems", lambda *_: [])
    command = groups.Validate(App(), None)

    code = command.run(command.get_parser("failover group validate").parse_args(["group.yaml"]))

    assert (code, command.app.stdout.getvalue()) == (0, "")
    assert command.app.stderr.getvalue() == "group.yaml: no problems found\n"


def test_what_waits_for_a_service_says_since_when_and_when_it_goes_on() -> None:
    waiting = {
        "resource": "data",
        "member": "db_b",
        "what": "Attach data to db_b",
        "waiting_for": "Cinder: connection refused",
        "since": 25_075.4,
        "next_try": 8.2,
        "tries": 4,
    }
    again = {**waiting, "resource": "log", "what": "Create log", "next_try": 0.0}
    failed = {"name": "data", "type": "x", "status": "CREATE_FAILED", "reason": "no answer"}
    tried = {**RUNNING, "seconds": 3.0}
    found = status_screen.facts(
        status(
            "IN_PROGRESS",
            waiting=[waiting, again],
            resources=[failed],
            under_way=[{**tried, "status": "unknown", "attempts": 4}],
        )
    )

    assert found["waiting for"].splitlines() == [
        "Cinder: connection refused, since 06:57:55: Attach data to db_b (next try in 8 s)",
        "Cinder: connection refused, since 06:57:55: Create log (trying again)",
    ]
    assert "failed" not in found


def test_a_long_list_is_cut_and_says_how_long_it_is() -> None:
    deferred = [{"resource": f"data_{n}", "deferred_to": "x"} for n in range(14)]

    lines = status_screen.facts(status(deferred=deferred))["waiting for"].splitlines()

    assert (len(lines), lines[-1]) == (11, "... and 4 more")


def test_what_an_operation_of_an_earlier_goal_keeps_waiting_is_that_operation() -> None:
    doing = {**RUNNING, "seconds": 3.0, "status": "started", "attempts": 1}
    doing |= {"resource": "replace:db_a", "sentence": "Bring back db_a"}
    waits = {"node": "cleanup:9", "resource": "replace:db_a", "deferred_to": "host:7"}

    begun = status("IN_PROGRESS", under_way=[doing], deferred=[waits])
    between = status("IN_PROGRESS", deferred=[waits])

    (line,) = status_screen.facts(begun)["waiting for"].splitlines()
    assert line.startswith("Bring back db_a (")
    assert status_screen.facts(between)["waiting for"] == (
        "the worker that has locked replace:db_a"
    )


def test_lines_stand_beside_their_question() -> None:
    assert status_screen.aligned({"a": "one\ntwo", "long": "three"}, 80) == (
        "a     one\n      two\nlong  three\n"
    )
    assert status_screen.aligned({}, 80) == ""


def test_the_live_screen_shows_the_last_look_and_that_mistral_is_away() -> None:
    stream = io.StringIO()
    step = {"id": 1, "at": NOW, "sentence": "Done: db_b is active"}
    looks = [
        WatchUpdate(status("IN_PROGRESS"), [step]),
        WatchUpdate(None, away="no answer from there"),
    ]

    assert list(live(iter(looks), stream)) == looks
    told = stream.getvalue()
    assert "Done: " in told
    assert "no answer from there: retrying" in told
    assert "active will be on db_a (server s-a)" in told


def test_a_group_that_waits_for_its_chain_says_so_and_offers_a_sweep_once_the_chain_has_ended() -> (
    None
):
    waits = {"sentence": "waits for its chain to open the stage activate", "remedy": ""}
    ended = {"sentence": "its chain ended with ERROR", "remedy": "failover sweep payments"}
    reason = f"{ended['sentence']}; next: {ended['remedy']}"

    running = status("IN_PROGRESS", chain=waits, reason=waits["sentence"])
    dead = status("IN_PROGRESS", chain=ended, reason=reason)

    assert status_screen.why(running) == "waits for its chain to open the stage activate"
    assert status_screen.help_lines(running) == ["failover watch payments"]
    assert status_screen.why(dead) == "its chain ended with ERROR"
    assert status_screen.help_lines(dead) == ["failover sweep payments", "failover watch payments"]


def test_of_all_groups_each_says_what_it_waits_for() -> None:
    wait = {
        "resource": "data",
        "member": "db_b",
        "what": "Attach data to db_b",
        "waiting_for": "Nova",
    }
    wait |= {"since": 0.0, "next_try": 5.0, "tries": 3}
    row = {"status": "IN_PROGRESS", "under_way": [], "waiting": [wait], "deferred": [], "ready": []}

    assert status_screen.awaited_in_overview(row) == [
        "Nova, since 00:00:00: Attach data to db_b (next try in 5 s)"
    ]


@pytest.mark.parametrize(
    ("services", "said"),
    [
        (["Cinder", "Nova"], "a free worker, or room in the budget of Cinder and Nova, for data"),
        ([], "a free worker, for data"),
    ],
)
def test_a_step_that_waits_for_its_turn_is_no_step_without_a_reason(
    services: list[str], said: str
) -> None:
    step = {"node": "update:r1", "resource": "data", "member": None, "services": services}

    assert list(status_screen.awaited(status("IN_PROGRESS", ready=[step]))) == [said]
