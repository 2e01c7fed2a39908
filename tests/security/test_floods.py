# SPDX-License-Identifier: Apache-2.0
"""A sender that floods the webhook harms itself, and no other sender."""

from __future__ import annotations

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mistral_failover.alarms import intake
from mistral_failover.alarms.alarm import MOST, read
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.server import receiver, secret
from mistral_failover.store.database import Database
from server.conftest import request_of
from support.databases import new_store
from support.waiting import until

FIRST, SECOND = b"0123456789abcdef0123456789abcdef", b"fedcba9876543210fedcba9876543210"
ALARM = b'{"group": "payments", "member": "db_a", "id": "watchdog-4711"}'


class Mistral:
    """Counts what is started."""

    def __init__(self) -> None:
        self.started = 0

    def start(self, workflow: str, input: Any = None, **more: Any) -> Any:
        self.started += 1
        return {"id": more["id"] or f"execution-{self.started}"}


@pytest.fixture
def taking(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An intake whose buckets do not fill while the test runs."""
    database = Database(new_store(tmp_path_factory.mktemp("floods") / "store.sqlite"))
    monkeypatch.setattr(receiver, "RATE", 0.0)
    known = secret.Secret(FIRST, SECOND)
    return receiver.AlarmReceiver(known, Mistral(), request_of(database, "p"))


def alarm(number: int) -> bytes:
    return json.dumps({"group": "payments", "id": f"occasion {number}"}).encode()


def by_token(body: bytes = ALARM, key: bytes = FIRST) -> receiver.Delivery:
    return receiver.Delivery(f"{receiver.PATH}/{secret.Secret(key).token}", "", {}, body)


def by_signature(body: bytes, key: bytes = FIRST) -> receiver.Delivery:
    at = str(int(time.time()))
    headers = {secret.TIMESTAMP: at, secret.SIGNATURE: secret.signed(key, at, body)}
    return receiver.Delivery(receiver.PATH, "", headers, body)


def code(taking: Any, delivery: receiver.Delivery) -> str:
    try:
        taking.take(delivery)
    except receiver.Refused as refused:
        return str(refused.body["error"]["code"])
    return "TAKEN"


def alerts(number: int) -> bytes:
    found = [
        {
            "status": "firing",
            "labels": {"alertname": "down", "number": str(each)},
            "startsAt": "2026-11-22T10:00:00Z",
        }
        for each in range(number)
    ]
    return json.dumps({"version": "4", "alerts": found}).encode()


def test_a_token_holder_who_sends_garbage_keeps_no_signed_alarm_out(taking: Any) -> None:
    refused = [code(taking, by_token(b"garbage")) for _ in range(300)]
    assert refused[-1] == "TOO_MANY"

    rightful = [
        code(taking, by_signature(json.dumps({"group": "payments", "id": n}).encode()))
        for n in map(str, range(20))
    ]

    assert rightful == ["TAKEN"] * 20


def test_each_secret_has_a_rate_of_its_own(taking: Any) -> None:
    numbers = itertools.count()
    while code(taking, by_token(alarm(next(numbers)))) == "TAKEN":
        pass

    assert code(taking, by_token(key=SECOND)) == "TAKEN"
    assert code(taking, by_signature(ALARM, SECOND)) == "TAKEN"


def test_an_invalid_request_costs_more_than_a_valid_one(taking: Any) -> None:
    invalid = [code(taking, by_token(b"garbage")) for _ in range(int(receiver.BURST))]

    assert invalid.count("BAD_REQUEST") == receiver.BURST / receiver.INVALID


def test_alarms_are_counted_not_requests(taking: Any) -> None:
    assert code(taking, by_token(alerts(150))) == "TAKEN"
    assert code(taking, by_token(alerts(150))) == "TAKEN"  # of a sender that still had 50
    assert code(taking, by_token(alerts(1))) == "TOO_MANY"


def test_a_body_has_a_limited_number_of_alarms(taking: Any) -> None:
    assert len(read(json.loads(alerts(MOST)))) == MOST
    with pytest.raises(InvalidDocument, match="the limit is 500"):
        read(json.loads(alerts(MOST + 1)))
    assert code(taking, by_token(alerts(5000))) == "INVALID_DOCUMENT"


def test_a_large_request_delays_no_other_sender_and_its_own_by_a_portion(
    taking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "BURST", 1000.0)
    monkeypatch.setattr(receiver, "PENDING", 2)
    real, decided = intake.take, []
    begun, go_on = threading.Event(), threading.Event()

    def slow(request: Any, alarm: Any) -> Any:
        decided.append(alarm.source)
        if alarm.source == "alertmanager":
            begun.set()
            assert go_on.wait(60)
        return real(request, alarm)

    monkeypatch.setattr(intake, "take", slow)
    with ThreadPoolExecutor(2) as pool:
        large = pool.submit(taking.take, by_token(alerts(MOST)))
        assert begun.wait(60)
        assert code(taking, by_signature(alarm(1))) == "TAKEN"
        assert code(taking, by_token(alarm(2), SECOND)) == "TAKEN"
        assert decided.count("alertmanager") == 1, "the large one still waits"
        own = pool.submit(code, taking, by_token(alarm(3)))
        queue = taking._queues[receiver.Sender("token", 0)]
        until(lambda: len(queue.deciding._waiting) == 1)
        assert code(taking, by_token(alarm(4))) == "TOO_MANY", "it leaves room for other senders"
        go_on.set()
        assert own.result(60) == "TAKEN"
        answer = large.result(60)

    position = [n for n, source in enumerate(decided) if source != "alertmanager"][-1]
    assert position <= receiver.PORTION + 2, "its own waits for one portion"
    assert len(answer.decisions) == MOST
