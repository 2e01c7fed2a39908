# SPDX-License-Identifier: Apache-2.0
"""The groups' definitions, parsed once each."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock as Mutex

from mistral_failover.convergence.ports import Transaction
from mistral_failover.convergence.records import GroupState
from mistral_failover.model.group import Group, parse_group

KEPT = 2048


class Definitions:
    """Reads a group's current definition; keeps the last `KEPT` parsed ones.

    The key is the version of the text, so a definition that another process changed is never served
    from memory.
    """

    def __init__(self) -> None:
        self._parsed: OrderedDict[tuple[str, str], Group] = OrderedDict()
        self._mutex = Mutex()

    def group(self, tx: Transaction, state: GroupState) -> Group:
        """Return the parsed definition of a group."""
        key = (state.id, state.definition_version)
        with self._mutex:
            if key in self._parsed:
                self._parsed.move_to_end(key)
                return self._parsed[key]
        stored = tx.definition(state.id)
        group = parse_group(stored["document"], name=state.name, types=stored["types"])
        with self._mutex:
            self._parsed[key] = group
            while len(self._parsed) > KEPT:
                self._parsed.popitem(last=False)
        return group
