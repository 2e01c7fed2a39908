# SPDX-License-Identifier: Apache-2.0
"""What the guests of a drill show: the volumes' content, the agents' journals, the commands that
ran.

Numbered as the invariants in docs/architecture.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mistral_failover.agent.daemon.journal import Journal, JournalEntry
from mistral_failover.lab.drill import application
from mistral_failover.lab.drill.agent_files import JOURNAL
from mistral_failover.lab.drill.audit import Violation
from mistral_failover.lab.drill.guest import Volumes

_ALL = 10_000


def violations(disks: Sequence[Path], volumes: Volumes, torn: Iterable[str]) -> Iterator[Violation]:
    """Return every violation. ``disks``: the guests' folders; ``torn``: the processes that used a
    volume when it was detached."""
    for told in torn:
        yield Violation(2, told)
    for volume in sorted(path.name for path in volumes.folder.glob("*")):
        journal = volumes.content(volume) / application.JOURNAL
        yield from two_writers(f"volume {volume}", [journal])
    own = [disk / "own" / application.JOURNAL for disk in disks]
    yield from two_writers("the disk of its guest", own)
    for disk in disks:
        yield from twice(disk)
        yield from old_epochs(disk)


def two_writers(where: str, journals: Sequence[Path]) -> Iterator[Violation]:
    """2. A process that wrote never writes again after another one has written, not even in its own
    journal."""
    lines = [line.split(" ") for journal in journals for line in _lines(journal)]
    over: set[str] = set()
    last = ""
    for server, process, *_ in sorted(lines, key=lambda line: float(line[3])):
        writer = f"{server}, process {process}"
        if writer == last:
            continue
        if writer in over:
            yield Violation(2, f"{writer}, wrote on {where} although {last} already did")
        over.add(last)
        last = writer


def twice(disk: Path) -> Iterator[Violation]:
    """4. No command ran twice."""
    # What the agent does by itself when it is deposed has no id, or one of its own.
    known = {row.id for row in _journal(disk)}
    ran = Counter(tuple(line.split(" ", 1)) for line in _lines(disk / application.RAN))
    for (verb, command), count in ran.items():
        if command in known and count > 1:
            yield Violation(4, f"command {command}, {verb}, ran {count} times on {disk.name}")


def old_epochs(disk: Path) -> Iterator[Violation]:
    """8. No command of an older epoch began once the agent knew a newer one."""
    if not (disk / JOURNAL).is_dir():
        return
    rows = _journal(disk)
    with Journal(disk / JOURNAL, hold=False) as journal:
        latest = journal.epoch(0)
        learnt = {
            epoch: deposition.learnt_at
            for epoch in range(latest + 1)
            if (deposition := journal.deposition(epoch)) is not None
        }
    for row in rows:
        ran = row.state not in ("refused", "received")
        newer = [at for epoch, at in learnt.items() if epoch > row.epoch]
        if ran and row.started_at is not None and any(row.started_at > at for at in newer):
            yield Violation(8, f"{row.name} of epoch {row.epoch} began in {latest} on {disk.name}")


def _journal(disk: Path) -> list[JournalEntry]:
    if not (disk / JOURNAL).is_dir():
        return []
    with Journal(disk / JOURNAL, hold=False) as journal:
        return journal.latest(_ALL)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return []
