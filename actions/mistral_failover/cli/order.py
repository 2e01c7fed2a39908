# SPDX-License-Identifier: Apache-2.0
"""Commands that start one of the project's workflows and follow it to its end, showing each step.

The steps go to stderr, so stdout has the outcome alone, for people and for machines. Ctrl-C only
stops following: the execution belongs to Mistral. It ends like the time limit, with
``base.UNDER_WAY``.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cliff.show import ShowOne

from mistral_failover.cli import base, connection, status_screen, stopped
from mistral_failover.cli.arguments import Declared, argument
from mistral_failover.cli.progress import Progress
from mistral_failover.convergence.records import JournalKind
from mistral_failover.model.text import clean

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.mistral.client import ExecutionBody
    from mistral_failover.orders.evidence import Evidence, Sign

WAIT = 3600.0  # default seconds for which an order is followed
_FIRST, _GROWTH, _LONGEST = 0.1, 1.5, 1.0  # seconds between two looks
_CUT_SHORT = frozenset({"ERROR", "CANCELLED"})
_ENDED = frozenset({"SUCCESS", "ERROR", "CANCELLED", "PAUSED"})
_WHERE_IT_SAYS = frozenset({"COMPLETE", "RETURNED"})
_CODES = {
    "COMPLETE": base.COMPLETE,
    "BLOCKED": base.BLOCKED,
    "IN_PROGRESS": base.UNDER_WAY,
    "RUNNING": base.UNDER_WAY,
    "PASSED": base.COMPLETE,
}


TIMEOUT = argument(
    "--timeout",
    type=float,
    default=WAIT,
    metavar="SECONDS",
    help=(
        f"how long to follow it (default {WAIT:.0f}); it continues after that, and the exit code "
        f"is {base.UNDER_WAY}"
    ),
)
FOLLOWED = (
    argument("--no-wait", action="store_true", help="only start it: do not follow it to its end"),
    TIMEOUT,
)


class Order(base.ActionCommand, ShowOne):
    """Start ``workflow`` with :meth:`inputs`, follow it, and show the result. Its ``arguments`` are
    to have the group and the reason."""

    workflow = ""
    facts: Mapping[str, Any] = MappingProxyType({})
    """What the order came to, once it was followed."""
    arguments: Declared = FOLLOWED

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the workflow's inputs besides group and because; None for options not given."""
        return {}

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Start, follow, and show."""
        inputs = base.given(
            {
                "group": parsed_args.group,
                **self.inputs(parsed_args),
                "because": parsed_args.because,
            }
        )
        wait = 0.0 if parsed_args.no_wait else parsed_args.timeout
        people = base.for_people(parsed_args)
        facts = self.facts = follow(
            self.app, self.workflow, inputs, group=parsed_args.group, wait=wait, people=people
        )
        if not parsed_args.no_wait:
            self.exit_code = exit_code(facts)
        elif parsed_args.group:
            facts["next"] = rejoin(parsed_args.group)
        shown = worded(facts) if people else facts
        return list(shown), list(shown.values())


SIGNS_COUNT = 15.0
"""Seconds for which an answer may take after the signs were asked for: later they are old."""


def confirm_by_signs(look: Callable[[], Evidence], question: str) -> None:
    """Show what ``look`` finds of a member, and ask. If the answer takes long, look again: signs
    that have changed since are shown, and the question is asked again. Raises CommandFailed."""
    found = look()
    while True:
        asked = time.monotonic()
        said = filter(None, (found["afterwards"], found["sentence"]))
        sys.stderr.write(clean(signs(found) + "".join(f"{each}\n" for each in said)))
        base.confirm(question, yes=False)
        if time.monotonic() - asked <= SIGNS_COUNT:
            return
        before, found = found, look()
        if _meaning(found) == _meaning(before):
            return
        sys.stderr.write("This has changed since it was shown:\n")


def _meaning(found: Evidence) -> list[tuple[str, bool | None]]:
    """Return what the signs say, without their ages, which grow."""
    return sorted((each["about"], each["alive"]) for each in found["signs"])


def signs(found: Evidence) -> str:
    """Return what is known of a member, as lines for the question that follows."""
    at = base.clock(time.time())
    lines = [
        f"{found['member']} of {found['group']}, as far as it is known at {at} UTC:",
        *map(_sign, found["signs"]),
    ]
    return "".join(f"{line}\n" for line in lines)


def _sign(sign: Sign) -> str:
    """Return a sign as a line, with its age; "!" before one that the member is alive."""
    mark = "!" if sign["alive"] else " "
    ago = f" ({base.lasted(sign['ago'])} ago)" if sign["ago"] is not None else " (asked now)"
    return f"  {mark} {sign['about']}: {sign['says']}{ago}"


def rejoin(group: str) -> str:
    """Return the command that follows a group again."""
    return f"failover watch {shlex.quote(group)}"


def worded(facts: dict[str, Any]) -> dict[str, Any]:
    """Format the result of :func:`follow` for people: the holder of a role is shown only for a goal
    that is reached; before, the ``wanted`` member."""
    wanted = "status" in facts and facts["status"] not in _WHERE_IT_SAYS
    return base.worded(
        {"wanted" if wanted and name == "roles" else name: facts[name] for name in facts}
    )


def follow(
    app: Any,
    workflow: str,
    inputs: Mapping[str, Any],
    *,
    group: str | None,
    wait: float,
    people: bool = False,
) -> dict[str, Any]:
    """Start a workflow and follow it for ``wait`` seconds, showing the steps of ``group`` on
    stderr. With a wait of 0 it is only started.

    Returns execution, state (Mistral's), and the execution's result: of its ``outcome`` status,
    reason, roles, seconds; of its error code, message, remedy. A status of IN_PROGRESS is followed
    further, since other workers continue the traversal. That is also so if the execution was ended
    without a result, as a restarted Mistral does with former executions. If Mistral is down, it is
    asked again until the time is over. ``people``: a reason that was shown among the steps is
    shortened. Raises CommandFailed.
    """
    told: set[str] = set()
    execution, facts = _followed(app, workflow, inputs, group, wait, told)
    if people:
        if facts.get("reason") in told:
            facts["reason"] = stopped.short_reason(facts["reason"], facts.get("failure"))
        facts.pop("failure", None)
    return {"execution": execution["id"], "state": execution["state"], **facts}


def execute(
    app: Any, workflow: str, inputs: Mapping[str, Any], *, group: str | None = None, wait: float
) -> ExecutionBody:
    """As :func:`follow`; return Mistral's execution, with its ``output``."""
    execution, _ = _followed(app, workflow, inputs, group, wait, set())
    return execution


def _followed(
    app: Any,
    workflow: str,
    inputs: Mapping[str, Any],
    group: str | None,
    wait: float,
    told: set[str],
) -> tuple[ExecutionBody, dict[str, Any]]:
    from mistral_failover.mistral.client import MistralError

    with connection.mistral(app) as client, Progress(sys.stderr, "asking Mistral") as tell:
        journal = _JournalPrinter(client, group, tell, told) if wait and group else None
        # We choose the id, so it is known even if the answer is lost.
        identity = str(uuid.uuid4())
        try:
            execution = client.start(
                workflow,
                inputs,
                id=identity,
                description="by the command line",
                namespace=connection.namespace(app),
            )
        except MistralError as error:
            if error.code != "MISTRAL_UNREACHABLE":
                raise
            raise connection.CommandFailed(
                f"{error.message}, so it is unknown whether {workflow} was started; if so, it is "
                f"execution {identity} [{error.code}]"
            ) from None
        return _ExecutionFollower(client, journal, tell, group, wait).to_its_end(
            workflow, execution
        )


class _ExecutionFollower:
    """Polls an execution, and then its group's traversal, until either has ended."""

    def __init__(
        self,
        client: Any,
        journal: _JournalPrinter | None,
        tell: Progress,
        group: str | None,
        wait: float,
    ) -> None:
        self._client, self._journal, self._tell, self._group = client, journal, tell, group
        self._end = time.monotonic() + wait
        self._next = _FIRST
        self._away = ""
        self._needs_a_command = False  # the group's chain does not continue by itself

    def to_its_end(
        self, workflow: str, execution: ExecutionBody
    ) -> tuple[ExecutionBody, dict[str, Any]]:
        """Return the execution as it is at the end, and what it said."""
        identity = execution["id"]
        try:
            while execution["state"] not in _ENDED and self._pause():
                self._told()
                execution = self._asked(lambda: self._client.execution(identity)) or execution
            return self._rest(workflow, execution)
        except KeyboardInterrupt:
            again = f" Follow it again: {rejoin(self._group)}" if self._group else ""
            self._tell(None, "note", f"Not followed any more; it continues.{again}")
            return execution, {}

    def _rest(
        self, workflow: str, execution: ExecutionBody
    ) -> tuple[ExecutionBody, dict[str, Any]]:
        """Return what is left after the execution has ended, or the time for it is over."""
        identity = execution["id"]
        facts = _said(execution)
        cut_short = not facts and execution["state"] in _CUT_SHORT
        if cut_short and self._journal:
            why = f"its execution was ended ({execution['state']}), but what it began continues"
            facts = {"status": "IN_PROGRESS", "reason": why}
            self._tell(None, "note", why)
        while self._journal and facts.get("status") == "IN_PROGRESS" and self._pause():
            if self._needs_a_command:
                break
            self._told()
            facts |= self._asked(lambda: self._group_status(begun=not cut_short)) or {}
        self._told()
        if self._away and execution["state"] not in _ENDED:
            raise connection.CommandFailed(
                f"{workflow} was started as execution {identity}, which could not be followed: "
                f"{self._away}"
            )
        return execution, facts

    def _group_status(self, *, begun: bool) -> dict[str, Any]:
        """Return the group's status. ``begun``: the order has certainly begun something."""
        status = self._status()
        if not begun and not (self._journal and self._journal.tells_of(status["traversal"])):
            why = "its execution was ended before it had begun anything. Give the order again."
            return {"status": "FAILED", "reason": why}
        chain = status["chain"]
        self._needs_a_command = bool(chain and chain["remedy"])
        return {key: status[key] for key in ("status", "reason", "failure", "roles")}

    def _pause(self) -> bool:
        """Wait for a moment; return False when the time is over."""
        left = self._end - time.monotonic()
        if left > 0:
            time.sleep(min(self._next, left))
            self._next = min(self._next * _GROWTH, _LONGEST)
        return left > 0

    def _told(self) -> None:
        if self._journal is None:
            return
        self._asked(self._journal.tell_new)
        if self._tell.on_terminal and (status := self._asked(self._status)):
            self._tell.doing(status_screen.step(status))

    def _status(self) -> Any:
        return self._client.run_action("failover.status", {"group": self._group})

    def _asked(self, question: Callable[[], Any]) -> Any:
        """Return the answer, or None from a Mistral that is away: that is
        shown once, and the command continues."""
        from mistral_failover.mistral.client import MistralError

        try:
            answer = question()
        except MistralError as error:
            if error.code not in connection.AWAY:
                raise
            if not self._away:
                self._tell(None, "note", f"{error.message}: it continues; retrying")
            self._away = error.message
            return None
        self._away = ""
        return answer


def exit_code(facts: Mapping[str, Any]) -> int:
    """Return the exit code for the result of :func:`follow`."""
    if "status" in facts:
        return _CODES.get(str(facts["status"]), base.FAILED)
    if facts["state"] == "SUCCESS":
        return base.COMPLETE
    return _CODES.get(str(facts["state"]), base.FAILED)


class _JournalPrinter:
    """Shows what a group's history says that is newer than this object, and keeps it in
    ``told``."""

    def __init__(self, client: Any, group: str | None, tell: Progress, told: set[str]) -> None:
        self._client, self._group, self._tell, self._told = client, group, tell, told
        self._began: float | None = None
        self._after = 0
        # A new group has no history yet; the order itself reports what is wrong with it.
        self._start = self._after = max((row["id"] for row in self._new(limit=1)), default=0)

    def tell_new(self) -> None:
        for row in self._new():
            if row["kind"] == JournalKind.REFUSED:  # of this order: its result says it
                self._after = row["id"]
                continue
            self._began = self._began or row["at"]
            self._tell(row["at"] - self._began, row["kind"], row["sentence"])
            self._told.add(row["sentence"])
            self._after = row["id"]

    def tells_of(self, traversal: Mapping[str, Any] | None) -> bool:
        """Return whether anything of a traversal is newer than this object."""
        if traversal is None:
            return False
        asked = {"group": self._group, "after": self._start, "limit": 1}
        return bool(
            self._client.run_action("failover.history", asked | {"traversal": traversal["id"]})
        )

    def _new(self, limit: int = 1000) -> list[dict[str, Any]]:
        from mistral_failover.mistral.client import MistralError

        asked = {"group": self._group, "after": self._after, "limit": limit}
        try:
            return list(self._client.run_action("failover.history", asked))
        except MistralError as error:
            if error.code != "UNKNOWN_GROUP":
                raise
            return []


def _said(execution: ExecutionBody) -> dict[str, Any]:
    """Return the outcome that the workflow ended with, and the error, if there is one."""
    output = execution.get("output")
    if not isinstance(output, Mapping):
        return {}
    error = output.get("error")
    error = error if isinstance(error, Mapping) else {"message": error} if error else {}
    report = output.get("outcome") or error.get("report")
    facts = dict(report) if isinstance(report, Mapping) else {}
    for key in ("code", "message", "reasons", "remedy"):
        if error.get(key) and error[key] != facts.get("reason"):
            facts[key] = error[key]
    return facts
