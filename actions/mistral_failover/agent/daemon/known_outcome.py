# SPDX-License-Identifier: Apache-2.0
"""What to tell instead of a refusal: REFUSED and OLD_EPOCH say that a command has not run."""

from __future__ import annotations

import logging
import sqlite3
from typing import Any

from mistral_failover.agent.daemon import messages
from mistral_failover.agent.daemon.identity import Identity
from mistral_failover.agent.daemon.journal import Journal, Row
from mistral_failover.agent.daemon.messages import Refused, Request

LOG = logging.getLogger(__name__)


def has_begun(row: Row | None) -> bool:
    """Whether a command may have taken effect, by what the journal has of it."""
    return row is not None and row.state in ("started", "unknown", "done")


def known_outcome_of(
    journal: Journal, identity: Identity, request: Request, refusal: Refused, *, same: bool = False
) -> dict[str, Any] | Refused | None:
    """What to tell of a command that is not carried out (any more): that nobody knows, where it
    may have run before; None, nothing, where the journal does not say, so that its id is asked
    for again. ``same``: it is known to be the journal's command, whose result it may be told."""
    try:
        row = journal.find(request.epoch, request.id)
    except sqlite3.Error as error:
        LOG.error("The journal can not be used: %s", error)
        return None
    if row is None or not has_begun(row) or (row.state == "done" and not same):
        return refusal
    return messages.recorded(identity, request, row, replayed=True)
