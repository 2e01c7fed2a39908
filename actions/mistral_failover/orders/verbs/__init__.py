# SPDX-License-Identifier: Apache-2.0
"""The verbs, one file each.

Commands and pages read these files to list and describe verbs. So the code that carries a verb out
is imported in its methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from mistral_failover.model.order import Order
from mistral_failover.model.verbs import VerbKind, plannable, verb_kinds

if TYPE_CHECKING:
    from mistral_failover.orders.failover import Derive
    from mistral_failover.runtime.request import Request


class Verb(VerbKind):
    """A verb that derives the group's next goal. One that does something else has its own
    ``start``."""

    def derive(self, request: Request, order: Order, *, remember: bool) -> Derive:
        """Return the function that derives the goal. ``remember``: record members that were
        replaced; without it, a call changes nothing. Raises an error with a code, a message and a
        remedy, or NothingToDo."""
        raise NotImplementedError

    def start(self, request: Request, group: str, order: Order, because: str) -> Mapping[str, Any]:
        """Carry the order out, once for each execution of Mistral. Return what the action answers;
        ``workflow`` carries out the ``traversal``, None if there is nothing to carry out. Raises
        what :meth:`derive` raises, except AlreadyThere."""
        from mistral_failover.orders import operator_order

        derive = self.derive(request, order, remember=True)
        return operator_order.start_order(request, group, derive, order, because)


def verb_named(name: str, *, to_plan: bool = False) -> Verb:
    """Return an installed verb; ``to_plan``: one that can be planned. Raises ActionError
    BAD_INPUT."""
    known = plannable() if to_plan else verb_kinds()
    if name not in known:
        from mistral_failover.runtime.errors import ActionError

        listed = f"Verbs: {', '.join(sorted(known))}."
        raise ActionError("BAD_INPUT", f"verb: {name} is not known", listed)
    return cast(Verb, known[name])
