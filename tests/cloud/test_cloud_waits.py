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


def test_what_is_there_already_is_returned_without_a_pause():
    time = Time()
    assert wait(Script(DONE), time) == "it"
    assert time.pauses == []


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


def test_pauses_grow_up_to_the_ceiling():
    time = Time()
    wait(Script(*[NOT_YET] * 5, DONE), time, first=1, growth=2, ceiling=5)
    assert time.pauses == [1, 2, 4, 5, 5]


def test_at_the_limit_there_is_one_last_look():
    time = Time()
    probe = Script(NOT_YET, NOT_YET, NOT_YET, DONE)
    assert wait(probe, time, limit=2.5, first=1, growth=1) == "it"
    assert time.pauses == [1, 1, 0.5]


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


def test_a_read_that_fails_is_read_again():
    assert wait(Script(AWAY, BUSY, DONE), Time()) == "it"


def test_a_service_that_is_away_is_waited_for_until_the_limit():
    assert wait(Script(*[AWAY] * 25, DONE), Time(), patience=3) == "it"


def test_a_service_that_is_away_at_the_limit_ends_the_wait_with_its_error():
    """A TIMEOUT would say that something was seen and not what was wanted."""
    with pytest.raises(CloudError) as raised:
        wait(Script(NOT_YET, AWAY), Time())
    assert raised.value is AWAY


def test_a_service_that_answers_so_because_the_rights_ended_is_not_waited_for():
    """Who is told nothing of a token by Keystone answers 503."""
    ended = CloudError("TOKEN_EXPIRED", "Keystone does not accept the token of the request.")
    probe = Script(AWAY)
    with pytest.raises(CloudError) as raised:
        wait(probe, Time(), patience=3, refused=lambda: ended)
    assert raised.value is ended
    assert probe.count == 3


def test_a_look_may_say_what_the_wait_ends_with():
    silent = CloudError("TIMEOUT", "no answer", transient=True)
    with pytest.raises(CloudError) as raised:
        wait(Script(ProbeResult("it is available", error=silent)), Time())
    assert raised.value is silent


def test_reads_that_are_refused_again_and_again_end_the_wait_with_their_error():
    probe = Script(BUSY)
    with pytest.raises(CloudError) as raised:
        wait(probe, Time(), patience=3)
    assert raised.value is BUSY
    assert probe.count == 4


def test_only_refusals_in_a_row_count():
    probe = Script(BUSY, BUSY, NOT_YET, BUSY, BUSY, DONE)
    assert wait(probe, Time(), patience=2) == "it"


def test_an_error_that_a_repeat_does_not_cure_ends_the_wait_at_once():
    probe = Script(CloudError("NOT_FOUND", "gone"))
    with pytest.raises(CloudError, match="NOT_FOUND"):
        wait(probe, Time())
    assert probe.count == 1


def test_the_guard_bounds_each_pause():
    time = Time()
    wait(Script(NOT_YET, DONE), time, first=10, guard=Unguarded(0.5))
    assert time.pauses == [0.5]


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
