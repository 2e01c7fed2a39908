# SPDX-License-Identifier: Apache-2.0
"""Why a traversal stopped, as people read it: one short sentence, and what was tried beneath it.

This module sends no requests. The command line and the page use it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mistral_failover.cli.base import moment
from mistral_failover.model.text import counted, first_words

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.groups.failed_step import FailedStep
    from mistral_failover.reports.documents import StatusReport

MOST = 15
"""Words of a sentence that says why; what needs more is a finding."""
_NAMED = 3  # members in such a sentence; of more it has the number
_CLAUSE = re.compile(r"(?: \(|; |: |, )")
_SAID = 4  # words that say something of their own


@dataclass(frozen=True)
class Finding:
    """Something that was tried or seen: ``what``, in a word or two (may be empty), what was
    ``found``, and when (empty: not known)."""

    what: str
    found: str
    at: str = ""

    def __str__(self) -> str:
        """Return it as a line of text."""
        said = f"{self.what}: {self.found}" if self.what else self.found
        return f"{said} ({self.at})" if self.at else said


def in_short(sentence: str) -> str:
    """Return a sentence of at most `MOST` words: of a longer one its first clauses, or what fits,
    with an ellipsis."""
    short = first_words(sentence, MOST)
    if short == sentence:
        return sentence
    clauses = [short[: each.start()] for each in _CLAUSE.finditer(short)]
    whole = (each for each in reversed(clauses) if each.count("(") == each.count(")"))
    return next((each for each in whole if len(each.split()) >= _SAID), short)


def unproven(status: StatusReport) -> str:
    """Return of which members it is not proven that they are off, as a clause; empty if of none."""
    members = sorted({row["member"] for row in status["remedies"]})
    if not members:
        return ""
    return f"no proof that {named(members)} {'is' if len(members) == 1 else 'are'} off"


def named(members: Sequence[str]) -> str:
    """Return members for a sentence: their names, or how many there are."""
    return " and ".join(members) if len(members) <= _NAMED else counted(len(members), "member")


def short_reason(reason: str, failure: FailedStep | None) -> str:
    """Return the reason of a status in short: only the failed step and the code, if it is a failed
    step."""
    return f"{failure['what']} [{failure['code']}]" if failure else reason


def sentence(status: StatusReport) -> str:
    """Return why a traversal is BLOCKED or FAILED: at most `MOST` words, and the code."""
    failure, open_fences = status["failure"], unproven(status)
    if failure and open_fences and failure["resource"] in _fences(status):
        return f"{open_fences} [{failure['code']}]"
    return in_short(short_reason(str(status["reason"]), failure))


def findings(status: StatusReport) -> tuple[Finding, ...]:
    """Return what was tried before a traversal stopped, in order."""
    failure, now = status["failure"], status["now"]
    if failure is None:
        return (Finding("", status["reason"]),) if status["reason"] else ()
    rows = [Finding(t["what"], t["found"], moment(t["at"], now)) for t in failure["tried"]]
    if not rows:
        rows = [Finding(failure["what"], f"{failure['message']} [{failure['code']}]")]
    others = [row for row in status["remedies"] if row["resource"] != failure["resource"]]
    return (*rows, *(Finding(row["member"], row["reason"]) for row in others))


def beneath(status: StatusReport) -> list[str]:
    """Return the lines beneath :func:`sentence`, which do not repeat it: what was tried, or what
    the failed step found, and then what helps, unless that is among the commands."""
    failure = status["failure"]
    if failure is None:
        whole = str(status["reason"])
        return [whole] if whole != sentence(status) else []
    if failure["tried"]:
        lines = [str(each) for each in findings(status)]
    else:
        found = Finding("", failure["message"].rstrip("."), moment(failure["since"], status["now"]))
        lines = [str(each) for each in (found, *findings(status)[1:])]
    if failure["remedy"] and failure["resource"] not in _fences(status):
        lines.append(f"to do: {failure['remedy']}")
    return lines


def _fences(status: StatusReport) -> set[str]:
    """Return the fences whose commands are shown already."""
    return {row["resource"] for row in status["remedies"]}
