# SPDX-License-Identifier: Apache-2.0
"""What an alarm says, after it was read, and what became known about it since."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from mistral_failover.model.stored import Stored

LONGEST_NAME = 255
"""Characters of a name. No group, member or host has a longer one."""
LONGEST_REPORT = 1_000
"""The maximum number of characters that are kept of what a source reported."""


@dataclass(frozen=True)
class AlarmFact(Stored):
    """What an alarm says. ``group``: the name of the group that it is about; of a host event, the
    only group that it is about. ``lost``: the lost members; empty: it names none. ``servers``:
    those that they had then, in the same order, empty words where it is not known. ``reported``:
    its own words. ``because``: the reason of the operator who reports it, if one does.

    ``host`` or ``zone``: where all members are lost (a host event); ``at``: when it happened, in
    seconds; ``open``: whether members may still be found there; ``doubt``: why its source is not
    certain.

    ``evidence``: why the storm guard still holds it. ``refusal``: why the last attempt to start its
    failover failed. ``over``: its source's word that it is over. They are empty if there is none.
    ``ended``: of a report that something is over, when it ended, in seconds; None if unknown.
    """

    group: str | None = None
    lost: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    reported: str = ""
    because: str = ""
    host: str | None = None
    zone: str | None = None
    at: float | None = None
    open: bool = False
    doubt: str = ""
    evidence: str = ""
    refusal: str = ""
    over: str = ""
    ended: float | None = None

    def shortened(self) -> Self:
        """Return it as it is stored: with names and words of bounded length."""
        return replace(
            self,
            group=self.group and self.group[:LONGEST_NAME],
            lost=tuple(member[:LONGEST_NAME] for member in self.lost),
            servers=tuple(server[:LONGEST_NAME] for server in self.servers),
            reported=self.reported[:LONGEST_REPORT],
            because=self.because[:LONGEST_NAME],
            host=self.host and self.host[:LONGEST_NAME],
            zone=self.zone and self.zone[:LONGEST_NAME],
        )
