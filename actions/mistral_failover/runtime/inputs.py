# SPDX-License-Identifier: Apache-2.0
"""Read the inputs of actions. Each function raises ActionError BAD_INPUT. The types at the end are
for annotations: an input of one is read by its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from mistral_failover.model.stages import Stage
from mistral_failover.runtime.errors import ActionError, masked


def bad_input(key: str, expected: str, value: Any, remedy: str = "") -> ActionError:
    """Return the error that an input has another form than the expected one."""
    return ActionError(
        "BAD_INPUT", f"{key}: {expected} is expected, not {value!r}", remedy or f"Correct {key}."
    )


def text(key: str, value: Any) -> str:
    """Return a required text input. Raises ActionError BAD_INPUT."""
    if not isinstance(value, str) or not value:
        raise bad_input(key, "text", value, f"Give {key}.")
    # What people say is written down for all to read, and they may have pasted a token.
    return masked(value) if key == "because" else value


def optional_text(key: str, value: Any) -> str | None:
    """Return a text input that may be missing or empty."""
    return None if value is None or value == "" else text(key, value)


def names(key: str, value: Any) -> tuple[str, ...]:
    """Return a list of names; a single name and a missing value are accepted."""
    if value is None or value == "":
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(v, str) for v in listed):
        raise bad_input(key, "a list of names", value)
    return tuple(listed)


def whole(lowest: int, highest: int) -> Callable[[str, Any], int]:
    """Return the function that reads a whole number within bounds."""

    def read(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise bad_input(key, f"a whole number from {lowest} to {highest}", value)
        return value

    return read


def optional_whole(lowest: int, highest: int) -> Callable[[str, Any], int | None]:
    """Return the function that reads a whole number that may be missing or empty."""
    read = whole(lowest, highest)
    return lambda key, value: None if value in (None, "") else read(key, value)


def stage(key: str, value: Any) -> Stage:
    """Return the name of a stage."""
    try:
        return Stage(value)
    except ValueError:
        raise ActionError(
            "BAD_INPUT", f"{key}: {value!r} is not a stage", f"Name one of {', '.join(Stage)}."
        ) from None


def flag(key: str, value: Any) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise bad_input(key, "true or false", value)
    return value


Text = Annotated[str, text]
OptionalText = Annotated[str | None, optional_text]
Names = Annotated[tuple[str, ...], names]
Flag = Annotated[bool, flag]
