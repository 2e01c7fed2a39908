# SPDX-License-Identifier: Apache-2.0
"""An exploration's moves in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from support.states import ChosenGoal, Label
from support.store_states import StoreStates


class MoveNarrator:
    """Tells of moves; names resources as the operations on them do."""

    def __init__(self, contents: StoreStates, wishes: Sequence[ChosenGoal]) -> None:
        self._contents = contents
        self._wishes = wishes

    def told(self, label: Label) -> str:
        """One move."""
        what, of = label
        if what == "goal":
            return f"goal {of}: {self._wishes[of]}"
        if what in ("is taken", "is taken, and comes again", "is lost", "is looked at by somebody"):
            return f"{self.messages([of])} {what}"
        if what == "overlap":
            (inner, one), (outer, other) = of
            return f"{inner} of {self._named(inner, one)} within {outer} of " + self._named(
                outer, other
            )
        if what == "its lease ends":
            return f"the lease on {self._names()[of]} ends, whose owner died"
        return what if of is None else f"{self._named('operation', of)} {what}"

    def _named(self, kind: str, number: int) -> str:
        if kind in ("check", "carry"):
            return self.messages([number])
        operation = self._contents.operations[number]
        ticket = operation.ticket
        record = operation.record
        return f"{ticket.verb} {record.name} {record.id[:4]} (token {ticket.lock.token})"

    def messages(self, numbers: Iterable[int]) -> str:
        """Messages by their numbers."""
        names = self._names()
        told = []
        for number in numbers:
            ready = self._contents.messages[number]
            identity = ready.node.resource_id
            name = f"{names.get(identity)} {identity[:4]}"
            told.append(f"[{ready.node.kind} {name} of {ready.traversal_id[:12]}]")
        return ", ".join(told)

    def _names(self) -> dict[str, str]:
        return {o.record.id: o.record.name for o in self._contents.operations}
