# SPDX-License-Identifier: Apache-2.0
"""The base of the project's actions: store plain inputs, answer plain JSON or a Result(error)."""

from __future__ import annotations

from typing import Any

from mistral_lib import actions
from mistral_lib.actions import Result

from mistral_failover.mistral import event_hooks
from mistral_failover.runtime.errors import caught
from mistral_failover.runtime.process import runtime
from mistral_failover.runtime.request import Request

# Errors that a token may cause once Keystone no longer accepts it. Services answer 401, or 503
# while Keystone refuses to answer them. A channel that asks Keystone then seems out of reach, and
# without Nova there is neither a proof nor a standby.
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


class FailoverAction(actions.Action):  # type: ignore[misc]
    """An action over the state store. A subclass's ``__init__`` stores its inputs unchanged (a
    remote executor rebuilds the object from them) and ``answer`` calls one plain function."""

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
            return self.answer(request)
        except Exception as error:
            if getattr(error, "code", None) not in _DOUBTFUL:
                raise
            raise request.refusal() or error from None
        finally:
            event_hooks.after(request)

    def answer(self, request: Request) -> Any:
        """The action's work. May raise anything that has a code, a message and a remedy."""
        raise NotImplementedError

    def test(self, context: Any) -> None:
        """A dry run does nothing: failover.plan shows what would happen."""
