# SPDX-License-Identifier: Apache-2.0
"""Places where a test can make something go wrong; nothing happens there in production.

Each stands where a crash, a pause, an error or a repeat would hurt most: beside what is written to
the state store, what is sent to the cloud, what is handed to somebody else, what is reported. Only
code can arm a hook: no option and no variable of the environment does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

POINTS: Mapping[str, str] = MappingProxyType(
    {
        # alarms and people's requests
        "admit.before": "an alarm was read, and nothing is decided about it",
        "admit.next": "of several alarms in one body some are written down, the others are not",
        "admit.recorded": "within the transaction: the incident is written down",
        "admit.after": "an incident is admitted, and has no traversal yet",
        "order.after": "a person's order is an incident, and has no traversal yet",
        "held.after": "a person admitted what was held back; it has no traversal yet",
        "members.after": "the members were looked at, a replaced one has a new epoch",
        "link.before": "the traversal stands, and its incident does not know of it",
        "link.after": "the incident knows its traversal; nobody works on it yet",
        "launch.before": "a workflow is to be started that nobody waits for",
        "launch.after": "it was started; who asked for it does not know yet",
        "confirm.before": "a person's word for a fence was heard, and nothing is written down",
        "confirm.recorded": "their word is written down; what waits for it is not reopened",
        "confirm.after": "what waited is reopened; nobody works on it yet",
        "sweep.after": "what lay about was found; nobody works on it yet",
        # users' own workflows
        "event.before": "something is committed, and a user's workflow is about to be told",
        "event.after": "Mistral has the user's workflow; that it was told is not written down",
        # the core
        "start.before": "a goal is about to be given; outside of the transaction",
        "start.swapped": "within the transaction: the new traversal is the current one",
        "start.after": "a traversal was started; nobody works on it yet",
        "check.before": "a node is about to be looked at",
        "check.stolen": "within the transaction: a dead owner's lock is broken",
        "check.locked": "within the transaction: the lock is taken, the intent not written",
        "check.after": "the node was looked at; its operation, if any, is handed out",
        "conclude.before": "an operation ended, and nobody knows its outcome",
        "conclude.released": "within the transaction: the lock is free, nobody was told",
        "conclude.reported": "within the transaction: who waits was told",
        "conclude.after": "an outcome is recorded; nobody works on what became ready",
        # the driver
        "advance.before": "a stage is about to be worked off; nothing was looked at",
        "advance.after": "a stage is worked off, and Mistral has not been told",
        "work.next": "a worker knows what became ready, and has handed nothing on",
        # leases
        "renew.before": "a lease is about to be prolonged",
        "renew.after": "a lease was prolonged in the store; its holder has not noticed",
        # the cloud
        "call.before": "the guard permitted a call that changes something; it leaves at once",
        "call.after": "the answer to a call that changes something is there",
        "attach.before": "nothing was sent; a volume is free and is about to be attached",
        "attach.after": "Nova accepted to attach a volume",
        "detach.before": "nothing was sent; a volume is about to be detached",
        "detach.after": "Nova accepted to detach a volume",
        "orphan.before": "nothing was sent; an attachment that Nova does not know is about to go",
        "orphan.after": "Cinder deleted an attachment that Nova does not know",
        "depose.before": "nothing was sent; a lost member's agent is about to be told that it is",
        "depose.after": "the broker keeps the notice for a lost member's agent, if it was reached",
        "workflow.before": "nothing was sent; a workflow of the user's is about to be started",
        "workflow.after": "Mistral has a workflow of the user's",
        "stop.before": "nothing was sent; a lost member's server is about to be stopped",
        "stop.after": "Nova accepted to stop a server",
        "delete.before": "nothing was sent; a lost member's server is about to be deleted",
        "delete.after": "Nova accepted to delete a server",
        "patch.before": "nothing was sent; a stack is about to be updated",
        "patch.after": "Heat accepted to update a stack",
        "replaced.before": "a member has another server, and nobody here has written that down",
        "command.before": "nothing was sent; a member is about to get a command",
        "command.after": "a member's answer to a command is there",
        # what is told
        "report.before": "everything is done, and who asked has not been told",
        "report.after": "the answer for who asked is made",
    }
)
"""Each point's name, and what is true when it is reached."""

BROKER_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "command.published": "the broker has a command; its result is waited for",
        "notice.published": "the broker has a notice of an epoch; nothing else was sent",
        "agent.received": "the agent took a command from its queue, and wrote nothing down",
        "agent.journaled": "the intent is in the journal; the broker still has the command",
        "agent.acknowledged": "the broker forgot the command; nothing runs yet",
        "agent.running": "the command's process runs",
        "agent.ended": "the command's process ended; its outcome is not in the journal",
        "agent.recorded": "the outcome is in the journal; nobody was told",
        "agent.answered": "the broker has the result",
        "agent.deposed": "the agent knows a newer epoch; what it must stop still runs",
        "agent.quiet": "what a deposed agent has to stop is stopped, and journaled",
    }
)
"""The same for what only a real broker and agents reach."""

_hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Say that a point of :data:`POINTS` or :data:`BROKER_POINTS` is reached; costs one comparison
    unless a test armed a hook, which may raise."""
    if _hook is not None:
        _hook(name)


def arm(hook: Callable[[str], None]) -> None:
    """Have ``hook`` called with the name of each point that is reached from now on."""
    global _hook
    _hook = hook


def disarm() -> None:
    """Call nobody any more."""
    global _hook
    _hook = None
