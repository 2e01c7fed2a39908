# SPDX-License-Identifier: Apache-2.0
"""Places where a test can inject a fault; they do nothing in production.

Each is where a crash, a pause, an error or a repeat would do the most harm: next to a write to the
state store, a request to the cloud, a handover to another process, or a report. Only code can arm a
hook: no option and no environment variable does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

POINTS: Mapping[str, str] = MappingProxyType(
    {
        # alarms and operators' orders
        "admit.before": "an alarm was read; nothing is decided about it",
        "admit.next": "of several alarms in one body some are recorded, the others are not",
        "admit.recorded": "within the transaction: the incident is recorded",
        "admit.after": "an incident is admitted and has no traversal yet",
        "order.after": "an operator's order is an incident and has no traversal yet",
        "held.after": "an operator admitted a held alarm; it has no traversal yet",
        "members.after": "the members were checked; a replaced one has a new epoch",
        "link.before": "the traversal exists; its incident does not refer to it yet",
        "link.after": "the incident refers to its traversal; no worker works on it yet",
        "launch.before": "a workflow is about to be started without waiting for it",
        "launch.after": "the workflow was started; the caller does not know yet",
        "confirm.before": "an operator's confirmation of a fence arrived; nothing is recorded",
        "confirm.recorded": "the confirmation is recorded; what waits for it is not reopened",
        "confirm.after": "the waiting work is reopened; no worker works on it yet",
        "sweep.after": "stalled work was found; no worker works on it yet",
        "vacant.before": "room was made; no member was looked for to take the vacant roles",
        "vacant.after": "the goal that fills the vacant roles is current; not worked on yet",
        # users' own workflows
        "event.before": "something is committed; a user's workflow is about to be notified",
        "event.after": "Mistral has the user's workflow; the notification is not recorded",
        # the core
        "start.before": "a goal is about to be set; outside of the transaction",
        "start.swapped": "within the transaction: the new traversal is the current one",
        "start.after": "a traversal was started; no worker works on it yet",
        "check.before": "a node is about to be checked",
        "check.stolen": "within the transaction: a dead owner's lock is broken",
        "check.locked": "within the transaction: the lock is taken, the intent is not recorded",
        "check.after": "the node was checked; its operation, if any, is handed out",
        "conclude.before": "an operation ended; its outcome is not recorded",
        "conclude.released": "within the transaction: the lock is free, no node was notified",
        "conclude.reported": "within the transaction: the waiting nodes were notified",
        "conclude.after": "an outcome is recorded; no worker works on what became ready",
        # the driver
        "advance.before": "a stage is about to run; nothing was checked",
        "advance.after": "a stage has run; Mistral has not been notified",
        "work.next": "a worker knows what became ready and has handed nothing on",
        # leases
        "renew.before": "a lease is about to be renewed",
        "renew.after": "a lease was renewed in the store; its holder does not know yet",
        # the cloud
        "call.before": "the guard permitted a call that changes something; it is sent next",
        "call.after": "the answer to a call that changes something has arrived",
        "attach.before": "nothing was sent; a volume is free and is about to be attached",
        "attach.after": "Nova accepted to attach a volume",
        "detach.before": "nothing was sent; a volume is about to be detached",
        "detach.after": "Nova accepted to detach a volume",
        "orphan.before": (
            "nothing was sent; an attachment that Nova does not know is about to be deleted"
        ),
        "orphan.after": "Cinder deleted an attachment that Nova does not know",
        "depose.before": "nothing was sent; a lost member's agent is about to be notified",
        "depose.after": "the broker keeps the notice for a lost member's agent, if it was reached",
        "workflow.before": "nothing was sent; a user's workflow is about to be started",
        "workflow.after": "Mistral has a user's workflow",
        "restart.before": "nothing was sent; a lost member's server is about to be started again",
        "restart.after": "Nova accepted to start a server",
        "evacuate.before": "nothing was sent; a lost member's server is about to be evacuated",
        "evacuate.after": "Nova accepted to evacuate a server",
        "stop.before": "nothing was sent; a lost member's server is about to be stopped",
        "stop.after": "Nova accepted to stop a server",
        "delete.before": "nothing was sent; a lost member's server is about to be deleted",
        "delete.after": "Nova accepted to delete a server",
        "power.before": "nothing was sent; a host is claimed and is about to be switched off",
        "power.after": "a fence device reported the end of off; the power was not read",
        "power.proven": "the proof that a host is off is recorded; its fence has not ended",
        "patch.before": "nothing was sent; a stack is about to be updated",
        "patch.after": "Heat accepted to update a stack",
        "replaced.before": "a member has another server, and that is not recorded here",
        "command.before": "nothing was sent; a member is about to receive a command",
        "command.after": "a member's answer to a command has arrived",
        "snapshot.before": "nothing was sent; a snapshot of a volume is about to be taken",
        "snapshot.after": "Cinder accepted to take a snapshot",
        "copy.before": "nothing was sent; a volume is about to be made from a snapshot",
        "copy.after": "Cinder accepted to make a volume from a snapshot",
        "uncopy.before": "nothing was sent; a copy or a snapshot is about to be deleted",
        "uncopy.after": "Cinder accepted to delete a copy or a snapshot",
        # rehearsals
        "rehearsal.before": "a rehearsal was prepared; nothing is recorded",
        "rehearsal.begun": "a rehearsal is recorded; no worker works on it yet",
        "rehearsal.ending": "a rehearsal is about to be ended, or recorded as clean",
        "rehearsal.ended": "that is recorded; the caller does not know yet",
        # answers
        "report.before": "everything is done; the caller has no answer yet",
        "report.after": "the answer for the caller is built",
    }
)
"""Each point's name, and what is true when it is reached."""

BROKER_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "command.published": "the broker has a command; its result is waited for",
        "notice.published": "the broker has a notice of an epoch; nothing else was sent",
        "agent.received": "the agent took a command from its queue and recorded nothing",
        "agent.journaled": "the intent is in the journal; the broker still has the command",
        "agent.acknowledged": "the broker dropped the command; nothing runs yet",
        "agent.running": "the command's process runs",
        "agent.ended": "the command's process ended; its outcome is not in the journal",
        "agent.recorded": "the outcome is in the journal; it was not reported",
        "agent.answered": "the broker has the result",
        "agent.deposed": "the agent knows a newer epoch; what it must stop still runs",
        "agent.quiet": "what a deposed agent must stop has stopped, and is in the journal",
    }
)
"""The same for points that only a real broker and agents reach."""

_hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Report that a point of :data:`POINTS` or :data:`BROKER_POINTS` is reached; costs one
    comparison unless a test armed a hook, which may raise."""
    if _hook is not None:
        _hook(name)


def arm(hook: Callable[[str], None]) -> None:
    """Call ``hook`` with the name of each point that is reached from now on."""
    global _hook
    _hook = hook


def disarm() -> None:
    """Remove the hook."""
    global _hook
    _hook = None
