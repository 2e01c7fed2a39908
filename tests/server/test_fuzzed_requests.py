# SPDX-License-Identifier: Apache-2.0
"""Whatever is sent to the webhook: no server error, no row, no thread that stays."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.parse
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mistral_failover.store import tables
from mistral_failover.store.database import Database

FUZZ = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=12,
)
names = st.sampled_from(["group", "member", "id", "alerts", "status", "alarm_id", "current"])
bodies = st.one_of(
    st.binary(max_size=300),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(names, json_values).map(lambda value: json.dumps(value).encode()),
)


def rows(store: Database) -> int:
    """How many incidents there are."""
    with store.engine.connect() as connection:
        return len(connection.execute(tables.incidents.select()).all())


@FUZZ
@given(bodies)
def test_a_signed_body_at_random_is_taken_or_refused(
    door: Any, store: Database, body: bytes
) -> None:
    before = rows(store)

    said = door.signed(body)

    assert said.status_code in (202, 400, 429), said.text
    assert rows(store) <= before + 1


@FUZZ
@given(
    bodies, st.dictionaries(st.sampled_from(["X-Failover-Timestamp", "Content-Type"]), st.text())
)
def test_an_unsigned_body_at_random_leaves_nothing(
    door: Any, store: Database, body: bytes, headers: dict[str, str]
) -> None:
    before = rows(store)
    sendable = {key: value for key, value in headers.items() if value.isascii() and value.isalnum()}

    said = door.post(body, sendable)

    assert said.status_code in (400, 401, 429), said.text
    assert rows(store) == before


@FUZZ
@given(st.binary(max_size=300))
def test_bytes_at_random_get_no_server_error_and_leave_no_thread(door: Any, sent: bytes) -> None:
    where = urllib.parse.urlsplit(door.url)
    before = threading.active_count()
    with socket.create_connection((where.hostname, where.port), timeout=10) as connection:
        connection.sendall(sent + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        said = connection.recv(65536)

    assert b" 500 " not in said.partition(b"\r\n")[0]
    end = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before
