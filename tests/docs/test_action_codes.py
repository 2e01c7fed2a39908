# SPDX-License-Identifier: Apache-2.0
"""docs/reference.md says what each action fails with: against what its code can reach.

An action may reach a code without ever ending with it, or end with one that no source spells out
(a service's answer, an agent's, the status of a traversal). Such codes are named here, with the
reason.
"""

from __future__ import annotations

import re

from mistral_failover.cloud.errors import REMEDIES
from support import reachable
from support.pages import page, rows, section, subsections

REFERENCE = page("reference")
ACTIONS = reachable.actions()
BASE = "mistral_failover.actions.base.FailoverAction"

GOAL = {
    "CONTENDED",
    "HOLDER_GONE",
    "NO_ELIGIBLE_MEMBER",
    "SERVES_ALREADY",
    "SERVES_TWICE",
    "SERVES_UNKNOWN",
    "RESTORED",
    "UNKNOWN_MEMBER",
    "VOLUME_IS_ROOT",
    "VOLUME_NOT_SHARED",
}
STARTED = {
    *("NOT_ADMITTED", "NOT_AN_ALARM", "NOT_LOST"),
    *("CANNOT_COPY", "NOTHING_TO_REHEARSE", "NOT_AT_REST", "NOT_REHEARSABLE", "NO_STANDBY"),
    "REHEARSAL_RUNNING",
}
"""What only a verb itself ends with: a plan derives its goal alone."""
NOT_ENDED_WITH = {
    # An incident that could not be started is a row of `refused`.
    "failover.sweep": {
        *GOAL,
        *("NOT_ADMITTED", "NOT_IN_SERVICE", "UNKNOWN_REHEARSAL", "VOLUME_WOULD_GO"),
    },
    # What a cold group lacks is a finding.
    "failover.observe": {"VOLUME_WOULD_GO"},
    "failover.admit_event": {*GOAL, "NOT_ADMITTED", "NOT_IN_SERVICE"},
    "failover.start_admitted": {*GOAL, "NOT_ADMITTED", "NOT_IN_SERVICE"},
    # An alarm and a replacement come through.
    "failover.admit": {"HOLDER_GONE"},
    "failover.replace_member": {"HOLDER_GONE"},
    # Why the steps of an update are not known; a reason of the refusal.
    "failover.define": {*GOAL, "VOLUME_WOULD_GO"},
    # It names its member, and looks for no device.
    "failover.replace_server": {"DEVICE_LEFT", "UNKNOWN_MEMBER"},
    # Findings.
    "failover.doctor": {
        *("ADDRESS_IN_USE", "NO_PORT", "PORT_IN_USE"),
        *("LOAD_BALANCER_ERROR", "NO_POOL_MEMBER", "POOL_IN_USE"),
        *("DNS_RECORD_IN_USE", "NO_DNS_TARGET"),
        *("BAD_REQUEST", "NOT_FOUND", "VOLUME_IS_ROOT", "VOLUME_NOT_SHARED", "NOT_OFFERED"),
        *("VOLUME_BUSY", "VOLUME_ERROR", "VOLUME_WOULD_GO", "STACK_REPLACED"),
    },
    # What was to stop on a server that is gone has stopped.
    **dict.fromkeys(("failover.forbid_address", "failover.quiesce"), {"TARGET_DOWN"}),
    # Nothing was enabled there.
    "failover.disable_pool_member": {"NO_POOL_MEMBER"},
    # Risks of the plan.
    "failover.plan": {"VOLUME_BUSY", "VOLUME_ERROR", "VOLUME_IN_USE", *STARTED},
    "failover.start_plan": STARTED,
    # Why no other target is chosen: a sentence of the journal.
    "failover.advance": {*GOAL, "BAD_REQUEST", "NOT_OFFERED", "STACK_REPLACED"},
    # It starts no traversal.
    "failover.confirm_fenced": {"CONTENDED"},
    # A rung that proves nothing, and says so in its observation.
    "failover.fence": {"NO_WORKFLOW", "VOLUME_WOULD_GO"},
}
FROM_OUTSIDE = {
    "cloud": set(REMEDIES),
    "agent": {"OLD_EPOCH", "REFUSED", "UNKNOWN_OUTCOME", "UNREACHABLE"},
}
OF_A_TRAVERSAL = {"FAILED", "BLOCKED", "RETURNED", "OVERTAKEN", "RIGHTS_ENDED"}
ANSWERED = {
    "failover.advance": {*OF_A_TRAVERSAL, "UNKNOWN_TRAVERSAL"},
    "failover.report": OF_A_TRAVERSAL,
}
ASKS_BUT_DOES_NOT_END_WITH_IT = {"failover.doctor", "failover.advance"}
"""What they meet there is a finding, or the outcome of an operation."""


def named(text: str) -> set[str]:
    """The codes in a text."""
    return set(re.findall(r"`([A-Z][A-Z_]+)`", text))


COMMON, *_SETS = re.split(
    r"^- \*\*(\w+)\*\*", section(REFERENCE, "What an action fails with"), flags=re.M
)
SETS = {kind: named(text) for kind, text in zip(_SETS[::2], _SETS[1::2], strict=True)}


def _shown() -> dict[str, tuple[set[str], set[str]]]:
    """The sets and the own codes of each action."""
    found = {}
    for title in ("Actions", "Actions for workflows", "Actions of the shipped types"):
        for name, body in subsections(section(REFERENCE, title)).items():
            (line,) = re.findall(r"^Fails with: (.*?)(?=\n\n|\n*\Z|\. )", body, re.M | re.S)
            found[name] = (set(SETS) & set(re.findall(r"\b[a-z]+\b", line)), named(line))
    return found


SHOWN = _shown()


def reached(action: str) -> set[str]:
    """The codes to which only this action's own code leads."""
    return set(reachable.codes(ACTIONS[action]) - reachable.codes(BASE))


def in_the_cloud(name: str) -> set[str]:
    """The functions that speak to the cloud."""
    return {each for each in reachable.reached(name) if ".cloud." in each}


def test_every_code_that_an_action_can_end_with_is_listed() -> None:
    missing = {}
    for action in ACTIONS:
        kinds, own = SHOWN[action]
        known = own.union(named(COMMON), *(SETS[kind] for kind in kinds))
        missing[action] = sorted(reached(action) - NOT_ENDED_WITH.get(action, set()) - known)

    assert {action: codes for action, codes in missing.items() if codes} == {}


def test_no_code_is_listed_that_an_action_can_not_end_with() -> None:
    wrong = {}
    for action, (kinds, own) in SHOWN.items():
        known = set(reachable.codes(ACTIONS[action]))
        known = known.union(*(FROM_OUTSIDE.get(kind, ()) for kind in kinds))
        known |= ANSWERED.get(action, set())
        wrong[action] = sorted(own - known | own & NOT_ENDED_WITH.get(action, set()))

    assert {action: codes for action, codes in wrong.items() if codes} == {}


def test_every_action_that_asks_the_cloud_or_an_agent_says_so() -> None:
    asks = {
        action: {
            *(["cloud"] if in_the_cloud(start) - in_the_cloud(BASE) else []),
            *(["agent"] if "NO_ANSWER" in reached(action) else []),
        }
        for action, start in ACTIONS.items()
        if action not in ASKS_BUT_DOES_NOT_END_WITH_IT
    }

    assert {action: SHOWN[action][0] & {"cloud", "agent"} for action in asks} == asks


def test_the_sets_hold_the_codes_that_come_from_outside() -> None:
    assert set(SETS) == {"cloud", "agent", "goal", "operation"}
    assert SETS["cloud"] <= set(REMEDIES)
    assert SETS["agent"] >= FROM_OUTSIDE["agent"]
    assert named(COMMON) >= {"BAD_INPUT", "CONFIG", "NO_PROJECT", "UNKNOWN_GROUP", "UNEXPECTED"}


def test_every_code_of_an_action_is_explained() -> None:
    used = named(COMMON).union(*SETS.values(), *(own for _, own in SHOWN.values()))

    assert sorted(used - set(rows(section(REFERENCE, "Error codes")))) == []
