# SPDX-License-Identifier: Apache-2.0
"""Answers of the actions as the pages get them, and an `ActionClient` that gives them."""

from __future__ import annotations

import time
from typing import Any

from mistral_failover.groups.failed_step import FailedStep
from mistral_failover.model.operation_words import operation_words
from mistral_failover.model.types import Verb, installed_types
from mistral_failover.reports.documents import ServiceState
from mistral_failover.ui.action_client import ActionFailed

NOW = 1_800_000_000.0
INCIDENT = "d3b9775c-bbec-5427-b5ff-c0c3dd981b60"
TRAVERSAL = "b0394ddc-9123-5a79-b7e8-44cb89ac20d5"


def overview(name: str = "payments", status: str = "COMPLETE", **more: Any) -> dict[str, Any]:
    """A row of failover.status without a group. It serves so since it has its status, unless that
    is given."""
    found = {
        "name": name,
        "stack": name,
        "status": status,
        "reason": "",
        "cause": "a test",
        "since": NOW - 60,
        "roles": {"active": "db_b"},
        "lost": [],
        "pause": None,
        "maintenance": None,
        "vacant": [],
        "held": 0,
        "service": "SERVING",
        "service_since": more.get("since", NOW - 60),
        "under_way": [],
        "waiting": [],
        "deferred": [],
        "ready": [],
        **more,
    }
    serves = status == "COMPLETE" and found["service"] in ("SERVING", "DEGRADED")
    return {"serves_on": dict(found["roles"]) if serves else {}, **found}


def under_way(sentence: str, seconds: float, **more: Any) -> dict[str, Any]:
    """A running operation in an answer of failover.status."""
    return {
        "key": f"key of {sentence}",
        "resource_id": "data-db_b",
        "resource": "data",
        "member": "db_b",
        "verb": "create",
        "status": "started",
        "attempts": 1,
        "owner": "an executor",
        "started_at": NOW - seconds,
        "sentence": sentence,
        "seconds": seconds,
        "limit": 60.0,
        "waiting_for": None,
        "waiting_since": None,
        **more,
    }


WAIT = {
    "resource": "data",
    "member": "db_b",
    "verb": "create",
    "waiting_for": "Nova",
    "what": "Attach data to db_b",
    "since": NOW - 40,
    "next_try": 5.0,
    "tries": 3,
}


def member(name: str, server: str, **more: Any) -> dict[str, Any]:
    """A member in an answer of failover.status."""
    seen = {"condition": "runs", "why": "", "needs": []}
    return {"name": name, "server": server, "epoch": 1, **seen, **more}


def resource(name: str, kind: str, member: str | None, status: str, **more: Any) -> dict[str, Any]:
    """A resource in an answer of failover.status."""
    return {
        "name": name,
        "type": kind,
        "member": member,
        "status": status,
        "reason": "",
        "physical_id": "de140495",
        "attributes": {},
        "goal": "aac642cc",
        "owner": None,
        "token": 1,
        "lease_left": None,
        "id": f"{name}-{member}",
        "presence": "present",
        "why": "",
        **more,
    }


AT_REST = [
    resource("data", "volume_attachment", "db_b", "CREATE_COMPLETE", attributes={"device": "/vdb"}),
    resource("database", "activation", "db_b", "CREATE_COMPLETE"),
    resource("routing", "stack_parameters", None, "UPDATE_COMPLETE"),
]
MOVING = [
    resource("fence:db_a", "fence", None, "CREATE_COMPLETE"),
    resource("data", "volume_attachment", "db_a", "DELETE_IN_PROGRESS"),
    resource("data", "volume_attachment", "db_b", "INIT_COMPLETE"),
    resource("database", "activation", "db_b", "INIT_COMPLETE"),
]


def service(word: str = "SERVING", *reasons: str, **more: Any) -> dict[str, Any]:
    """Whether a group serves, for seven minutes, in an answer of failover.status."""
    seen: ServiceState = {
        "status": word,
        "since": NOW - 420,
        "reasons": list(reasons),
        "seen_at": NOW - 12,
        "gone": [],
        "another_stack": False,
        "stack_gone": False,
        "needs": [],
        "explained": True,
        "standbys": [],
        "cold": False,
    }
    return {**seen, **more}


def unproven(**more: Any) -> dict[str, Any]:
    """The failed step of a group whose fence proved nothing, in an answer of failover.status."""
    step: FailedStep = {
        "resource": "fence:db_a",
        "what": "Fence db_a",
        "code": "FENCE_UNPROVEN",
        "message": "it is not proven that db_a has stopped writing",
        "remedy": "",
        "needs": [],
        "tried": [
            {"what": "stop", "found": "Nova does not answer", "at": NOW - 20},
            {"what": "confirm", "found": "no operator has confirmed it yet", "at": NOW - 9},
        ],
        "since": NOW - 420,
        "again_at": NOW + 30,
    }
    return {**step, **more}


def status(word: str = "COMPLETE", **more: Any) -> dict[str, Any]:
    """An answer of failover.status about a group that stands so."""
    under_way = word in ("IN_PROGRESS", "BLOCKED")
    found = {
        "group": "payments",
        "stack": "payments",
        "status": word,
        "reason": "",
        "roles": {"active": "db_b"},
        "lost": [],
        "goal": "0123456789abcdef",
        "last_complete_goal": "fedcba9876543210",
        "goes_back": word == "FAILED",
        "restored": False,
        "in_force": {"differs": False, "lines": []},
        "incidents": [
            {
                "id": INCIDENT,
                "source": "aodh",
                "decision": "ADMITTED",
                "sentence": "alarm server_lost: db_a is declared lost",
                "refusal": "",
                "duplicates": 0,
                "at": NOW - 91,
            }
        ],
        "traversal": {
            "id": TRAVERSAL,
            "started_at": NOW - 90,
            "ended_at": None if under_way else NOW - 30,
            "cause": "db_a is lost",
            "nodes": {"DONE": 2, "WAITING": 3},
        },
        "members": [
            member("db_a", "dbaab98b-7963-45b5"),
            member("db_b", "da1ce15d-5f04-46de"),
        ],
        "resources": AT_REST,
        "since": NOW - 30,
        "held": 0,
        "remedies": [],
        "under_way": [],
        "deferred": [],
        "ready": [],
        "failure": None,
        "defects": [],
        "unstarted": [],
        "restarts": [],
        "rehearsal": {
            "running": False,
            "failure": None,
            "at": None,
            "status": None,
            "reason": "",
            "on": [],
            "to_service": None,
            "members": [],
            "schedule": None,
            "missed_since": None,
        },
        "waiting": [],
        "chain": None,
        "agents": {},
        "pause": None,
        "maintenance": None,
        "vacant": [],
        "service": service(),
        "now": NOW,
        **more,
    }
    serves = word == "COMPLETE" and found["service"]["status"] in ("SERVING", "DEGRADED")
    return {"serves_on": dict(found["roles"]) if serves else {}, **found}


def step_ahead(what: str, stage: str, *waits_for: str, **more: Any) -> dict[str, Any]:
    """A step that has not begun, in an answer of failover.show. Its key is what it does, unless
    ``key`` is another."""
    return {
        "key": what,
        "resource_id": what,
        "what": what,
        "verb": "create",
        "stage": stage,
        "certain": True,
        "after": list(waits_for),
        "waits_for": list(waits_for),
        "expected": None,
        **more,
    }


def operation(
    verb: str,
    name: str,
    kind: str,
    member: str | None,
    stage: str,
    start: float,
    end: float | None,
    **more: Any,
) -> dict[str, Any]:
    """An operation of a traversal; ``start`` and ``end`` in seconds after its start."""
    return {
        "key": f"{verb}-{name}-{member}",
        "what": operation_words(Verb(verb), name, member, installed_types().get(kind)),
        "verb": verb,
        "resource": name,
        "resource_id": f"{name}-{member}",
        "type": kind,
        "member": member,
        "stage": stage,
        "status": "done" if end is not None else "started",
        "owner": "",
        "execution": None,
        "attempts": 1,
        "started_at": NOW - 90 + start,
        "ended_at": None if end is None else NOW - 90 + end,
        "seconds": (90 if end is None else end) - start,
        "result": "done",
        **more,
    }


OPERATIONS = [
    operation("create", "fence:db_a", "fence", None, "fence", 0, 4),
    operation("delete", "data", "volume_attachment", "db_a", "move_volumes", 4, 5),
    operation("create", "data", "volume_attachment", "db_b", "move_volumes", 5, 7, attempts=3),
    operation("create", "database", "activation", "db_b", "activate", 7, 8),
]
JOURNAL = [
    (0, "traversal", "db_a is lost", None),
    (0, "started", "Fence db_a: started", "fence:db_a-None"),
    (4, "done", "proven by stop", "fence:db_a-None"),
    (4, "started", "Detach data from db_a: started", "data-db_a"),
    (5, "done", "Detach data from db_a: done", "data-db_a"),
    (5, "started", "Attach data to db_b: started", "data-db_b"),
    (6, "waiting", "Attach data to db_b waits for Nova", "data-db_b"),
    (7, "done", "Attach data to db_b: done", "data-db_b"),
    (7, "started", "Start database on db_b: started", "database-db_b"),
    (8, "done", "Start database on db_b: done", "database-db_b"),
    (8, "complete", "Done: db_b is active", None),
]


def traversal(**more: Any) -> dict[str, Any]:
    """An answer of failover.show about a traversal."""
    return {
        "kind": "traversal",
        "id": TRAVERSAL,
        "group": "payments",
        "now": NOW,
        "cause": "db_a is lost",
        "goal": "0123456789abcdef",
        "status": "COMPLETE",
        "reason": "",
        "chain": None,
        "incident": None,
        "superseded_by": None,
        "roles": {"active": "db_b"},
        "lost": ["db_a"],
        "nodes": {"DONE": 4},
        "started_at": NOW - 90,
        "ended_at": NOW - 82,
        "seconds": 8.0,
        "operations": OPERATIONS,
        "stages": [],
        "critical_path": {
            "seconds": 8.0,
            "steps": [
                {"key": row["key"], "resource": row["resource"], "verb": row["verb"], "seconds": 1}
                for row in OPERATIONS
                if row["type"] != "activation"
            ],
        },
        "lock_waits": {"count": 0, "seconds": 0},
        "deferrals": [],
        "steals": [],
        "ahead": [],
        "last_failover": None,
        "history": [
            {"at": NOW - 90 + at, "kind": kind, "sentence": sentence, "resource_id": of}
            for at, kind, sentence, of in JOURNAL
        ],
        **more,
    }


def history() -> list[dict[str, Any]]:
    """An answer of failover.history without a group."""
    return [
        {
            "id": number,
            "at": NOW - 90 + at,
            "kind": kind,
            "sentence": sentence,
            "traversal_id": TRAVERSAL,
            "resource_id": of,
            "group": "payments",
        }
        for number, (at, kind, sentence, of) in enumerate(JOURNAL, 1)
    ]


def plan(**more: Any) -> dict[str, Any]:
    """An answer of failover.plan."""
    return {
        "plan": "a416c00c-7b12-538d-9db5-c40bbbabe986",
        "verb": "failover",
        "group": "payments",
        "sentence": "failover of payments: active on db_a; db_b lost (now active on db_b)",
        "inputs": {"lost": ["db_b"]},
        "goal": "a7ced567",
        "roles": {"active": "db_a"},
        "lost": ["db_b"],
        "steps": [
            {
                "number": 1,
                "what": "Fence db_b",
                "verb": "create",
                "resource": "fence:db_b",
                "type": "fence",
                "member": None,
                "certain": True,
                "after": [],
                "expected": None,
            },
            {
                "number": 2,
                "what": "Detach data from db_b (if needed)",
                "verb": "delete",
                "resource": "data",
                "type": "volume_attachment",
                "member": "db_b",
                "certain": False,
                "after": [1],
                "expected": 0.187,
            },
        ],
        "parallel": [[1], [2]],
        "fences": [{"member": "db_b", "sentence": "db_b is fenced: its agent confirms it"}],
        "ways_back": [],
        "deletes": [],
        "risks": [
            {"code": "NO_STANDBY", "sentence": "no member could take over", "remedy": "Repair one."}
        ],
        "seconds": None,
        "expires_at": NOW + 3600,
        "changed": [],
        **more,
    }


def goal(version: str, member: str, at: float, **more: Any) -> dict[str, Any]:
    """A row of failover.goals: a goal that was reached a second after it was given."""
    return {
        "version": version,
        "roles": {"active": member},
        "lost": [],
        "status": "COMPLETE",
        "cause": "a test",
        "walked": 1,
        "given_at": NOW + at,
        "reached_at": NOW + at + 1,
        "current": False,
        "last_complete": False,
        **more,
    }


BEFORE = "fedcba9876543210"
"""The version of an earlier goal."""
GOALS = [
    goal("0123456789abcdef", "db_b", -90, current=True, last_complete=True, lost=["db_a"]),
    goal("1111111111111111", "db_a", -200, status="FAILED", reached_at=None, cause="a new disk"),
    goal(BEFORE, "db_a", -900),
]


def held(**more: Any) -> dict[str, Any]:
    """A row of failover.held."""
    return {
        "incident": INCIDENT,
        "group": "payments",
        "lost": ["db_b"],
        "sentence": "alarm server_lost: payments is paused",
        "rule": "paused",
        "source": "aodh",
        "heard": 2,
        "first_at": NOW - 9,
        "last_at": NOW - 3,
        "host": None,
        "children": 0,
        "evidence": None,
        "admit": "failover admit d3b9775c --because WHY",
        "dismiss": "failover dismiss d3b9775c --because WHY",
        **more,
    }


HOST_EVENT = "9f0c1b52-2c0e-5f0b-8d8f-0d1f6a3c7e44"


def child(group: str, decision: str = "HELD", **more: Any) -> dict[str, Any]:
    """A child of a host event, in an answer of failover.show."""
    return {
        "incident": f"{group}-{INCIDENT}",
        "group": group,
        "lost": ["db_a"],
        "decision": decision,
        "rule": "storm",
        "sentence": "3 of 6 groups of the project failed within 600 s",
        "evidence": None,
        "turn": None,
        **more,
    }


CHILDREN = [
    child("books", turn=2),
    child("ledger", "ADMITTED", rule="", sentence="db_a of ledger is declared lost"),
    child("payments", turn=1, evidence="Nova does not answer"),
]


def host_event(children: list[dict[str, Any]] = CHILDREN, **more: Any) -> dict[str, Any]:
    """An answer of failover.show about the failure of a host."""
    return {
        "kind": "incident",
        "id": HOST_EVENT,
        "group": None,
        "now": NOW,
        "source": "masakari",
        "decision": "ADMITTED",
        "rule": "host",
        "sentence": "compute-1 failed: 3 groups have members on compute-1",
        "fact": {"host": "compute-1"},
        "order": None,
        "said": {},
        "heard": 2,
        "first_at": NOW - 60,
        "last_at": NOW - 50,
        "decided_at": NOW - 60,
        "counts_on": None,
        "parent": None,
        "children": children,
        "traversals": [],
        "admit": "failover admit 9f0c1b52 --because WHY" if children else None,
        "dismiss": "failover dismiss 9f0c1b52 --because WHY" if children else None,
        **more,
    }


EVIDENCE = {
    "group": "payments",
    "member": "db_a",
    "signs": [
        {"about": "server", "says": "Nova says ACTIVE", "ago": 90.0, "alive": True},
        {"about": "power", "says": "not known: no answer within 10 s", "ago": None, "alive": None},
    ],
    "sentence": "What db_a has is given to another member.",
    "afterwards": "While the host of a lost member is down, Nova does not give data away.",
}


def move(**more: Any) -> dict[str, Any]:
    """A row of failover.moves."""
    return {
        "group": "payments",
        "traversal": TRAVERSAL,
        "incident": INCIDENT,
        "cause": "db_a is lost",
        "by": "aodh",
        "outcome": "COMPLETE",
        "reason": "",
        "roles": {"active": "db_b"},
        "before": {"active": "db_a"},
        "moved": True,
        "began_at": NOW - 150,
        "ended_at": NOW - 30,
        "to_service": 110.0,
        "seconds": 120.0,
        "waited": {"alarm": 60.0, "person": 0.0, "lock": 0.0},
        **more,
    }


def rehearsed_step(what: str, began: float, seconds: float, error: str = "") -> dict[str, Any]:
    """A step in the report of a rehearsal."""
    again = "failover rehearse payments --role active --to db_b"
    return {
        "what": what,
        "member": "db_b" if began > 3.0 else None,
        "role": "active" if began > 4.0 else None,
        "began": began,
        "seconds": seconds,
        "error": error,
        "remedy": f"Correct it on db_b, then: {again}" if error else "",
    }


REHEARSED_STEPS = [
    rehearsed_step("Take snapshots of the volumes", 0.0, 1.3),
    rehearsed_step("Make the copy of data", 1.3, 2.2),
    rehearsed_step("Attach the copy of data", 3.5, 0.9),
    rehearsed_step("Start database on the copy", 4.4, 3.1),
    rehearsed_step("Run newest-row beside the copy", 7.5, 0.2),
]


def rehearsal(
    number: int = 0, outcome: str = "PASSED", slower: float = 1.0, **more: Any
) -> dict[str, Any]:
    """A row of failover.rehearsals: that of ``number`` weeks ago. Each step took ``slower`` times
    as long."""
    began = NOW - 20_000 - number * 604_800
    steps = [
        {**each, "began": each["began"] * slower, "seconds": each["seconds"] * slower}
        for each in REHEARSED_STEPS
    ]
    return {
        "rehearsal": f"{number}{TRAVERSAL[1:]}",
        "group": "payments",
        "status": outcome,
        "reason": "",
        "because": "every 7d, between 02:00-05:00 UTC",
        "lost": "db_a",
        "roles": {"active": "db_b"},
        "began_at": began,
        "ended_at": began + 7.9 * slower,
        "clean": True,
        "planned": PLANNED_REHEARSAL,
        "report": {
            "steps": steps,
            "checks": [
                {
                    "command": "newest-row",
                    "member": "db_b",
                    "role": "active",
                    "passed": True,
                    "exit_code": 0,
                    "output": "48213",
                }
            ],
            "to_service": 7.1 + 4.1 * slower,
            "measured": 4.1 * slower,
            "not_known": [],
            "data_at": began + 0.4,
            "spread": 0.0,
        },
        **more,
    }


PLANNED_REHEARSAL = {
    "group": "payments",
    "lost": "db_a",
    "roles": {"active": "db_b"},
    "servers": {"db_b": "da1ce15d-5f04-46de"},
    "volumes": [{"resource": "data", "volume": "6f3c1c0a", "size": 20}],
    "applications": ["database"],
    "checks": ["newest-row"],
    "left_out": {"routing": "stack_parameters"},
    "gib": 40,
    "limit": 3600.0,
    "consistent": True,
    "passed_over": [],
}
CANNOT_START = "start on db_b ended with 1: postgres: data directory has wrong permissions"
FAILED_REHEARSAL = rehearsal(
    outcome="FAILED",
    ended_at=NOW - 20_000 + 16.6,
    reason=f"Start database on the copy: {CANNOT_START} [COMMAND_FAILED]",
    report={
        "steps": [
            *REHEARSED_STEPS[:3],
            rehearsed_step("Start database on the copy", 4.4, 12.0, CANNOT_START),
        ],
        "checks": [],
        "to_service": None,
        "measured": None,
        "not_known": [],
        "data_at": NOW - 20_000,
        "spread": 0.0,
    },
)
REHEARSALS = [rehearsal(0, slower=1.2), rehearsal(1), rehearsal(2, slower=0.9)]


def availability(
    group: str | None = None, seconds: int = 86400, down: float = 90.0
) -> dict[str, Any]:
    """An answer of failover.availability: it was DOWN once, and at first it is not known."""
    size = 3600.0 if seconds <= 86400 else 86400.0
    slots: list[dict[str, Any]] = []
    for number in range(round(seconds / size)):
        since = NOW - seconds + number * size
        words = dict.fromkeys(("SERVING", "DEGRADED", "DOWN", "UNKNOWN", "OUT_OF_SERVICE"), 0.0)
        words |= {"UNKNOWN": size} if number < 3 else {"SERVING": size}
        if number == 20:
            words |= {"SERVING": size - down, "DOWN": down}
        worst = next(each for each in ("DOWN", "UNKNOWN", "SERVING") if words[each])
        slots.append({"since": since, "until": since + size, "worst": worst, "seconds": words})
    total = {word: sum(slot["seconds"][word] for slot in slots) for word in slots[0]["seconds"]}
    outage = slots[20]["since"] + 10
    return {
        "group": group,
        "since": NOW - seconds,
        "until": NOW,
        "availability": total["SERVING"] / (total["SERVING"] + total["DOWN"]),
        "seconds": total,
        "slots": slots,
        "not_served": [{"service": "DOWN", "since": outage, "until": outage + down}],
        "moves": [
            {
                "group": group or "payments",
                "traversal": TRAVERSAL,
                "began_at": outage,
                "outcome": "COMPLETE",
            }
        ],
        "groups": [],
    }


class Answers:
    """An `ActionClient` with prepared answers: a value, an ActionFailed, or a function of the
    inputs. ``groups`` is that of failover.status without a group. ``asked`` and ``started`` have
    what it was asked. Who waits for a step of the journal gets those that are new."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "status": status(),
            "groups": {"overview": [overview()], "total": 1, "groups": ["payments"], "now": NOW},
            "show": traversal(),
            "history": history(),
            "plan": plan(),
            "goals": GOALS,
            "compare_goals": {"from": GOALS[0]["version"], "to": BEFORE, "differences": []}
            | {"lines": ["~ roles.active: db_b -> db_a"]},
            "held": {"held": [held()], "total": 1},
            "evidence": EVIDENCE,
            "moves": [move()],
            "rehearsals": REHEARSALS,
            "preview_rehearsal": PLANNED_REHEARSAL,
            "availability": availability,
            "pause": {"sentence": "payments is paused"},
            "maintenance": {"sentence": "payments is in maintenance"},
            "resume": {"sentence": "payments is resumed"},
            "dismiss": {"dismissed": [{"incident": "d3b9775c", "sentence": "it is dismissed"}]},
            **answers,
        }
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.started: list[tuple[str, dict[str, Any]]] = []

    def run_action(self, action: str, **inputs: Any) -> Any:
        """See `ActionClient`."""
        inputs = {name: value for name, value in inputs.items() if value is not None}
        self.asked.append((action, inputs))
        name = action.removeprefix("failover.")
        answer = self.answers["groups" if name == "status" and "group" not in inputs else name]
        if isinstance(answer, ActionFailed):
            raise answer
        if "wait" in inputs and not callable(answer):
            new = [row for row in answer if row["id"] > inputs["after"]]
            time.sleep(0.0 if new else 0.1)
            return new
        return answer(**inputs) if callable(answer) else answer

    def start(self, workflow: str, **inputs: Any) -> str:
        """See `ActionClient`."""
        inputs = {name: value for name, value in inputs.items() if value is not None}
        self.started.append((workflow, inputs))
        return "e7f7a5a0-execution"
