# SPDX-License-Identifier: Apache-2.0
"""A question that several operations ask at the same time is sent once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from mistral_failover.cloud.clients import RequestCoalescer
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Guard, LeaseLost, NoLongerNeeded, Unguarded
from support.waiting import until


class Service:
    """Answers the n-th request with n, or with what it is told to raise, once it is let go."""

    def __init__(self, *failures: Exception | None) -> None:
        self.failures = list(failures)
        self.requests = 0
        self.arrived = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)

    def answer(self) -> int:
        self.requests += 1
        number = self.requests
        self.arrived.release()
        assert self.let_go.acquire(timeout=10)
        failure = self.failures[number - 1] if number <= len(self.failures) else None
        if failure is not None:
            raise failure
        return number


class Askers:
    """Threads that ask."""

    def __init__(self, service: Service, pool: ThreadPoolExecutor, limit: float = 10.0) -> None:
        self.questions = RequestCoalescer()
        self._service, self._pool, self._limit = service, pool, limit

    def ask(self, key: str = "volumes", guard: Guard | None = None) -> Future[int]:
        send, guard = self._service.answer, guard or Unguarded()
        return self._pool.submit(self.questions.ask, key, send, guard, self._limit)

    def wait(self, asking: int, key: str = "volumes") -> None:
        """Wait until so many ask the question."""
        until(lambda: self.questions.asking(key) == asking)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as made:
        yield made


def test_who_asks_while_a_request_is_under_way_shares_the_next_one(pool: ThreadPoolExecutor):
    """Its answer may be older than their question."""
    service = Service()
    askers = Askers(service, pool)
    first = askers.ask()
    assert service.arrived.acquire(timeout=10)
    others = [askers.ask() for _ in range(4)]
    askers.wait(5)

    service.let_go.release(2)

    assert first.result(10) == 1
    assert [other.result(10) for other in others] == [2] * 4
    assert service.requests == 2
    assert askers.questions.asking("volumes") == 0


def test_other_questions_do_not_wait(pool: ThreadPoolExecutor):
    service = Service()
    askers = Askers(service, pool)
    asked = [askers.ask("volumes"), askers.ask("servers")]
    for _ in asked:
        assert service.arrived.acquire(timeout=10)
    service.let_go.release(2)
    assert sorted(each.result(10) for each in asked) == [1, 2]


def test_a_failure_is_shared_as_an_answer_is(pool: ThreadPoolExecutor):
    """A service that answers nothing is not waited for as often as there are operations."""
    service = Service(None, ValueError("no answer"))
    askers = Askers(service, pool)
    first = askers.ask()
    assert service.arrived.acquire(timeout=10)
    others = [askers.ask() for _ in range(3)]
    askers.wait(4)
    service.let_go.release(2)

    assert first.result(10) == 1
    for other in others:
        with pytest.raises(ValueError, match="no answer"):
            other.result(10)
    assert service.requests == 2


@pytest.mark.parametrize(
    "failure",
    [LeaseLost("too late"), NoLongerNeeded(), CloudError("TIMEOUT", "no answer within 0.05 s")],
    ids=lambda failure: type(failure).__name__,
)
def test_what_stops_one_operation_stops_no_other(pool: ThreadPoolExecutor, failure: Exception):
    service = Service(failure)
    askers = Askers(service, pool)
    first = askers.ask()
    assert service.arrived.acquire(timeout=10)
    service.failures = [None, failure]
    second = askers.ask()
    askers.wait(2)
    others = [askers.ask() for _ in range(3)]
    askers.wait(5)
    service.let_go.release(3)

    assert first.result(10) == 1
    ended = [second, *others]
    failed = [each for each in ended if each.exception(10) is not None]
    assert [type(each.exception()) for each in failed] == [type(failure)]
    assert [each.result() for each in ended if each not in failed] == [3] * 3


def test_who_loses_its_lease_while_it_waits_learns_it(pool: ThreadPoolExecutor):
    class Ends(Unguarded):
        def permit(self, method: str) -> float:
            raise LeaseLost("it was stolen")

    service = Service()
    askers = Askers(service, pool)
    first = askers.ask()
    assert service.arrived.acquire(timeout=10)
    second = askers.ask(guard=Ends())

    with pytest.raises(LeaseLost):
        second.result(10)
    service.let_go.release()
    assert first.result(10) == 1


def test_a_silent_service_is_not_waited_for_by_one_after_the_other(pool: ThreadPoolExecutor):
    """Its timeout is that of all who asked before."""
    service = Service(None, CloudError("TIMEOUT", "no answer within 0.05 s"))
    askers = Askers(service, pool, limit=0.05)
    first = askers.ask()
    assert service.arrived.acquire(timeout=10)
    others = [askers.ask() for _ in range(3)]
    askers.wait(4)
    service.let_go.release()
    assert first.result(10) == 1
    assert service.arrived.acquire(timeout=10)
    time.sleep(0.06)
    service.let_go.release()
    for other in others:
        with pytest.raises(CloudError, match="TIMEOUT"):
            other.result(10)
    assert service.requests == 2


def test_who_may_not_wait_as_long_as_the_other_request_takes_sends_one(pool: ThreadPoolExecutor):
    service = Service()
    askers = Askers(service, pool, limit=0.05)
    first = askers.ask()
    assert service.arrived.acquire(timeout=10)
    second = askers.ask()
    assert service.arrived.acquire(timeout=10), "nobody has answered the first one"
    service.let_go.release(2)
    assert {first.result(10), second.result(10)} == {1, 2}
