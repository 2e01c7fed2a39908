# SPDX-License-Identifier: Apache-2.0
"""An order: what an operator asks for a group. It is planned, stored and started in this form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from mistral_failover.model.decisions import OrderVerb
from mistral_failover.model.stored import Stored


@dataclass(frozen=True)
class Order(Stored):
    """A verb and its inputs.

    ``to``: the member that takes the roles, or the member of each role; None: the group chooses.
    ``lost``: the members that are lost; None: the order does not say. ``recovered``: lost members
    that are well again. ``goal``: the version to return to, or its first digits; None: the goal
    before. ``member``, ``server``, ``resource``: what is replaced. ``plan``: the id of the plan
    that is started with it. ``from_alarm``: an alarm reports the loss, so newly lost members are
    replaced if the group wants that.
    """

    verb: OrderVerb
    to: str | Mapping[str, str] | None = None
    role: str | None = None
    lost: tuple[str, ...] | None = None
    recovered: tuple[str, ...] = ()
    goal: str | None = None
    member: str | None = None
    server: str | None = None
    resource: str | None = None
    plan: str | None = None
    from_alarm: bool = False

    @property
    def pinned(self) -> bool:
        """Whether it says where the roles go: no other member may take them. A goal of before and
        the homes of the roles are members, too."""
        return bool(self.to) or self.verb in (OrderVerb.ROLLBACK, OrderVerb.FAILBACK)

    @property
    def inputs(self) -> dict[str, Any]:
        """The given inputs of the verb, as JSON. An empty ``lost`` is given: no member is lost."""
        return {name: value for name, value in self.document().items() if name != "verb"}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return what a :meth:`document` holds. Raises ValueError for an unknown verb."""
        return super().read({**document, "verb": OrderVerb(document["verb"])})
