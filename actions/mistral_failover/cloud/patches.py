# SPDX-License-Identifier: Apache-2.0
"""PATCH a Heat stack and wait for the result; safe to repeat.

Heat shows an update only through the stack: its status, its parameters, and the time of its last
update, in seconds. So a look may find the COMPLETE of an earlier update. A COMPLETE counts once
something of the stack has changed, or after it has stayed the same for `SETTLE` seconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from oslo_utils import strutils

from mistral_failover.alongside import alongside
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, unreachable_behind
from mistral_failover.cloud.heat_replacements import (
    KeptParts,
    ListedResource,
    refuse_marked,
    refuse_template,
    rows_of,
)
from mistral_failover.cloud.stacks import stack_shown, template_of
from mistral_failover.cloud.url_paths import stack_segments
from mistral_failover.cloud.waits import ProbeResult, ResendPolicy
from mistral_failover.fault_points import reach
from mistral_failover.model.documents import load_json

SETTLE = 3.0  # seconds; convergence shows IN_PROGRESS at once, the older engine from a thread
SENDS = 3  # of an update that Heat reports as cancelled, or that leaves no trace on a failed stack
_HIDDEN = "******"  # what Heat shows for the value of a hidden parameter


_ANOTHER_S_TRUST = (
    " Heat gives the same answer to the token of a trust if another user updated the stack last: "
    "run it with a token of that user, or with a token that belongs to no trust."
)


@dataclass(frozen=True, slots=True)
class Patched:
    """The result of a successful PATCH.

    ``stack`` is "name/id", ``status`` its status, ``updated_at`` Heat's time stamp of the last
    update (None: never), ``adopted`` true if this call sent nothing because the stack had the
    values already or was being updated to them.
    """

    stack: str
    status: str
    updated_at: str | None
    adopted: bool


def patch_parameters(
    cloud: Cloud,
    stack: str,
    parameters: dict[str, Any],
    limit: float,
    keep: Callable[[], KeptParts] = KeptParts,
) -> Patched:
    """Give the stack these parameter values; other parameters stay as they are.

    A stack that has them and whose last action is COMPLETE is left alone. A running update to just
    these values, such as an earlier attempt's, is waited for; any other update is superseded (an
    engine that does not allow that answers 409: then it is waited for). ``limit``: seconds in
    total. ``keep``: returns, right before an update is sent, what the update must not take.

    Raises `CloudError` UNKNOWN_PARAMETER for a name that the template lacks, STACK_FAILED with
    Heat's reason when the update fails, CONFLICT when the stack is being deleted or when another
    client's update to other values won, TIMEOUT, NOT_FOUND; and as `refuse_marked`.
    """
    patch = _PatchWait(cloud, stack, _ParametersChange(cloud, parameters, keep))
    what = f"stack {stack} to carry its new parameters"
    patched: Patched = cloud.wait(patch.step, what=what, limit=limit)
    return patched


def patch_template(
    cloud: Cloud,
    stack: str,
    template: Mapping[str, Any],
    limit: float,
    keep: Callable[[], KeptParts] = KeptParts,
) -> Patched:
    """Give the stack this template; its parameters, environment and files stay as they are.

    As `patch_parameters`. Raises `CloudError` TEMPLATE_REPLACES instead of UNKNOWN_PARAMETER, if
    Heat says that the new template would replace or delete what is to be kept.
    """
    patch = _PatchWait(cloud, stack, _TemplateChange(cloud, template, keep))
    what = f"stack {stack} to carry its new template"
    patched: Patched = cloud.wait(patch.step, what=what, limit=limit)
    return patched


Rows = Callable[[], list[ListedResource]]
"""Returns the resources of a stack, as of `rows_of`; raises `CloudError`."""


class _StackChange(Protocol):
    """What a stack is to be given. ``what``: its name in messages; ``body``: of the update."""

    what: str
    body: Mapping[str, Any]

    def carried_by(self, stack: Any) -> bool | None:
        """Return whether the stack has it; None if Heat hides that."""
        ...

    def refuse(self, stack: str, rows: Rows | None) -> None:
        """Raise `CloudError` if the update would take what is to be kept. ``rows``: reads those of
        the stack; None: they are still to be asked for."""
        ...


class _ParametersChange:
    what = "parameters"

    def __init__(
        self, cloud: Cloud, wanted: Mapping[str, Any], keep: Callable[[], KeptParts]
    ) -> None:
        self.body: Mapping[str, Any] = {"parameters": wanted}
        self._cloud, self._wanted, self._keep = cloud, wanted, keep

    def carried_by(self, stack: Any) -> bool | None:
        current = stack.parameters
        unknown = sorted(set(self._wanted) - set(current))
        if unknown:
            known = ", ".join(sorted(n for n in current if not n.startswith("OS::"))) or "none"
            raise CloudError(
                "UNKNOWN_PARAMETER",
                f"Stack {stack.identifier} has no parameter {', '.join(unknown)}; it has: {known}",
                remedy="Declare the parameter in the stack's template or correct the group file.",
            )
        if drifted(self._wanted, current):
            return False
        return None if any(current[name] == _HIDDEN for name in self._wanted) else True

    def refuse(self, stack: str, rows: Rows | None) -> None:
        refuse_marked(self._cloud, stack, self._keep(), rows=rows and rows())


class _TemplateChange:
    what = "template"

    def __init__(
        self, cloud: Cloud, wanted: Mapping[str, Any], keep: Callable[[], KeptParts]
    ) -> None:
        self.body: Mapping[str, Any] = {"template": wanted}
        self._cloud, self._wanted, self._keep = cloud, wanted, keep

    def carried_by(self, stack: Any) -> bool | None:
        return same_template(self._wanted, template_of(self._cloud, str(stack.identifier)))

    def refuse(self, stack: str, rows: Rows | None) -> None:
        keep = self._keep()
        refuse_marked(self._cloud, stack, keep, rows=rows and rows())
        refuse_template(self._cloud, stack, self._wanted, keep)


def same_template(wanted: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Return whether Heat's JSON of a template is the wanted one."""
    return bool(load_json(json.dumps(wanted, default=str), "template") == dict(shown))


class _PatchWait:
    """The state of one call; each step looks first and then does what is missing."""

    def __init__(
        self,
        cloud: Cloud,
        stack: str,
        wanted: _StackChange,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cloud = cloud
        self._stack = stack
        self._wanted = wanted
        self._clock = clock
        self._before: tuple[str, str | None] | None = None  # as it was when the PATCH was sent
        self._sent_at = 0.0
        self._sends = 0
        self._looked = False
        self._repeats = ResendPolicy(cloud)

    def step(self) -> ProbeResult:
        if self._looked:
            return self._step(None)
        self._looked = True
        # The first look mostly sends the update: what that would replace is read at the same time.
        with alongside(lambda: rows_of(self._cloud, self._stack)) as rows:
            return self._step(rows)

    def _step(self, rows: Rows | None) -> ProbeResult:
        stack = stack_shown(self._cloud, self._stack)
        self._stack = stack.identifier  # "name/id": no redirect from now on
        state = f"it is {stack.stack_status}"
        action, _, status = stack.stack_status.partition("_")
        if action == "DELETE":
            raise CloudError("CONFLICT", f"Stack {self._stack} is {state[6:]}.", retryable=False)
        carries = self._wanted.carried_by(stack)
        if status == "IN_PROGRESS":
            if self._before is None and not carries and action == "UPDATE":
                return self._send(stack, rows)
            self._changed()
            return ProbeResult(state)
        if self._before is not None:
            return self._ended(stack, status, carries, state)
        if carries and status == "COMPLETE":
            return ProbeResult(state, done=True, result=self._result(stack, adopted=True))
        return self._send(stack, rows)

    def _ended(self, stack: Any, status: str, carries: bool | None, state: str) -> ProbeResult:
        now = (stack.stack_status, stack.updated_time)
        if now == self._before:
            if self._repeats.unanswered is not None:
                # An update that was not answered has left no trace.
                if not (carries and status == "COMPLETE"):
                    return (
                        self._send(stack)
                        if self._repeats.allow()
                        else self._repeats.no_effect_yet(state)
                    )
            elif self._clock() - self._sent_at < SETTLE:
                return ProbeResult(f"{state}, as before the update")
            elif status == "FAILED" and self._sends < SENDS:
                return self._send(stack)  # the failure is that of an earlier update
        if cancelled(stack) and carries is not False and self._sends < SENDS:
            return self._send(stack)
        if status == "FAILED":
            away = unreachable_behind(str(stack.stack_status_reason))
            raise CloudError(
                "STACK_FAILED",
                f"Stack {self._stack} is {stack.stack_status}: {stack.stack_status_reason}",
                remedy="Check the stack's events and correct the cause.",
                retryable=False,
                transient=away is not None,  # the next try sends the update again
                service="Heat" if away else "",
                detail=away or "",
            )
        if carries is False:
            raise CloudError(
                "CONFLICT",
                f"Another update changed the {self._wanted.what} of stack {self._stack} in the "
                "meantime.",
                remedy="Find out which other client updates this stack.",
            )
        return ProbeResult(state, done=True, result=self._result(stack, adopted=False))

    def _send(self, stack: Any, rows: Rows | None = None) -> ProbeResult:
        self._wanted.refuse(self._stack, rows)
        # Record it first: if the answer is lost, the update may still be running.
        before = (stack.stack_status, stack.updated_time)
        try:
            send_update(self._cloud, self._stack, self._wanted.body, self._repeats)
        except CloudError as error:
            if error.code == "CONFLICT":
                return ProbeResult(f"it is {stack.stack_status}, and {error.message}")
            if error.unknown:
                self._before, self._sent_at = before, self._clock()
            raise
        self._before, self._sent_at = before, self._clock()
        self._sends += 1
        return ProbeResult(f"it is {stack.stack_status}, and the update has just been sent")

    def _changed(self) -> None:
        """Return whether something changed since the PATCH: then the stack's next final status is
        the new one."""
        if self._before is not None:
            self._before = ("", None)
            self._repeats.answered()

    def _result(self, stack: Any, *, adopted: bool) -> Patched:
        return Patched(stack.identifier, stack.stack_status, stack.updated_time, adopted)


def drifted(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return the wanted values that the stack does not carry, by parameter. A hidden one is not
    shown, so it counts as carried."""
    return {
        name: value
        for name, value in wanted.items()
        if current.get(name) != _HIDDEN
        and (name not in current or not same_value(value, current[name]))
    }


def cancelled(stack: Any) -> bool:
    """Return whether an update of the stack failed only because of another one.

    If an update supersedes one that is working in a nested stack, Heat sometimes takes the end of
    the older one there for a failure of the newer one. Sending the update once more completes
    it.
    """
    reason = str(stack.stack_status_reason)
    return stack.stack_status == "UPDATE_FAILED" and reason.endswith("Stack UPDATE cancelled")


def send_update(cloud: Cloud, stack: str, body: Mapping[str, Any], repeats: ResendPolicy) -> None:
    """Ask Heat to update the stack. What ``body`` does not name stays as it is. ``repeats`` notes
    whether Heat answered.

    Raises `CloudError` CONFLICT if a running update does not allow another one.
    """
    try:
        reach("patch.before")
        with repeats.sending(f"update stack {stack}"):
            cloud.heat.stacks.update(stack_segments(stack), existing=True, **body)
    except CloudError as error:
        if error.code == "SERVER_ERROR":
            error.remedy += _ANOTHER_S_TRUST
        raise
    reach("patch.after")


def same_value(wanted: Any, shown: Any) -> bool:
    """Return whether Heat's text for a parameter means the wanted value.

    Heat shows numbers and booleans as text, lists with commas, and JSON as JSON
    (heat.engine.parameters).
    """
    if wanted == shown:
        return True
    text = str(shown)
    if isinstance(wanted, bool):
        return strutils.bool_from_string(text, default=None) is wanted  # as Heat reads it
    if isinstance(wanted, int | float):
        try:
            return float(text) == float(wanted)
        except ValueError:
            return False
    if isinstance(wanted, list) and text == ",".join(str(item) for item in wanted):
        return True
    if isinstance(wanted, dict | list):
        try:
            return bool(load_json(text, "parameter") == wanted)
        except ValueError:
            return False
    return text == str(wanted)
