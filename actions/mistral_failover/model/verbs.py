# SPDX-License-Identifier: Apache-2.0
"""The verbs: what an operator can order for a group.

A verb is one class, and one entry point of the group ``mistral_failover.verbs`` that gives it its
name. Its command, its action, plans, the web page and the documentation use :func:`verb_kinds`.
:class:`VerbKind` describes a verb without carrying it out; ``orders.verbs.Verb`` adds what it does.
"""

import functools
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from mistral_failover.model.installed import installed

LOG = logging.getLogger(__name__)
VERBS = "mistral_failover.verbs"
"""The group of the entry points."""
FAILOVER = "failover"
"""The verb of a plan that names none."""
_TAKEN = frozenset({"because", "from_alarm", "group", "more", "plan", "verb"})
"""What an order, its plan and its action have besides the inputs of the verb."""


class Form(StrEnum):
    """What an input is, as JSON."""

    TEXT = "text"
    NAMES = "names"
    """A list of names, or one name."""
    TARGETS = "targets"
    """A member, or the member of each role."""


class Among(StrEnum):
    """What a page lets the operator choose from."""

    MEMBERS = "members"
    LOST = "lost members"
    ROLES = "roles"
    GOALS = "goals"
    ANYTHING = "anything"


@dataclass(frozen=True)
class Input:
    """One input of a verb.

    ``words``: what it is, for people. ``metavar``: the word for its value on the command line.
    ``label`` and ``unsaid``: what a page calls it, and what it means not to choose. ``positional``:
    the command takes it without an option. ``internal``: only workflows give it; the command, the
    page and plans do not.
    """

    words: str
    metavar: str = "TEXT"
    form: Form = Form.TEXT
    among: Among = Among.ANYTHING
    label: str = ""
    unsaid: str = ""
    required: bool = False
    positional: bool = False
    internal: bool = False


RECOVERED = Input(
    "a lost member that you confirm as healthy; may be repeated",
    "MEMBER",
    Form.NAMES,
    Among.LOST,
    "Lost members that you confirm as healthy",
)
"""The input ``recovered``, which several verbs have."""


class VerbKind:
    """One verb. A subclass sets the class variables; its docstring is the help of its command.

    An input has the name of a field of ``model.order.Order``, or another one: then it is in the
    order's ``more``.
    """

    action: ClassVar[str]
    """The name of the Mistral action that carries it out."""
    workflow: ClassVar[str] = ""
    """The workflow that runs the action and follows the traversal. Without one, the command starts
    the verb's plan."""
    inputs: ClassVar[Mapping[str, Input]] = {}
    """The inputs besides the group and the reason."""
    because: ClassVar[str] = ""
    """The reason for the record if the operator gives none. Empty: the operator must give one."""
    because_words: ClassVar[str] = "the reason, for the record"
    changes: ClassVar[str]
    """What it may change, as a clause."""
    plannable: ClassVar[bool] = True
    """Whether it derives a goal, so that a plan can show what it would do."""
    on_page: ClassVar[bool] = True
    """Whether the web page plans it."""
    asks: ClassVar[bool] = False
    """Whether its command shows the plan and asks before it starts."""
    pins: ClassVar[bool] = False
    """Whether it says where the roles go even if the operator names no member. If so, no other
    member takes a role when the one that is to have it goes down (``Order.pinned``)."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The name in plans and stored orders."""

    @property
    def given(self) -> Mapping[str, Input]:
        """The inputs that an operator gives."""
        return {name: each for name, each in self.inputs.items() if not each.internal}


class _NotInstalled(VerbKind):
    """The verb of a stored order that no installed package provides. Its roles stay where it has
    sent them."""

    plannable = False
    on_page = False
    pins = True


@functools.cache
def verb_kinds() -> Mapping[str, VerbKind]:
    """Return every installed verb by its name, the failover first. One that cannot work beside the
    others is left out, which is logged as an error."""
    kinds: dict[str, VerbKind] = {}
    for name, kind in installed(VERBS).items():
        verb = kind(name)
        if why := ", ".join(_faults(verb, kinds.values())):
            LOG.error("The verb %s is ignored: %s", name, why)
        else:
            kinds[name] = verb
    return {FAILOVER: kinds[FAILOVER], **kinds}


def class_name(verb: VerbKind) -> str:
    """Return the name of the class of a verb's action."""
    return verb.action.rpartition(".")[2].title().replace("_", "")


def _faults(verb: VerbKind, others: Iterable[VerbKind]) -> Iterator[str]:
    if not (verb.workflow or verb.plannable):
        yield "it has neither a workflow nor a plan that could be started"
    for name in sorted(_TAKEN & verb.inputs.keys()):
        yield f"its input {name} has a name that every order uses"
    for other in others:
        if class_name(verb) == class_name(other):
            yield f"its action ends like that of {other.name}"
        if type(verb).__name__ == type(other).__name__:
            yield f"its class is called like that of {other.name}"


def verb_kind(name: str) -> VerbKind:
    """Return the verb of this name; a stand-in if it is not installed."""
    return verb_kinds().get(name) or _NotInstalled(name)


def plannable() -> Mapping[str, VerbKind]:
    """Return the verbs that can be planned."""
    return {name: kind for name, kind in verb_kinds().items() if kind.plannable}


def takers(name: str) -> list[VerbKind]:
    """Return the verbs that can be planned with this input of an operator."""
    return [kind for kind in plannable().values() if name in kind.given]


def plannable_inputs() -> list[str]:
    """Return the names of the operators' inputs of all verbs that can be planned."""
    return list(dict.fromkeys(name for kind in plannable().values() for name in kind.given))
