# SPDX-License-Identifier: Apache-2.0
"""``/metrics`` over HTTP in the format that Prometheus reads, with queries in the background.

A scrape gets the last values at once, however slow the query is: one thread queries at an
interval.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from typing import Self

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from mistral_failover.defects import code_of, defect
from mistral_failover.http_server import BACKLOG, HttpServer, RefusalLog, Refused, Request, Response
from mistral_failover.loopback import require_loopback
from mistral_failover.metrics.families import (
    AGE,
    FAILURES,
    FAMILIES,
    UP,
    Family,
    Numbers,
    Sample,
)

LOG = logging.getLogger(__name__)
_REFUSALS = RefusalLog(LOG, "/metrics")
INTERVAL = 15.0
"""Default seconds between two queries."""
_STOP = 5.0  # seconds to wait for a running query


class Latest:
    """The last answer, its age, and whether answers still come; thread-safe.

    A collector of prometheus_client: all that it yields is of one moment.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._numbers: Numbers | None = None
        self._at = -math.inf
        self._up = False
        self._failures = 0

    def answered(self, numbers: Numbers) -> None:
        """Store an answer that has just come."""
        with self._mutex:
            self._numbers, self._at, self._up = numbers, self._clock(), True

    def failed(self) -> None:
        """Record that no answer came: the last one stays and ages."""
        with self._mutex:
            self._up = False
            self._failures += 1

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client's collectors."""
        with self._mutex:
            numbers, age = self._numbers, self._clock() - self._at
            up, failures = self._up, self._failures
        yield GaugeMetricFamily(UP.name, UP.help, value=float(up))
        yield GaugeMetricFamily(AGE.name, AGE.help, value=age)
        yield CounterMetricFamily(FAILURES.name, FAILURES.help, value=failures)
        if numbers is not None:
            yield from metrics(numbers)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


def metrics(numbers: Numbers) -> Iterator[Metric]:
    """Return the families of an answer. Unknown ones are omitted: the sender may be newer than this
    version."""
    found = numbers["families"]
    for name, family in FAMILIES.items():
        if rows := found.get(name):
            yield _metric(family, rows, numbers["bounds"])


def _metric(family: Family, rows: Iterable[Sample], bounds: Iterable[float]) -> Metric:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for row in rows:
            histogram.add_metric(_labels(family, row), _summed(bounds, row["buckets"]), row["sum"])
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for row in rows:
        value = row["value"]
        metric.add_metric(_labels(family, row), math.inf if value is None else value)
    return metric


def _labels(family: Family, row: Sample) -> list[str]:
    return [str(row["labels"].get(label, "")) for label in family.labels]


def _summed(bounds: Iterable[float], buckets: Iterable[float]) -> list[tuple[str, float]]:
    """Prometheus' buckets count the values not above their bound."""
    written = [*(f"{float(bound)}" for bound in bounds), "+Inf"]
    total, summed = 0.0, []
    for bound, count in zip(written, buckets, strict=True):
        total += count
        summed.append((bound, total))
    return summed


class MetricsServer:
    """A context manager: serves ``http://HOST:PORT/metrics`` while the block runs.

    :param ask: answers as ``failover.metrics`` does; may raise anything, and may take its time.
    :param port: 0 takes a free one, see :attr:`port`. :param interval: seconds between two queries;
    the first is sent at once. :param anywhere: listen on another address than loopback as well.
    There is no authentication, so requests of web pages are refused (`loopback.foreign`). :param
    names: further names by which clients call it. :raises NotLoopback: for such an address without
    ``anywhere``. :raises OSError: when the port is taken.
    """

    def __init__(
        self,
        ask: Callable[[], Numbers],
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        interval: float = INTERVAL,
        anywhere: bool = False,
        names: Collection[str] = (),
    ) -> None:
        if not anywhere:
            require_loopback(host)
        self.latest = Latest()
        self._ask = ask
        self._address = (host, port)
        self._names = frozenset({host, *names})
        self._interval = interval
        self._stopped = threading.Event()
        self._stack = ExitStack()
        self.port = port

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
            listening = socket.create_server(self._address, family=family, backlog=BACKLOG)
            self.port = listening.getsockname()[1]
            stack.enter_context(HttpServer(listening, _Metrics(self.latest, self._names)))
            asking = threading.Thread(target=self._keep_asking, name="metrics", daemon=True)
            asking.start()
            stack.callback(asking.join, _STOP)
            stack.callback(self._stopped.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """The URL for Prometheus."""
        host = f"[{self._address[0]}]" if ":" in self._address[0] else self._address[0]
        return f"http://{host}:{self.port}/metrics"

    def _keep_asking(self) -> None:
        told = False
        while True:
            try:
                self.latest.answered(self._ask())
                told = False
            except Exception as error:  # a service that is down now may be back next time
                if code_of(error) is None:
                    defect(error, "reading the metrics")
                self.latest.failed()
                if not told:  # once, until it works again
                    LOG.warning("The metrics are not available: %s", error)
                told = True
            if self._stopped.wait(self._interval):
                return


class _Metrics:
    """Answers ``/metrics``, or a line that says where it is."""

    name = "metrics"
    largest = 0

    def __init__(self, latest: Latest, names: Collection[str]) -> None:
        self._latest, self._names = latest, names

    def answer(self, request: Request) -> Response:
        if request.is_foreign(self._names):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "FOREIGN",
                "the Host header is none of this server's names, or a web page of another site "
                "sent this",
                "Call it by its address or localhost, or name it: failover exporter --name NAME, "
                "failover server --api-name NAME.",
            )
        if request.method not in ("GET", "HEAD"):
            return _text(HTTPStatus.METHOD_NOT_ALLOWED, "GET /metrics.")
        if request.path == "/metrics":
            headers = [("Content-Type", CONTENT_TYPE_LATEST)]
            return Response(HTTPStatus.OK, self._latest.text(), headers)
        status = HTTPStatus.OK if request.path == "/" else HTTPStatus.NOT_FOUND
        return _text(status, "See /metrics.")

    def refusal(self, refused: Refused, peer: str) -> Response:
        _REFUSALS.refused(refused.code, peer)
        return _text(refused.status, f"{refused.message}. {refused.remedy}")


def _text(status: int, line: str) -> Response:
    return Response(status, f"{line}\n".encode(), [("Content-Type", "text/plain; charset=utf-8")])
