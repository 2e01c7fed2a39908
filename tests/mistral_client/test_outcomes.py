# SPDX-License-Identifier: Apache-2.0
"""What Mistral hands on between actions, what it makes of failures, and what people read of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.convergence.records import Lock, Node, Ticket
from mistral_failover.mistral.operation_documents import outcome_of, read_ticket, ticket_document
from mistral_failover.model.errors import InvalidDocument, NoEligibleMember
from mistral_failover.runtime.errors import ActionError, describe

FACTS = {"code": "NO_PLUG", "message": "there is no plug", "remedy": "buy one"}
TOKEN = "gAAAAABmSecretSecretSecretSecret"

_words = st.text(min_size=1)


@st.composite
def _tickets(draw: st.DrawFn) -> Ticket:
    resource = draw(_words)
    node = Node(draw(st.sampled_from(["update", "cleanup"])), resource)
    lock = Lock(resource, draw(_words), draw(st.integers(1)), draw(st.floats(1, 1e6)))
    verb = draw(st.sampled_from(["create", "update", "delete"]))
    return Ticket(draw(_words), verb, draw(_words), node, lock, draw(_words))


@settings(max_examples=50)
@given(_tickets())
def test_a_ticket_is_the_same_after_its_journey_through_mistral(ticket: Ticket) -> None:
    assert read_ticket(json.loads(json.dumps(ticket_document(ticket)))) == ticket


@pytest.mark.parametrize(
    ("result", "physical_id", "attributes"),
    [
        ({"physical_id": "p", "attributes": {"a": 1}}, "p", {"a": 1}),
        ({"physical_id": 7, "attributes": None}, "7", {}),
        ({"physical_id": None}, None, {}),
        ({"attributes": ["no mapping"]}, None, {}),
        ({"something": "else"}, None, {}),
        (None, None, {}),
        ("text", None, {}),
        ([1, 2], None, {}),
        (True, None, {}),
    ],
)
def test_whatever_an_operation_returns_without_an_error_is_a_success(
    result: Any, physical_id: str | None, attributes: dict[str, Any]
) -> None:
    outcome = outcome_of(result, None)

    assert outcome.ok
    assert (outcome.physical_id, outcome.attributes) == (physical_id, attributes)


@pytest.mark.parametrize(
    "error",
    [
        FACTS,
        {"error": FACTS},
        {"result": FACTS},
        {"result": {"error": FACTS}},
        {"error": FACTS, "result": "Failure caused by error in tasks: attach"},
        {"error": None, "result": {"error": FACTS}},
    ],
    ids=["plain", "output", "result", "both", "as a failed sub-workflow says it", "empty error"],
)
def test_an_error_is_found_in_whatever_mistral_wraps_it(error: Any) -> None:
    assert outcome_of({"physical_id": "p"}, error).error == FACTS


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("it broke", "it broke"),
        ({"result": "Failure caused by error in tasks: only"}, "error in tasks: only"),
        ({"error": {"message": "no code"}}, "no code"),
        ({"code": 404}, "404"),
        (["one", "two"], "one"),
        ({}, "without a message"),
        ([], "without a message"),
        ("", "without a message"),
        (False, "without a message"),
        ("x" * 5000, "x" * 2000),
    ],
)
def test_an_error_without_a_code_keeps_its_words(error: Any, words: str) -> None:
    facts = outcome_of(None, error).error

    assert facts is not None
    assert facts["code"] == "OPERATION_FAILED"
    assert words in facts["message"]
    assert len(facts["message"]) <= 2000
    assert facts["remedy"]


@pytest.mark.parametrize(("blocked", "expected"), [(True, True), (False, False), (None, False)])
def test_an_error_may_say_that_only_a_person_can_help(blocked: Any, expected: bool) -> None:
    assert outcome_of(None, {"error": {**FACTS, "blocked": blocked}}).blocked is expected


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (ActionError("A_CODE", "it broke", "repair it"), {"code": "A_CODE", "message": "it broke"}),
        (CloudError("QUOTA", "full"), {"code": "QUOTA", "message": "full"}),
        (LeaseLost("gone"), {"code": "LEASE_LOST"}),
        (ChannelError("NO_ANSWER", "quiet"), {"code": "NO_ANSWER", "message": "quiet"}),
        (
            InvalidDocument("a.b", "it is wrong", "repair it"),
            {"code": "INVALID_DOCUMENT", "message": "a.b: it is wrong", "remedy": "repair it"},
        ),
        (NoEligibleMember("no one", "add one", {"m": "off"}), {"reasons": {"m": "off"}}),
        (ActionError("B", "m", "r", blocked=True), {"blocked": True}),
        (ValueError("odd"), {"code": "UNEXPECTED", "message": "ValueError: odd"}),
        (KeyError("k"), {"code": "UNEXPECTED", "message": "KeyError: 'k'"}),
    ],
)
def test_an_exception_is_told_by_its_code_message_and_remedy(
    error: BaseException, facts: dict[str, Any]
) -> None:
    told = describe(error)

    assert {key: told[key] for key in facts} == facts
    assert "remedy" in told


def test_only_what_is_blocked_says_so() -> None:
    assert "blocked" not in describe(ActionError("A", "m", "r"))


def test_codes_of_others_are_not_mistaken_for_ours() -> None:
    class Failure(Exception):
        code = "e3q8"

    assert describe(Failure("the server is away"))["code"] == "UNEXPECTED"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("failed with password=hunter2", "hunter2"),
        ("{'auth_token': 'abcdef'}", "abcdef"),
        ('{"password": "hunter2"}', "hunter2"),
        (f"X-Auth-Token: {TOKEN}", TOKEN),
        (f"could not find token: {TOKEN}", TOKEN),
        ("amqp://mistral:hunter2@127.0.0.1:5672/ is away", "hunter2"),
        ("mysql+pymysql://u:hunter2@db/failover", "hunter2"),
    ],
)
@pytest.mark.parametrize("kind", [ValueError, lambda text: ActionError("A_CODE", text, "")])
def test_a_secret_in_an_exception_s_text_is_masked(
    text: str, secret: str, kind: Callable[[str], Exception]
) -> None:
    assert secret not in json.dumps(describe(kind(text)))
    assert secret not in json.dumps(outcome_of(None, text).error)
