# SPDX-License-Identifier: Apache-2.0
"""What happens at a point, what is done about it, and who finds out what became of the command."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from broker.processes import Armed, Executor, Outcome
from broker.rig import LEASE, PATIENCE, Node, Rig
from faults.slot import until
from support.injected_faults import Fault

ASKED_AGAIN = ("NO_ANSWER", "UNREACHABLE", "LEASE_LOST", "REFUSED")
"""Codes after which the next process asks again, with the same id."""
MODES = ("kill", "freeze", "broker")
"""SIGKILL and a start; SIGSTOP for longer than anybody waits; SIGKILL and a start of the broker."""
_ASKED = 8  # times at most


def strike(victim: Armed, point: str, mode: str, nth: int = 1) -> None:
    """Have the victim's next start, or what it is about, end at a point."""
    victim.plan.set(Fault(point, "hold" if mode == "broker" else mode, nth))


@dataclass
class Doctor:
    """Brings one increment of one node to an end, whatever happened to those who help.

    ``unknown``: how often the agent said that it does not know; then a person settled it.
    """

    rig: Rig
    node: Node
    executor: Executor
    unknown: int = 0
    said: list[Outcome] = field(default_factory=list)

    def treat(self, victim: Armed, point: str, mode: str) -> None:
        """Wait until the victim stands at the point, let it happen, and start what died."""
        self.rig.until_struck(victim, self.executor)
        if mode == "kill":
            until(lambda: victim.dead, PATIENCE, lambda: f"dead at {point}")
            victim.start()
        elif mode == "broker":
            self.rig.broker.kill()
            self.rig.broker.start()
            victim.plan.go_on()
        elif mode == "exception":
            if isinstance(victim, Executor):
                until(lambda: victim.dead, PATIENCE, lambda: f"ended at {point}")
                victim.start()
        else:
            self._sleep(victim, point)

    def _sleep(self, victim: Armed, point: str) -> None:
        until(lambda: victim.frozen, PATIENCE, lambda: f"frozen at {point}")
        since = time.monotonic()
        victim.freeze()  # with what it started, as a hypervisor does
        if isinstance(victim, Node):
            # Longer than anybody waits for a word of it.
            until(lambda: self.executor.outcome, PATIENCE, lambda: "given up")
            assert self.executor.outcome is not None
            gone_on = point == "agent.answered"  # then it had said everything
            assert gone_on or self.executor.outcome.code in ASKED_AGAIN
        else:
            survivor = self.rig.again(self.executor)
            self.said.append(self.rig.carry_out(survivor))
            until(
                lambda: time.monotonic() > since + LEASE, PATIENCE, lambda: "the end of its lease"
            )
        victim.wake()

    def bring_to_an_end(self) -> Outcome:
        """Ask again and again, as retries and sweeps do; an operator says what no process knows."""
        found = self._wait(self.executor)
        for _ in range(_ASKED):
            if found.code == "UNKNOWN_OUTCOME":
                self.unknown += 1
                # What has a check is looked at when it is asked for again.
                if self.executor.order["name"] == "plain":
                    self.node.settle(self.executor.order["id"])
            elif found.code not in ASKED_AGAIN:
                return found
            found = self.rig.carry_out(self.rig.again(self.executor))
            self.said.append(found)
        raise AssertionError(f"no end: {[str(outcome) for outcome in self.said]}")

    def _wait(self, executor: Executor) -> Outcome:
        found: Outcome = until(
            lambda: executor.outcome, PATIENCE, lambda: f"an outcome: {executor.folder}"
        )
        self.said.append(found)
        return found
