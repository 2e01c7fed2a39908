# SPDX-License-Identifier: Apache-2.0
"""The doctor: the list of checks, in order, and its answer as plain JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypedDict

from mistral_failover.alarms.admission import COUNTED
from mistral_failover.doctor import (
    agents,
    alarms,
    fences,
    mistral,
    protection,
    resources,
    rights,
    store,
    trusts,
    volumes,
)
from mistral_failover.doctor import group as group_checks
from mistral_failover.doctor.checks import (
    Check,
    Examination,
    Finding,
    GroupCheck,
    Level,
    examine,
    in_stack,
)
from mistral_failover.model.decisions import AdmissionRule
from mistral_failover.model.text import counted
from mistral_failover.runtime.errors import ErrorFacts
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents
from mistral_failover.store.transaction import ProjectTransaction

_LEVELS: tuple[Level, ...] = ("ok", "warn", "error")


def storm(examination: Examination) -> Iterable[Finding]:
    """Check whether so many groups fail at once that alarms are held, or the next one would be."""
    have = examination.settings
    if not have.storm_groups:
        return

    def read(tx: ProjectTransaction) -> tuple[int, int, int]:
        since = tx.now() - have.storm_window
        failing = incidents.failing_since(tx, since, COUNTED)
        return (
            len(failing),
            groups.count_with_goal(tx),
            incidents.held_by(tx, AdmissionRule.STORM),
        )

    failing, total, held = examination.reading(read)
    share = failing / total if total else 0.0
    said = f"{failing} of {total} groups failed within {have.storm_window:.0f} s"
    if held:
        guarded = f"the storm guard holds {counted(held, 'alarm')}"
        yield Finding("", "warn", f"{guarded}; {said}", "failover alarms")
    elif failing + 1 >= have.storm_groups and share >= have.storm_share / 2:
        yield Finding("", "warn", f"{said}: the next alarm may be held", "failover alarms")
    else:
        yield Finding("", "ok", said)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("store", store.store),
    ("settings", store.settings),
    ("defects", store.defects),
    ("rights", rights.token),
    ("trusts", trusts.trusts),
    ("services", rights.services),
    ("release", mistral.release),
    ("actions", mistral.actions),
    ("workflows", mistral.workflows),
    ("administrator", mistral.administrator),
    ("code", mistral.code),
    ("sweep", mistral.sweeps),
    ("clocks", store.clocks),
    ("certificate", store.certificate),
    ("channel", agents.channel),
    ("storm", storm),
    ("fences", fences.fences),
)
GROUP_CHECKS: tuple[tuple[str, GroupCheck], ...] = (
    ("goal", group_checks.goal),
    ("definition", group_checks.definition),
    ("service", group_checks.service),
    ("stack", group_checks.stack),
    ("members", in_stack(group_checks.members)),
    ("volumes", in_stack(volumes.volumes)),
    ("addresses", in_stack(resources.addresses)),
    ("resources", in_stack(resources.others)),
    ("chain", group_checks.chain),
    ("fence", group_checks.fence),
    ("offered", group_checks.offered),
    ("restart", group_checks.restart),
    ("agents", in_stack(agents.agents)),
    ("alarms", group_checks.alarms),
    ("alarms", alarms.declared),
    ("noticed", protection.noticed),
    ("spread", in_stack(protection.spread)),
    ("quota", in_stack(protection.quota)),
    ("boot", in_stack(protection.boot)),
)


class FindingDocument(TypedDict):
    """A :class:`Finding` as plain JSON."""

    check: str
    level: Level
    sentence: str
    remedy: str
    group: str | None


class DoctorReport(TypedDict):
    """What the doctor found. ``level``: the worst one. ``seconds``: how long it took."""

    level: Level
    findings: list[FindingDocument]
    seconds: float


def doctor(request: Request, group: str | None) -> DoctorReport:
    """Check everything that a failover needs, for one group or the project's first 20. Never
    raises: an error is a finding."""
    began = time.monotonic()
    return answer(
        examine(Examination(request), group, CHECKS, GROUP_CHECKS), time.monotonic() - began
    )


def unable(error: ErrorFacts) -> DoctorReport:
    """Return the answer if even the state store cannot be opened, from the error of an action."""
    sentence = f"{str(error['message']).rstrip('.')} [{error['code']}]"
    return answer([Finding("store", "error", sentence, str(error["remedy"]))], 0.0)


def answer(findings: Iterable[Finding], seconds: float) -> DoctorReport:
    """Return findings as plain JSON."""
    rows: list[FindingDocument] = [
        {
            "check": found.check,
            "level": found.level,
            "sentence": found.sentence,
            "remedy": found.remedy,
            "group": found.group,
        }
        for found in findings
    ]
    worst = max((_LEVELS.index(row["level"]) for row in rows), default=0)
    return {"level": _LEVELS[worst], "findings": rows, "seconds": seconds}
