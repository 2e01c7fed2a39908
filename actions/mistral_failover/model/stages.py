# SPDX-License-Identifier: Apache-2.0
"""The stages of a failover: the milestones that its workflow shows, in their order.

A stage belongs to an operation of a type (``stage`` in the type file). The graph decides the order,
not the stage. The stage of a node is never earlier than the stages of the nodes that it waits for.
So a worker that carries out one stage after the other can always finish the earlier one first.
"""

from enum import StrEnum


class Stage(StrEnum):
    """One milestone, in the order in which they are passed."""

    FENCE = "fence"
    QUIESCE = "quiesce"
    MOVE_VOLUMES = "move_volumes"
    ACTIVATE = "activate"
    UPDATE_STACK = "update_stack"
    END = "end"


EARLIEST = Stage.FENCE
_ORDER = tuple(Stage)


def rank(name: str) -> int:
    """Return the place of the stage of this name in the order, from 0.

    :raises ValueError: when there is no such stage.
    """
    return _ORDER.index(Stage(name))


def at(place: int) -> Stage:
    """Return the stage of a :func:`rank`."""
    return _ORDER[place]
