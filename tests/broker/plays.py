# SPDX-License-Identifier: Apache-2.0
"""Who reaches which point, and about what."""

from __future__ import annotations

INCREMENT = {
    "command.published": "executor",
    "notice.published": "executor",
    "agent.received": "agent",
    "agent.journaled": "agent",
    "agent.acknowledged": "agent",
    "agent.running": "agent",
    "agent.ended": "agent",
    "agent.recorded": "agent",
    "agent.answered": "agent",
}
"""The points on a command's way: who stands at each."""

DEPOSITION = {
    "notice.published": "executor",
    "agent.deposed": "agent",
    "agent.quiet": "agent",
}
"""The points on the way of a newer epoch's notice."""

DRILLED = ("command.before", "command.after")
"""The points of an operation's action, which the real Mistral reaches."""

UNDECIDED = ("agent.journaled", "agent.acknowledged", "agent.running", "agent.ended")
"""Where an agent that dies leaves an intent without an outcome: without a check it is unknown."""

NOT_BEGUN = ("agent.received", "agent.journaled", "agent.acknowledged")
"""Where an agent that learns that it is deposed has not begun the command."""
