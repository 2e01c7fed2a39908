# SPDX-License-Identifier: Apache-2.0
"""Update a Heat stack and wait for the result; safe to repeat.

Heat shows an update only through the stack: its status, its parameters, and the time of its last
update, in seconds. So a look may find the COMPLETE of an earlier update. A COMPLETE counts once
something of the stack has changed, or after it has stayed the same for `SETTLE` seconds.

A member gets a new server by an update, too: it is marked unhealthy, then the stack is updated
without changes.

At the stack's next update Heat replaces every resource that is CHECK_FAILED, in groups and outside
of them, under the same name: it makes the new one first and then deletes the old one. Both have
happened when the stack is COMPLETE and the member has another server. The old server is named by
its id throughout, so that a repeat never hits its successor.

Each update of a stack also resizes its groups (heat.engine.resources.aws.autoscaling): to
``desired_capacity``, else to the number of members that have not failed, within ``min_size`` and
``max_size``. If that is fewer than there are, Heat removes failed members first, then the oldest.
So Heat does not replace a member that is marked unhealthy in a group without ``desired_capacity``,
but drops it; in a group that was scaled up it drops others with it. Such an update is refused.
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from oslo_utils import strutils

from mistral_failover.alongside import alongside
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated, unreachable_behind
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.heat_replacements import (
    MARKED,
    KeptParts,
    ListedResource,
    definitions,
    refuse_marked,
    refuse_template,
    rows_of,
)
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.stack_members import StackLocation, locate
from mistral_failover.cloud.stacks import DEPTH, StackResource, stack_shown, template_of
from mistral_failover.cloud.url_paths import segment, stack_segments
from mistral_failover.cloud.waits import ProbeResult, ResendPolicy
from mistral_failover.fault_points import reach
from mistral_failover.model import remedies
from mistral_failover.model.documents import load_json
from mistral_failover.model.remedies import need

SETTLE = 3.0  # seconds; convergence shows IN_PROGRESS at once, the older engine from a thread
_LOOKS = 4  # at a running update's events within the limit
_RECENT = 100  # events among which that of a failed update is
SENDS = 3  # of an update that Heat reports as cancelled, or that leaves no trace on a failed stack
_RUNNING = ("UPDATE_IN_PROGRESS", "ROLLBACK_IN_PROGRESS")
_PSEUDO = ("OS::", "AWS::")  # how the names begin of parameters that Heat adds
_HIDDEN = "******"  # what Heat shows for the value of a hidden parameter
_ANOTHER_S_TRUST = (
    " Heat gives the same answer to the token of a trust if another user updated the stack last: "
    "run it with a token of that user, or with a token that belongs to no trust."
)
_AUTOSCALING_GROUP = "OS::Heat::AutoScalingGroup"


class _UpdateWait:
    """The state of one call that updates a stack; each step looks first and then does what is
    missing. ``limit``: seconds that it may take."""

    def __init__(self, cloud: Cloud, stack: str, limit: float, clock: Callable[[], float]) -> None:
        self._cloud = cloud
        self._stack = stack
        self._clock = clock
        self._limit = limit
        self._newest: tuple[str, float] | None = None  # event, and since when there is no newer one
        self._looked_at_events = clock()
        self._resent_at = -math.inf
        self._before: tuple[str, str | None] | None = None  # as it was when the PATCH was sent
        self._sent_at = 0.0
        self._sends = 0
        self._listed = True  # Heat may list it: it does not list a stack in another one
        self._updates = ResendPolicy(cloud)

    def _look(self) -> tuple[Any, str, str]:
        """Return the stack as Heat shows it, its action and its status. Raises `CloudError`
        CONFLICT if it is being deleted."""
        stack = stack_shown(self._cloud, self._stack)
        self._stack = stack.identifier  # "name/id": no redirect from now on
        action, _, status = stack.stack_status.partition("_")
        if action == "DELETE":
            words = f"Stack {self._stack} is {stack.stack_status}."
            raise CloudError("CONFLICT", words, retryable=False)
        return stack, action, status

    def _running(self) -> ProbeResult | None:
        """Return the look at an update that was sent and that Heat lists as running; None if a look
        at the stack itself has to decide, also because the list cannot be read."""
        if self._before is None or not self._listed:
            return None
        try:
            status = self._cloud.listed_status(self._stack.rpartition("/")[2])
        except CloudError:
            status = None
        self._listed = status is not None
        if status not in _RUNNING:
            return None
        self._began()
        return None if self._is_left() else ProbeResult(f"it is {status}")

    def _began(self) -> None:
        """Record that an update is seen to run: whatever it ends in is new."""
        if self._before is not None:
            self._before = ("", None)
            self._updates.answered()

    def _unless_left(self, stack: Any, state: str, send: Callable[[], ProbeResult]) -> ProbeResult:
        """Wait for a running update, or ``send`` it again if Heat has left it: an engine that dies
        leaves the stack IN_PROGRESS until the next update, which takes up what is not done yet. An
        engine without convergence answers 409; then it is said when the time is over."""
        if not self._is_left():
            return ProbeResult(state)
        left, now = self._left(stack), self._clock()
        if self._sends >= SENDS or now - self._resent_at < self._limit / _LOOKS:
            return ProbeResult(state, error=left)
        self._resent_at = now
        return replace(send(), error=left)

    def _is_left(self) -> bool:
        """Return whether Heat has shown no new event for a quarter of the limit."""
        now, pause = self._clock(), self._limit / _LOOKS
        if now - self._looked_at_events >= pause:
            self._looked_at_events = now
            events = self._events(limit=1)
            newest = None if events is None else str(events[0].id) if events else ""
            if newest is None:
                self._newest = None
            elif self._newest is None or self._newest[0] != newest:
                self._newest = (newest, now)
        return self._newest is not None and now - self._newest[1] >= pause

    def _events(self, limit: int) -> list[Any] | None:
        """Return Heat's newest events of the stack and of what is in it, the newest first; None if
        the user may not read them."""
        events = self._cloud.heat.events
        asked = {"limit": limit, "sort_dir": "desc", "nested_depth": DEPTH}
        try:
            with translated(f"list the events of stack {self._stack}", "Heat"):
                return list(events.list(stack_segments(self._stack), **asked))
        except CloudError as error:
            if error.code != "FORBIDDEN":
                raise
            return None

    def _left(self, stack: Any) -> CloudError:
        """Return the error of an update that Heat has left, for when the time is over."""
        since = self._newest[1] if self._newest else self._clock()
        return CloudError(
            "TIMEOUT",
            f"Gave up after {self._limit:g} s: stack {self._stack} is {stack.stack_status}, and "
            f"Heat has reported nothing for {self._clock() - since:.0f} s",
            remedy=(
                "Check that heat-engine runs. Then cancel the update of the stack without a "
                "rollback, or restart heat-engine."
            ),
        )

    def _why_rolled_back(self, stack: Any) -> str:
        """Return Heat's reason for the rollback, which only its events still have."""
        for event in self._events(limit=_RECENT) or ():
            failed = event.resource_status == "UPDATE_FAILED"
            if failed and event.physical_resource_id == stack.id:
                return str(event.resource_status_reason)
        return str(stack.stack_status_reason)

    def _is_as_before(self, stack: Any) -> bool:
        """Return whether the PATCH has left no trace."""
        return (stack.stack_status, stack.updated_time) == self._before

    def _update(self, stack: Any, body: Mapping[str, Any], state: str) -> ProbeResult:
        """Ask Heat to update the stack, unless a running update does not allow another one. What
        ``body`` does not name stays as it is.

        Rollback is disabled, from now on: Heat would give what has just moved back to the lost
        member, without a proof, if the update fails.
        """
        before = (stack.stack_status, stack.updated_time)
        try:
            reach("patch.before")
            with self._updates.sending(f"update stack {self._stack}"):
                update = self._cloud.heat.stacks.update
                options = {"existing": True, "disable_rollback": True}
                update(stack_segments(self._stack), **options, **body)
        except CloudError as error:
            if error.code == "CONFLICT":
                return ProbeResult(f"{state}, and {error.message}")
            if error.code == "SERVER_ERROR":
                error.remedy += _ANOTHER_S_TRUST
            if error.unknown:  # it may be running
                self._before, self._sent_at = before, self._clock()
            raise
        reach("patch.after")
        self._before, self._sent_at = before, self._clock()
        self._sends += 1
        return ProbeResult(f"{state}, and the update has just been sent")


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
    patch = _PatchWait(cloud, stack, _ParametersChange(cloud, parameters, keep), limit)
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
    patch = _PatchWait(cloud, stack, _TemplateChange(cloud, template, keep), limit)
    what = f"stack {stack} to carry its new template"
    patched: Patched = cloud.wait(patch.step, what=what, limit=limit)
    return patched


def declared_parameters(cloud: Cloud, stack: str) -> list[str]:
    """Return the names of the parameters that a stack's template declares. Raises `CloudError`."""
    return _declared(stack_shown(cloud, stack).parameters)


def _declared(shown: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in shown if not name.startswith(_PSEUDO))


def unknown_parameter(stack: str, names: str, known: Collection[str]) -> CloudError:
    """Return the error for parameters that the template of a stack lacks. Heat would ignore
    them."""
    return CloudError(
        "UNKNOWN_PARAMETER",
        f"Stack {stack} has no parameter {names}; it has: {', '.join(sorted(known)) or 'none'}",
        remedy="Declare the parameter in the stack's template or correct the group file.",
    )


def refuse_update(cloud: Cloud, stack: str, **body: Any) -> None:
    """Refuse an update of a stack that Heat would not accept, by Heat's preview of it: Heat checks
    types and constraints of the parameters, and the template. Nothing is changed.

    ``body``: of the update, ``parameters`` or ``template``; what it does not name stays. Heat
    ignores parameters that the template lacks. Raises `CloudError`, BAD_REQUEST with Heat's words
    if it refuses.
    """
    address = stack_shown(cloud, stack).identifier
    try:
        cloud.heat.stacks.preview_update(stack_segments(address), existing=True, **body)
    except CloudError as error:
        error.unknown = False  # a PATCH by its method, which changes nothing
        raise


Rows = Callable[[], list[ListedResource]]
"""Returns the resources of a stack, as of `rows_of`; raises `CloudError`."""


class _StackChange(ABC):
    """What a stack is to be given. ``what``: its name in the update and in messages; ``body``: of
    the update."""

    what: str

    def __init__(
        self, cloud: Cloud, wanted: Mapping[str, Any], keep: Callable[[], KeptParts]
    ) -> None:
        self.body: Mapping[str, Any] = {self.what: wanted}
        self._cloud, self._wanted, self._keep = cloud, wanted, keep

    @abstractmethod
    def carried_by(self, stack: Any) -> bool | None:
        """Return whether the stack has it; None if Heat hides that."""

    def refuse(self, stack: str, rows: Rows | None) -> None:
        """Raise `CloudError` if the update would take what is to be kept. ``rows``: reads those of
        the stack; None: they are still to be asked for."""
        refuse_marked(self._cloud, stack, self._keep(), rows=rows and rows())


class _ParametersChange(_StackChange):
    what = "parameters"

    def carried_by(self, stack: Any) -> bool | None:
        current = stack.parameters
        unknown = sorted(set(self._wanted) - set(current))
        if unknown:
            raise unknown_parameter(stack.identifier, ", ".join(unknown), _declared(current))
        if drifted(self._wanted, current):
            return False
        return None if any(current[name] == _HIDDEN for name in self._wanted) else True


class _TemplateChange(_StackChange):
    what = "template"

    def carried_by(self, stack: Any) -> bool | None:
        return same_template(self._wanted, template_of(self._cloud, str(stack.identifier)))

    def refuse(self, stack: str, rows: Rows | None) -> None:
        keep = self._keep()
        refuse_marked(self._cloud, stack, keep, rows=rows and rows())
        refuse_template(self._cloud, stack, self._wanted, keep)


def same_template(wanted: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Return whether Heat's JSON of a template is the wanted one."""
    return bool(load_json(json.dumps(wanted, default=str), "template") == dict(shown))


class _PatchWait(_UpdateWait):
    def __init__(
        self,
        cloud: Cloud,
        stack: str,
        wanted: _StackChange,
        limit: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(cloud, stack, limit, clock)
        self._wanted = wanted
        self._looked = False

    def step(self) -> ProbeResult:
        if self._looked:
            return self._running() or self._step(None)
        self._looked = True
        # The first look mostly sends the update: what that would replace is read at the same time.
        with alongside(lambda: rows_of(self._cloud, self._stack)) as rows:
            return self._step(rows)

    def _step(self, rows: Rows | None) -> ProbeResult:
        stack, action, status = self._look()
        state = f"it is {stack.stack_status}"
        carries = self._wanted.carried_by(stack)
        if status == "IN_PROGRESS":
            if self._before is None and not carries and action == "UPDATE":
                return self._send(stack, rows)
            self._began()
            if action not in ("UPDATE", "ROLLBACK"):
                return ProbeResult(state)
            return self._unless_left(stack, state, lambda: self._send(stack))
        if self._before is not None:
            return self._ended(stack, carries, state)
        if carries and status == "COMPLETE":
            return ProbeResult(state, done=True, result=self._result(stack, adopted=True))
        return self._send(stack, rows)

    def _ended(self, stack: Any, carries: bool | None, state: str) -> ProbeResult:
        action, _, status = stack.stack_status.partition("_")
        if self._is_as_before(stack):
            if self._updates.unanswered is not None:
                if not (carries and status == "COMPLETE"):
                    if self._updates.allow():
                        return self._send(stack)
                    return self._updates.no_effect_yet(state)
            elif self._clock() - self._sent_at < SETTLE:
                return ProbeResult(f"{state}, as before the update")
            elif status == "FAILED" and self._sends < SENDS:
                return self._send(stack)  # the failure is that of an earlier update
        if cancelled(stack) and carries is not False and self._sends < SENDS:
            return self._send(stack)
        back = action == "ROLLBACK" and not carries
        if status == "FAILED" or back:
            reason = self._why_rolled_back(stack) if back else str(stack.stack_status_reason)
            away = unreachable_behind(reason)
            raise CloudError(
                "STACK_FAILED",
                f"Stack {self._stack} is {stack.stack_status}: "
                f"{'Heat rolled an update back, because ' if back else ''}{reason}",
                remedy="Check the stack's events and correct the cause."
                + (" Find out which other client updates it with rollback." if back else ""),
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
        return self._update(stack, self._wanted.body, f"it is {stack.stack_status}")

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


@dataclass(frozen=True, slots=True)
class Replacement:
    """The result of a successful replacement.

    ``old_server`` and ``server``: ids of the member's server before and after; the same if a
    resource beside the server was replaced. ``status``: the stack's. ``adopted``: this call sent no
    update because the member had been replaced already, or its replacement was running.
    """

    old_server: str
    server: str
    status: str
    adopted: bool


def replace_member(
    cloud: Cloud,
    stack: str,
    member: str,
    *,
    autoscaling_group: str | None,
    resource: str | None,
    server_id: str,
    reason: str,
    limit: float,
    keep: Callable[[], KeptParts] = KeptParts,
) -> Replacement:
    """Make Heat replace a member, whose server is ``server_id``, and wait for the result.

    ``autoscaling_group``: the group resource that the member is in, None for a server of the stack
    itself. ``resource``: only this resource of the member's own stack, and what Heat replaces with
    it; None: the whole member. ``reason``: the reason that Heat shows for the mark. It should
    differ between replacements, since it alone tells a repeat that a ``resource`` other than the
    server was replaced already. ``limit``: seconds in total. ``keep``: returns, right before the
    mark and before the update, what these must not take.

    Safe to repeat. A running update is waited for. One that takes longer than half of the limit is
    superseded, because Heat leaves a stack IN_PROGRESS forever when its engine dies.

    Raises `CloudError` STACK_FAILED with Heat's reason when the update fails, or when Heat keeps
    the member as it is or drops it; GROUP_WOULD_SHRINK when the update would make the group
    smaller; as `refuse_marked`; CONFLICT when the stack is being deleted, or the member is one to
    ``keep``; NOT_FOUND, BAD_REQUEST as `location_of`; TIMEOUT.
    """
    replacing = _ReplacementWait(
        cloud, stack, member, autoscaling_group, resource, server_id, reason, limit, keep
    )
    what = f"{f'{resource} of ' if resource else ''}member {member} of stack {stack} to be replaced"
    replaced: Replacement = cloud.wait(replacing.step, what=what, limit=limit)
    return replaced


class _ReplacementWait(_UpdateWait):
    def __init__(
        self,
        cloud: Cloud,
        stack: str,
        member: str,
        group: str | None,
        resource: str | None,
        server_id: str,
        reason: str,
        limit: float,
        keep: Callable[[], KeptParts],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(cloud, stack, limit, clock)
        self._member = member
        self._group = group
        self._part = resource
        self._server = server_id
        self._reason = reason
        self._keep = keep
        self._patient_until = clock() + limit / 2
        self._marked: bool | None = None  # by this replacement; None: not requested yet
        self._asked = False  # a PATCH was sent, though its answer may have been lost
        self._sized = False  # the group is known to keep its size
        self._marks = ResendPolicy(cloud)

    def step(self) -> ProbeResult:
        return self._running() or self._step()

    def _step(self) -> ProbeResult:
        stack, _, status = self._look()
        state = f"it is {stack.stack_status}"
        if status == "IN_PROGRESS" and self._before is not None:
            self._began()
            return self._unless_left(
                stack, state, lambda: self._send(stack, self._location(), state)
            )
        if status == "IN_PROGRESS" and self._clock() < self._patient_until:
            return ProbeResult(state)
        if status != "IN_PROGRESS" and self._unchanged(stack):
            return ProbeResult(f"{state}, as before the update")
        location = self._location()
        state += f", and {location.name} is {location.resource.status}"
        unseen = self._unanswered(stack)
        ours = self._before is not None and not unseen
        if ours and cancelled(stack) and self._sends < SENDS:
            return self._send(stack, location, state)
        replaced = self._replaced(location)
        if replaced and self._is_complete(location, status):
            done = Replacement(
                self._server, location.server_id, stack.stack_status, not self._asked
            )
            return ProbeResult(state, done=True, result=done)
        if unseen:
            if self._updates.allow():
                return self._send(stack, location, state)
            return self._updates.no_effect_yet(state)
        if ours:
            raise self._failed(stack, location, replaced=replaced)
        if not replaced and location.resource.status != MARKED:
            return self._mark(stack, location, state)
        return self._send(stack, location, state)

    def _unchanged(self, stack: Any) -> bool:
        """Return whether the PATCH has left no trace yet; the older engine starts in a thread."""
        if self._unanswered(stack):
            return False
        return self._is_as_before(stack) and self._clock() - self._sent_at < SETTLE

    def _unanswered(self, stack: Any) -> bool:
        """Return whether a PATCH without an answer has left no trace."""
        return self._is_as_before(stack) and self._updates.unanswered is not None

    def _location(self) -> StackLocation:
        try:
            return locate(
                self._cloud,
                self._stack,
                self._member,
                autoscaling_group=self._group,
                resource=self._part,
            )
        except CloudError as error:
            if error.code == "NOT_FOUND" and self._before is not None:
                error.code = "STACK_FAILED"
            raise

    def _replaced(self, location: StackLocation) -> bool:
        """Return whether the old server or resource has been exchanged."""
        if self._part is None or location.resource.is_server:
            return location.server_id != self._server
        return not location.resource.status.startswith("CHECK") and self._was_marked(location)

    def _was_marked(self, location: StackLocation) -> bool:
        """Return whether this replacement, or an earlier attempt at it, has marked the resource."""
        if self._marked is None:
            events = self._cloud.heat.events.list(
                stack_segments(location.stack), resource_name=segment(location.name)
            )
            self._marked = any(
                event.resource_status == MARKED and event.resource_status_reason == self._reason
                for event in events
            )
        return self._marked

    def _is_complete(self, location: StackLocation, status: str) -> bool:
        """Return whether the new one is complete and the old one is gone, whatever else failed."""
        if not location.resource.status.endswith("COMPLETE") or not location.server_id:
            return False
        if status == "COMPLETE" or location.server_id == self._server:
            return status == "COMPLETE"
        return status == "FAILED" and not server_state(self._cloud, self._server).exists

    def _mark(self, stack: Any, location: StackLocation, state: str) -> ProbeResult:
        if not self._marks.allow():
            return self._marks.no_effect_yet(state)
        self._keep_size(stack, location, location.name if self._part is None else None)
        self._refuse_to_take_others(marking=(location.stack, location.name))
        try:
            with self._marks.sending(f"mark {location.name} of stack {location.stack} unhealthy"):
                # By its id, if the id is usable in a URL: so a new resource of the same name is not
                # hit.
                known = location.resource.physical_id
                self._cloud.heat.resources.mark_unhealthy(
                    stack_segments(location.stack),
                    segment(known if known and "/" not in known else location.name),
                    True,
                    self._reason,
                )
        except CloudError as error:
            if error.code in ("CONFLICT", "NOT_FOUND"):
                return ProbeResult(f"{state}; {error.message}")
            raise
        self._marked = True
        return ProbeResult(f"{state}, and has just been marked unhealthy")

    def _refuse_to_take_others(self, marking: tuple[str, str] | None = None) -> None:
        """Refuse an update that would take a server or volume that the group needs, this one or
        another."""
        keep = self._keep()
        if self._server in keep.members:
            raise CloudError(
                "CONFLICT",
                f"Server {self._server} of member {self._member} carries resources of the group "
                "again, so it is not replaced.",
                remedy=(
                    "Move them off it and replace it: "
                    f"{remedies.command('REPLACE', keep.group, member=self._member)}"
                ),
                retryable=False,
            )
        refuse_marked(self._cloud, self._stack, keep, marking=marking)

    def _keep_size(self, stack: Any, location: StackLocation, marking: str | None) -> None:
        if self._group is not None and not self._sized:
            _refuse_to_shrink(self._cloud, stack, self._group, location.beside, marking)
            self._sized = True

    def _send(self, stack: Any, location: StackLocation, state: str) -> ProbeResult:
        self._keep_size(stack, location, None)
        self._refuse_to_take_others()
        sends, self._asked = self._sends, True
        sent = self._update(stack, {"parameters": {}}, state)
        self._asked = self._sends > sends
        return sent

    def _failed(self, stack: Any, location: StackLocation, *, replaced: bool) -> CloudError:
        what = f"{self._part} of member {self._member}" if self._part else f"member {self._member}"
        if stack.stack_status.startswith("ROLLBACK"):
            why = self._why_rolled_back(stack)
            words = (
                f"Stack {self._stack} is {stack.stack_status}: Heat rolled an update back ({why})"
            )
        elif stack.stack_status.endswith("FAILED"):
            words = f"Stack {self._stack} is {stack.stack_status}: {stack.stack_status_reason}"
        elif replaced:
            words = f"Stack {self._stack} is {stack.stack_status}, but {what} is not complete"
        else:
            words = f"Stack {self._stack} was updated, and Heat kept {what} as it was"
        # Heat shows the cause only as text, so the remedy names both common ones.
        remedy = (
            "Check the stack's events and correct the cause. Heat makes the new server before it "
            "deletes the old one, so the project needs room for one more. If the events say that "
            "an interface could not be detached, the host of the old server is dead: once that is "
            "certain, delete the server, and repeat the replacement. "
            f"{remedies.sentence([need('DELETE_SERVER', server=self._server)], '')}."
        )
        return CloudError(
            "STACK_FAILED",
            f"{words} ({location.name} is {location.resource.status}).",
            remedy=remedy,
            retryable=False,
        )


def _refuse_to_shrink(
    cloud: Cloud,
    stack: Any,
    group: str,
    members: Mapping[str, StackResource],
    marking: str | None,
) -> None:
    """Refuse an update that would leave fewer members than there are.

    ``stack``: as Heat shows it; ``members``: the group's, by name; ``marking``: the one that is
    about to be marked unhealthy, or None. If the template computes the size other than by a value
    or a parameter, it is unknown here and passes.

    Raises `CloudError` GROUP_WOULD_SHRINK.
    """
    template = template_of(cloud, str(stack.identifier))
    kind, properties = Field("Heat", group).of(definitions(template))
    if kind != _AUTOSCALING_GROUP:
        return
    there = [name for name, one in members.items() if not one.status.startswith("DELETE")]
    healthy = sum(
        1 for name in there if name != marking and not members[name].status.endswith("FAILED")
    )
    size = size_after(properties, stack.parameters, healthy)
    if size is None or size >= len(there):
        return
    raise CloudError(
        "GROUP_WOULD_SHRINK",
        f"An update of stack {stack.identifier} would leave {size} members of the {len(there)} in "
        f"group {group}. Heat removes failed members first, then the oldest.",
        remedy=f"Set desired_capacity of {group} to {len(there)} in the stack's template and "
        "update the stack; or scale the group down first.",
        retryable=False,
    )


def size_after(
    properties: Mapping[str, Any], parameters: Mapping[str, Any], healthy: int
) -> int | None:
    """Return how many members an update leaves; None if the template alone does not tell.

    ``properties``: the group's in the template; ``parameters``: the stack's, as Heat shows them;
    ``healthy``: how many members have not failed.
    """
    desired = properties.get("desired_capacity")
    wanted = healthy if desired is None else _number(desired, parameters)
    lower = _number(properties.get("min_size"), parameters)
    upper = _number(properties.get("max_size"), parameters)
    if wanted is None or lower is None or upper is None:
        return None
    # Heat treats a desired capacity of nothing as unset.
    return max(lower, min(upper, wanted or healthy))


def _number(value: Any, parameters: Mapping[str, Any]) -> int | None:
    if isinstance(value, Mapping) and set(value) in ({"get_param"}, {"Ref"}):
        (name,) = value.values()
        value = parameters.get(name) if isinstance(name, str) else None
    try:
        return int(float(value))
    except (TypeError, ValueError):
        return None
