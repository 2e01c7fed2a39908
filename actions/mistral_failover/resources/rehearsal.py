# SPDX-License-Identifier: Apache-2.0
"""The operations of what a rehearsal consists of: snapshots, copies, their attachments, and the
application on them, apart from everything else on the member."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mistral_failover.agent.channel.interface import (
    REMEDIES,
    ChannelError,
    Command,
    CommandResult,
)
from mistral_failover.agent.wire import END_REHEARSAL, UNKNOWN_COMMAND, Address
from mistral_failover.cloud import volume_copies, volumes
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.transport import NoLongerNeeded
from mistral_failover.cloud.volume_holders import volume_if_there
from mistral_failover.cloud.waits import ProbeResult
from mistral_failover.convergence.records import Record
from mistral_failover.convergence.waiting import TARGET_DOWN
from mistral_failover.fault_points import reach
from mistral_failover.groups.project_view import ProjectView
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.ids import derived_id
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence
from mistral_failover.model.rehearsal_goal import COPY_PREFIX, SNAPSHOTS_NAME
from mistral_failover.model.rehearsals import SHOWN, RehearsalOutcome, thing_name
from mistral_failover.model.remedies import command
from mistral_failover.model.types import Verb
from mistral_failover.resources.commands import SILENCE, command_member
from mistral_failover.resources.operation_context import OperationContext, member_of
from mistral_failover.resources.watch import WatchfulGuard
from mistral_failover.runtime.errors import ActionError, masked
from mistral_failover.store import rehearsals
from mistral_failover.store.transaction import ProjectTransaction

REHEARSAL_KEY = "failover_rehearsal"
"""The metadata by which a snapshot or a copy is found in the cloud."""


def take_snapshots(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Take a snapshot of each volume; return their ids and times."""
    rehearsal = operation["properties"]["rehearsal"]
    names = {each: thing_name(rehearsal, each) for each in operation["properties"]["volumes"]}
    found = volume_copies.take_snapshots(
        context.cloud, names, {REHEARSAL_KEY: rehearsal}, operation["timeout"]
    )
    spread = found.last - found.first if len(found.ids) > 1 else 0.0
    attributes = {"snapshots": found.ids, "taken_at": found.first, "spread": spread}
    return {"physical_id": None, "attributes": attributes}


def delete_snapshots(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Delete the snapshots, by their names."""
    given = operation["properties"]
    names = [thing_name(given["rehearsal"], each) for each in given["volumes"]]
    volume_copies.delete_snapshots(context.cloud, names, operation["timeout"])
    return {}


def make_copy(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Make a volume from the snapshot of its volume."""
    given = operation["properties"]
    snapshots = operation["inputs"][SNAPSHOTS_NAME]["attributes"]["snapshots"]
    volume_id = volume_copies.copy_of_snapshot(
        context.cloud,
        snapshots[given["volume"]],
        given["size"],
        thing_name(given["rehearsal"], given["volume"]),
        {REHEARSAL_KEY: given["rehearsal"]},
        operation["timeout"],
    )
    return {"physical_id": volume_id, "attributes": {"volume_id": volume_id}}


def delete_copy(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Delete the copy, by its name."""
    given = operation["properties"]
    name = thing_name(given["rehearsal"], given["volume"])
    volume_copies.delete_copy(context.cloud, name, operation["timeout"])
    return {}


def attach_copy(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Attach the copy to the member's server; return device, server_id, attachment_id.

    Nova carries out the requests of a server one after the other, and withdraws none. So there is
    one at a time, and a failover waits for one at most. Raises ActionError REHEARSAL_ENDED if one
    has ended the rehearsal meanwhile.
    """
    _await_turn(context, operation)
    copy = operation["inputs"][f"{COPY_PREFIX}{operation['resource']['name']}"]
    volume_id = str(copy["attributes"]["volume_id"])
    try:
        attributes = volumes.attach(
            context.cloud,
            volume_id,
            operation["properties"]["server_id"],
            operation["timeout"],
            unknown=operation["unknown"],
        )
    except CloudError as error:
        if error.code != TARGET_DOWN:
            raise
        # No other member takes its place.
        raise CloudError(
            "STANDBY_DOWN", error.message, remedy=error.remedy, unknown=error.unknown
        ) from None
    return {"physical_id": volume_id, "attributes": attributes}


def _await_turn(context: OperationContext, operation: OperationDocument) -> None:
    """Wait until no copy of the same rehearsal is being attached to the server whose attachment
    began before this one."""
    rehearsal_id = operation["properties"]["rehearsal"]
    server_id, name = operation["properties"]["server_id"], operation["resource"]["name"]

    def step() -> ProbeResult:
        ended, others = context.request.store.reading(
            lambda tx: (_ended(tx, rehearsal_id), rehearsals.attaching(tx, rehearsal_id, server_id))
        )
        if ended:
            raise ActionError("REHEARSAL_ENDED", ended, REMEDIES["REHEARSAL_ENDED"])
        before = others[: others.index(name)] if name in others else others
        return ProbeResult(f"{', '.join(before)} is being attached", done=not before)

    context.cloud.wait(step, what="the copies before it", limit=operation["timeout"])


def _ended(tx: ProjectTransaction, rehearsal_id: str) -> str | None:
    """Return, in words, that a rehearsal has been ended; None if it has not."""
    row = rehearsals.get(tx, rehearsal_id)
    if row is not None and row["outcome"] == RehearsalOutcome.RUNNING:
        return None
    return "The rehearsal has been ended."


def detach_copy(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Detach the copy from every server that has it."""
    volume_id = operation["resource"]["physical_id"] or _copy_of(context, operation)
    if volume_id is None or volume_if_there(context.cloud, str(volume_id)) is None:
        return {}
    server_id = operation["properties"]["server_id"]
    volumes.detach(context.cloud, str(volume_id), server_id, operation["timeout"])
    return {}


def _copy_of(context: OperationContext, operation: OperationDocument) -> str | None:
    """Return the copy that an attachment without an outcome is about."""
    record_id = operation["resource"]["id"]
    name = f"{COPY_PREFIX}{operation['resource']['name']}"

    def read(tx: ProjectTransaction) -> str | None:
        own = tx.record(record_id)
        records = tx.records(own.group_id) if own is not None else ()
        return next((each.physical_id for each in records if each.name == name), None)

    return context.request.store.reading(read)


def start_rehearsed(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Run the start command, apart from everything else on the member."""
    given = operation["properties"]
    result = _run(_while_it_runs(context, operation), operation, given["start"], given["arguments"])
    if result.exit_code != 0:
        raise _not_passed(operation, given["start"], result, 0)
    return {
        "physical_id": f"{given['server_id']}/{given['start']}",
        "attributes": {"server_id": given["server_id"]},
    }


def end_rehearsed(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """End everything of the rehearsal on the member. What is on a server that is off, or gone, has
    ended."""
    try:
        result = _run(context, operation, END_REHEARSAL, {})
    except ChannelError as error:
        # An agent that was given a later epoch has ended it by itself.
        if error.code not in ("OLD_EPOCH", UNKNOWN_COMMAND):
            if not _unanswered(error):
                raise
            state = server_state(context.cloud, operation["properties"]["server_id"])
            if state.exists and not state.off:
                raise
        return {}
    if result.exit_code != 0:
        raise _not_passed(operation, "the end of the rehearsal", result, 0)
    return {}


def run_check(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Run a check; return its exit code, and the end of its output."""
    given = operation["properties"]
    watching = _while_it_runs(context, operation)
    result = _run(watching, operation, given["command"], given["arguments"])
    output = masked((result.stdout or result.stderr).strip())[-SHOWN:]
    if result.exit_code != given["exit_code"]:
        raise _not_passed(operation, given["command"], result, given["exit_code"])
    return {
        "physical_id": None,
        "attributes": {"exit_code": result.exit_code, "output": output},
    }


def end_on(context: OperationContext, operation: OperationDocument, server_id: str) -> None:
    """Let no copy of a rehearsal of the operation's group be on a server on which its application
    is to start. A copy has the same file systems as the volume itself, by their names and ids, so a
    start command could take the one for the other. The cleanup is under way since the failover
    began; here the agent is told to end the rehearsal at once, and the detach is waited for.

    Raises `ActionError` COPIES_LEFT; as `command_member`, if the agent does not answer.
    """
    group_id, member = operation["group_id"], member_of(operation)
    left = context.request.store.reading(lambda tx: _copies(tx, group_id, server_id))
    if not left:
        return
    for rehearsal_id in left:
        try:
            command_member(context, operation, END_REHEARSAL, {}, server_id, rehearsal=rehearsal_id)
        except ChannelError as error:  # without an answer the start command would get none either
            if error.code != UNKNOWN_COMMAND:
                raise
        except ActionError:
            pass  # something of it still runs; once that has ended, its copies are detached

    def step() -> ProbeResult:
        found = context.request.store.reading(lambda tx: _copies(tx, group_id, server_id))
        names = sorted({name for names in found.values() for name in names})
        return ProbeResult(f"copies of {', '.join(names)} are attached", done=not found)

    try:
        context.cloud.wait(step, what="the copies of a rehearsal", limit=operation["timeout"] / 2)
    except CloudError as error:
        if error.code != "TIMEOUT":
            raise
        raise ActionError(
            "COPIES_LEFT",
            f"{operation['resource']['name']} cannot start on {member['name']} while copies of a "
            f"rehearsal are attached there: {error.message}",
            f"Detach the copies, which are called failover-rehearsal-..., from server {server_id}. "
            "The sweeps delete them.",
            blocked=True,
        ) from None


def _copies(tx: ProjectTransaction, group_id: str, server_id: str) -> dict[str, list[str]]:
    """Return, by rehearsal of a group, of which volumes copies are on a server."""
    found = {}
    for row in rehearsals.unfinished(tx, group_id):
        if names := rehearsals.copies_on(tx, row["id"], server_id):
            found[row["id"]] = names
    return found


def _while_it_runs(context: OperationContext, operation: OperationDocument) -> OperationContext:
    """Return a context whose waits for the agent end soon after the rehearsal has been ended. The
    cleanup, which ends what runs there, begins only then."""
    rehearsal_id, store = operation["properties"]["rehearsal"], context.request.store
    guard = WatchfulGuard(
        context.cloud.guard,
        lambda: store.reading(lambda tx: _ended(tx, rehearsal_id)),
        "the rehearsal has been ended",
    )
    cloud = context.request.cloud(guard)
    return replace(context, cloud=cloud, channel=context.request.channel(cloud, guard))


def _run(
    context: OperationContext, operation: OperationDocument, name: str, arguments: dict[str, Any]
) -> CommandResult:
    given = operation["properties"]
    to = Address(given["group_id"], given["group"], given["on"], given["server_id"])
    asked = Command(
        id=derived_id(operation["key"], name),
        to=to,
        epoch=given["epoch"],
        name=name,
        arguments=dict(arguments),
        limit=min(SILENCE, operation["timeout"]),
        longest=operation["timeout"],
    )
    reach("command.before")
    try:
        result = context.channel.run(replace(asked, rehearsal=given["rehearsal"]))
    except NoLongerNeeded as ended:
        raise ChannelError("REHEARSAL_ENDED", f"{name}: {ended}.", unknown=True) from None
    except ChannelError as error:
        starts, server_id = operation["verb"] != Verb.DELETE, given["server_id"]
        if starts and _unanswered(error) and not server_state(context.cloud, server_id).exists:
            raise ActionError(
                "STANDBY_DOWN",
                f"{name} cannot run on {given['on']}: its server {server_id} does not exist any "
                "more",
                f"Once {given['on']} has a server: {_again(operation)}",
            ) from error
        error.remedy = f"Repair the agent of {given['on']}, then: {_again(operation)}"
        raise
    reach("command.after")
    return result


def _unanswered(error: ChannelError) -> bool:
    """Return whether the agent, or the channel to it, did not answer."""
    return error.code == "NO_ANSWER" or error.transient


def _not_passed(
    operation: OperationDocument, what: str, result: CommandResult, wanted: int
) -> ActionError:
    member = operation["properties"]["on"]
    said = masked((result.stderr or result.stdout).strip())[-500:]
    expected = "" if wanted == 0 else f" instead of {wanted}"
    return ActionError(
        "COMMAND_FAILED",
        f"{what} on {member} ended with {result.exit_code}{expected}: {said}",
        f"Correct it on {member}, then: {_again(operation)}",
    )


def _again(operation: OperationDocument) -> str:
    given = operation["properties"]
    return command("REHEARSE", given["group"], member=given["on"], role=given["role"])


OPERATIONS = (
    take_snapshots,
    delete_snapshots,
    make_copy,
    delete_copy,
    attach_copy,
    detach_copy,
    start_rehearsed,
    end_rehearsed,
    run_check,
)


def observe(view: ProjectView, record: Record, group: str) -> ObservedPresence:  # noqa: ARG001
    """Nothing of a rehearsal is observed: it ends soon."""
    return AS_RECORDED
