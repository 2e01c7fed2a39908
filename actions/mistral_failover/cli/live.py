# SPDX-License-Identifier: Apache-2.0
"""A live view of a group on a terminal: its status, and its latest steps below.

It is imported only when a group is watched on a terminal, because rich takes long to import.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from mistral_failover.cli import status_screen, stopped
from mistral_failover.cli.base import when
from mistral_failover.cli.follow import WatchUpdate

if TYPE_CHECKING:
    from mistral_failover.reports.documents import StatusReport
    from mistral_failover.store.views import JournalRow

STYLES = {"SERVING": "bold green", "DEGRADED": "bold yellow", "DOWN": "bold red"}
"""How the headline looks."""
_STEPS = 12


def live(looks: Iterator[WatchUpdate], stream: TextIO) -> Iterator[WatchUpdate]:
    """Replace each look by the next one; the last one stays."""
    steps: deque[JournalRow] = deque(maxlen=_STEPS)
    known: WatchUpdate | None = None
    console = Console(file=stream)
    with Live(console=console, refresh_per_second=4) as shown:
        for look in looks:
            steps.extend(look.steps)
            known = look if look.status else known
            if known is not None and known.status is not None:
                shown.update(
                    _screen(known.status, list(steps), look.away, console.width), refresh=True
                )
            yield look


def _screen(status: StatusReport, steps: list[JournalRow], away: str, width: int) -> Group:
    head, *more = status_screen.screen(status, (), width).splitlines()
    style = STYLES.get(status["service"]["status"], "")
    above = status["reason"]  # as "why"
    short = stopped.short_reason(above, status["failure"])
    said = [short if row["sentence"] == above else row["sentence"] for row in steps]
    told = [Text(f"{when(row['at'])}  {text}") for row, text in zip(steps, said, strict=True)]
    trouble = [Text(f"{away}: retrying", style="bold red")] if away else []
    return Group(Text(head, style=style), *map(Text, more), Text(), *told, *trouble)
