# SPDX-License-Identifier: Apache-2.0
"""A sender that floods the webhook harms itself, and no other sender."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest

from mistral_failover.alarms import adapters
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.server import intake, secret
from mistral_failover.store.database import Database
from server.conftest import request_of
from support.databases import new_store

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
    monkeypatch.setattr(intake, "RATE", 0.0)
    return intake.Intake(secret.Secret(FIRST, SECOND), Mistral(), request_of(database, "p"))


def alarm(number: int) -> bytes:
    return json.dumps({"group": "payments", "id": f"occasion {number}"}).encode()


def by_token(body: bytes = ALARM, key: bytes = FIRST) -> intake.Delivery:
    return intake.Delivery(f"{intake.PATH}/{secret.Secret(key).token}", "", {}, body)


def by_signature(body: bytes, key: bytes = FIRST) -> intake.Delivery:
    at = str(int(time.time()))
    headers = {secret.TIMESTAMP: at, secret.SIGNATURE: secret.signed(key, at, body)}
    return intake.Delivery(intake.PATH, "", headers, body)


def code(taking: Any, delivery: intake.Delivery) -> str:
    try:
        taking.take(delivery)
    except intake.Refused as refused:
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
    invalid = [code(taking, by_token(b"garbage")) for _ in range(int(intake.BURST))]

    assert invalid.count("BAD_REQUEST") == intake.BURST / intake.INVALID


def test_alarms_are_counted_not_requests(taking: Any) -> None:
    assert code(taking, by_token(alerts(150))) == "TAKEN"
    assert code(taking, by_token(alerts(150))) == "TAKEN"  # of a sender that still had 50
    assert code(taking, by_token(alerts(1))) == "TOO_MANY"


def test_a_body_has_a_limited_number_of_alarms(taking: Any) -> None:
    assert len(adapters.read(json.loads(alerts(adapters.MOST)))) == adapters.MOST
    with pytest.raises(InvalidDocument, match="the limit is 500"):
        adapters.read(json.loads(alerts(adapters.MOST + 1)))
    assert code(taking, by_token(alerts(5000))) == "INVALID_DOCUMENT"
