# SPDX-License-Identifier: Apache-2.0
"""The actions of the verbs, and those that plan one and start a plan.

The class of a verb's action has the name of the action: ``Begin`` carries out the verb whose action
is ``failover.begin``. It is made from the verb's declaration when an entry point asks for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.groups import agent_epochs
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.order import Order
from mistral_failover.model.verbs import (
    FAILOVER,
    Form,
    Input,
    class_name,
    plannable_inputs,
    verb_kinds,
)
from mistral_failover.orders.plan import planner
from mistral_failover.orders.verbs import Verb, verb_named
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.inputs import OptionalText, Text, names, optional_text, text
from mistral_failover.runtime.request import Request


def __getattr__(name: str) -> Any:
    """Return the action class of this name: of a verb, or ``Plan``."""
    if name == "Plan":
        return _plan_class()
    for verb in verb_kinds().values():
        if class_name(verb) == name:
            return _verb_class(verb.name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _VerbAction(FailoverAction):
    """Carries out a verb."""

    _verb: str

    def answer(self, request: Request) -> Any:
        verb, given = verb_named(self._verb), vars(self)
        group = text("group", given["group"])
        reader = optional_text if verb.because else text
        because = reader("because", given["because"]) or verb.because
        order = read_order(verb, given)
        agent_epochs.refuse_restored(group_snapshot(request, group).state)
        return verb.start(request, group, order, because)


class _PlanAction(FailoverAction):
    """Show what a verb would do to a group now, without changing anything; or check an earlier plan
    again."""

    def answer(self, request: Request) -> Any:
        given = vars(self)
        plan, group = optional_text("plan", given["plan"]), optional_text("group", given["group"])
        if (plan is None) == (group is None):
            raise ActionError(
                "BAD_INPUT", "group: either a group or a plan is expected", "Give one of the two."
            )
        if plan is not None:
            return planner.plan_again(request, plan)
        verb = verb_named(optional_text("verb", given["verb"]) or FAILOVER, to_plan=True)
        for name in plannable_inputs():
            if given[name] not in (None, "", [], ()) and name not in verb.given:
                raise ActionError(
                    "BAD_INPUT",
                    f"{name}: {verb.name} has no such input",
                    f"Its inputs: {', '.join(verb.given)}.",
                )
        name, order = text("group", group), read_order(verb, given)
        agent_epochs.refuse_restored(group_snapshot(request, name).state)
        return planner.plan(request, name, order)


class StartPlan(FailoverAction):
    """Start exactly what a plan says, if nothing it depends on has changed."""

    def answer(self, request: Request, plan: Text, because: OptionalText = None) -> Any:
        return planner.start(request, plan, because)


@functools.cache
def _verb_class(name: str) -> type[FailoverAction]:
    verb = verb_named(name)
    required = [name for name, each in verb.inputs.items() if each.required]
    optional = [name for name in verb.inputs if name not in required]
    (optional if verb.because else required).append("because")
    members = {"_verb": name, "__doc__": verb.__doc__}
    return _declared(_VerbAction, class_name(verb), members, ["group", *required], optional)


@functools.cache
def _plan_class() -> type[FailoverAction]:
    optional = ["group", "verb", *plannable_inputs(), "plan"]
    return _declared(_PlanAction, "Plan", {"__doc__": _PlanAction.__doc__}, [], optional)


def _declared(
    base: type[FailoverAction],
    name: str,
    members: Mapping[str, Any],
    required: Iterable[str],
    optional: Iterable[str],
) -> type[FailoverAction]:
    """Return an action class with these inputs. Mistral finds it by its module and name."""
    either = Parameter.POSITIONAL_OR_KEYWORD
    made: type[FailoverAction] = type(name, (base,), {**members, "__module__": __name__})
    needed = [Parameter(each, either) for each in required]
    made.take([*needed, *(Parameter(each, either, default=None) for each in optional)])
    return made


def read_order(verb: Verb, given: Mapping[str, Any]) -> Order:
    """Return the order of an action's inputs. Raises ActionError BAD_INPUT."""
    read = {name: _read(name, each, given.get(name)) for name, each in verb.inputs.items()}
    return Order.of(verb.name, {name: value for name, value in read.items() if value is not None})


def _read(name: str, declared: Input, value: Any) -> Any:
    if declared.form is Form.NAMES:
        return None if value is None else names(name, value)
    if declared.form is Form.TARGETS and isinstance(value, dict):
        return {role: text(f"{name}.{role}", member) for role, member in value.items()}
    reader: Callable[[str, Any], Any] = text if declared.required else optional_text
    return reader(name, value)
