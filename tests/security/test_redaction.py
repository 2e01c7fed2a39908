# SPDX-License-Identifier: Apache-2.0
"""Texts of others may quote secrets: none is stored, shown or logged."""

from __future__ import annotations

import pytest
from oslo_utils import strutils

from mistral_failover.cloud.errors import CloudError
from mistral_failover.redaction import redact
from mistral_failover.runtime.errors import masked, masked_body

SECRET = "s3cr3t-Of-Somebody.0123456789"
TOKEN = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "secret", "rest"),
    [
        (f"Authorization: Bearer {SECRET}", SECRET, "Authorization: "),
        (f'{{"authorization": "bearer {SECRET}=="}}', SECRET, '"}'),
        (f'{{"server": {{"adminPass": "{SECRET}"}}}}', SECRET, "server"),
        (f"admin_pass={SECRET}, flavor=1", SECRET, "flavor=1"),
        ('{"password": "two words"}', "words", "password"),
        ("{'password': 'two words'}", "words", "password"),
        (
            "http://heat/v1/signal?AWSAccessKeyId=4711&Signature=pKZ%2Fabcdefghij0123%3D&Action=x",
            "pKZ%2Fabcdefghij0123",
            "Action=x",
        ),
        (f'{{"X-Amz-Signature": "{TOKEN}"}}', TOKEN, "X-Amz-Signature"),
        (
            f"POST https://failover.example.org:8990/v1/alarms/{TOKEN}?group=payments failed",
            TOKEN,
            "?group=payments failed",
        ),
        ("amqps://failover:p@ss@broker.example.org/failover", "p@ss", "@broker.example.org"),
        ("amqps://failover:p@ss@broker.example.org/failover", "ss@", "broker.example.org"),
        ("mysql+pymysql://failover:p:w@d@db/failover: no such host", "w@d", "db/failover"),
    ],
)
def test_a_secret_is_masked_and_the_rest_stays(text: str, secret: str, rest: str) -> None:
    for shown in (redact(text), masked(text), CloudError("FAILED", text).message):
        assert secret not in shown
        assert rest in shown
        assert "***" in shown


@pytest.mark.parametrize("key", sorted(strutils._SANITIZE_KEYS))
@pytest.mark.parametrize(
    "form",
    [
        "{key}={value}",
        "{key} = '{value}'",
        '{key} = "{value}"',
        "--{key} {value}",
        "--{key}={value}",
        "{{'{key}': '{value}'}}",
        '{{"my_{key}": "{value}"}}',
        "<{key}>{value}</{key}>",
    ],
)
def test_a_value_that_openstack_hides_is_hidden_without_its_libraries(key: str, form: str) -> None:
    """An agent has none of them, and the traceback of a defect goes through no other mask."""
    text = form.format(key=key, value="s3cr3t") + " was refused"

    assert "s3cr3t" not in redact(text)
    assert redact(text).endswith(" was refused")


def test_what_is_no_secret_stays() -> None:
    text = "see https://example.org/a@b, and tell ops@example.org: the bearer is down"

    assert masked(text) == text


def test_the_body_of_an_alarm_is_masked_at_every_depth() -> None:
    body = {"server": [{"adminPass": SECRET, "note": f"Bearer {SECRET}"}], "host": "c-1"}

    shown = masked_body(body)

    assert SECRET not in str(shown)
    assert shown["host"] == "c-1"
