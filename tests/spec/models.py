# SPDX-License-Identifier: Apache-2.0
"""The models of the specification: small ones for each change, larger ones for an hour, and one
that is wrong on purpose for each mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spec.tlc import INVARIANTS, Goal, Model

TO_B = (Goal("b"),)
FAILOVER = (Goal("b", lost="a"),)
THERE_AND_BACK = (Goal("b"), Goal("a"))
SECOND = (Goal("b", lost="a"), Goal("c", lost="ab"))
RETURNS = (Goal("b", lost="a"), Goal("a"))
AGAIN = (*RETURNS, Goal("b", lost="a"))
NEW_SERVER = (Goal("b", lost="a"), Goal("a", new="a"))

SMALL: Mapping[str, Model] = {
    "a failover; a worker dies, another one freezes": Model(FAILOVER, {"crash": 1, "freeze": 1}),
    "a failover; requests outlive a freeze and a stop": Model(
        FAILOVER, {"freeze": 1, "away": 1, "slow": 1}, late=2
    ),
    "a move and its way back; a request outlives its dead worker": Model(
        THERE_AND_BACK, {"crash": 1, "slow": 1}, late=4
    ),
    "a second failover during the first": Model(SECOND, members="abc"),
    "a failover, and the member returns": Model(RETURNS),
    "a failover, and the member returns with a new server": Model(NEW_SERVER),
    "what serves ends by itself before a failover, or after it; a worker dies": Model(
        FAILOVER, {"crash": 1, "drift": 1}
    ),
    "a failover that fails, and what serves ends by itself": Model(
        FAILOVER, {"fail": 1, "drift": 1}
    ),
    "a failover comes to rest, whoever dies": Model(FAILOVER, {"crash": 1}, comes_to_rest=True),
}

LARGE: Mapping[str, Model] = {
    "a failover with everything": Model(
        FAILOVER, {"crash": 1, "freeze": 1, "away": 1, "slow": 1}, late=2
    ),
    "a failover of two volumes": Model(FAILOVER, {"crash": 1, "freeze": 1}, volumes=2),
    "a second failover, and late requests": Model(
        SECOND, {"crash": 1, "slow": 1}, members="abc", late=4
    ),
    "a second failover; a worker dies": Model(SECOND, {"crash": 1}, members="abc"),
    "a second failover, and a freeze": Model(SECOND, {"freeze": 1}, members="abc"),
    "a return; a worker dies": Model(RETURNS, {"crash": 1}),
    "a return, and late requests": Model(RETURNS, {"crash": 1, "slow": 1}, late=4),
    "a new server; a worker dies": Model(NEW_SERVER, {"crash": 1}),
    "a failover comes to rest after a death and a freeze": Model(
        FAILOVER, {"crash": 1, "freeze": 1}, comes_to_rest=True
    ),
}

# What is seen of the world, without what the model says of its own leases and counts.
_EFFECTS = tuple(each for each in INVARIANTS if each not in ("LeaseIsTrue", "CountsAreTrue"))


def _wrong(mistake: str, model: Model) -> Model:
    return replace(model, mistakes=(mistake,), invariants=_EFFECTS)


MISTAKES: Mapping[str, Model] = {
    mistake: _wrong(mistake, model)
    for mistake, model in {
        "lease_unchecked": Model(FAILOVER, {"freeze": 1}),
        "live_lock_broken": Model(FAILOVER),
        "old_token_accepted": Model(FAILOVER, {"freeze": 1}),
        "dead_lock_kept": Model(FAILOVER, {"crash": 1}, comes_to_rest=True),
        "requests_unrecorded": Model(THERE_AND_BACK, {"away": 1, "slow": 1}, late=2),
        "requests_not_waited_for": Model(THERE_AND_BACK, {"away": 1, "slow": 1}, late=2),
        "forgotten_when_broken": Model(THERE_AND_BACK, {"crash": 1, "slow": 1}, late=4),
        "sent_long_after_it_was_recorded": Model(
            FAILOVER, {"freeze": 1, "away": 1, "slow": 1}, late=2
        ),
        "made_before_the_proof": Model(FAILOVER, first=""),
        "taken_before_the_proof": Model(FAILOVER),
        "old_proof_suffices": Model(AGAIN),
        "running_proof_suffices": Model(AGAIN),
        "epoch_not_raised": Model(RETURNS),
        "users_ignored": Model(TO_B),
        "first_report_suffices": Model(FAILOVER),
        "superseded_reports": Model(THERE_AND_BACK),
    }.items()
}
