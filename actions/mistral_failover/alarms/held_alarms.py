# SPDX-License-Identifier: Apache-2.0
"""Held alarms: list them until an operator admits or dismisses them."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.text import plain
from mistral_failover.runtime.caller import caller_name
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.process import Request
from mistral_failover.runtime.short_ids import identified, unknown
from mistral_failover.store import incidents
from mistral_failover.store.incidents import Incident
from mistral_failover.store.transaction import SqlTransaction


def list_held_alarms(request: Request, group: str | None, limit: int) -> dict[str, Any]:
    """Return the alarms that are held in the project, or in one group of it, the latest first.

    Returns ``total``, how many there are, and ``held``, at most ``limit`` of them: ``incident``,
    ``group`` (None: unknown), ``lost`` (a list; None: the member is unknown too), ``sentence``,
    ``rule``, ``source``, ``heard`` (how often it was delivered), ``first_at``, ``last_at``, and the
    commands that ``admit`` or ``dismiss`` it. Raises UnknownGroup.
    """
    group_id = group_snapshot(request, group).state.id if group else None
    total, found = request.runtime.database.reading(
        lambda tx: incidents.held_alarms(tx, request.project_id, group_id, limit)
    )
    return {"total": total, "held": [_row(incident, name) for incident, name in found]}


def dismiss(request: Request, identities: tuple[str, ...], because: str) -> dict[str, Any]:
    """Dismiss held alarms, one after the other; the user and the reason are recorded.

    The first digits of an id are enough. Returns ``dismissed``, for each the whole id and a
    sentence. Raises ActionError UNKNOWN_ID, AMBIGUOUS_ID, NOT_HELD.
    """
    if not identities:
        raise ActionError(
            "BAD_INPUT",
            "incident: at least one id is needed",
            "To list the held alarms: failover alarms.",
        )
    dismissed = []
    for identity in identities:
        step = partial(_dismissed, request, identity, because)
        dismissed.append(request.runtime.database.atomically(step))
    return {"dismissed": dismissed}


def _dismissed(request: Request, said: str, because: str, tx: SqlTransaction) -> dict[str, str]:
    identity = identified(request, tx, said, kind="incident").id
    known = incidents.get(tx, request.project_id, identity)
    if known is None:  # its group was forgotten at this moment
        raise unknown(said, kind="incident")
    if known.decision == "DISMISSED":
        return {"incident": identity, "sentence": known.sentence}
    sentence = f"{known.sentence}; dismissed by {caller_name(request)}: {plain(because)}"
    if known.decision != "HELD" or not incidents.dismiss(tx, identity, sentence):
        raise ActionError(
            "NOT_HELD",
            f"incident {identity} is {known.decision}; only HELD incidents can be dismissed",
            "To list the held alarms: failover alarms.",
        )
    if known.group_id is not None:
        tx.journal(known.group_id, f"DISMISSED: {sentence}", kind="dismissed")
    return {"incident": identity, "sentence": sentence}


def lost(incident: Incident) -> list[str] | None:
    """Return the members that an alarm reports as lost, in the form that orders take; None if it
    names none."""
    member = incident.fact.get("lost")
    return None if member is None else [str(member)]


def _row(incident: Incident, group: str | None) -> dict[str, Any]:
    return {
        "incident": incident.id,
        "group": group,
        "lost": lost(incident),
        "sentence": incident.sentence,
        "rule": incident.rule,
        "source": incident.source,
        "heard": incident.duplicates + 1,
        "first_at": incident.first_at,
        "last_at": incident.last_at,
        **_commands(incident, group),
    }


def _commands(incident: Incident, group: str | None) -> dict[str, str]:
    """Return the command to type; words in capitals are for the operator to fill in."""
    more = []
    if group is None:
        more += ["--group", "GROUP"]
    if incident.fact["lost"] is None or group is None:
        more += ["--lost", incident.fact["lost"] or "MEMBER"]
    because = ["--because", "WHY"]
    return {
        "admit": shlex.join(["failover", "admit", incident.id, *more, *because]),
        "dismiss": shlex.join(["failover", "dismiss", incident.id, *because]),
    }
