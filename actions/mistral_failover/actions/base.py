# SPDX-License-Identifier: Apache-2.0
"""The base of the project's actions: store plain inputs, answer plain JSON or a Result(error)."""

from __future__ import annotations

from typing import Any

from mistral_lib import actions

from mistral_failover.actions import hooks
from mistral_failover.actions.errors import ActionError, answered, masked
from mistral_failover.actions.runtime import Request, runtime
from mistral_failover.model.stages import Stage

# What may come of a token that Keystone does not accept any more. Services answer 401, or 503 while
# Keystone refuses to tell them anything, and a channel that asks Keystone seems out of reach then;
# and who may not ask Nova finds neither proof nor standby.
_DOUBTFUL = frozenset(
    {
        "TOKEN_EXPIRED",
        "SERVER_ERROR",
        "REFUSED",
        "UNREACHABLE",
        "FENCE_UNPROVEN",
        "NO_ELIGIBLE_MEMBER",
    }
)


class FailoverAction(actions.Action):
    """An action over the state store. A subclass's ``__init__`` stores its inputs as they are (a
    remote executor rebuilds the object from them) and ``answer`` calls one plain function."""

    @answered
    def run(self, context: Any) -> Any:
        """What Mistral calls; never raises."""
        request = Request(runtime(), context)
        try:
            return self.answer(request)
        except Exception as error:
            if getattr(error, "code", None) not in _DOUBTFUL:
                raise
            raise request.refusal() or error from None
        finally:
            hooks.after(request)

    def answer(self, request: Request) -> Any:
        """The action's work. May raise anything that has a code, a message and a remedy."""
        raise NotImplementedError

    def test(self, context: Any) -> None:
        """A dry run does nothing: failover.plan shows what would happen."""


def text(key: str, value: Any) -> str:
    """A required text input. Raises ActionError BAD_INPUT."""
    if not isinstance(value, str) or not value:
        raise ActionError("BAD_INPUT", f"{key}: text is expected, not {value!r}", f"Give {key}.")
    # What people say is written down for all to read, and they may have pasted a token.
    return masked(value) if key == "because" else value


def optional_text(key: str, value: Any) -> str | None:
    """A text input that may be missing or empty."""
    return None if value is None or value == "" else text(key, value)


def names(key: str, value: Any) -> tuple[str, ...]:
    """A list of names; one name alone and nothing at all are accepted."""
    if value is None or value == "":
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(v, str) for v in listed):
        raise ActionError(
            "BAD_INPUT", f"{key}: a list of names is expected, not {value!r}", f"Correct {key}."
        )
    return tuple(listed)


def whole(key: str, value: Any, lowest: int, highest: int) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise ActionError(
            "BAD_INPUT",
            f"{key}: a whole number from {lowest} to {highest} is expected, not {value!r}",
            f"Correct {key}.",
        )
    return value


def stage(key: str, value: Any) -> Stage:
    """The name of a stage."""
    try:
        return Stage(value)
    except ValueError:
        raise ActionError(
            "BAD_INPUT", f"{key}: {value!r} is no stage", f"Name one of {', '.join(Stage)}."
        ) from None


def flag(key: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ActionError(
            "BAD_INPUT", f"{key}: true or false is expected, not {value!r}", f"Correct {key}."
        )
    return value
