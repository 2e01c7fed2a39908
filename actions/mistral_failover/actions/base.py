# SPDX-License-Identifier: Apache-2.0
"""The base of the project's actions: store plain inputs, answer plain JSON or a Result(error)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar, get_type_hints

from mistral_lib import actions
from mistral_lib.actions import Result

from mistral_failover.mistral import event_hooks
from mistral_failover.runtime import rights
from mistral_failover.runtime.errors import caught
from mistral_failover.runtime.process import runtime
from mistral_failover.runtime.request import Request


class FailoverAction(actions.Action):  # type: ignore[misc]
    """An action over the state store. The inputs of a subclass are those of its ``answer``, which
    calls one plain function; their annotations say how each is read (``runtime.inputs``). An object
    has them as they were given, because a remote executor rebuilds it from them."""

    answer: ClassVar[Callable[..., Any]]
    """The action's work. May raise anything that has a code, a message and a remedy."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """Store the inputs; each subclass has its own signature."""

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        if "answer" in own and "__init__" not in own:
            _, _request, *inputs = signature(own["answer"]).parameters.values()
            cls.take(inputs)

    @classmethod
    def take(cls, inputs: Iterable[Parameter]) -> None:
        """Let the action have these inputs. Mistral reads them from the signature."""
        plain = (each.replace(annotation=Parameter.empty) for each in inputs)
        shape = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *plain])

        def init(self: FailoverAction, *given: Any, **named: Any) -> None:
            bound = shape.bind(self, *given, **named)
            bound.apply_defaults()
            self.__dict__.update(list(bound.arguments.items())[1:])

        init.__signature__ = shape  # type: ignore[attr-defined]
        cls.__init__ = init  # type: ignore[method-assign]

    def run(self, context: Any) -> Any:
        """What Mistral calls. It returns ``Result(error=...)`` and never raises, because Mistral
        passes on an exception as one opaque string."""
        request: Request | None = None
        doing = f"running the action {type(self).__name__}"
        try:
            request = Request(runtime(), context)
            return self._answered(request)
        except Exception as error:
            facts = request.caught(error, doing) if request else caught(error, doing)
            return Result(error=facts)

    def _answered(self, request: Request) -> Any:
        try:
            with rights.named_if_ended(request):
                read = _readers(type(self).answer)
                return self.answer(
                    request, **{name: read[name](name, getattr(self, name)) for name in read}
                )
        finally:
            event_hooks.after(request)

    def test(self, context: Any) -> None:
        """A dry run does nothing: failover.plan shows what would happen."""


@functools.cache
def _readers(answer: Callable[..., Any]) -> Mapping[str, Callable[[str, Any], Any]]:
    """Return how each input is read, by its name."""
    hints = get_type_hints(answer, include_extras=True)
    return {
        name: getattr(hints[name], "__metadata__", (_as_it_is,))[0]
        for name in list(signature(answer).parameters)[2:]
    }


def _as_it_is(_name: str, value: Any) -> Any:
    return value
