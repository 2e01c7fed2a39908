# SPDX-License-Identifier: Apache-2.0
"""The groups' definitions, parsed once each."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from threading import Lock as Mutex

from mistral_failover.convergence.ports import Transaction
from mistral_failover.convergence.records import GroupState
from mistral_failover.model.group import Group, parse_group

KEPT = 2048


class Definitions:
    """Reads the definitions of groups; keeps the last `KEPT` parsed ones.

    The key has the versions of the texts, so a definition that another process changed is never
    served from memory.
    """

    def __init__(self) -> None:
        self._parsed: OrderedDict[tuple[str, str, str], Group] = OrderedDict()
        self._mutex = Mutex()

    def group(self, tx: Transaction, state: GroupState, version: str | None = None) -> Group:
        """Return a definition of a group, parsed: by default the one of its current traversal.

        It knows the types of what is defined, too: records of a newer definition, such as one whose
        convergence failed, can be removed by an older one.
        """
        version = version or state.definition_version
        key = (state.id, version, state.defined)
        with self._mutex:
            if key in self._parsed:
                self._parsed.move_to_end(key)
                return self._parsed[key]
        stored = tx.definition(state.id, version)
        types = list(stored["types"])
        if version != state.defined:
            own = {each["name"] for each in types}
            newer = tx.definition(state.id, state.defined)["types"]
            types += [each for each in newer if each["name"] not in own]
        parsed = parse_group(
            stored["document"],
            name=state.name,
            types=types,
            identities=stored.get("identities", {}),
        )
        group = replace(parsed, version=version)
        with self._mutex:
            self._parsed[key] = group
            while len(self._parsed) > KEPT:
                self._parsed.popitem(last=False)
        return group
