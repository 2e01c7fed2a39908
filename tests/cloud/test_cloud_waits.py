# SPDX-License-Identifier: Apache-2.0
"""A wait looks with growing pauses, stops early, and never lasts longer than allowed."""

from contextlib import ExitStack

import pytest

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import LeaseLost, Unguarded
from mistral_failover.cloud.waits import (
    UNSTRETCHED,
    ConcurrentWaits,
    ProbeResult,
    pauses_until,
    slept,
)


class Time:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now = 100.0
        self.pauses = []

    def sleep(self, seconds):
        self.pauses.append(round(seconds, 3))
        self.now += seconds


class Script:
    """A probe that returns, or raises, one thing after the other; the last for ever."""

    def __init__(self, *looks):
        self.looks = list(looks)
        self.count = 0

    def __call__(self):
        self.count += 1
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, Exception):
            raise look
        return look


DONE = ProbeResult("there", done=True, result="it")
NOT_YET = ProbeResult("it is attaching")
AWAY = CloudError("SERVER_ERROR", "oops")
BUSY = CloudError("CONFLICT", "busy")


def wait(probe, time, **options):
    options = {"what": "the volume", "limit": 60, **options}
    return slept(pauses_until(probe, clock=lambda: time.now, **options), time.sleep)


def test_more_waits_than_usual_look_less_often_each_but_not_beyond_the_ceiling():
    concurrent, time = ConcurrentWaits(), Time()
    with ExitStack() as waits:
        for _ in range(2 * UNSTRETCHED):
            waits.enter_context(concurrent.waiting())
        wait(
            Script(*[NOT_YET] * 3, DONE), time, first=1, growth=2, ceiling=5, concurrent=concurrent
        )
    assert time.pauses == [2, 4, 5]

    time = Time()
    wait(Script(*[NOT_YET] * 3, DONE), time, first=1, growth=2, ceiling=5, concurrent=concurrent)
    assert time.pauses == [1, 2, 4], "the others have ended"


def test_many_waits_for_volumes_with_the_same_rights_share_a_listing_and_count_as_one():
    concurrent = ConcurrentWaits()
    with ExitStack() as waits:
        for number in range(2 * UNSTRETCHED):
            assert bool(concurrent.rows("demo")) is (number >= UNSTRETCHED)
            waits.enter_context(concurrent.waiting("demo"))
        assert concurrent.rows("demo") > 2 * UNSTRETCHED
        assert concurrent.rows("other") == 0
        assert concurrent.factor == 1
    assert concurrent.rows("demo") == 0


def test_a_project_with_too_many_volumes_is_not_listed_again_by_these_waits():
    concurrent = ConcurrentWaits()
    for several in (True, False):
        with ExitStack() as waits:
            for _ in range(2 * UNSTRETCHED):
                waits.enter_context(concurrent.waiting("demo"))
            assert (concurrent.rows("demo") > 0, concurrent.factor) == (True, 1)
            if several:
                concurrent.too_many("demo")
                assert (concurrent.rows("demo"), concurrent.factor) == (0, 2)


@pytest.mark.parametrize(
    ("options", "pauses"),
    [
        ({}, []),
        ({"first": 1, "growth": 2, "ceiling": 5}, [1, 2, 4, 5, 5]),
        ({"limit": 2.5, "first": 1, "growth": 1}, [1, 1, 0.5]),
        ({"first": 10, "guard": Unguarded(0.5)}, [0.5]),
    ],
    ids=["none before the first look", "grow up to the ceiling", "end at the limit", "the guard's"],
)
def test_pauses(options, pauses):
    time = Time()
    assert wait(Script(*[NOT_YET] * len(pauses), DONE), time, **options) == "it"
    assert time.pauses == pauses


def test_a_timeout_tells_what_was_waited_for_and_what_was_seen_last():
    with pytest.raises(CloudError) as raised:
        wait(Script(NOT_YET), Time(), limit=3)
    assert raised.value.code == "TIMEOUT"
    assert raised.value.message == "Gave up after 3 s waiting for the volume: it is attaching"


def test_a_limit_of_nothing_is_one_look():
    probe = Script(NOT_YET)
    with pytest.raises(CloudError):
        wait(probe, Time(), limit=0)
    assert probe.count == 1


@pytest.mark.parametrize(
    ("looks", "patience"),
    [((AWAY, BUSY), 10), ([AWAY] * 25, 3), ((BUSY, BUSY, NOT_YET, BUSY, BUSY), 2)],
    ids=["reads fail", "a service is away until the limit", "only refusals in a row count"],
)
def test_a_wait_goes_on_when(looks, patience):
    assert wait(Script(*looks, DONE), Time(), patience=patience) == "it"


GONE = CloudError("NOT_FOUND", "gone")
SILENT = CloudError("TIMEOUT", "no answer", transient=True)
ENDED = CloudError("TOKEN_EXPIRED", "Keystone does not accept the token of the request.")
ENDS = {
    # A TIMEOUT would say that something was seen and not what was wanted.
    "a service that is away at the limit": ([NOT_YET, AWAY], {}, AWAY, None),
    # What Keystone tells nothing of a token answers 503.
    "rights that ended": ([AWAY], {"patience": 3, "refused": lambda: ENDED}, ENDED, 3),
    "a look that says so": ([ProbeResult("it is available", error=SILENT)], {}, SILENT, None),
    "refusals again and again": ([BUSY], {"patience": 3}, BUSY, 4),
    "what a repeat does not cure": ([GONE], {}, GONE, 1),
}


@pytest.mark.parametrize(("looks", "options", "error", "count"), ENDS.values(), ids=ENDS)
def test_what_ends_a_wait_with_its_error(looks, options, error, count):
    probe = Script(*looks)
    with pytest.raises(CloudError) as raised:
        wait(probe, Time(), **options)
    assert raised.value is error
    assert count in (None, probe.count)


def test_a_wait_ends_when_the_lease_does():
    class Lost:
        def permit(self, method):
            raise LeaseLost("The lease has ended.")

    time = Time()
    with pytest.raises(LeaseLost):
        wait(Script(NOT_YET), time, guard=Lost())
    assert time.pauses == []


def test_a_guard_hears_what_a_wait_is_kept_from_and_when_it_goes_on():
    class Hearing(Unguarded):
        def overloaded(self, service, pause):
            """Nothing is overloaded here."""

        def waits_for(self, error):
            heard.append(error)

    heard = []
    away = CloudError("UNREACHABLE", "no answer", service="Cinder")

    wait(Script(NOT_YET, away, away, DONE), Time(), guard=Hearing(5.0))

    assert heard == [None, away, away, None]
