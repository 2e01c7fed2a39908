# SPDX-License-Identifier: Apache-2.0
"""What the state store's tables and columns hold, for the page that is made of them.

Beside the tables and not in them: as comments of the database they would be part of its schema, and
each better word a migration. A test holds this complete.
"""

from __future__ import annotations

from collections.abc import Mapping

TABLES: Mapping[str, str] = {
    "groups": "What is protected: one row a group, which every other row of it names.",
    "goals": "The goals that groups were given. A rollback goes back to one of them.",
    "members": "The servers behind a group's names, as they were last seen, and their epochs.",
    "traversals": "The walks to goals. A group has one current traversal.",
    "resources": "One row for each record: something that a goal asked for, with its lock.",
    "nodes": "The sync points of the current traversals: how many predecessors of a node have not "
    "reported yet. The node `end` is the traversal itself. Dropped with the next traversal.",
    "edges": "Who waits for whom in the current traversals.",
    "operations": "The ledger: one row for each create, update or delete, written before its first "
    "call. A repeat with the same key meets its own row.",
    "incidents": "Alarms and orders: what was said, and what was decided.",
    "plans": "Plans that can be started. The latest 20 of a group are kept, for a day.",
    "deliveries": "Signed alarms that a webhook took, so that a repeated request is known again.",
    "journal": "One sentence for each step, in the order in which they were written.",
    "numbers": "Gives out numbers that grow, for the order of other tables' rows. Always empty.",
    "totals": "What counters had counted of rows that are forgotten, in shards, "
    "so that groups rarely wait for each other.",
}
"""By table, without its prefix."""

EVERYWHERE: Mapping[str, str] = {
    "project_id": "the project that it belongs to, as Keystone names it",
    "group_id": "the group that it belongs to",
    "goal_version": "the goal: SHA-256 of its canonical JSON",
    "resource_id": "the record that it is about",
    "traversal_id": "the traversal that it belongs to",
    "created_at": "when it was written first",
    "number": "grows from one row to the next: the order, whatever clocks say",
}
"""What a name means in each table that says nothing of its own."""

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "groups": {
        "id": "UUID that follows from project and name",
        "name": "the group's name, one of its kind in the project",
        "definition": "`document`: the group file, parsed; `types`: the type files that came along",
        "definition_version": "SHA-256 of the definition's canonical JSON",
        "current_traversal": "the traversal that counts; swapped to start another one",
        "last_complete_goal": "version of the goal that was reached last",
        "pause": "`by`, `because`, `since`; null: not paused",
        "maintenance": "the same with `until` and `members`; stays when its time is over",
        "hook": "the user's workflow that is told of events (`on_event`)",
        "told": "up to which row of the journal it was told",
        "stuck": "the row of the journal at which it was noted that telling fails",
    },
    "goals": {
        "version": "SHA-256 of the document's canonical JSON",
        "document": "roles, who is lost, and each resource that is wanted",
    },
    "members": {
        "name": "the member's name, as the group file or the autoscaling group has it",
        "server_id": "its server in Nova, as last seen",
        "created_at": "when Nova made that server: who is oldest",
        "epoch": "grows when it is fenced or replaced; a command of an older one does not run",
        "confirmed_epoch": "the epoch in which a person vouched that it is off",
        "confirmed_because": "what made them sure",
    },
    "traversals": {
        "id": "UUID; that of an incident's traversal follows from the incident",
        "status": "IN_PROGRESS, COMPLETE, FAILED, BLOCKED or SUPERSEDED",
        "reason": "why it stands so, in words",
        "cause": "why it was started, in words",
        "incident_id": "the incident that asked for it",
        "graph": "its nodes and edges as they were planned",
        "started_at": "when it began",
        "ended_at": "when it came to an end",
        "back": "whether it undoes a goal that failed",
        "deferrals": "how often work waited for somebody else's lock, once its nodes are dropped",
        "through": "the last stage that may be worked off (0: `fence`, to 5: `end`); null: all",
        "follows": "the traversal whose place it took by the engine's own decision",
        "chain": "Mistral's execution that drives it",
        "chains": "how many executions were started to drive it",
    },
    "resources": {
        "id": "the record's UUID",
        "name": "the resource's name in the group file; `fence:` and `replace:` are the engine's",
        "type": "the resource's type",
        "member": "the member that it sits on, of the types that name one",
        "epoch": "the member's epoch in which it was made",
        "action": "what was tried last: INIT (nothing), CREATE, UPDATE or DELETE",
        "status": "what came of it: IN_PROGRESS, COMPLETE or FAILED",
        "reason": "why it stands so, in words; empty where all is well",
        "properties": "those last applied; while an operation runs or after it failed, those that "
        "it was to apply. Null: nothing was tried yet",
        "applied": "the properties of the last create or update that succeeded",
        "physical_id": "what the cloud calls it",
        "attributes": "what its operations told, for `get_attr`",
        "requires": "names of the resources that it waited for",
        "goal_version": "the goal that it was last brought to",
        "replaces": "the record whose place it takes",
        "replaced_by": "the record that takes its place",
        "condemned_for": "the goal for which another one must be made: it can not become what that "
        "goal wants",
        "owner": "who holds its lock; null: it is free",
        "token": "grows with each owner; what comes under an older one changes nothing",
        "lease_until": "until when its owner counts as alive",
        "atomic_key": "grows with each change of the row: who read an older one changes nothing",
        "generation": "grows with each operation whose outcome is known, or that takes the place "
        "of one whose is not; part of the operation's key",
    },
    "nodes": {
        "node": "`update:` or `cleanup:` and the record's id; `end`",
        "status": "WAITING, DONE, FAILED or BLOCKED",
        "remaining": "how many predecessors have not reported; at 0 it is ready",
        "wanted": "of an update: name, type, properties and what it requires, by the goal",
        "output": "what it reported: name, id and attributes, for `get_attr` of its successors",
        "reason": "why it failed or is blocked",
        "deferred_to": "who held the lock when it was tried last; whose conclusion triggers it",
        "deferred_at": "when that was",
        "deferrals": "how often that was",
        "stage": "its stage (0: `fence`, to 5: `end`); never earlier than one that it waits for",
        "waiting_for": "what it waits for after a failure that passes by itself; null: it does not",
        "waiting_since": "when the first try of this wait failed",
        "next_try": "when its operation may be tried again",
        "tries": "how often it was tried since then",
    },
    "edges": {
        "node": "the node that waits",
        "predecessor": "the node that it waits for",
    },
    "operations": {
        "key": "UUID that follows from record, goal, verb and generation; the id of its commands",
        "traversal_id": "the traversal that handed it out last",
        "verb": "create, update or delete",
        "status": "started, done, failed, unknown (it may have taken effect), or overtaken: that, "
        "and a later one of the record was done",
        "attempts": "how often it was handed out",
        "unknowns": "how often its outcome was not known",
        "owner": "who carried it out last",
        "token": "the lock's token under which that was",
        "intent": "`properties` that it applies, `previous` that were applied before",
        "result": "`physical_id`, `attributes`, `error`; null: it has not ended",
        "started_at": "when its intent was written",
        "ended_at": "when its outcome was",
    },
    "incidents": {
        "id": "UUID that follows from the alarm itself, so that a repeat is the same incident",
        "group_id": "the group that it is about; null: nobody knows yet which",
        "source": "the kind of alarm, or `operator`: a person's order",
        "fact": "what was understood: the group, who is lost, or what was ordered",
        "payload": "what was said, as it came",
        "decision": "ADMITTED, HELD, IGNORED, DUPLICATE, DISMISSED or REFUSED",
        "sentence": "why, in words",
        "duplicates": "how often it was said again",
        "traversal_id": "the traversal that it started",
        "decided_at": "when the present decision was taken",
        "first_at": "when it was heard first",
        "last_at": "when it was heard last",
        "rule": "the rule of admission that spoke; empty: none did",
        "firing": "whether the alarm went off; false: it cleared",
        "series": "the same whenever the same alarm goes off or clears; empty: it has no such word",
        "duplicate_of": "the incident that a DUPLICATE counts on",
        "execution": "Mistral's execution that began the traversal",
        "said": "grows with each word, first or repeated: the greatest is the latest of a series",
    },
    "numbers": {
        "id": "the number; its row goes with the transaction that took it",
    },
    "plans": {
        "id": "UUID that follows from group, inputs and fingerprint",
        "verb": "failover, switchover, failback, replace, rollback or remove",
        "inputs": "what was asked for",
        "fingerprint": "of the world: another one, and the plan is stale",
        "world": "what the plan rests on, to say what has changed",
        "expires_at": "until when it can be started",
    },
    "deliveries": {
        "digest": "SHA-256 of the request's signature",
        "execution": "Mistral's execution that the alarm was taken as",
        "at": "when it was taken; older ones than a signature may be are forgotten",
    },
    "journal": {
        "id": "counts up, never given twice",
        "traversal_id": "the traversal that it is about",
        "incident_id": "the incident that it is about",
        "kind": "what kind of step it was, such as `admitted`, `traversal`, `complete`, `blocked`",
        "sentence": "the step in words",
        "at": "when it was written",
    },
    "totals": {
        "shard": "the first digit of the group's id; `-`: without a group",
        "name": "what is counted",
        "labels": "the labels' values with a `|` between them, in the order of the counter's",
        "value": "the sum",
        "first_at": "when the first of what it counts was",
        "last_at": "when it was last added to",
    },
}
"""By table without its prefix, and column."""


def meaning(table: str, column: str) -> str:
    """What a column of a table (without its prefix) holds. Raises KeyError where that is not
    written here."""
    return COLUMNS[table].get(column) or EVERYWHERE[column]
