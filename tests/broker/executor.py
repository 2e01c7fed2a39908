# SPDX-License-Identifier: Apache-2.0
"""An executor that carries one order out: a program whose argument is FOLDER, see :func:`main`.

FOLDER/order.json says what: ``{"url", "key_file", "lease", "verb", "to", "epoch"}``, with the verb
``run`` or ``depose``, and what a `Command` has besides. FOLDER/outcome.json says what came of it:
``{"result": {...}}``, or ``{"error": {"code", "message", "heard"}}``. It obeys FOLDER/plan.json, as
``support.injected_faults`` says.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from keystoneauth1.session import Session

from mistral_failover import fault_points
from mistral_failover.agent.channel.interface import (
    ChannelContext,
    ChannelError,
    Command,
    channel_for,
)
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.transport import LeaseLost
from support.injected_faults import FaultInjector


class Lease(threading.Thread):
    """A guard as an operation's: renewed as long as the process is awake, lost when it slept for
    too long, and for good."""

    def __init__(self, seconds: float) -> None:
        super().__init__(name="lease", daemon=True)
        self._seconds = seconds
        self._mutex = threading.Lock()
        self._ends = time.monotonic() + seconds
        self.start()

    @property
    def request_id(self) -> str | None:
        """None."""
        return None

    def permit(self, method: str) -> float:
        """See `Guard.permit`."""
        with self._mutex:
            left = self._ends - time.monotonic()
        if left <= 0:
            raise LeaseLost("the test's lease is over")
        return left

    def run(self) -> None:
        while True:
            time.sleep(self._seconds / 10)
            with self._mutex:
                if time.monotonic() < self._ends:
                    self._ends = time.monotonic() + self._seconds


def carry_out(order: dict[str, Any]) -> dict[str, Any]:
    """What came of an order."""
    to = Address(**order["to"])
    context = ChannelContext(
        session=Session(), guard=Lease(order["lease"]), key_file=order["key_file"]
    )
    try:
        channel = channel_for(order["url"], context)
        if order["verb"] == "depose":
            channel.depose(to, order["epoch"])
            return {"result": {}}
        parts = {name: order[name] for name in ("id", "epoch", "name", "arguments", "limit")}
        return {"result": asdict(channel.run(Command(to=to, longest=order["longest"], **parts)))}
    except LeaseLost as error:
        return {"error": {"code": error.code, "message": str(error), "heard": ""}}
    except ChannelError as error:
        return {"error": {"code": error.code, "message": error.message, "heard": error.heard}}


def main() -> None:
    """Carry the order out, and write down what came of it."""
    folder = Path(sys.argv[1])
    faulthandler.register(signal.SIGUSR1, (folder / "stacks").open("a"), all_threads=True)
    fault_points.arm(FaultInjector(folder))
    outcome = carry_out(json.loads((folder / "order.json").read_text()))
    (folder / "outcome.new").write_text(json.dumps(outcome))
    (folder / "outcome.new").replace(folder / "outcome.json")
