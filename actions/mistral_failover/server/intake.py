# SPDX-License-Identifier: Apache-2.0
"""Processing of an alarm that was sent to the webhook: authenticate the sender, detect repeats, and
start an execution. No HTTP in here."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl

from mistral_failover.alarms import adapters
from mistral_failover.mistral.client import ExecutionBody, MistralError
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.ids import derived_id
from mistral_failover.server.secret import Secret
from mistral_failover.store import deliveries
from mistral_failover.store.database import Database

LOG = logging.getLogger(__name__)
PATH = "/v1/alarms"
WORKFLOW = "failover.on_event"
TIMESTAMP, SIGNATURE = "X-Failover-Timestamp", "X-Failover-Signature"
WINDOW = 300.0
"""Seconds that a signed alarm's timestamp may differ from the server's clock."""
_KEPT = (
    2 * WINDOW + 60
)  # a signature may be of the near future, and is remembered to the window's end
RATE, BURST = 10.0, 200.0
"""Alarms per second that are accepted from one sender in the long run, and in a burst."""
INVALID = 10
"""Alarms that an invalid request counts as."""
_SECONDS = re.compile(r"[0-9]{1,12}")
_SAYS = ("group", "kind", "member")  # parameters that the address may add to an alarm


class Refused(Exception):
    """An alarm is refused: the HTTP status, a stable code, the reason, and the remedy."""

    def __init__(self, status: int, code: str, message: str, remedy: str, **more: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"code": code, "message": message, "remedy": remedy, **more}}


class Starts(Protocol):
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

    Senders that sign and senders that have only the token can be told apart, so one kind cannot use
    up the rate of the other one.
    """

    how: Literal["signature", "token"]
    line: int


class Intake:
    """Accepts alarms; safe to use from many threads at once."""

    def __init__(
        self,
        secret: Secret,
        mistral: Starts,
        database: Database,
        project: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``clock``: seconds since the epoch, compared with the senders' timestamps."""
        self._secret = secret
        self._mistral = mistral
        self._database = database
        self._project = project
        self._clock = clock
        self._rates: dict[Sender, _Rate] = {}  # at most two for each line of the secret's file
        self._lock = threading.Lock()

    def take(self, delivery: Delivery) -> str:
        """Start the admission of an alarm. Returns the id of its execution, which is recorded.

        Raises Refused.
        """
        sender, signature = self._authenticated(delivery)
        rate = self._rate_of(sender)
        if not rate.allows():
            raise Refused(
                429,
                "TOO_MANY",
                "this sender sent too many alarms at once",
                "Send it again in a few seconds.",
            )
        try:
            inputs, alarms = _read(delivery, signed=signature is not None)
        except Refused:
            rate.charge(INVALID - 1)
            raise
        rate.charge(alarms - 1)
        if signature is None:
            return self._started(inputs, None)
        return self._once(inputs, signature)

    def _rate_of(self, sender: Sender) -> _Rate:
        with self._lock:
            return self._rates.setdefault(sender, _Rate(RATE, BURST))

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

    def _once(self, inputs: Mapping[str, Any], signature: str) -> str:
        """Take a signed alarm unless it was taken before. The execution's id follows from the
        signature, so a repeat after a crash in between starts nothing twice."""
        taken = partial(deliveries.taken, project_id=self._project, signature=signature)
        try:
            known = self._database.reading(taken)
            if known is None:
                execution = self._started(inputs, derived_id("alarm", self._project, signature))
                take = partial(
                    deliveries.take,
                    project_id=self._project,
                    signature=signature,
                    execution=execution,
                    keep=_KEPT,
                )
                if self._database.atomically(take):
                    return execution
                known = execution
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001 - logged; the sender is to try again
            LOG.exception("It is unknown whether this alarm was taken before.")
            raise _unavailable("the state store does not answer") from error
        raise Refused(
            409,
            "REPLAYED",
            "this request was taken before",
            "Nothing to do. To send the alarm again, sign it again.",
            execution=known,
        )

    def _started(self, inputs: Mapping[str, Any], identity: str | None) -> str:
        try:
            started = self._mistral.start(
                WORKFLOW, inputs, id=identity, description="by the webhook"
            )
        except MistralError as error:
            LOG.error("An alarm was not taken: %s", error)
            raise _unavailable("Mistral does not answer") from error
        return str(started["id"])


class _Rate:
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

    def charge(self, cost: int) -> None:
        """Take more tokens for a request that was allowed."""
        with self._lock:
            self._left -= cost


def _read(delivery: Delivery, *, signed: bool) -> tuple[dict[str, Any], int]:
    """Return the inputs of the workflow, and the number of alarms in them. Raises Refused."""
    said = _said(delivery.query)
    if signed and said:
        raise Refused(
            400,
            "BAD_REQUEST",
            "the address of a signed alarm has parameters, but only its body is signed",
            "Put group and member into the body.",
        )
    body, alarms = _alarm(delivery.body, said.get("kind"))
    return {"body": body, **said}, alarms


def _said(query: str) -> dict[str, str]:
    said = dict(parse_qsl(query))
    if unknown := sorted(set(said) - set(_SAYS)):
        raise Refused(
            400,
            "BAD_REQUEST",
            f"the address has the unknown parameters {', '.join(unknown)}",
            f"Known parameters: {', '.join(_SAYS)}.",
        )
    return said


def _alarm(body: bytes, kind: str | None) -> tuple[dict[str, Any], int]:
    try:
        alarm: dict[str, Any] = json.loads(body)
        return alarm, len(adapters.read(alarm, kind))
    except InvalidDocument as error:
        where = f"{error.path}: " if error.path else ""
        raise Refused(400, error.code, where + error.message, error.remedy) from None
    except (ValueError, RecursionError):
        raise Refused(400, "BAD_REQUEST", "the body is not JSON", "Send JSON.") from None


def _unauthorised() -> Refused:
    return Refused(
        401,
        "UNAUTHORISED",
        "the sender did not prove that it knows the secret",
        f"Sign it ({TIMESTAMP}, {SIGNATURE}), or use the token: see docs/server.md.",
    )


def _unavailable(why: str) -> Refused:
    return Refused(503, "UNAVAILABLE", why, "Send it again, or to the other server.")
