# SPDX-License-Identifier: Apache-2.0
"""Convert the answer of ``failover.metrics`` to the format that Prometheus reads."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from mistral_failover.metrics.families import (
    AGE,
    FAILURES,
    FAMILIES,
    UP,
    Family,
    Numbers,
    Sample,
)


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
