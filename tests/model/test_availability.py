# SPDX-License-Identifier: Apache-2.0
"""How long a group was in which state: the arithmetic of availability."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.model.availability import (
    SERVES,
    Change,
    Interruption,
    availability,
    further_changes,
    percent,
    seconds_by_service,
    stretches,
    within,
    worst,
)
from mistral_failover.model.observation import Service, ServiceState

UP, WORSE, DOWN, HIDDEN, OUT = (
    Service.SERVING,
    Service.DEGRADED,
    Service.DOWN,
    Service.UNKNOWN,
    Service.OUT_OF_SERVICE,
)
NOW, FRESH = 1000.0, 150.0

times = st.floats(0.0, 2000.0, allow_nan=False)
words = st.sampled_from(list(Service))
histories = st.lists(st.builds(Change, times, words), max_size=12).map(
    lambda found: sorted(found, key=lambda each: each.at)
)


@given(histories, st.tuples(times, times).map(sorted))
def test_stretches_cover_the_window_exactly_once(
    changes: list[Change], window: list[float]
) -> None:
    begin, end = window
    found = stretches(changes, begin, end)

    if begin == end:
        assert found == ()
        return
    assert (found[0].begin, found[-1].end) == (begin, end)
    assert all(each.seconds > 0 for each in found)
    for before, after in itertools.pairwise(found):
        assert before.end == after.begin
        assert before.service is not after.service


@given(histories, st.tuples(times, times).map(sorted), times)
def test_at_each_moment_a_stretch_has_the_last_change_before_it(
    changes: list[Change], window: list[float], moment: float
) -> None:
    begin, end = window
    for each in stretches(changes, begin, end):
        if each.begin <= moment < each.end:
            before = [change.service for change in changes if change.at <= moment]
            assert each.service is (before[-1] if before else HIDDEN)


@given(histories, st.tuples(times, times).map(sorted), st.integers(1, 40))
def test_the_times_of_all_words_add_up_to_the_window_and_so_do_those_of_its_slots(
    changes: list[Change], window: list[float], slots: int
) -> None:
    begin, end = window
    found = stretches(changes, begin, end)
    whole = seconds_by_service(found)

    assert math.isclose(sum(whole.values()), end - begin, abs_tol=1e-6)
    edges = [begin + (end - begin) * each / slots for each in range(slots)] + [end]
    parts = [seconds_by_service(within(found, *each)) for each in itertools.pairwise(edges)]
    for service in Service:
        total = sum(each[service] for each in parts)
        assert math.isclose(total, whole[service], abs_tol=1e-6)


@given(st.dictionaries(words, st.floats(0.0, 1e7)))
def test_served_and_not_served_are_the_whole_of_the_known_time(
    seconds: dict[Service, float],
) -> None:
    found = availability(seconds)

    known = sum(seconds.get(each, 0.0) for each in (UP, WORSE, DOWN))
    if found is None:
        assert known == 0
    else:
        assert 0.0 <= found <= 1.0
        assert math.isclose(found + seconds.get(DOWN, 0.0) / known, 1.0)


@pytest.mark.parametrize(
    ("seconds", "part", "word"),
    [
        ({UP: 90.0, DOWN: 10.0}, 0.9, DOWN),
        ({UP: 50.0, WORSE: 40.0, DOWN: 10.0, HIDDEN: 900.0}, 0.9, DOWN),
        ({UP: 50.0, HIDDEN: 50.0}, 1.0, HIDDEN),
        ({UP: 50.0, WORSE: 1.0, HIDDEN: 50.0}, 1.0, WORSE),
        ({OUT: 100.0}, None, OUT),
        ({HIDDEN: 100.0, OUT: 1.0}, None, HIDDEN),
        ({}, None, HIDDEN),
    ],
)
def test_availability_is_of_the_known_time(
    seconds: dict[Service, float], part: float | None, word: Service
) -> None:
    assert availability(seconds) == part
    assert worst(seconds) is word


def state(service: Service, since: float | None = None) -> ServiceState:
    return ServiceState(service, (), since, None)


@pytest.mark.parametrize(
    ("last", "looked_at", "now_is", "interruption", "changes"),
    [
        # As before: nothing to write.
        (Change(10, UP), 940.0, state(UP, 10), None, []),
        (Change(10, DOWN), 0.0, state(DOWN, 10), None, []),
        # A look finds something else: from then on.
        (Change(10, UP), 940.0, state(DOWN, NOW), None, [Change(NOW, DOWN)]),
        (Change(10, DOWN), 940.0, state(UP, NOW), None, [Change(NOW, UP)]),
        (Change(10, UP), 940.0, state(WORSE, 5), None, [Change(NOW, WORSE)]),
        (Change(10, WORSE), 940.0, state(UP, 5), None, [Change(NOW, UP)]),
        # An alarm tells when it began, but what was seen since counts.
        (Change(10, UP), 940.0, state(DOWN, 970), None, [Change(970, DOWN)]),
        (Change(10, UP), 940.0, state(DOWN, 900), None, [Change(940, DOWN)]),
        # A whole failover between two looks.
        (
            Change(10, UP),
            940.0,
            state(UP, 980),
            Interruption(960, 975),
            [Change(960, DOWN), Change(975, UP)],
        ),
        (Change(960, DOWN), 940.0, state(UP, 980), Interruption(955, 975), [Change(975, UP)]),
        (Change(975, UP), 940.0, state(UP, 980), Interruption(955, 975), []),
        # A look came while the traversal still did other work.
        (
            Change(10, UP),
            985.0,
            state(UP, 990),
            Interruption(960, 975),
            [Change(960, DOWN), Change(975, UP)],
        ),
        # Nothing looked: not known from the last look on, and never served.
        (Change(10, UP), 700.0, state(HIDDEN, 850), None, [Change(700, HIDDEN)]),
        (Change(10, UP), 700.0, state(UP, 10), None, [Change(700, HIDDEN), Change(NOW, UP)]),
        (Change(10, UP), 700.0, state(DOWN, 950), None, [Change(700, HIDDEN), Change(950, DOWN)]),
        (
            Change(10, UP),
            500.0,
            state(UP, 980),
            Interruption(960, 975),
            [Change(500, HIDDEN), Change(960, DOWN), Change(975, UP)],
        ),
        (Change(700, HIDDEN), 700.0, state(UP, 700), None, [Change(NOW, UP)]),
        # A group that is down stays so without a look.
        (Change(10, DOWN), 10.0, state(UP, NOW), None, [Change(NOW, UP)]),
        # The first time.
        (None, 0.0, state(UP, 980), None, [Change(980, UP)]),
        (None, 0.0, state(UP, 5), None, [Change(NOW, UP)]),
        (None, 0.0, state(OUT, None), None, [Change(NOW, OUT)]),
    ],
)
def test_the_changes_since_the_last_one(
    last: Change | None,
    looked_at: float,
    now_is: ServiceState,
    interruption: Interruption | None,
    changes: list[Change],
) -> None:
    assert list(further_changes(last, looked_at, now_is, interruption, NOW, FRESH)) == changes


@pytest.mark.parametrize(
    ("part", "words"),
    [(None, "not known"), (1.0, "100 %"), (0.9999999, "99.999 %"), (0.5, "50 %"), (0.0, "0 %")],
)
def test_less_than_the_whole_is_never_shown_as_all_of_it(part: float | None, words: str) -> None:
    assert percent(part) == words


past = st.floats(0.0, NOW, allow_nan=False)


@given(
    st.none() | st.builds(Change, past, words),
    past,
    st.builds(state, words, st.none() | past),
    st.none() | st.tuples(past, past).map(lambda each: Interruption(*sorted(each))),
)
def test_changes_are_in_order_after_the_last_one_and_end_in_the_present_state(
    last: Change | None,
    looked_at: float,
    now_is: ServiceState,
    interruption: Interruption | None,
) -> None:
    found = further_changes(last, looked_at, now_is, interruption, NOW, FRESH)
    known = [*([last] if last and not (found and found[0].at <= last.at) else []), *found]

    assert known[-1].service is now_is.service
    assert all(0.0 <= each.at <= NOW for each in known)
    assert last is None or all(each.at >= last.at for each in found)
    for before, after in itertools.pairwise(known):
        assert before.at < after.at
        assert before.service is not after.service
    # Never served for longer than a look counts, unless a look or the engine's work came between.
    if last is not None and last.service in SERVES and found:
        seen = max(last.at, looked_at)
        assert found[0].at - seen <= FRESH
