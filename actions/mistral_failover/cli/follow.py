# SPDX-License-Identifier: Apache-2.0
"""Looking at a group again and again, over a Mistral that may go away for a while."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mistral_failover.cli import connection

_AT_REST = frozenset({"COMPLETE", "FAILED", "BLOCKED", "DEFINED"})
_MOST = 1000


@dataclass
class Journal:
    """What a group's history says that is newer than ``after``, the id of a step."""

    app: Any
    group: str
    traversal: str | None = None
    after: int = 0

    def new(self) -> list[dict[str, Any]]:
        """The steps since the last time, oldest first; none while Mistral is away. Raises
        CommandFailed for anything else."""
        from mistral_failover.mistral.client import MistralError

        asked = {"group": self.group, "after": self.after, "limit": _MOST}
        if self.traversal:
            asked["traversal"] = self.traversal
        with connection.mistral(self.app) as client:
            try:
                rows: list[dict[str, Any]] = client.run_action("failover.history", asked)
            except MistralError as error:
                if error.code not in connection.AWAY:
                    raise
                return []
        self.after = max((row["id"] for row in rows), default=self.after)
        return rows


@dataclass(frozen=True)
class Watched:
    """One look: ``status`` as failover.status answers, None while Mistral is ``away``; ``steps``
    that are new."""

    status: dict[str, Any] | None
    steps: list[dict[str, Any]] = field(default_factory=list)
    away: str = ""

    @property
    def word(self) -> str:
        """COMPLETE and the like; empty where nobody could be asked."""
        return str(self.status["status"]) if self.status else ""


def watched(
    app: Any, group: str, interval: float, until_rest: bool, shown: int = 5
) -> Iterator[Watched]:
    """Look every ``interval`` seconds; with ``until_rest`` until nothing is under way.

    The first look has the ``shown`` latest steps. That Mistral is away is said by one look; then
    there is none until it is back. Raises CommandFailed: for a Mistral that is away from the start,
    an unknown group, and whatever no waiting mends.
    """
    from mistral_failover.mistral.client import MistralError

    after, away, seen = 0, False, False
    with connection.mistral(app) as client:
        while True:
            asked = {"group": group, "after": after, "limit": _MOST if seen else shown}
            try:
                # The status before the steps: what led to it is told with it at the latest.
                status = client.run_action("failover.status", {"group": group})
                steps = client.run_action("failover.history", asked)
            except MistralError as error:
                if error.code not in connection.AWAY or not seen:
                    raise
                if not away:
                    yield Watched(None, away=error.message)
                away = True
            else:
                after, away, seen = max((row["id"] for row in steps), default=after), False, True
                yield Watched(status, steps)
                if until_rest and status["status"] in _AT_REST:
                    return
            time.sleep(interval)
