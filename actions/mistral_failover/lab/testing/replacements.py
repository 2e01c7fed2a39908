# SPDX-License-Identifier: Apache-2.0
"""Actions that answer what a test wants, behind the signatures of the real ones."""

import copy
import inspect
import threading
from collections.abc import Sequence
from typing import Any

from mistral_lib import actions as ml_actions

_current: "Replacements | None" = None


class CheckFailed(AssertionError):
    """A test's own expectation about a call was not met; the original is ``__cause__``."""


class ReplacedAction(ml_actions.Action):  # type: ignore[misc]
    """What the executor runs. Plain values only: it crosses the transport as JSON."""

    def __init__(self, name: str, params: dict[str, Any], generation: int) -> None:
        super().__init__()
        self.name = name
        self.params = params
        self.generation = generation

    def run(self, context: Any) -> Any:
        """Record the call and give the next outcome."""
        if _current is None or _current.generation != self.generation:
            # A branch of an earlier test that is still running: not this test's call.
            return ml_actions.Result(error="The test that replaced this action has ended.")
        return _current.answer(self.name, self.params, context)


class _Replacement:
    def __init__(self, outcome: Any, sequence: Sequence[Any] | None, unchecked: bool) -> None:
        self.outcome = outcome
        self.sequence = None if sequence is None else list(sequence)
        self.unchecked = unchecked
        self.calls: list[dict[str, Any]] = []


class Replacements(ml_actions.ActionProvider):  # type: ignore[misc]
    """An action provider that precedes all others while tests run.

    :ivar generation: raised by :meth:`clear`; calls of former generations do not count. :ivar
    failed_check: the first failed expectation of this test, or None.
    """

    def __init__(self) -> None:
        super().__init__("replacements")
        self.generation = 0
        self.failed_check: BaseException | None = None
        self._lock = threading.Lock()
        self._replaced: dict[str, _Replacement] = {}
        self._system: Any = None

    def install(self, system: Any) -> None:
        """Precede the providers of Mistral's composite one."""
        global _current
        _current = self
        self._system = system
        system._delegates.insert(0, self)

    def uninstall(self) -> None:
        """Remove this provider."""
        global _current
        _current = None
        self._system._delegates.remove(self)

    def clear(self) -> None:
        """Delete replacements, calls and the failed check."""
        with self._lock:
            self.generation += 1
            self._replaced.clear()
            self.failed_check = None

    def replace(
        self, name: str, outcome: Any, sequence: Sequence[Any] | None, unchecked: bool
    ) -> None:
        """See `Workflows.replace`."""
        if not unchecked and self._real(name, "") is None:
            raise LookupError(
                f"there is no action {name!r} to replace: install it (entry point "
                "mistral.actions), or pass unchecked=True"
            )
        with self._lock:
            self._replaced[name] = _Replacement(outcome, sequence, unchecked)

    def calls(self, name: str) -> list[dict[str, Any]]:
        """Return the inputs of the calls so far, in order; KeyError when the action is not
        replaced."""
        with self._lock:
            return copy.deepcopy(self._replaced[name].calls)

    def answer(self, name: str, params: dict[str, Any], context: Any) -> Any:
        """Record a call and return (or raise) its configured outcome. Runs in the executor."""
        with self._lock:
            replacement = self._replaced[name]
            replacement.calls.append(copy.deepcopy(params))
            try:
                outcome = _next_outcome(name, replacement)
            except CheckFailed as e:
                self.failed_check = self.failed_check or e
                raise
        if isinstance(outcome, type) and issubclass(outcome, BaseException):
            raise outcome()
        if isinstance(outcome, BaseException):
            raise outcome
        if not callable(outcome):
            return outcome
        try:
            return _call(name, outcome, params, context)
        except Exception as e:
            if isinstance(e, AssertionError):
                self._note(e)
            raise
        except BaseException as e:  # pytest.fail and pytest.skip
            self._note(e)
            raise

    def find(self, action_name: str, namespace: str | None = None) -> Any:
        """The descriptor of a replaced action: the real one, except for what it instantiates."""
        with self._lock:
            replacement = self._replaced.get(action_name)
            generation = self.generation
        if replacement is None:
            return None
        real = None if replacement.unchecked else self._real(action_name, namespace)
        if real is None:
            descriptor = ml_actions.PythonActionDescriptor(action_name, ReplacedAction)
            descriptor._params_spec = "**kwargs"
        else:
            descriptor = copy.copy(real)

        def instantiate(params: dict[str, Any], wf_ctx: Any) -> ReplacedAction:
            if real is not None:
                real.instantiate(params, wf_ctx)  # its __init__ may refuse values
            return ReplacedAction(action_name, params, generation)

        descriptor.instantiate = instantiate
        return descriptor

    def find_all(self, *_args: Any, **_kwargs: Any) -> list[Any]:
        """Lists nothing: the real actions are listed by their providers."""
        return []

    def _real(self, name: str, namespace: str | None) -> Any:
        for provider in self._system._delegates:
            if provider is not self:
                found = provider.find(name, namespace)
                if found is not None:
                    return found
        return None

    def _note(self, error: BaseException) -> None:
        with self._lock:
            self.failed_check = self.failed_check or error


def _next_outcome(name: str, replacement: _Replacement) -> Any:
    if replacement.sequence is None:
        return replacement.outcome
    if not replacement.sequence:
        count = len(replacement.calls)
        raise CheckFailed(f"{name} was called {count} times, but has {count - 1} outcomes")
    return replacement.sequence.pop(0)


def _call(name: str, function: Any, params: dict[str, Any], context: Any) -> Any:
    signature = inspect.signature(function)
    kwargs = dict(params)
    if "context" in signature.parameters and "context" not in params:
        kwargs["context"] = context
    try:
        signature.bind(**kwargs)
    except TypeError as e:
        raise CheckFailed(f"the replacement of {name} does not accept its inputs: {e}") from e
    return function(**kwargs)
