# SPDX-License-Identifier: Apache-2.0
"""The page of a group in every state that an operator may find, on a desk and on a telephone, light
and dark: it fits, is accessible, and says at the top what matters.

Needs Chromium and playwright: ``make test-ui``. It leaves a screenshot of each in ``build/ui``,
named ``NAME-desk-light`` and so on: look at them after every change of the style sheet.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mistral_failover.model.remedies import need
from support.browser import Tab
from support.ui_answers import (
    FAILED_REHEARSAL,
    MOVING,
    NOW,
    Answers,
    member,
    operation,
    overview,
    rehearsal,
    resource,
    service,
    status,
    step_ahead,
    traversal,
    under_way,
    unproven,
)
from ui.conftest import Opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

SCREENS = {"desk": (1440, 900), "phone": (390, 844)}
GROUP = "/group?name=payments"
REHEARSALS = "/rehearsals?group=payments"
LOST = {"lost": ["db_a"], "resources": MOVING}


FENCING = operation("create", "fence:db_a", "fence", None, "fence", 0, None)
ATTACHING = [
    operation("create", "fence:db_a", "fence", None, "fence", 0, 3.2),
    operation("delete", "data", "volume_attachment", "db_a", "move_volumes", 3.2, 4.4),
    operation("create", "data", "volume_attachment", "db_b", "move_volumes", 4.4, None),
]
TO_COME = [
    step_ahead("Start database on db_b", "activate", "Attach data to db_b", expected=1.1),
    step_ahead("Update routing", "update_stack", "Start database on db_b", expected=1.5),
]
RUNNING = {"status": "IN_PROGRESS", "ended_at": None, "last_failover": 8.2}
DOING = under_way("Attach data to db_b", 1.6)
UNPROVEN = unproven(
    tried=[
        {"what": "quiesce", "found": "db_a did not answer within 10 s", "at": NOW - 410},
        {
            "what": "stop",
            "found": "server dbaab98b is ACTIVE (host DOWN): Nova cannot stop it",
            "at": NOW - 395,
        },
        {"what": "host_power", "found": "compute-1: no answer of its board", "at": NOW - 380},
        {"what": "confirm", "found": "no operator has confirmed it yet", "at": NOW - 380},
    ]
)
REMEDY = {
    "resource": "fence:db_a",
    "member": "db_a",
    "reason": "no proof",
    "only_by_confirmation": False,
    "command": "failover confirm-fenced payments db_a --because '...'",
}
HELD_BY_DB_A = [
    resource("fence:db_a", "fence", None, "CREATE_FAILED"),
    resource("data", "volume_attachment", "db_a", "CREATE_COMPLETE"),
    resource("data", "volume_attachment", "db_b", "INIT_COMPLETE"),
    resource("database", "activation", "db_b", "INIT_COMPLETE"),
]
MOVE = need("MOVE", lost=["db_b"]).document()
WHY_DOWN = "active is on db_b, but its server is SHUTOFF"
WHY_UNKNOWN = "active is on db_b, but its server is ACTIVE (host DOWN): the guest may be running"
ON_DB_A = [
    resource(
        "data",
        "volume_attachment",
        "db_a",
        "CREATE_COMPLETE",
        attributes={"device": "/dev/vdb"},
    ),
    resource("database", "activation", "db_a", "CREATE_COMPLETE"),
    resource("service", "floating_ip", "db_a", "CREATE_COMPLETE"),
]
WON = "a failover of payments began"
REHEARSED = {
    "running": False,
    "failure": None,
    "at": NOW - 20_000,
    "reason": "",
    "on": ["db_b"],
    "to_service": 12.0,
    "members": [
        {
            "member": "db_b",
            "role": "active",
            "at": NOW - 20_000,
            "status": "PASSED",
            "reason": "",
            "to_service": 12.0,
            "missed_since": None,
            "passed_over": "",
        }
    ],
    "schedule": "every 7d, between 02:00-05:00 UTC",
    "missed_since": None,
}
FLEET = [
    overview(
        f"group{number:04}",
        **(
            {"service": "DOWN", "service_since": NOW - 60 * number - 30}
            if number % 250 == 7
            else {"service": "DEGRADED"}
            if number % 97 == 3
            else {}
        ),
    )
    for number in range(1000)
]


def fleet(after: str = "", **_: Any) -> Any:
    """The answer of failover.status without a group."""
    behind = [row for row in FLEET if row["name"] > after]
    return {"overview": behind[:500], "total": len(FLEET), "groups": [], "now": NOW}


SCENES: dict[str, tuple[str, dict[str, Any]]] = {
    "serving": (GROUP, {"status": status(service=service("SERVING"))}),
    "failover": (
        GROUP,
        {
            "status": status(
                "IN_PROGRESS",
                **LOST,
                under_way=[DOING],
                service=service("DOWN", "data is not in service (not yet on db_b)"),
                since=NOW - 6,
            ),
            "show": traversal(**RUNNING, seconds=6.0, operations=ATTACHING, ahead=TO_COME),
        },
    ),
    "waiting": (
        GROUP,
        {
            "status": status(
                "BLOCKED",
                lost=["db_a"],
                resources=HELD_BY_DB_A,
                failure=UNPROVEN,
                remedies=[REMEDY],
                service=service("DOWN", "data is not in service (still on db_a, which is lost)"),
                members=[
                    member("db_a", "dbaab98b", condition="unreachable", why="its host is down"),
                    member("db_b", "da1ce15d"),
                ],
            ),
            "show": traversal(
                **(RUNNING | {"status": "BLOCKED"}),
                seconds=420.0,
                operations=[FENCING | {"ended_at": NOW - 50, "status": "failed"}],
                ahead=[
                    step_ahead("Detach data from db_a", "move_volumes", "Fence db_a"),
                    step_ahead("Attach data to db_b", "move_volumes", "Detach data from db_a"),
                    *TO_COME,
                ],
            ),
        },
    ),
    "down": (
        GROUP,
        {
            "status": status(
                service=service("DOWN", WHY_DOWN, gone=["db_b"], needs=[MOVE]),
                members=[
                    member("db_a", "dbaab98b", condition="hung", why="no heartbeat for 95 s"),
                    member("db_b", "da1ce15d", condition="stopped", why="its server is SHUTOFF"),
                ],
                resources=[
                    resource(
                        "data",
                        "volume_attachment",
                        "db_b",
                        "CREATE_COMPLETE",
                        presence="changed",
                        why="it is attached to server 0b5e7c1d, not to da1ce15d",
                    ),
                    resource(
                        "logs",
                        "volume_attachment",
                        "db_a",
                        "CREATE_COMPLETE",
                        attributes={"server_id": "0b5e7c1d-of-before"},
                    ),
                ],
            )
        },
    ),
    "unknown": (
        GROUP,
        {
            "status": status(
                service=service("UNKNOWN", WHY_UNKNOWN, explained=False),
                members=[
                    member("db_a", "dbaab98b"),
                    member("db_b", "da1ce15d", condition="unreachable", why="its host is down"),
                ],
            )
        },
    ),
    "cold": (
        GROUP,
        {
            "status": status(
                roles={"active": "db_a"},
                service=service("SERVING", standbys=[], cold=True),
                members=[member("db_a", "dbaab98b")],
                resources=ON_DB_A,
                traversal=None,
            )
        },
    ),
    "rehearsed": (
        GROUP,
        {
            "status": status(
                roles={"active": "db_a"},
                resources=ON_DB_A,
                service=service(standbys=["db_b"]),
                rehearsal=REHEARSED | {"status": "PASSED"},
            )
        },
    ),
    "rehearsal-failed": (
        GROUP,
        {
            "status": status(
                roles={"active": "db_a"},
                resources=ON_DB_A,
                rehearsal=REHEARSED | {"status": "FAILED", "to_service": None},
                service=service(
                    "DEGRADED",
                    f"db_b failed the last rehearsal ({FAILED_REHEARSAL['reason']})",
                    needs=[need("REHEARSE", member="db_b", role="active").document()],
                    standbys=["db_b"],
                ),
            )
        },
    ),
    "report": (REHEARSALS, {}),
    "report-failed": (
        REHEARSALS,
        {"rehearsals": [FAILED_REHEARSAL, rehearsal(1), rehearsal(2, "ENDED", reason=WON)]},
    ),
    "report-running": (
        REHEARSALS,
        {
            "rehearsals": [
                rehearsal(0, "RUNNING", ended_at=None, clean=False, report=None),
                rehearsal(1),
            ]
        },
    ),
    "report-none": (REHEARSALS, {"rehearsals": []}),
    "fleet": ("/", {"groups": fleet, "held": {"held": [], "total": 0}}),
}


WELL = ("serving", "cold", "rehearsed", "report", "report-running")
"""States in which no command is needed."""
UNDATED = ("report-none",)
"""What has no time."""


@pytest.mark.parametrize("name", SCENES)
def test_a_state_fits_every_screen_and_is_accessible_in_both_schemes(
    chromium: Any, opened: Opened, name: str
) -> None:
    path, answers = SCENES[name]
    with Tab(chromium, opened(Answers(**answers), login=False).links[-1]) as page:
        page.open(path)
        for (screen, size), scheme in itertools.product(SCREENS.items(), ("light", "dark")):
            page.look(size[0], scheme, size[1])
            assert page.overflow() <= 0, (screen, scheme)
            page.shot(f"{name}-{screen}-{scheme}", whole=name != "fleet")
            if name != "fleet":  # test_pages_in_a_browser.py examines that page, with fewer rows
                assert page.violations() == [], (screen, scheme)
        assert page.wrong == []


@pytest.mark.parametrize("name", [name for name in SCENES if name != "fleet"])
def test_a_telephone_shows_all_that_matters_at_night_without_scrolling(
    chromium: Any, opened: Opened, name: str
) -> None:
    """Whether it serves, since when, why, and the command; what is secondary is folded."""
    path, answers = SCENES[name]
    with Tab(chromium, opened(Answers(**answers), login=False).links[-1]) as page:
        page.look(*SCREENS["phone"][:1], height=SCREENS["phone"][1])
        page.open(path)
        for what in (
            *([] if name in UNDATED else ["h1 .badge", ".since"]),
            ".verdict",
            *([] if name in WELL else [".command"]),
        ):
            box = page.page.locator(what).first.bounding_box()
            assert box is not None, what
            assert box["y"] + box["height"] <= SCREENS["phone"][1], what
        height = page.page.evaluate("document.documentElement.scrollHeight")
        assert height < 3 * SCREENS["phone"][1], height
