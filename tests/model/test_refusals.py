# SPDX-License-Identifier: Apache-2.0
"""Errors have a code, a path, a message and a remedy, on one line, and survive a journey."""

import pickle

from mistral_failover.model.errors import InvalidDocument, NoEligibleMember, UnresolvedReference


def test_an_invalid_document_reads_as_one_line() -> None:
    error = InvalidDocument("resources.data", "it is wrong", "Make it right.")
    assert str(error) == "resources.data: it is wrong. Make it right."
    assert error.code == "INVALID_DOCUMENT"


def test_without_a_path_the_message_comes_first() -> None:
    assert str(InvalidDocument("", "it is empty.", "Fill it.")) == "it is empty. Fill it."


def test_control_characters_and_endless_names_do_not_get_into_the_line() -> None:
    error = InvalidDocument("a\nb", "x" * 10_000, "r\x1b[31m")
    assert str(error).startswith("a\\x0ab: xxx")
    assert "\x1b" not in error.remedy
    assert len(str(error)) < 600


def test_no_eligible_member_tells_the_reason_for_each() -> None:
    error = NoEligibleMember("no member", "Add one.", {"b": "it is lost", "a": "it is slow"})
    assert str(error) == "no member (a: it is slow; b: it is lost). Add one."
    assert error.code == "NO_ELIGIBLE_MEMBER"
    assert str(NoEligibleMember("no member", "Add one.", {})) == "no member. Add one."


def test_errors_survive_pickling() -> None:
    for error in (
        InvalidDocument("a", "b", "c"),
        UnresolvedReference("a", "b", "c"),
        NoEligibleMember("a", "b", {"c": "d"}),
    ):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
