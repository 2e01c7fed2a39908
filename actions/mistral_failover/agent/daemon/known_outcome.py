# SPDX-License-Identifier: Apache-2.0
"""Answers that replace a refusal: REFUSED and OLD_EPOCH mean that a command has not run."""

from __future__ import annotations

import logging
import sqlite3
from typing import Any

from mistral_failover.agent.daemon import messages
from mistral_failover.agent.daemon.identity import Identity
from mistral_failover.agent.daemon.journal import Journal, JournalEntry
from mistral_failover.agent.daemon.messages import Refused, Request

LOG = logging.getLogger(__name__)


def has_begun(row: JournalEntry | None) -> bool:
    """Return whether a command may have taken effect, by its record in the journal."""
    return row is not None and row.state in ("started", "unknown", "done")


def known_outcome_of(
    journal: Journal, identity: Identity, request: Request, refusal: Refused, *, same: bool = False
) -> dict[str, Any] | Refused | None:
    """Return the answer for a command that is not (or no longer) carried out: an unknown outcome if
    it may have run before. Return None if the journal does not know, so that its id is requested
    again. ``same``: it is the journal's command, so the sender may receive its result."""
    try:
        row = journal.find(request.epoch, request.id)
    except sqlite3.Error as error:
        LOG.error("The journal is not usable: %s", error)
        return None
    if row is None or not has_begun(row) or (row.state == "done" and not same):
        return refusal
    return messages.recorded(identity, request, row, replayed=True)
