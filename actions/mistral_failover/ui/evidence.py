# SPDX-License-Identifier: Apache-2.0
"""What is known of a member that is to be confirmed as fenced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mistral_failover.cli.base import lasted

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.orders.evidence import Evidence


@dataclass(frozen=True)
class SignRow:
    """One sign. ``heard``: when its source heard that; ``alive``: the member may still write."""

    about: str
    says: str
    heard: str
    alive: bool


@dataclass(frozen=True)
class EvidenceView:
    """The signs, and in a sentence what a confirmation does."""

    member: str
    signs: tuple[SignRow, ...]
    sentence: str


def evidence_view(known: Evidence) -> EvidenceView:
    """Return the view of an answer of failover.evidence."""
    rows = (
        SignRow(
            each["about"],
            each["says"],
            "now" if each["ago"] is None else f"{lasted(each['ago'])} ago",
            bool(each["alive"]),
        )
        for each in known["signs"]
    )
    return EvidenceView(known["member"], tuple(rows), known["sentence"])
