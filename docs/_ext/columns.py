# SPDX-License-Identifier: Apache-2.0
"""What the tables and columns of the state store hold, for the generated page.

This is not in the tables themselves: comments of the database would be part of its schema, and each
better word a migration. A test checks that it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping

TABLES: Mapping[str, str] = {
    "groups": "What is protected: one row for each group, which its other rows name.",
    "definitions": "What users gave for the groups: what is defined, what is in force, and those "
    "of kept traversals.",
    "goals": "The goals of the groups. A rollback goes back to one of them.",
    "members": "The servers behind a group's names, as they were last seen, and their epochs.",
    "former_members": "Members that left a group, also by its deletion. If one comes back, its "
    "epoch continues from here.",
    "traversals": "The traversals. A group has one current traversal.",
    "resources": "One row for each record: something that a goal wanted, with its lock.",
    "nodes": "The sync points of the current traversals: how many predecessors of a node have not "
    "reported yet. The node `end` is the traversal itself. Deleted with the next traversal.",
    "edges": "Which node waits for which in the current traversals.",
    "operations": "The ledger: one row for each create, update or delete, written before its first "
    "call. A repeat with the same key finds its own row.",
    "incidents": "Alarms and orders: what arrived, and the decision.",
    "observations": "What was last seen of a group. One row for each group.",
    "service_changes": "Since when the word of a group was so, until its next row: for the "
    "availability of the last 31 days.",
    "host_fences": "The fences of compute hosts, one row for each host, for all projects: who "
    "fences it now, and the last proof that it was off.",
    "blocked_clients": "Clients of the storage that a fence has blocked, for all projects. Deleted "
    "when the block is lifted.",
    "rehearsals": "Rehearsals of the groups' failovers. Each is carried out in a group of its own, "
    "which is forgotten when it is clean.",
    "rehearsed_roles": "Each role and each member that was rehearsed for it, with the last "
    "rehearsal of the two.",
    "plans": "Plans that can be started. The latest 20 of a group are kept, for a day.",
    "deliveries": "Signed alarms that a webhook accepted, to recognise a repeated request.",
    "journal": "One sentence for each step, in the order in which they were written.",
    "numbers": "Generates growing numbers for the order of other tables' rows. Always empty.",
    "totals": "The counters of the metrics, in shards, so that groups rarely wait for each other.",
}
"""By table, without its prefix."""

EVERYWHERE: Mapping[str, str] = {
    "project_id": "the project that it belongs to, as Keystone names it",
    "group_id": "the group that it belongs to",
    "goal_version": "the goal: SHA-256 of its canonical JSON",
    "resource_id": "the record that it concerns",
    "traversal_id": "the traversal that it belongs to",
    "created_at": "when it was first written",
    "number": "grows from one row to the next: the order, independent of clocks",
}
"""What a name means in each table without its own text."""

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "groups": {
        "id": "UUID that follows from project and name",
        "name": "the group's name, unique in the project",
        "definition_version": (
            "version of the definition of the current traversal; before the first one, as `defined`"
        ),
        "defined": "version of the definition that the user gave last",
        "in_force": (
            "version of the definition of the last traversal that reached its goal; empty: the "
            "group is not in service"
        ),
        "current_traversal": "the current traversal; swapped to start another one",
        "last_complete_goal": "version of the goal that was reached last",
        "pause": "`by`, `because`, `since`; null: not paused",
        "maintenance": "the same with `until` and `members`; stays after its end",
        "stack_name": "the stack of its group file when it first took members; empty without one",
        "stack_id": "the id of that stack; another one of this name needs an operator's word",
        "adopted": "one of the `numbers`, from when an operator last gave that word",
        "restored": "whether its other rows are known to be older than what happened in the cloud",
        "hook": "the user's workflow that receives events (`on_event`)",
        "told": "the last row of the journal that was sent to it",
        "stuck": "the event that could not be delivered, once that was recorded",
        "rehearses": "the group whose failover is rehearsed here; empty: a group of a user",
    },
    "rehearsals": {
        "id": "the id of the group in which it is carried out",
        "group_id": "the group whose failover is rehearsed",
        "outcome": "RUNNING, PASSED, FAILED or ENDED",
        "cause": "why it was started, in words",
        "reason": "why it did not pass, in words",
        "planned": "what it set out to do",
        "report": "what it came to: steps, checks, times; empty while it runs",
        "began_at": "when it was started",
        "ended_at": "since then only its cleanup is left",
        "cleaned_at": "since then nothing of it is left in the cloud",
    },
    "rehearsed_roles": {
        "role": "the role that the member took in the rehearsal",
        "member": "the member",
        "tried_at": "when the last rehearsal of the two began, whatever it came to",
        "outcome": "PASSED or FAILED, of the last one that ended so; RUNNING: none has",
        "at": "when that one began",
        "server_id": "the server on which it was",
        "reason": "why it did not pass, in words",
        "to_service": "the seconds that a failover would take by it",
    },
    "definitions": {
        "version": "SHA-256 of the document's canonical JSON",
        "document": "`document`: the group file, parsed; `types`: its type files",
    },
    "goals": {
        "version": "SHA-256 of the document's canonical JSON",
        "document": "roles, lost members, and each wanted resource",
    },
    "members": {
        "name": "the member's name, as the group file or the autoscaling group has it",
        "server_id": "its server in Nova, as last seen",
        "created_at": "when Nova made that server, which decides who is oldest",
        "epoch": "grows when it is fenced or replaced; a command of an older one does not run",
        "confirmed_epoch": "the epoch for which an operator confirmed that it is off",
        "confirmed_because": "the operator's reason",
    },
    "former_members": {
        "name": "the member's name",
        "server_id": "its last server; another one raises the epoch",
        "epoch": "its last epoch",
    },
    "traversals": {
        "id": "UUID; that of an incident's traversal follows from the incident",
        "status": "IN_PROGRESS, COMPLETE, FAILED, BLOCKED or SUPERSEDED",
        "reason": "the reason of the status, in words",
        "cause": "why it was started, in words",
        "incident_id": "the incident that caused it",
        "graph": "its nodes and edges as planned",
        "started_at": "when it began",
        "ended_at": "when it ended",
        "back": "whether it undoes a failed goal",
        "through": "the last open stage (0: `fence`, to 5: `end`); null: all",
        "follows": "the traversal that it replaced by the engine's own decision",
        "superseded_by": "the traversal that replaced it before it had ended",
        "chain": "Mistral's execution that drives it",
        "definition_version": "version of the definition that its goal is derived from",
        "chains": "how many executions were started for it",
        "failed_node": "the node whose failure is the reason of its status",
    },
    "resources": {
        "id": "the record's UUID",
        "name": "the resource's name in the group file; `fence:` and `replace:` are the engine's",
        "type": "the resource's type",
        "member": "the member that it belongs to, for types that name one",
        "epoch": "the member's epoch in which it was made",
        "action": "the last attempt: INIT (none), CREATE, UPDATE or DELETE",
        "status": "its result: IN_PROGRESS, COMPLETE or FAILED",
        "reason": "the reason of the status, in words; empty if all is well",
        "properties": "the last applied ones; while an operation runs or after its failure, those "
        "that it applies. Null: nothing was tried yet",
        "applied": "the properties of the last create or update that succeeded",
        "physical_id": "what the cloud calls it",
        "attributes": "what its operations returned, for `get_attr`",
        "requires": "ids of the records that it waited for",
        "goal_version": "the goal that it was made for; later, the last one that it reached",
        "replaces": "the record that it replaces",
        "replaced_by": "the record that replaces it",
        "condemned_for": "the goal for which another one must be made, because this one cannot "
        "become what that goal wants",
        "given_up": "the error's code for which its last operation was given up, to be repeated by "
        "another worker; null: it was not",
        "asked": "a request of its last operation that has no answer yet; null: there is none",
        "settles_at": "the time until which that request may still take effect",
        "owner": "the owner of its lock; null: it is free",
        "token": "grows with each owner; a result with an older one changes nothing",
        "lease_until": "the time until which its owner counts as live",
        "atomic_key": "grows with each change of the row; an update with an older one fails",
        "generation": "grows with each operation whose outcome is known, or that replaces one "
        "whose outcome is not; part of the operation's key",
    },
    "nodes": {
        "node": "`update:` or `cleanup:` and the record's id; `end`",
        "status": "WAITING, DONE, FAILED or BLOCKED",
        "remaining": "how many predecessors have not reported; at 0 it is ready",
        "wanted": "for an update: name, type, properties and requirements, from the goal",
        "output": "its report: name, id and attributes, for `get_attr` of its successors",
        "reason": "why it failed or is blocked",
        "deferred_to": "the owner of the lock at the last try; its conclusion triggers the node",
        "deferred_at": "when that was",
        "stage": "its stage (0: `fence`, to 5: `end`); never earlier than those that it waits for",
        "waiting_for": "what it waits for after a transient failure; null: nothing",
        "waiting_since": "when the first try failed, later by the time in which tries worked",
        "next_try": "when its operation may be tried again",
        "tries": "the number of tries since then",
        "own_since": "since when each try has failed with an error that has a patience of its own",
        "stopped_since": "when it first failed or was blocked; kept while a sweep tries it again",
        "again_at": "when a sweep tries it again at the earliest",
    },
    "edges": {
        "node": "the node that waits",
        "predecessor": "the node that it waits for",
    },
    "operations": {
        "key": "UUID that follows from record, goal, verb and generation; the id of its commands",
        "traversal_id": "the last traversal that handed it out",
        "verb": "create, update or delete",
        "status": "started, done, failed, unknown (it may have taken effect), or overtaken "
        "(unknown, and a later one of the record is done)",
        "attempts": "how often it was handed out",
        "owner": "its last owner",
        "token": "the lock's token of that owner",
        "intent": "`properties` that it applies, `previous`: those applied before",
        "result": "`physical_id`, `attributes`, `error`; null: it has not ended",
        "started_at": "when its intent was written",
        "ended_at": "when its outcome was written",
        "waiting_for": "the service that does not answer it now; null: none, or it does not run",
        "waiting_since": "since when",
    },
    "incidents": {
        "id": "UUID that follows from the alarm itself, so that a repeat is the same incident",
        "group_id": "the group that it concerns; null: unknown, or the incident of a host",
        "source": "the kind of alarm, or `operator` for an order",
        "fact": "what the alarm says: the group, the lost members or the host",
        "order": "the verb and its inputs; of an alarm, if an operator admitted it",
        "payload": "the alarm or order as it arrived",
        "decision": "ADMITTED, HELD, IGNORED, DUPLICATE, DISMISSED or REFUSED",
        "sentence": "why, in words",
        "duplicates": "the number of repeats",
        "traversal_id": "the traversal that it started",
        "decided_at": "when the present decision was taken",
        "first_at": "when it first arrived",
        "last_at": "when it last arrived",
        "rule": "the rule of admission that decided; empty: none",
        "firing": "whether the alarm fired; false: it cleared",
        "series": "the same whenever the same alarm fires or clears; empty: the kind has none",
        "duplicate_of": "the incident on which a DUPLICATE is counted",
        "execution": "Mistral's execution that started the traversal",
        "said": "grows with each report, first or repeated: the greatest is the latest of a series",
        "parent": "the incident of the host whose failure it is part of",
    },
    "numbers": {
        "id": "the number; the transaction that takes it deletes its row",
    },
    "observations": {
        "at": "when it was seen",
        "service": "SERVING, DEGRADED, DOWN, UNKNOWN or OUT_OF_SERVICE",
        "since": "since when the service is so",
        "seen": "what was seen of each member and resource, and the reasons for the service",
        "memory": "what this look leaves for the next one, such as where the servers run",
    },
    "service_changes": {
        "at": "since when it was so",
        "service": "SERVING, DEGRADED, DOWN, UNKNOWN or OUT_OF_SERVICE",
    },
    "host_fences": {
        "host": "the compute host, as Nova names it",
        "owner": "who fences it now: execution, action, host and process; null if no process does",
        "token": "grows with each owner, so that an owner that lost the lease changes nothing",
        "lease_until": "the time until which the owner fences it",
        "proof": "what proved that the host was off; null while its fence has none",
        "proven_at": "when it was proven",
        "claimed_at": "when the fence that is running, or the last one, began",
        "nova_seen": "set from the proof on until Nova shows the host up, and no project has it "
        "switched off again before that: the last report of its compute service that Nova showed "
        "since, empty before the first look; the year 9999 while Nova is to be told (:59), or if "
        "an operator had forced the host down before (:58)",
    },
    "blocked_clients": {
        "client": "address, port and nonce, as Ceph names it",
        "volume_id": "the volume that it had open",
        "blocked_at": "right before it was blocked",
    },
    "plans": {
        "id": "UUID that follows from group, order and fingerprint",
        "order": "the verb and its inputs",
        "fingerprint": "of what the plan depends on: if it changes, the plan is stale",
        "world": "what the plan depends on, to show what has changed",
        "expires_at": "the time until which it can be started",
    },
    "deliveries": {
        "digest": "SHA-256 of the request's signature",
        "execution": "Mistral's execution for the alarm",
        "at": "when it was accepted; rows older than a valid signature are deleted",
    },
    "journal": {
        "id": "counts up, never reused",
        "traversal_id": "the traversal that it concerns",
        "incident_id": "the incident that it concerns",
        "kind": "what kind of step it was, such as `admitted`, `traversal`, `complete`, `blocked`",
        "sentence": "the step in words",
        "at": "when it was written",
        "owner": "of a broken lock: its owner",
        "token": "of a broken lock: its token",
    },
    "totals": {
        "shard": "the first digit of the group's id; `-`: no group",
        "name": "what is counted",
        "labels": "the labels' values with a `|` between them, in the order of the counter's",
        "value": "the sum",
        "first_at": "the time of the first counted event",
        "last_at": "when it was last added to",
    },
}
"""By table without its prefix, and column."""


def meaning(table: str, column: str) -> str:
    """Return what a column of a table (without its prefix) holds. Raises KeyError if that is not
    written here."""
    return COLUMNS[table].get(column) or EVERYWHERE[column]
