# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads: well-formed, complete, honest about its age."""

from __future__ import annotations

import math
import re
import threading
from typing import Any

import pytest
import requests
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from mistral_failover.loopback import NotLoopback
from mistral_failover.metrics.families import FAMILIES, OWN, Family
from mistral_failover.metrics.server import Latest, MetricsServer

BOUNDS = [1, 5]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def sample_of(family: Family, **more: Any) -> dict[str, Any]:
    """A sample whose labels have hard values."""
    labels = {label: f'{label} "of"\n\\it' for label in family.labels}
    if family.kind == "histogram":
        return {"labels": labels, "buckets": [2, 0, 1], "sum": 12.5, **more}
    return {"labels": labels, "value": 3, **more}


NUMBERS: dict[str, Any] = {
    "now": 1.0,
    "bounds": BOUNDS,
    "families": {name: [sample_of(family)] for name, family in FAMILIES.items()},
}


def parsed(latest: Latest) -> dict[str, Metric]:
    text = latest.text().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.fixture
def latest() -> Latest:
    found = Latest(Clock())
    found.answered(NUMBERS)
    return found


def test_every_family_is_there_with_its_type_its_help_and_its_labels(latest: Latest) -> None:
    found = parsed(latest)

    assert set(found) == {family.name for family in (*FAMILIES.values(), *OWN)}
    for family in FAMILIES.values():
        metric = found[family.name]
        assert (metric.type, metric.documentation) == (family.kind, family.help)
        assert {sample.name for sample in metric.samples} == set(family.names)
        labels = {label: f'{label} "of"\n\\it' for label in family.labels}
        assert all(labels.items() <= sample.labels.items() for sample in metric.samples)


def test_a_histogram_s_buckets_are_summed_up(latest: Latest) -> None:
    samples = parsed(latest)["failover_traversal_seconds"].samples

    assert [(s.labels.get("le"), s.value) for s in samples] == [
        ("1.0", 2),
        ("5.0", 2),
        ("+Inf", 3),
        (None, 3),
        (None, 12.5),
    ]


@pytest.mark.parametrize("family", [*FAMILIES.values(), *OWN], ids=lambda family: family.name)
def test_names_follow_prometheus_conventions(family: Family) -> None:
    assert re.fullmatch(r"failover_[a-z]+(_[a-z]+)*", family.name)
    assert not family.name.endswith(("_total", "_count", "_sum", "_bucket", "_ms", "_minutes"))
    if family.kind == "histogram":
        assert family.name.endswith("_seconds")
    assert family.help.endswith(".")
    assert all(re.fullmatch(r"[a-z]+", label) for label in family.labels)


def test_an_agent_of_which_nothing_is_known_has_been_silent_for_ever() -> None:
    latest = Latest()
    silent = sample_of(FAMILIES["agent_silence_seconds"], value=None)
    latest.answered({**NUMBERS, "families": {"agent_silence_seconds": [silent]}})

    (sample,) = parsed(latest)["failover_agent_silence_seconds"].samples

    assert sample.value == math.inf


def test_what_this_version_does_not_know_is_left_out() -> None:
    latest = Latest()
    latest.answered({**NUMBERS, "families": {"of_tomorrow": [{"labels": {}, "value": 1}]}})

    assert set(parsed(latest)) == {family.name for family in OWN}


def test_the_last_answer_stays_and_says_how_old_it_is() -> None:
    clock = Clock()
    latest = Latest(clock)
    assert own(latest) == (0, math.inf, 0)
    latest.answered(NUMBERS)
    clock.now += 40
    assert own(latest) == (1, 40, 0)

    latest.failed()

    assert own(latest) == (0, 40, 1)
    assert "failover_traversals" in parsed(latest)


def own(latest: Latest) -> tuple[float, float, float]:
    found = parsed(latest)
    names = ("failover_up", "failover_scrape_age_seconds", "failover_scrape_failures")
    up, age, failures = (found[name].samples[0].value for name in names)
    return up, age, failures


def test_a_scrape_is_answered_while_the_numbers_are_still_to_come() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def ask() -> dict[str, Any]:
        asked.set()
        assert go_on.wait(60)
        return NUMBERS

    with MetricsServer(ask) as server:
        assert asked.wait(60)
        assert "failover_up 0.0" in requests.get(server.url, timeout=60).text
        go_on.set()


def test_it_asks_again_after_a_failure() -> None:
    answers: list[Any] = [ConnectionError("away"), ValueError("worse"), NUMBERS]
    well = threading.Event()

    def ask() -> dict[str, Any]:
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, Exception):
            raise found
        well.set()
        return NUMBERS

    with MetricsServer(ask, interval=0.01) as server:
        assert well.wait(60)
        failures = parsed(server.latest)["failover_scrape_failures"].samples[0].value
    assert failures == 2


def test_only_metrics_are_served() -> None:
    with MetricsServer(lambda: NUMBERS) as server:
        elsewhere = requests.get(server.url.replace("/metrics", "/secrets"), timeout=60)
        posted = requests.post(server.url, timeout=60)
        answer = requests.get(server.url, timeout=60)

    assert (elsewhere.status_code, posted.status_code, answer.status_code) == (404, 405, 200)
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert "Python" not in answer.headers["Server"]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])  # noqa: S104
def test_it_listens_on_loopback_only_unless_told_otherwise(host: str) -> None:
    with pytest.raises(NotLoopback):
        MetricsServer(lambda: NUMBERS, host=host)

    assert MetricsServer(lambda: NUMBERS, host=host, anywhere=True)
