# SPDX-License-Identifier: Apache-2.0
"""What a way to bring a lost member back consists of, and what it gets when it runs.

The module of a way is imported wherever a group file is read. So it imports clients of services
inside the functions that use them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from mistral_failover.cloud.clients import Cloud
    from mistral_failover.cloud.fields import Feature
    from mistral_failover.cloud.heat_replacements import KeptParts
    from mistral_failover.groups.snapshot import GroupSnapshot
    from mistral_failover.mistral.operation_documents import OperationDocument
    from mistral_failover.model.group import Limits
    from mistral_failover.resources.operation_context import OperationContext


@dataclass(frozen=True)
class Attempt:
    """One attempt to bring a member back. ``server``: the one that it had when it was lost.
    ``wish``: the properties of the resource. ``fence``: the rung and the sentence that prove the
    member fenced; empty if it was not fenced for this."""

    tools: OperationContext
    operation: OperationDocument
    snapshot: GroupSnapshot
    member: str
    server: str
    wish: Mapping[str, Any]
    fence: Mapping[str, Any]


@dataclass(frozen=True)
class LostServer:
    """A server that a plan brings back or leaves behind. ``stack``: None without one;
    ``autoscaling_group``: that the member is in, or None; ``resource``: only this one of the
    member's own stack is replaced, None for the whole member; ``keep``: what no update of the stack
    may take."""

    cloud: Cloud
    stack: str | None
    autoscaling_group: str | None
    member: str
    server: str
    resource: str | None
    keep: KeptParts


class Deletion(NamedTuple):
    """What is deleted with a server or instead of it, and when, both as clauses."""

    what: str
    when: str


class Result(NamedTuple):
    """What a way came to. ``server``: the one that the member has now, None if it is not back.
    ``observed``: what was seen, as a clause."""

    server: str | None
    observed: str


class Way(ABC):
    """One way to bring a lost member back."""

    when: ClassVar[str]
    """When it is taken, as a clause for the documentation."""
    does: ClassVar[str]
    """What it does, as a clause for plans."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The name in group files."""

    def longest(self, limits: Limits) -> float | None:
        """Return the seconds after which the next way is tried; None: only its operation's limit
        ends it."""
        del limits
        return None

    def proofs(self, ladder: Sequence[str]) -> list[str] | None:
        """Return the rungs of a ladder after whose proof this way is tried, by their kinds; None:
        after each of them, and for a member without a fence."""
        del ladder
        return None

    def features(self) -> Iterable[Feature]:
        """Return what Nova must offer for it. A group file is refused if it does not."""
        return ()

    def deletes(self, lost: LostServer) -> Iterable[Deletion]:
        """Return what this way deletes if it is taken, for plans; nothing, unless stated. Raises
        `CloudError`, also if it would be refused because of what it would delete."""
        del lost
        return ()

    @abstractmethod
    def bring_back(self, attempt: Attempt) -> Result:
        """Bring the member back, or say why this way does not: then the next one is tried. Safe to
        repeat at any point.

        Raises `CloudError` where a service does not answer or where the way, once begun, failed for
        good; `LeaseLost`.
        """
