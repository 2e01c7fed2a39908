# SPDX-License-Identifier: Apache-2.0
"""Waiting for the cloud: look, pause a little longer each time, stop as soon as the state is
reached."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from mistral_failover.cloud.errors import CloudError, Fate, translated
from mistral_failover.cloud.transport import Guard, Listener, RequestLog
from mistral_failover.settings import Settings

R = TypeVar("R")
Pauses = Generator[float, None, R]
"""A wait: it yields the seconds until it looks again, and returns what it comes to."""
SEVERAL = 2.5  # longest pause, in durations of a look
UNSTRETCHED = 8
"""So many waits of a process at the same time look as often as one alone. If there are more, the
pauses of each grow in proportion, so that together they ask the services no more often. So many
waits for volumes with the same rights share a listing, and count as one."""
_ROWS = 8  # longest listing that is still cheaper than reading each volume, in waits


class ConcurrentWaits:
    """Counts the waits of a process that go on at the same time. Those for volumes are told apart
    by the rights with which they look: the same rights see the same volumes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: Counter[Hashable | None] = Counter()
        self._apart: set[Hashable] = set()

    @contextmanager
    def waiting(self, rights: Hashable | None = None) -> Iterator[None]:
        """Wraps a wait; ``rights``: of one for a volume, None for any other."""
        with self._lock:
            self._waits[rights] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waits[rights] -= 1
                if not self._waits[rights]:
                    del self._waits[rights]
                    self._apart.discard(rights)

    def rows(self, rights: Hashable) -> int:
        """Return how many rows a listing that the waits for volumes with these rights share may
        have; 0 if each had better ask for itself."""
        with self._lock:
            return self._waits[rights] * _ROWS if self._is_one(rights) else 0

    def too_many(self, rights: Hashable) -> None:
        """Record that a listing of volumes with these rights has more rows than `rows` allows. It
        is forgotten with the last of these waits."""
        with self._lock:
            if self._waits[rights]:
                self._apart.add(rights)

    @property
    def factor(self) -> float:
        """How many times longer each pause is than that of a wait alone."""
        with self._lock:
            waits = sum(1 if self._is_one(rights) else n for rights, n in self._waits.items())
        return max(1.0, waits / UNSTRETCHED)

    def _is_one(self, rights: Hashable | None) -> bool:
        return (
            rights is not None and rights not in self._apart and self._waits[rights] >= UNSTRETCHED
        )


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one look.

    ``state``: in words, for the error when time runs out. ``done``: the wait is over, and
    ``result`` is what it returns. ``error``: the error to raise when time runs out now, instead of
    a TIMEOUT.
    """

    state: str
    done: bool = False
    result: Any = None
    error: CloudError | None = None


def pauses_until(
    probe: Callable[[], ProbeResult],
    *,
    what: str,
    limit: float,
    first: float = 0.05,
    growth: float = 1.05,
    ceiling: float = 2.0,
    patience: int = 5,
    clock: Callable[[], float] = time.monotonic,
    guard: Guard | None = None,
    refused: Callable[[], CloudError | None] = lambda: None,
    concurrent: ConcurrentWaits | None = None,
) -> Pauses[Any]:
    """Call ``probe`` until it reports that it is done, and return its result; yield each pause.

    ``what`` completes "waiting for ...". ``limit``: seconds in total, with a last look at the end;
    ``first``, ``growth`` and ``ceiling`` shape the pauses. A probe may also act (send the missing
    request) if it looks first: it is then called until reality is as wanted. It sends requests
    through `ResendPolicy`.

    A transient error of the probe counts as a look that saw nothing, however often it comes: the
    service may return before the time is over. (One that is not retryable ends the wait.) But
    services also answer 503 to a token that Keystone no longer confirms to them. So after every
    ``patience`` such errors in a row, ``refused`` asks Keystone whether it refuses the request; a
    refusal ends the wait. Other retryable errors end it after ``patience`` in a row. ``guard`` is
    asked before each pause, and bounds it; a `Listener` hears each error that is waited out, and
    each answer. ``concurrent``: the waits that share the services with this one, itself included;
    they make no pause longer than ``ceiling``.

    Raises `CloudError` TIMEOUT with the last state seen or, if the last look saw nothing, the
    reason for that; `LeaseLost`; or whatever the probe raises.
    """
    deadline = clock() + limit
    listener = guard if isinstance(guard, Listener) else None
    pause = first
    errors = 0
    state = "nothing yet"
    while True:
        last = clock() >= deadline
        try:
            result = probe()
        except CloudError as error:
            errors += 1
            kept_from = error if error.transient and error.retryable else None
            if listener is not None:
                listener.waits_for(kept_from)
            if kept_from is not None:
                if errors % patience == 0 and (why := refused()) is not None:
                    raise why from None
            elif not error.retryable or errors > patience:
                raise
            elif errors == 1:
                state = f"{state}, then {error.message}"
        else:
            errors = 0
            if listener is not None:
                listener.waits_for(None)
            state, kept_from = result.state, result.error
            if result.done:
                return result.result
        if last:
            raise kept_from or CloudError(
                "TIMEOUT", f"Gave up after {limit:g} s waiting for {what}: {state}"
            )
        crowded = (
            pause if concurrent is None else min(pause * concurrent.factor, max(pause, ceiling))
        )
        step = min(crowded, max(0.0, deadline - clock()))
        if guard is not None:
            step = min(step, guard.permit("GET"))
        yield step
        pause = min(pause * growth, ceiling)


def slept(pauses: Pauses[R], sleep: Callable[[float], None] = time.sleep) -> R:
    """Return what a wait comes to, and sleep in its pauses. Raises as the wait does."""
    while True:
        try:
            pause = next(pauses)
        except StopIteration as end:
            result: R = end.value
            return result
        sleep(pause)


ATTACH = "os-volume_attachments"
"""What the path of Nova's requests about volumes of a server has in it."""


def outlives(settings: Settings, fate: Fate, asked: str = "") -> float:
    """Return for how many seconds from now a request without an answer may still take effect.

    ``asked``: its method and path. After a broken connection or a failure that time is short. A
    service that was silent may have the request in a queue, and drops it only after its own
    timeout: see the options ``repeat_after`` and ``repeat_after_attach``.
    """
    soon = settings.poll_ceiling * SEVERAL
    if fate is Fate.SETTLED:
        return 0.0
    if fate is Fate.FAILED:
        return soon
    longest = settings.repeat_after_attach if ATTACH in asked else None
    return max(soon, settings.repeat_after if longest is None else longest)


class Caller(Protocol):
    """The part of ``cloud.clients.Cloud`` that is needed here."""

    @property
    def settings(self) -> Settings:
        """The operator's options."""
        ...

    @property
    def guard(self) -> Guard:
        """The guard that is asked before every call."""
        ...

    def send(self, service: str, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Send a service a plain request, and return the answer."""
        ...


class ResendPolicy:
    """Decides when a request that changes something may be sent.

    A request without an answer may be queued in the service and take effect later; sent repeatedly,
    it may take effect as often. So after such a request the wait only looks, until the request has
    had no visible effect for so long that it is lost: see `outlives`.
    """

    def __init__(
        self,
        cloud: Caller,
        *,
        asks: str = "",
        harmless: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``asks``: what the requests ask for, in the words of `outlives`. ``harmless``: they may
        be sent again while one of an earlier attempt may still take effect."""
        self._cloud = cloud
        self.soon = outlives(cloud.settings, Fate.FAILED)
        self._asks = asks
        earlier = cloud.guard.unsettled() if isinstance(cloud.guard, RequestLog) else 0.0
        unsettled = 0.0 if harmless else earlier
        self._clock = clock
        self._closed_until = clock() + unsettled
        self.unanswered: CloudError | None = None
        """The error of the last request, while it may still take effect."""
        self.open = unsettled <= 0
        """Whether no request that was sent may still take effect."""

    def allow(self) -> bool:
        """Return whether a request may be sent. Call it in a look that saw no effect of an earlier
        one: an effect that is not visible now will not come."""
        if not self.open and self._clock() >= self._closed_until:
            self.open, self.unanswered = True, None
        return self.open

    @contextmanager
    def sending(self, doing: str) -> Iterator[None]:
        """Send the request in this block. ``doing``: as for `translated`. An error whose outcome is
        unknown is recorded first, so that the wait continues by looking; so it does for a while if
        the service answers 404."""
        try:
            with translated(doing):
                yield
        except CloudError as error:
            if error.code == "NOT_FOUND":
                error.retryable = True  # the look before it saw the thing: the next one decides
            if error.unknown:
                self.open, self.unanswered = False, error
                fate = Fate.SILENT if error.code == "TIMEOUT" else Fate.FAILED
                lasts = outlives(self._cloud.settings, fate, self._asks)
                self._closed_until = self._clock() + lasts
            raise
        self.answered()

    def settled(self, state: str) -> ProbeResult:
        """Return the end of a wait whose aim is reached, unless a request of an earlier attempt
        could still take effect after it."""
        return ProbeResult(state, done=True) if self.allow() else self.no_effect_yet(state)

    def send(
        self,
        state: str,
        doing: str,
        service: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        busy: Mapping[int, str] = MappingProxyType({}),
        **options: Any,
    ) -> ProbeResult:
        """Send a plain request, unless an earlier one may still take effect, and return the look.

        ``state``: what the look saw; ``doing``: as for `translated`; what follows is as for
        `Cloud.send`. ``busy``: the statuses with which the service refuses it for the
        moment, and why, in words (empty: the service's own); then the next look decides again.
        Raises `CloudError` for other refusals.
        """
        if not self.allow():
            return self.no_effect_yet(state)
        try:
            with self.sending(doing):
                self._cloud.send(service, method, path, body, **options)
        except CloudError as error:
            if (status := error.http_status) is None or status not in busy:
                raise
            return ProbeResult(f"{state}, and {busy[status] or error.message}")
        return ProbeResult(f"{service} has just accepted the request")

    def answered(self) -> None:
        """Record that the service has accepted a request, by its answer or by what a look saw."""
        self.open, self.unanswered = True, None

    def no_effect_yet(self, state: str) -> ProbeResult:
        """Return a look that saw no effect of a request without an answer."""
        if self.unanswered is None:
            words = f"{state}, and a request of an earlier attempt may still take effect"
            silent = CloudError("TIMEOUT", words, transient=True, unknown=True)
            return ProbeResult(words, error=silent)
        return ProbeResult(f"{state}; {self.unanswered.message}", error=self.unanswered)
