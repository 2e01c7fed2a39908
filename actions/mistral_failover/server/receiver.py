# SPDX-License-Identifier: Apache-2.0
"""Receive alarms that were sent to the webhook: authenticate the sender, limit it, have its alarms
decided (`alarms.intake`) and what was admitted started by Mistral. No HTTP in here."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl

from mistral_failover.alarms import intake
from mistral_failover.alarms.alarm import Alarm, read
from mistral_failover.alarms.intake import RecordedAlarm
from mistral_failover.http_server import Refused
from mistral_failover.mistral import event_hooks
from mistral_failover.mistral.client import ExecutionBody, MistralError
from mistral_failover.model.decisions import AdmissionRule
from mistral_failover.model.documents import load_json
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.ids import derived_id
from mistral_failover.runtime.request import Request
from mistral_failover.server.batches import Batches
from mistral_failover.server.secret import SIGNATURE, TIMESTAMP, Secret
from mistral_failover.store import deliveries, groups
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)
PATH = "/v1/alarms"
WORKFLOW, START = "failover.on_event", "failover.start_admitted"
WINDOW = 300.0
"""Seconds that a signed alarm's timestamp may differ from the server's clock."""
_KEPT = (
    2 * WINDOW + 60
)  # a signature may be of the near future, and is remembered to the window's end
RATE, BURST = 10.0, 200.0
"""Alarms per second that are accepted from one sender in the long run, and in a burst."""
ALWAYS = 60.0
"""Seconds in which one alarm about each member is accepted whatever its sender has sent: Aodh sends
an alarm once, and the one that reports a failure must not be lost."""
KNOWN = 5.0
"""Seconds for which the members of the project are remembered for that, so that a flood reads
nothing."""
INVALID = 10
"""Alarms that an invalid request counts as."""
REPEAT = 0.02
"""Alarms that a repeat of a known incident counts as: it starts nothing."""
PORTION = 20
"""Alarms of one request that are decided at a time. Between two portions other requests of the same
sender have their turn."""
DECIDED = 64
"""Alarms of one sender that are decided in one turn at most."""
PENDING = 64
"""Requests of one sender that may wait for their answers at once: half of the connections of the
webhook, so that a slow turn of one sender leaves room for others."""
STARTED = 8
"""Requests whose failovers one execution starts at most: it starts them one after the other."""
AGAIN = 30.0
"""Seconds for which a repeat of an alarm, while its failover is being started, starts no second
execution."""
_SECONDS = re.compile(r"[0-9]{1,12}")
_SAYS = ("group", "kind", "member")  # parameters that the address may add to an alarm


class WorkflowStarter(Protocol):
    """The part of Mistral that is needed here."""

    def start(
        self,
        workflow: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - Mistral's own word
        *,
        id: str | None = None,  # noqa: A002 - Mistral's own word
        description: str = "",
    ) -> ExecutionBody:
        """See ``mistral.client.MistralClient``."""
        ...


@dataclass(frozen=True)
class Delivery:
    """One request: the path below the host, the query string, its headers by name, and its body."""

    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Sender:
    """A way to authenticate: ``how`` it is done, and the ``line`` of the secret's file.

    Senders that sign and senders that have only the token can be told apart. Each has a rate and a
    queue of its own, so none can use up the rate or the time of another one.
    """

    how: Literal["signature", "token"]
    line: int


@dataclass(frozen=True)
class AcceptedAlarms:
    """The answer to an alarm that was accepted: its ``decisions``, and the Mistral ``execution``
    that starts its failovers, None if there is nothing to start. The failure of a host is decided
    by its execution."""

    decisions: Sequence[RecordedAlarm]
    execution: str | None

    @property
    def answer(self) -> dict[str, Any]:
        """The answer in JSON."""
        rows = [
            {
                "decision": each.verdict.decision,
                "sentence": each.verdict.sentence,
                "incident": each.incident,
            }
            for each in self.decisions
        ]
        return {"decisions": rows, "execution": self.execution}


@dataclass(frozen=True)
class _Portion:
    """Some alarms of a request, or its ``whole``, and its signature, None if a token authenticates
    the sender."""

    alarms: Sequence[Alarm]
    signature: str | None
    whole: bool


@dataclass(frozen=True)
class _DecidedPortion:
    """Decisions by the index of the alarm. ``kept``: whether the request's signature is recorded
    already."""

    decisions: Mapping[int, RecordedAlarm]
    kept: bool = False


class AlarmReceiver:
    """Accepts alarms; safe to use from many threads at once.

    It decides itself, so a repeat costs no execution. Mistral starts what was admitted. If Mistral
    does not answer, the sender is asked to repeat the alarm, and a sweep starts it at the latest.
    """

    def __init__(
        self,
        secret: Secret,
        mistral: WorkflowStarter,
        request: Request,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``request``: with the rights of the configuration. ``clock``: seconds since the epoch,
        compared with the senders' timestamps."""
        self._secret = secret
        self._mistral = mistral
        self._request = request
        self._database = request.store
        self._project = request.project_id
        self._clock = clock
        self._queues: dict[Sender, _SenderQueue] = {}  # at most two for each line of the secret
        self._members: Mapping[str, set[tuple[str, str]]] = {}
        self._members_at = -KNOWN
        self._reading = threading.Lock()
        self._lock = threading.Lock()
        self._begun: dict[str, tuple[float, str]] = {}  # incidents: when, and by which execution

    def take(self, delivery: Delivery) -> AcceptedAlarms:
        """Decide on an alarm and have its failovers started. When this returns, all of that is
        recorded.

        Raises Refused.
        """
        sender, signature = self._authenticated(delivery)
        with self._lock:
            if sender not in self._queues:
                self._queues[sender] = _SenderQueue(self._decide, self._start)
            queue = self._queues[sender]
        with queue.place():
            inputs, alarms, first = self._let_in(queue, delivery, signed=signature is not None)
            if any(each.is_host_event for each in alarms):
                # Nova says which members are there, and that takes its time.
                return AcceptedAlarms((), self._passed_on(inputs, signature))
            with self._unavailable_on_errors(partial(self._forget, queue, first)):
                taken = self._decided(queue, alarms, signature)
        if not first:
            rules = [each.verdict.rule for each in taken.decisions]
            queue.rate.charge(-rules.count(AdmissionRule.HEARD_BEFORE) * (1 - REPEAT))
        return taken

    def _let_in(
        self, queue: _SenderQueue, delivery: Delivery, *, signed: bool
    ) -> tuple[dict[str, Any], list[Alarm], set[tuple[str, str]]]:
        """Return the workflow's inputs and the alarms of a request that its sender's rate allows.
        If the rate does not allow it, return also the members because of which it is let in
        nevertheless. Raises Refused."""
        allowed = queue.rate.allows()
        try:
            inputs, alarms = _read(delivery, signed=signed)
        except Refused:
            if not allowed:
                raise _too_many() from None  # what it sent is read only to find an alarm in it
            queue.rate.charge(INVALID - 1)
            raise
        if allowed:
            queue.rate.charge(len(alarms) - 1)
            return inputs, alarms, set()
        if first := self._first_of_members(queue, alarms):
            return inputs, alarms, first
        raise _too_many()

    @contextmanager
    def _unavailable_on_errors(self, undo: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Refuse the request if something fails, mostly because the state store does not answer:
        the sender is to try again. ``undo`` is called before that."""
        try:
            yield
        except Refused:
            raise
        except Exception as error:  # the sender is to try again
            facts = self._request.caught(error, "taking an alarm of the webhook")
            LOG.error("An alarm could not be decided: %s", facts["message"])
            undo()
            raise _unavailable("the state store does not answer") from error

    def _first_of_members(
        self, queue: _SenderQueue, alarms: Sequence[Alarm]
    ) -> set[tuple[str, str]]:
        """Return the known members whose failure these alarms report, if none of the sender about
        them was accepted for that reason within `ALWAYS`. Raises Refused."""
        firing = [each for each in alarms if each.firing]
        if firing and time.monotonic() - self._members_at >= KNOWN:
            self._refresh_members()
        with self._lock:
            now = time.monotonic()
            about = {each for alarm in firing for each in _about(alarm, self._members)}
            first = {each for each in about if now - queue.first.get(each, -ALWAYS) >= ALWAYS}
            queue.first |= dict.fromkeys(first, now)
        return first

    def _forget(self, queue: _SenderQueue, first: Collection[tuple[str, str]]) -> None:
        """Accept alarms about these members again: the sender is to repeat them."""
        with self._lock:
            for each in first:
                queue.first.pop(each, None)

    def _refresh_members(self) -> None:
        """Read the members of the project, as group and name, by their group and by their server,
        unless another request is reading them. Not under the lock that every request needs: a store
        that is away answers after seconds. Raises Refused."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            found: dict[str, set[tuple[str, str]]] = {}
            with self._unavailable_on_errors():
                members = self._database.reading(groups.members_in)
            for each in members:
                for name in (each.group, each.server_id):
                    found.setdefault(name, set()).add((each.group, each.name))
            self._members, self._members_at = found, time.monotonic()
        finally:
            self._reading.release()

    def _decided(
        self, queue: _SenderQueue, alarms: Sequence[Alarm], signature: str | None
    ) -> AcceptedAlarms:
        """Decide on the alarms of a request, portion by portion, and have its failovers started by
        one execution. If this ends half way, the alarms of the former portions are repeats when the
        request is sent again."""
        decisions: list[RecordedAlarm] = []
        kept = False
        for first in range(0, len(alarms), PORTION):
            some = alarms[first : first + PORTION]
            decided = queue.deciding.do(_Portion(some, signature, len(some) == len(alarms)))
            decisions += (decided.decisions[index] for index in range(len(some)))
            kept = decided.kept
        begin = tuple(each.begin.id for each in decisions if each.begin is not None)
        execution = queue.starting.do(begin) if begin else None
        if signature is not None and not kept:
            self._remember(signature, execution or _incident(decisions))
        return AcceptedAlarms(decisions, execution)

    def _decide(self, batch: Sequence[_Portion]) -> list[_DecidedPortion | Exception]:
        """Decide on the alarms of some requests. Repeats of known incidents, usually all of them,
        take one transaction together; each other alarm takes one of its own."""
        answers = self._database.atomically(partial(self._known, batch))
        for number, (portion, found) in enumerate(zip(batch, answers, strict=True)):
            try:
                if isinstance(found, _DecidedPortion):
                    new = {
                        index: intake.take(self._request, alarm)[0]
                        for index, alarm in enumerate(portion.alarms)
                        if index not in found.decisions
                    }
                    answers[number] = replace(found, decisions={**found.decisions, **new})
            except Exception as error:  # one alarm's error must not stop others
                self._request.caught(error, "deciding on an alarm of the webhook")
                answers[number] = error
        event_hooks.after(self._request)
        return answers

    def _known(
        self, batch: Sequence[_Portion], tx: ProjectTransaction
    ) -> list[_DecidedPortion | Exception]:
        """Count the repeats of known incidents in some requests; return their decisions, or the
        error about a signed request that was taken before. A signed request that has nothing else
        and starts nothing is recorded as taken."""
        taken = [each.signature and deliveries.taken(tx, each.signature) for each in batch]
        places = [
            (number, index)
            for number, portion in enumerate(batch)
            for index in range(len(portion.alarms))
            if taken[number] is None
        ]
        alarms = [batch[number].alarms[index] for number, index in places]
        found: list[dict[int, RecordedAlarm]] = [{} for _ in batch]
        for place, recorded in intake.known(self._request, tx, alarms).items():
            number, index = places[place]
            found[number][index] = recorded
        answers: list[_DecidedPortion | Exception] = []
        for portion, before, decisions in zip(batch, taken, found, strict=True):
            complete = portion.whole and len(decisions) == len(portion.alarms)
            begins = any(each.begin is not None for each in decisions.values())
            kept = portion.signature is not None and complete and not begins
            if before is None and portion.signature is not None and kept:
                came_of_it = _incident([decisions[index] for index in sorted(decisions)])
                if not deliveries.take(tx, portion.signature, came_of_it, _KEPT):
                    before = came_of_it  # the same request is twice in this batch
            answer = _DecidedPortion(decisions, kept)
            answers.append(answer if before is None else _replayed(before))
        return answers

    def _start(self, batch: Sequence[tuple[str, ...]]) -> list[str | Exception]:
        """Start one execution for all incidents of some requests that need one. Return for each
        request the execution of its first incident."""
        now = time.monotonic()
        with self._lock:
            kept = {each: got for each, got in self._begun.items() if now - got[0] < AGAIN}
            self._begun = kept
        begun = {each: execution for each, (_at, execution) in kept.items()}
        wanted = [each for some in batch for each in some if each not in begun]
        if fresh := list(dict.fromkeys(wanted)):
            try:
                started = self._mistral.start(
                    START, {"incidents": fresh}, description="admitted by the webhook"
                )
            except MistralError as error:
                LOG.error("The failovers of admitted alarms were not started: %s", error)
                away = _unavailable("Mistral does not answer; the alarm is recorded")
                return [
                    away if any(each in fresh for each in some) else begun[some[0]]
                    for some in batch
                ]
            begun |= dict.fromkeys(fresh, str(started["id"]))
            with self._lock:
                self._begun |= dict.fromkeys(fresh, (now, str(started["id"])))
        return [begun[some[0]] for some in batch]

    def _remember(self, signature: str, came_of_it: str) -> None:
        """Record that a signed request was taken. Raises Refused if another one was faster."""
        take = partial(
            deliveries.take,
            signature=signature,
            execution=came_of_it,
            keep=_KEPT,
        )
        if not self._database.atomically(take):
            raise _replayed(came_of_it)

    def _authenticated(self, delivery: Delivery) -> tuple[Sender, str | None]:
        """Return the sender, and the signature, None if a token authenticates the sender."""
        headers = {name.lower(): value for name, value in delivery.headers.items()}
        signature = headers.get(SIGNATURE.lower())
        if signature is not None:
            return self._signed(signature, headers.get(TIMESTAMP.lower(), ""), delivery)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            token = delivery.path.removeprefix(PATH).removeprefix("/")
        line = self._secret.line_of_token(token.strip())
        if line is None:
            raise _unauthorised()
        return Sender("token", line), None

    def _signed(
        self, signature: str, timestamp: str, delivery: Delivery
    ) -> tuple[Sender, str | None]:
        line = self._secret.line_of_signature(signature, timestamp, delivery.body)
        if line is None:
            raise _unauthorised()
        if delivery.path.rstrip("/") != PATH:
            raise Refused(404, "NOT_FOUND", "there is nothing here", f"POST to {PATH}.")
        now = self._clock()
        if not _SECONDS.fullmatch(timestamp) or abs(now - int(timestamp)) > WINDOW:
            raise Refused(
                401,
                "TOO_LATE",
                f"{TIMESTAMP} is not within {WINDOW:.0f} s of this server's clock ({now:.0f})",
                "Sign it again with the current time; synchronise both clocks by NTP.",
            )
        return Sender("signature", line), signature

    def _passed_on(self, inputs: Mapping[str, Any], signature: str | None) -> str:
        """Have an execution decide on an alarm, unless the signed request was taken before. The
        execution's id follows from the signature, so a repeat after a crash in between starts
        nothing twice."""
        identity = signature and derived_id("alarm", self._project, signature)
        with self._unavailable_on_errors():
            if signature is not None:
                known = self._database.reading(lambda tx: deliveries.taken(tx, signature))
                if known is not None:
                    raise _replayed(known)
            try:
                started = self._mistral.start(
                    WORKFLOW, inputs, id=identity, description="by the webhook"
                )
            except MistralError as error:
                LOG.error("An alarm was not taken: %s", error)
                raise _unavailable("Mistral does not answer") from error
            execution = str(started["id"])
            if signature is not None:
                self._remember(signature, execution)
        return execution


class _SenderQueue:
    """What the requests of one sender wait for: its rate, and its turns to decide and to start.
    Requests of other senders wait for their own."""

    def __init__(
        self,
        decide: Callable[[Sequence[_Portion]], Sequence[_DecidedPortion | Exception]],
        start: Callable[[Sequence[tuple[str, ...]]], Sequence[str | Exception]],
    ) -> None:
        self.rate = _RateLimit(RATE, BURST)
        self.first: dict[tuple[str, str], float] = {}
        """By member, when an alarm was accepted above the rate."""
        self.deciding = Batches(decide, DECIDED, lambda portion: len(portion.alarms))
        self.starting = Batches(start, STARTED)
        self._places = threading.BoundedSemaphore(PENDING)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place while a request waits for its answer. Raises Refused if there is none."""
        if not self._places.acquire(blocking=False):
            raise _too_many()
        try:
            yield
        finally:
            self._places.release()


class _RateLimit:
    """A bucket of so many tokens that fills at a rate. It may owe tokens: what a request costs is
    known only after it was let in."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = burst, time.monotonic()
        self._lock = threading.Lock()

    def allows(self) -> bool:
        """Return whether one more is allowed now."""
        with self._lock:
            now = time.monotonic()
            self._left = min(self._burst, self._left + (now - self._at) * self._rate)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def charge(self, cost: float) -> None:
        """Take more tokens for a request that was allowed, or give some back."""
        with self._lock:
            self._left -= cost


def _about(
    alarm: Alarm, members: Mapping[str, set[tuple[str, str]]]
) -> Collection[tuple[str, str]]:
    """Return the member that an alarm is about, as group and name, the name empty if it names none;
    nothing if the project has no such member."""
    group, member = alarm.group, alarm.member
    if group and member:
        return members.get(group, set()) & {(group, member)}
    for server in alarm.servers:
        found = {each for each in members.get(server, ()) if group in (None, "", each[0])}
        if found:
            return found
    if group and group in members and not (alarm.servers or alarm.others):
        return [(group, "")]
    return ()


def _incident(decisions: Sequence[RecordedAlarm]) -> str:
    """Return the first incident that was recorded or counted; empty if there is none."""
    return next((each.incident for each in decisions if each.incident is not None), "")


def _read(delivery: Delivery, *, signed: bool) -> tuple[dict[str, Any], list[Alarm]]:
    """Return the inputs of the workflow, and the alarms in them. Raises Refused."""
    said = _said(delivery.query)
    if signed and said:
        raise Refused(
            400,
            "BAD_REQUEST",
            "the address of a signed alarm has parameters, but only its body is signed",
            "Put group and member into the body.",
        )
    try:
        body: dict[str, Any] = load_json(delivery.body, "body")
    except InvalidDocument as error:
        raise Refused(400, "BAD_REQUEST", error.message, error.remedy) from None
    try:
        return {"body": body, **said}, read(body, **said)
    except InvalidDocument as error:
        where = f"{error.path}: " if error.path else ""
        raise Refused(400, error.code, where + error.message, error.remedy) from None


def _said(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    said = dict(pairs)
    if unknown := sorted(set(said) - set(_SAYS)):
        raise Refused(
            400,
            "BAD_REQUEST",
            f"the address has the unknown parameters {', '.join(unknown)}",
            f"Known parameters: {', '.join(_SAYS)}.",
        )
    # A sender's variable without a value. Without a member it would be about the active one.
    if empty := sorted(key for key in said if not said[key].strip()):
        raise Refused(
            400,
            "BAD_REQUEST",
            f"the address has no value for {', '.join(empty)}",
            "Fill it in, or leave the parameter out.",
        )
    if len(pairs) > len(said):
        raise Refused(
            400,
            "BAD_REQUEST",
            "the address has a parameter twice",
            f"Give each of {', '.join(_SAYS)} once at most.",
        )
    return said


def _unauthorised() -> Refused:
    return Refused(
        401,
        "UNAUTHORISED",
        "the sender did not prove that it knows the secret",
        f"Sign it ({TIMESTAMP}, {SIGNATURE}), or use the token: see docs/server.md.",
    )


def _replayed(came_of_it: str) -> Refused:
    return Refused(
        409,
        "REPLAYED",
        "this request was taken before",
        "Nothing to do. To send the alarm again, sign it again.",
        taken_as=came_of_it,
    )


def _too_many() -> Refused:
    return Refused(
        429,
        "TOO_MANY",
        "this sender sent too many alarms at once",
        "Send it again in a few seconds.",
    )


def _unavailable(why: str) -> Refused:
    return Refused(503, "UNAVAILABLE", why, "Send it again, or to the other server.")
