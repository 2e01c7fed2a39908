# SPDX-License-Identifier: Apache-2.0
"""What the actions of one process share: settings, the state store, the engine, the leases."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mistral_failover import settings as configuration
from mistral_failover.agent.channel.interface import (
    Channel,
    Command,
    CommandResult,
    Heartbeat,
    Means,
    channel_for,
)
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.clients import Cloud, cloud_for
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import Guard, HandedBack, LeaseLost
from mistral_failover.cloud.session import refusal, refuse_other_clouds
from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.engine import Engine
from mistral_failover.model.ids import derived_id
from mistral_failover.runtime import executor_stop
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.workers import Workers
from mistral_failover.settings import Settings
from mistral_failover.store import schema
from mistral_failover.store.database import Database, UnsupportedDatabase
from mistral_failover.store.leases import Lease, LeaseKeeper


class Runtime:
    """The shared state of a process, one per state store.

    ``eager``: whether the process that begins a traversal works on it at once, without waiting for
    the first task of its chain; tests of single actions do without.
    """

    def __init__(self, settings: Settings, *, eager: bool = True) -> None:
        if not settings.database:
            raise ActionError(
                "CONFIG",
                "no state store is configured",
                "Set [failover] database to an SQLAlchemy URL in mistral.conf.",
            )
        if settings.lease_margin > settings.lease / 3:
            raise ActionError(
                "CONFIG",
                f"lease_margin ({settings.lease_margin:g} s) is more than a third of lease "
                f"({settings.lease:g} s)",
                "Set [failover] lease_margin to a third of lease at most.",
            )
        self.settings = settings
        self.eager = eager
        try:
            self.database = Database(settings.database)
        except UnsupportedDatabase as error:
            raise ActionError(error.code, error.message, error.remedy) from None
        try:
            schema.upgrade(self.database)
        except schema.SchemaTooNew as error:
            self.database.close()
            raise ActionError("SCHEMA_UNKNOWN", error.message, error.remedy) from None
        self.definitions = Definitions()
        self.engine = Engine(self.database, lease=settings.lease, definitions=self.definitions)
        self.leases = LeaseKeeper(self.database)
        self.workers = Workers(settings.parallel_operations)

    def guard(self, lease: Lease) -> LeaseGuard:
        """Return the guard of the calls that are made under a lease."""
        return LeaseGuard(lease, self.settings.lease_margin, lambda: self.workers.stopping)


DEFAULT_PROJECT = "<default-project>"


def own_project(settings: Settings) -> str:
    """The project of everything in a Mistral whose authentication is off."""
    return settings.project or DEFAULT_PROJECT


def request_id(resource_id: str, token: int) -> str:
    """Return the global request id of the calls made under one lock."""
    return f"req-{derived_id(resource_id, str(token))}"


@dataclass(frozen=True)
class LeaseGuard:
    """Permits a call while enough of the lease certainly remains; renews the lease when it gets
    short.

    Before a call that changes something, the lease is renewed in the database, so a lost lock is
    noticed before the call. ``stopping`` says whether the process releases its work: then no
    further call starts.
    """

    lease: Lease
    margin: float
    stopping: Callable[[], bool] = lambda: False

    @property
    def request_id(self) -> str:
        """See ``cloud.guard.Guard``."""
        return request_id(self.lease.lock.resource_id, self.lease.lock.token)

    def permit(self, method: str) -> float:
        """See ``cloud.guard.Guard``. Raises HandedBack as well."""
        if self.stopping():
            raise HandedBack
        changes = method not in ("GET", "HEAD")
        if changes or self.lease.remaining() < self.lease.lock.lease / 3:
            self.lease.renew()
        left = self.lease.remaining() - self.margin
        if left <= 0:
            raise LeaseLost(f"the lease on resource {self.lease.lock.resource_id} is lost")
        return left


class ChannelOnDemand:
    """The configured channel, created when the first command is sent: most operations send none."""

    def __init__(self, url: str | None, means: Means) -> None:
        self._url = url
        self._means = means

    @cached_property
    def _channel(self) -> Channel:
        return channel_for(self._url, self._means)

    def run(self, command: Command) -> CommandResult:
        """See ``agent.channel.interface.Channel``. Raises ChannelError, CONFIG included."""
        return self._channel.run(command)

    def depose(self, to: Address, epoch: int) -> None:
        """See ``agent.channel.interface.Channel``."""
        self._channel.depose(to, epoch)

    def heard(self, to: Address) -> Heartbeat | None:
        """See ``agent.channel.interface.Channel``."""
        return self._channel.heard(to)


class Request:
    """One run of an action: its project, and the rights with which it calls the cloud."""

    def __init__(self, runtime: Runtime, context: Any) -> None:
        self.runtime = runtime
        self.context = context

    @cached_property
    def project_id(self) -> str:
        """The project that owns everything this request may touch.

        Mistral reports it, from Keystone's answer about the token: the state store is as safe as
        Mistral's own rows. A request without a project is refused.

        Raises ActionError NO_PROJECT; CloudError FORBIDDEN for a request that names another cloud,
        or another project than the only one of ``[failover] project``.
        """
        security = self.context.security
        refuse_other_clouds(security)
        project_id = security.project_id
        own = own_project(self.runtime.settings)
        if not security.auth_token and project_id in (None, "", DEFAULT_PROJECT):
            # Mistral's authentication is off: it keeps everything under one name itself.
            project_id = own
        if not project_id:
            raise ActionError(
                "NO_PROJECT",
                "the request belongs to no project",
                "Call with a token that is scoped to a project.",
            )
        if self.runtime.settings.project and project_id != own:
            raise CloudError(
                "FORBIDDEN",
                f"The request is for project {project_id}; this Mistral serves only project {own}.",
                remedy="Ask the Mistral of the project that owns the group.",
            )
        return str(project_id)

    @property
    def execution(self) -> str | None:
        """The id of the workflow execution that runs the action; None for an action that is run
        alone."""
        return self.context.execution.workflow_execution_id or None

    @property
    def owner(self) -> str:
        """The owner of a lock taken by this request, for people: execution, action, process."""
        execution = self.context.execution
        parts = (execution.workflow_execution_id, execution.action_execution_id)
        return f"{'/'.join(p or '-' for p in parts)}@{socket.gethostname()}:{os.getpid()}"

    def cloud(self, guard: Guard) -> Cloud:
        """The cloud with this request's rights."""
        return cloud_for(self.context.security, guard=guard, settings=self.runtime.settings)

    def refusal(self) -> CloudError | None:
        """Return why Keystone no longer accepts this request, TOKEN_EXPIRED or TRUST_GONE; None if
        it does, or cannot be asked."""
        return refusal(self.context.security, self.runtime.settings)

    def channel(self, cloud: Cloud, guard: Guard) -> Channel:
        """Return the channel to the members' agents, guarded like the cloud."""
        settings = self.runtime.settings
        means = Means(cloud.session, guard, settings.agent_key_file)
        return ChannelOnDemand(settings.command_channel, means)


_runtimes: dict[Settings, Runtime] = {}
_mutex = threading.Lock()


def runtime() -> Runtime:
    """Return the process's runtime for the present configuration.

    Raises ActionError CONFIG if no state store is configured.
    """
    settings = configuration.load()
    executor_stop.hand_back_with_the_executor(hand_back, reopen)
    with _mutex:
        if settings not in _runtimes:
            _runtimes[settings] = Runtime(settings)
        return _runtimes[settings]


def hand_back(seconds: float) -> bool:
    """Have every pool of this process release its work, and wait for that, at most ``seconds``:
    then another process need not wait for the end of a lease. Return whether there was any."""
    deadline = time.monotonic() + seconds
    worked = False
    for each in _known():
        worked |= each.workers.hand_back(max(0.0, deadline - time.monotonic()))
    return worked


def reopen() -> None:
    """Accept work again, after :func:`hand_back`."""
    for each in _known():
        each.workers.reopen()


def _known() -> list[Runtime]:
    with _mutex:
        return list(_runtimes.values())
