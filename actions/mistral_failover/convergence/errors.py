# SPDX-License-Identifier: Apache-2.0
"""What the convergence core refuses, each with a stable code, a message and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mistral_failover.model.validation import did_you_mean, nearest


class ConvergenceError(Exception):
    """The base: ``code`` is stable, ``remedy`` says what to do about it."""

    code = "CONVERGENCE"

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}. {remedy}")
        self.message = message
        self.remedy = remedy


class GoalCycle(ConvergenceError):
    """The dependencies of a goal form a cycle; ``names`` are its resources, in order."""

    code = "GOAL_CYCLE"

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        super().__init__(
            f"the goal has a dependency cycle: {' -> '.join([*names, names[0]])}",
            "Remove one of these dependencies.",
        )


class UnknownType(ConvergenceError):
    """A goal names a resource type that is not defined."""

    code = "UNKNOWN_TYPE"

    def __init__(self, type_name: str, resource: str) -> None:
        super().__init__(
            f"resource {resource} is of type {type_name}, which is not defined",
            "Define the type together with the group.",
        )


class UnknownTraversal(ConvergenceError):
    """No such traversal in this project, or not any more: its group, or its rehearsal, was
    forgotten."""

    code = "UNKNOWN_TRAVERSAL"

    def __init__(self, traversal: str) -> None:
        super().__init__(
            f"there is no traversal {traversal}",
            "Pass the traversal that failover.begin or failover.admit returned.",
        )


class UnknownGroup(ConvergenceError):
    """No such group in this project; suggests the nearest of the ``known`` names."""

    code = "UNKNOWN_GROUP"

    def __init__(self, group: str, known: Iterable[str] = ()) -> None:
        known = list(known)
        near = f"{did_you_mean(group, known)} " if nearest(group, known) else ""
        super().__init__(
            f"there is no group {group} in this project",
            f"{near}To list the groups: failover group list. To define one: failover group create "
            "FILE. The group may also belong to another project.",
        )
