# SPDX-License-Identifier: Apache-2.0
"""The rung ``confirm``: an operator confirms the fence."""

from mistral_failover.model.rungs import RungKind


class Confirm(RungKind):
    """It does nothing itself: the ladder looks for an operator's confirmation before every rung and
    at its end. A group file names it to say that an operator may decide."""

    proof = "an operator confirms it"
    limit = 3600.0
    for_dead_host = True
    asks_operator = True
