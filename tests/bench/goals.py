# SPDX-License-Identifier: Apache-2.0
"""The goals of what is measured, and a line for a figure beside its goal.

CPU is that of two cores without other work: on a busy machine the same work takes up to twice as
much, because cores share their caches.
"""

from __future__ import annotations

from typing import NamedTuple


class Goal(NamedTuple):
    """``what`` is measured, in which unit, and the worst value that is good enough: the highest, or
    the lowest if more is better."""

    what: str
    limit: float
    more_is_better: bool = False

    def says(self, measured: float) -> str:
        """Return a line about a figure."""
        reached = measured >= self.limit if self.more_is_better else measured <= self.limit
        word = "reached" if reached else "not reached"
        sign = ">=" if self.more_is_better else "<="
        return f"   {self.what}: {measured:.2f}, goal {sign} {self.limit:g}: {word}"

    def tell(self, measured: float) -> None:
        """Print that line."""
        print(self.says(measured), flush=True)


FAILOVER = Goal("CPU s of a failover, of 50 at once, with Mistral", 0.22)
OURS = Goal("CPU s of that without Mistral", 0.09)
FIFTY = Goal("50 groups at once, times as long as one alone", 2.0)
ZONE = Goal("s until 1,000 groups are active, on two pairs", 150.0)
DECISIONS = Goal("decisions a second of a webhook beside 100 failing groups", 100.0, True)
REPEAT = Goal("CPU ms of an execution of on_alarm for a repeat", 40.0)
LOOK = Goal("CPU s of a look at 1,000 groups at rest", 3.0)
DRILL = Goal("32 volumes in parallel, times the critical path", 1.2)
REHEARSED = Goal("a failover during a rehearsal, times as long as without one", 1.1)
