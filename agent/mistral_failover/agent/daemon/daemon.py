# SPDX-License-Identifier: Apache-2.0
"""The agent: its parts, its start and its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from mistral_failover.agent.broker import Broker
from mistral_failover.agent.daemon import effects, runner
from mistral_failover.agent.daemon.deposed import DeposedCleanup, Deposer
from mistral_failover.agent.daemon.dispatcher import CommandDispatcher, elapsed
from mistral_failover.agent.daemon.intake import Intake
from mistral_failover.agent.daemon.isolation import Isolating, Namespaces
from mistral_failover.agent.daemon.journal import Journal
from mistral_failover.agent.daemon.outbox import AgentReports, Outbox
from mistral_failover.agent.daemon.readiness import Readiness
from mistral_failover.agent.daemon.rehearsals import Rehearsals
from mistral_failover.agent.daemon.result_publisher import PublisherConnection, ResultPublisher
from mistral_failover.agent.daemon.settings import AgentConfig
from mistral_failover.agent.daemon.worker import Lanes, Worker, tidy_up

LOG = logging.getLogger(__name__)

FINISH = 60.0
"""Seconds that running commands have to end after the agent was asked to stop."""
FAREWELL = 5.0
"""Seconds to send the remaining messages after that."""


class Agent:
    """The agent on a server. ``ready`` is called once it works, ``alive`` about every second
    while it works, ``stopping`` when it begins to stop. ``isolating``: how to isolate rehearsals;
    None: by namespaces."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        ready: Callable[[], object] = lambda: None,
        alive: Callable[[], object] = lambda: None,
        stopping: Callable[[], object] = lambda: None,
        finish: float = FINISH,
        isolating: Isolating | None = None,
    ) -> None:
        self._config = config
        self._isolating = isolating
        self._ready = ready
        self._alive = alive
        self._stopping = stopping
        self._finish = finish

    def run(self, stop: threading.Event) -> None:
        """Serve until ``stop``; then hand back commands that have not begun, and let running ones
        end in time.

        Raises CodedError if another agent has the journal or it cannot be opened; sqlite3.Error
        if it cannot be read.
        """
        config = self._config
        broker, address = Broker(config.broker), config.identity.address
        with Journal(config.journal) as journal:
            if journal.belong_to(f"{address.group_id}/{address.server_id}"):
                LOG.warning("The journal belonged to another server or group: starting a new one")
            left = tidy_up(journal)
            effects.tidy_up(journal)
            outbox = Outbox()
            rehearsals = Rehearsals(journal, self._isolating or Namespaces(config.rehearsals))
            rehearsals.tidy_up()
            if isinstance(rehearsals.isolating, Namespaces):
                rehearsals.isolating.try_it(config.rehearsable)
            readiness = Readiness(journal)
            readiness.look()
            reports = AgentReports(config.identity, outbox)
            dispatcher = CommandDispatcher(config, journal, reports, readiness.why_not, rehearsals)
            readiness.changed = dispatcher.heartbeat_at_once
            for row in left:
                dispatcher.look_into(row)
            line = PublisherConnection(broker, address)
            lanes = Lanes(Worker(config, journal, dispatcher, line.exists).carry_out)
            publisher = ResultPublisher(line, outbox, dispatcher.prompt)
            deposer = Deposer(DeposedCleanup(config, journal, dispatcher), dispatcher)
            watch = effects.EffectsWatch(config, journal, dispatcher)
            publisher.start()
            deposer.start()
            readiness.start()
            watch.start()
            LOG.info("The agent of server %s is in epoch %d", address.server_id, dispatcher.epoch)
            self._ready()
            try:
                Intake(
                    broker,
                    address,
                    dispatcher,
                    lambda: dispatcher.begin(lanes.hand_over),
                    self._alive,
                ).run(stop)
            finally:
                self._stopping()
                watch.finish()
                self._end(dispatcher, deposer)
                readiness.finish()
                publisher.finish(FAREWELL)
                line.close()

    def _end(self, dispatcher: CommandDispatcher, deposer: Deposer) -> None:
        end = elapsed() + self._finish
        dispatcher.end_rehearsal("the agent was stopped")
        if not self._wait(dispatcher, end):
            LOG.warning("Killing the commands that are still running")
            dispatcher.stop_running()
            self._wait(dispatcher, elapsed() + runner.LONGEST_END)
        deposer.finish(end - elapsed())
        if left := dispatcher.rehearsals.wait_until_gone():
            LOG.error("The rehearsal has not ended: %s", left)

    def _wait(self, dispatcher: CommandDispatcher, end: float) -> bool:
        while not dispatcher.wait_until_quiet(min(1.0, max(0.0, end - elapsed()))):
            self._alive()
            if elapsed() >= end:
                return False
        return True
