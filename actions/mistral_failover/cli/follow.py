# SPDX-License-Identifier: Apache-2.0
"""Polling a group's status, through a Mistral that may be down for a while."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mistral_failover.cli import connection
from mistral_failover.model.text import clean, clean_value

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.reports.documents import StatusReport
    from mistral_failover.store.views import JournalRow

_AT_REST = frozenset({"COMPLETE", "FAILED", "BLOCKED", "DEFINED"})
PATIENCE = 90.0
"""Seconds at rest after which the failover of an admitted alarm does not start by itself: a sweep
tries that every minute."""
_MOST = 1000


@dataclass
class Journal:
    """Reads a group's history after ``after``, the id of a step."""

    app: Any
    group: str
    traversal: str | None = None
    after: int = 0

    def new(self) -> list[JournalRow]:
        """Return the steps since the last call, oldest first; none while Mistral is down. Raises
        CommandFailed for any other error."""
        from mistral_failover.mistral.client import MistralError

        asked = {"group": self.group, "after": self.after, "limit": _MOST}
        if self.traversal:
            asked["traversal"] = self.traversal
        with connection.mistral(self.app) as client:
            try:
                rows: list[JournalRow] = client.run_action("failover.history", asked)
            except MistralError as error:
                if error.code not in connection.AWAY:
                    raise
                return []
        self.after = max((row["id"] for row in rows), default=self.after)
        return rows


@dataclass(frozen=True)
class WatchUpdate:
    """One look: ``status`` is the answer of failover.status, None while Mistral is ``away``;
    ``steps`` are the new ones."""

    status: StatusReport | None
    steps: list[JournalRow] = field(default_factory=list)
    away: str = ""


def watch_updates(
    app: Any, group: str, interval: float, until_rest: bool, shown: int = 5
) -> Iterator[WatchUpdate]:
    """Look every ``interval`` seconds; with ``until_rest`` until nothing is running, and no
    admitted alarm waits for its failover to start, or has waited for `PATIENCE`.

    The first look has the ``shown`` latest steps. One look reports that Mistral is down; the next
    comes when it is back. Raises CommandFailed if Mistral is down from the start, for an unknown
    group, and for every error that waiting does not resolve.
    """
    from mistral_failover.mistral.client import MistralError

    after, away, seen = 0, False, False
    rests_since: float | None = None
    with connection.mistral(app) as client:
        while True:
            asked = {"group": group, "after": after, "limit": _MOST if seen else shown}
            try:
                # The status before the steps, so that the steps that led to it are included.
                status = client.run_action("failover.status", {"group": group})
                steps = client.run_action("failover.history", asked)
            except MistralError as error:
                if error.code not in connection.AWAY or not seen:
                    raise
                if not away:
                    yield WatchUpdate(None, away=clean(error.message))
                away = True
            else:
                after, away, seen = max((row["id"] for row in steps), default=after), False, True
                yield WatchUpdate(clean_value(status), clean_value(steps))
                at_rest = status["status"] in _AT_REST
                rests_since = (rests_since or status["now"]) if at_rest else None
                if (
                    until_rest
                    and rests_since is not None
                    and (not status["unstarted"] or status["now"] - rests_since > PATIENCE)
                ):
                    return
            time.sleep(interval)
