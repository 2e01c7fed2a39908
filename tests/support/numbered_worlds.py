# SPDX-License-Identifier: Apache-2.0
"""Every world that was met, and what leads from one to the next."""

from __future__ import annotations

import json

from support.store_states import Happening, Numbered, StoreStates
from support.world import World


class NumberedWorlds:
    """Worlds by their numbers; two with the same things and effects are one."""

    def __init__(self, contents: StoreStates) -> None:
        self._contents = contents
        self._worlds: Numbered[World] = Numbered()
        self._happened: dict[tuple[int, Happening], int] = {}

    def world(self, number: int) -> World:
        """One of them, to do with as one likes."""
        return _copy(self._worlds[number])

    def after(self, world: int, happenings: tuple[Happening, ...]) -> int:
        """The number of the world when these things have happened; the world may refuse them."""
        for happening in happenings:
            key = (world, happening)
            if key not in self._happened:
                changed = self.world(world)
                kind, number = happening
                if kind == "see":
                    changed.see(self._contents.seen[number])
                else:
                    changed.operate(self._contents.operations[number])
                changed.assert_nothing_happened_twice()
                self._happened[key] = self.number(changed)
            world = self._happened[key]
        return world

    def number(self, world: World) -> int:
        """The number of a world."""
        things = json.dumps(world.things, sort_keys=True, default=sorted)
        known = (things, frozenset(world.effects), frozenset(world.keys))
        return self._worlds.number(known, world)


def _copy(world: World) -> World:
    copy = World()
    copy.things = {i: {**t, "stands_on": set(t["stands_on"])} for i, t in world.things.items()}
    copy.effects = list(world.effects)
    copy.keys = set(world.keys)
    return copy
