# SPDX-License-Identifier: Apache-2.0
"""Whatever comes from outside is text on a page, in every field of every answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import pytest

from mistral_failover.model.observation import Service
from mistral_failover.model.text import clean
from mistral_failover.ui.action_client import ActionFailed
from support.ui_answers import (
    BEFORE,
    FAILED_REHEARSAL,
    GOALS,
    INCIDENT,
    MOVING,
    PLANNED_REHEARSAL,
    REHEARSALS,
    TRAVERSAL,
    WAIT,
    Answers,
    availability,
    held,
    history,
    host_event,
    move,
    overview,
    plan,
    service,
    status,
    traversal,
    under_way,
)
from ui.conftest import Opened

HOSTILE = (
    "</title></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"' \x1b[2J\u202e{{7*7}}"
)
READ = ["/", "/group?name=payments", f"/timeline?id={TRAVERSAL}&step=5", "/history"]
READ += ["/rehearsals?group=payments", "/order?what=rehearse&group=payments"]
READ += ["/plan?group=payments&verb=failover", "/goals?group=payments"]
READ += [f"/plan?group=payments&verb=rollback&goal={BEFORE}&recovered.{quote(HOSTILE)}=on"]
READ += ["/order?what=maintenance&group=payments", "/work"]
READ += ["/alarm?id=alarm", "/order?what=admit-event&incident=alarm"]
READ += [f"/order?what={place}-lost&{place}={quote(HOSTILE)}" for place in ("host", "zone")]
READ += [f"/order?what=admit&group=payments&incident={quote(INCIDENT + HOSTILE)}"]
AT_REST = {
    f"/group?name=payments&rest={word}": status(
        service=service(word, "the server of db_b is ERROR", "its volume is gone", gone=["db_b"])
    )
    for word in (Service.DOWN, Service.DEGRADED, Service.UNKNOWN)
}
"""Groups at rest that do not serve well, by the page that shows each."""
READ += AT_REST
_WORDS = frozenset(
    {"status", "kind", "type", "stage", "verb", "key", "id", "traversal_id"} | {"worst"}
)
"""Fields whose values are words of ours: the code decides by them. So is the service of a row of
the groups; that of a group is an object."""
_TAGS = frozenset(
    {"html", "head", "meta", "title", "link", "script", "noscript", "body", "a", "header", "nav"}
    | {"form", "input", "button", "main", "p", "div", "footer", "h1", "h2", "h3", "section", "ol"}
    | {"li", "ul", "span", "code", "table", "thead", "tbody", "tr", "th", "td", "caption", "svg"}
    | {"g", "path", "rect", "text", "details", "summary", "dl", "dt", "dd", "label", "select"}
    | {"option", "strong", "fieldset", "legend"}
)


def poisoned(value: Any, name: str = "", text: str = HOSTILE) -> Any:
    """Return an answer with the hostile text behind each of its texts."""
    if isinstance(value, Mapping):
        return {
            (key if key in _KNOWN else f"{key}{text}"): (
                item
                if key in _WORDS or (key == "service" and isinstance(item, str))
                else poisoned(item, key, text)
            )
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [poisoned(item, name, text) for item in value]
    return f"{value}{text}" if isinstance(value, str) else value


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            if key not in ("roles", "agents"):
                yield from _keys(item)
    if isinstance(value, list):
        for item in value:
            yield from _keys(item)


_BLOCKED = status("BLOCKED", reason="no proof", resources=MOVING, agents={"db_a": "silent"}, held=1)
_BLOCKED["lost"] = ["db_a"]
_ANSWERS = {
    "status": _BLOCKED
    | {
        "pause": {"by": "me", "because": "why", "since": 1.0},
        "remedies": [
            {
                "resource": "r",
                "member": "db_a",
                "reason": "r",
                "only_by_confirmation": False,
                "command": "c",
            }
        ],
        "waiting": [
            {
                "resource": "data",
                "member": "db_b",
                "what": "Attach data to db_b",
                "waiting_for": "Nova",
                "since": 1.0,
                "next_try": 1.0,
                "tries": 2,
            }
        ],
    },
    "groups": {
        "overview": [
            overview(status="BLOCKED", lost=["db_a"], reason="r"),
            overview(
                status="IN_PROGRESS",
                under_way=[under_way("Attach data to db_b", 5.0)],
                waiting=[WAIT],
                deferred=[{"resource": "data", "deferred_to": "another", "deferred_at": 1.0}],
            ),
        ],
        "total": 2,
        "now": 1.0,
    },
    "show": traversal(),
    "history": history(),
    "plan": plan(changed=["the goal"], inputs={"recovered": ["db_a"]}),
    "goals": GOALS,
    "compare_goals": {"lines": ["~ roles.active: db_b -> db_a"]},
    "members_on_host": {"groups": [{"group": "books", "members": ["db_a"]}], "unsure": "why"},
    "moves": [move()],
    "availability": availability("payments"),
    "rehearsals": [FAILED_REHEARSAL, *REHEARSALS[1:]],
    "preview_rehearsal": PLANNED_REHEARSAL,
    "held": {"held": [held(), held(group=None, host="compute-1", children=2)], "total": 2},
}
_HOST_EVENT = host_event(
    parent="parent", group="payments", traversals=[{"id": "t", "cause": "db_a is lost"}]
)
_KNOWN = frozenset({*_keys(_ANSWERS), *_keys(_HOST_EVENT)})


def answers(path: str, text: str = HOSTILE) -> dict[str, Any]:
    """Return the answers for a page, with the hostile text in every field."""
    shown = _ANSWERS | ({"show": _HOST_EVENT} if "=alarm" in path else {})
    shown |= {"status": AT_REST[path]} if path in AT_REST else {}
    return {action: poisoned(answer, text=text) for action, answer in shown.items()}


class Reader(HTMLParser):
    """Collects the elements, attributes and texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.scripts = 0
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.scripts += tag == "script"

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.text += data


@pytest.mark.parametrize("path", READ)
def test_every_text_of_every_answer_stays_text(opened: Opened, path: str) -> None:
    page = opened(Answers(**answers(path))).get(path).text
    reader = Reader()
    reader.feed(page)

    assert reader.tags <= _TAGS
    assert reader.scripts == 4
    assert [name for name in reader.attributes if name.startswith("on") or name == "style"] == []
    assert clean("alert(1)") in reader.text
    assert "{{7*7}}" in reader.text
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "\\x1b[2J" in reader.text


@pytest.mark.parametrize("path", AT_REST)
def test_why_a_group_does_not_serve_stays_text(opened: Opened, path: str) -> None:
    reader = Reader()
    reader.feed(opened(Answers(**answers(path))).get(path).text)

    text = " ".join(reader.text.split())
    for reason in ("the server of db_b is ERROR", "its volume is gone"):
        assert " ".join(clean(f"{reason}{HOSTILE}").split()) in text


def test_a_hostile_address_and_a_hostile_error_stay_text(opened: Opened) -> None:
    browser = opened(Answers(status=ActionFailed(HOSTILE, HOSTILE, "UNKNOWN_GROUP")))
    found = [
        browser.get("/group", params={"name": HOSTILE}),
        browser.get("/", params={"text": HOSTILE, "level": HOSTILE, "sort": HOSTILE}),
        browser.get("/history", params={"group": HOSTILE}),
        browser.get("/order", params={"what": "pause", "group": HOSTILE}),
    ]

    for answer in found:
        reader = Reader()
        reader.feed(answer.text)
        assert reader.scripts == 4
        assert "img" not in reader.tags
