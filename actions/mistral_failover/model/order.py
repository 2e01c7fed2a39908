# SPDX-License-Identifier: Apache-2.0
"""An order: what an operator asks for a group. It is planned, stored and started in this form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from mistral_failover.model.stored import Stored
from mistral_failover.model.verbs import verb_kind


@dataclass(frozen=True)
class Order(Stored):
    """A verb and its inputs.

    ``to``: the member that takes the roles, or the member of each role; None: the group chooses.
    ``lost``: the members that are lost; None: the order does not say. ``recovered``: lost members
    that are well again. ``goal``: the version to return to, or its first digits; None: the goal
    before. ``member``, ``server``, ``resource``: what is replaced. ``plan``: the id of the plan
    that is started with it. ``from_alarm``: an alarm reports the loss, so newly lost members are
    replaced if the group wants that. ``more``: the inputs that only this verb has.
    """

    verb: str
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
    more: Mapping[str, Any] | None = None

    @property
    def pinned(self) -> bool:
        """Whether it says where the roles go: no other member may take them. A goal of before and
        the homes of the roles are members, too."""
        return bool(self.to) or verb_kind(self.verb).pins

    @property
    def member_to(self) -> str | None:
        """The member that takes the roles, of a verb that names one for all of them."""
        assert not isinstance(self.to, Mapping)
        return self.to

    def own(self, name: str) -> Any:
        """Return an input that only this verb has; None if it was not given."""
        return (self.more or {}).get(name)

    @property
    def inputs(self) -> dict[str, Any]:
        """The given inputs of the verb, as JSON. An empty ``lost`` is given: no member is lost."""
        given = self.document()
        del given["verb"]
        more = given.pop("more", {})
        return {**given, **more}

    @classmethod
    def of(cls, verb: str, inputs: Mapping[str, Any]) -> Self:
        """Return an order with these inputs."""
        fields = cls.__dataclass_fields__.keys()
        # As JSON has it, so that a plan that is read again holds the same.
        more = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in inputs.items()
            if name not in fields
        }
        mine = {name: value for name, value in inputs.items() if name in fields}
        return cls(verb, **mine, more=more or None)
