# SPDX-License-Identifier: Apache-2.0
"""Give a member a new server through Heat: mark it unhealthy, then update the stack without
changes.

At the stack's next update Heat replaces every resource that is CHECK_FAILED, in groups and outside
of them, under the same name: it makes the new one first and then deletes the old one. Both have
happened when the stack is COMPLETE and the member has another server. The old server is named by
its id throughout, so that a repeat never hits its successor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote
from typing import Any

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.group_sizes import refuse_to_shrink
from mistral_failover.cloud.heat_replacements import MARKED
from mistral_failover.cloud.patches import SENDS, SETTLE, cancelled, send_update
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.stacks import SERVER, Place, place_of, stack_shown
from mistral_failover.cloud.update_guard import KeptParts, refuse_marked
from mistral_failover.cloud.waits import Look, Repeats

UNPLUGGED = "Failed to detach interface"  # of heat.common.exception.InterfaceDetachFailed


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
    ``keep``; NOT_FOUND, BAD_REQUEST as `place_of`; TIMEOUT.
    """
    replacing = _Replacing(
        cloud, stack, member, autoscaling_group, resource, server_id, reason, limit, keep
    )
    what = f"{f'{resource} of ' if resource else ''}member {member} of stack {stack} to be replaced"
    replaced: Replacement = cloud.wait(replacing.step, what=what, limit=limit)
    return replaced


class _Replacing:
    """The state of one call; each step looks first and then does what is missing."""

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
        self._cloud = cloud
        self._stack = stack
        self._member = member
        self._group = group
        self._part = resource
        self._server = server_id
        self._reason = reason
        self._keep = keep
        self._clock = clock
        self._patient_until = clock() + limit / 2
        self._marked: bool | None = None  # by this replacement; None: not requested yet
        self._before: tuple[str, str | None] | None = None  # as it was when the PATCH was sent
        self._sent_at = 0.0
        self._asked = False  # a PATCH was sent, though its answer may have been lost
        self._sends = 0
        self._sized = False  # the group is known to keep its size
        self._updates, self._marks = Repeats(cloud.settings), Repeats(cloud.settings)

    def step(self) -> Look:
        stack = stack_shown(self._cloud, self._stack)
        self._stack = stack.identifier  # "name/id": no redirect from now on
        state = f"it is {stack.stack_status}"
        action, _, status = stack.stack_status.partition("_")
        if action == "DELETE":
            raise CloudError("CONFLICT", f"Stack {self._stack} is {state[6:]}.", retryable=False)
        if status == "IN_PROGRESS" and self._waits_for_it():
            return Look(state)
        if status != "IN_PROGRESS" and self._unchanged(stack):
            return Look(f"{state}, as before the update")
        place = self._place()
        state += f", and {place.name} is {place.resource.status}"
        unseen = self._unanswered(stack)
        ours = self._before is not None and not unseen
        if ours and cancelled(stack) and self._sends < SENDS:
            return self._send(stack, place, state)
        replaced = self._replaced(place)
        if replaced and self._stands(place, status):
            done = Replacement(self._server, place.server_id, stack.stack_status, not self._asked)
            return Look(state, done=True, result=done)
        if unseen:
            if self._updates.allow():
                return self._send(stack, place, state)
            return self._updates.look(state)
        if ours:
            raise self._failed(stack, place, replaced=replaced)
        if not replaced and place.resource.status != MARKED:
            return self._mark(stack, place, state)
        return self._send(stack, place, state)

    def _waits_for_it(self) -> bool:
        """Return whether to wait for the running update; always for one of this call."""
        if self._before is not None:
            self._before = ("", None)  # whatever it ends in is new
            self._updates.answered()
            return True
        return self._clock() < self._patient_until

    def _unchanged(self, stack: Any) -> bool:
        """Return whether the PATCH has left no trace yet; the older engine starts in a thread."""
        now = (stack.stack_status, stack.updated_time)
        if self._unanswered(stack):
            return False
        return now == self._before and self._clock() - self._sent_at < SETTLE

    def _unanswered(self, stack: Any) -> bool:
        """Return whether a PATCH without an answer has left no trace."""
        now = (stack.stack_status, stack.updated_time)
        return now == self._before and self._updates.unanswered is not None

    def _place(self) -> Place:
        try:
            return place_of(
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

    def _replaced(self, place: Place) -> bool:
        """Return whether the old server or resource has been exchanged."""
        if self._part is None or place.resource.type == SERVER:
            return place.server_id != self._server
        return not place.resource.status.startswith("CHECK") and self._was_marked(place)

    def _was_marked(self, place: Place) -> bool:
        """Return whether this replacement, or an earlier attempt at it, has marked the resource."""
        if self._marked is None:
            with translated(f"read the events of {place.name} in stack {place.stack}"):
                events = self._cloud.heat.events.list(place.stack, resource_name=place.name)
                self._marked = any(
                    event.resource_status == MARKED and event.resource_status_reason == self._reason
                    for event in events
                )
        return self._marked

    def _stands(self, place: Place, status: str) -> bool:
        """Return whether the new one is complete and the old one is gone, whatever else failed."""
        if not place.resource.status.endswith("COMPLETE") or not place.server_id:
            return False
        if status == "COMPLETE" or place.server_id == self._server:
            return status == "COMPLETE"
        return status == "FAILED" and not server_state(self._cloud, self._server).exists

    def _mark(self, stack: Any, place: Place, state: str) -> Look:
        if not self._marks.allow():
            return self._marks.look(state)
        self._keep_size(stack, place, place.name if self._part is None else None)
        self._spare_others(marking=(place.stack, place.name))
        try:
            with self._marks.sending(f"mark {place.name} of stack {place.stack} unhealthy"):
                # By its id, if the id is usable in a URL: so a new resource of the same name is not
                # hit.
                known = place.resource.physical_id
                self._cloud.heat.resources.mark_unhealthy(
                    place.stack,
                    known if known and "/" not in known else place.name,
                    True,
                    self._reason,
                )
        except CloudError as error:
            if error.code in ("CONFLICT", "NOT_FOUND"):
                return Look(f"{state}; {error.message}")
            raise
        self._marked = True
        return Look(f"{state}, and has just been marked unhealthy")

    def _spare_others(self, marking: tuple[str, str] | None = None) -> None:
        """Refuse an update that would take a server or volume that the group needs, this one or
        another."""
        keep = self._keep()
        if self._server in keep.members:
            raise CloudError(
                "CONFLICT",
                f"Server {self._server} of member {self._member} carries resources of the group "
                "again, so it is not replaced.",
                remedy=(
                    f"Move them off it and replace it: failover replace {quote(keep.group)} "
                    f"{quote(self._member)}"
                ),
                retryable=False,
            )
        refuse_marked(self._cloud, self._stack, keep, marking=marking)

    def _keep_size(self, stack: Any, place: Place, marking: str | None) -> None:
        if self._group is not None and not self._sized:
            refuse_to_shrink(self._cloud, stack, self._group, place.beside, marking)
            self._sized = True

    def _send(self, stack: Any, place: Place, state: str) -> Look:
        self._keep_size(stack, place, None)
        self._spare_others()
        before = (stack.stack_status, stack.updated_time)
        self._asked = True
        try:
            send_update(self._cloud, self._stack, {"parameters": {}}, self._updates)
        except CloudError as error:
            if error.code == "CONFLICT":
                self._asked = False
                return Look(f"{state}; {error.message}")
            if error.unknown:
                self._before, self._sent_at = before, self._clock()
            raise
        self._before, self._sent_at = before, self._clock()
        self._sends += 1
        return Look(f"{state}, and the update has just been sent")

    def _failed(self, stack: Any, place: Place, *, replaced: bool) -> CloudError:
        what = f"{self._part} of member {self._member}" if self._part else f"member {self._member}"
        if stack.stack_status.endswith("FAILED"):
            words = f"Stack {self._stack} is {stack.stack_status}: {stack.stack_status_reason}"
        elif replaced:
            words = f"Stack {self._stack} is {stack.stack_status}, but {what} is not complete"
        else:
            words = f"Stack {self._stack} was updated, and Heat kept {what} as it was"
        remedy = (
            "Check the stack's events and correct the cause. Heat makes the new server before it "
            "deletes the old one, so the project needs room for one more."
        )
        if UNPLUGGED in words:
            remedy = (
                "Heat unplugs the old server first, which fails on a dead host. Once it is "
                f"certain that the host is dead: openstack server delete {self._server}. Then "
                "repeat the replacement: Heat makes a new server for the deleted one."
            )
        return CloudError(
            "STACK_FAILED",
            f"{words} ({place.name} is {place.resource.status}).",
            remedy=remedy,
            retryable=False,
        )
