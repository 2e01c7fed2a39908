# SPDX-License-Identifier: Apache-2.0
"""A request: one run of an action, with its project, its user, and its rights in the cloud."""

from __future__ import annotations

import os
import socket
from functools import cached_property
from typing import Any

from mistral_failover.agent.channel.interface import (
    Channel,
    ChannelContext,
    Command,
    CommandResult,
    Heartbeat,
    channel_for,
)
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.clients import Cloud, cloud_for
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.session import refuse_other_clouds, why_refused
from mistral_failover.cloud.transport import Guard
from mistral_failover.convergence.engine import Engine
from mistral_failover.model.text import plain
from mistral_failover.runtime.errors import ActionError, ErrorFacts, caught
from mistral_failover.runtime.process import Runtime
from mistral_failover.settings import Settings
from mistral_failover.store.database import ProjectStore

DEFAULT_PROJECT = "<default-project>"


def own_project(settings: Settings) -> str:
    """The project of everything in a Mistral whose authentication is off."""
    return settings.project or DEFAULT_PROJECT


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

    @cached_property
    def store(self) -> ProjectStore:
        """The state store as the project of this request sees it. Raises as :attr:`project_id`."""
        return self.runtime.database.for_project(self.project_id)

    @cached_property
    def engine(self) -> Engine:
        """The engine for what a user asked for: its transactions are those of :attr:`store`. Raises
        as :attr:`project_id`."""
        lease, definitions = self.runtime.settings.lease, self.runtime.definitions
        return Engine(self.store, lease=lease, definitions=definitions)

    @property
    def execution(self) -> str | None:
        """The id of the workflow execution that runs the action; None for an action that is run
        alone."""
        return self.context.execution.workflow_execution_id or None

    @property
    def owner(self) -> str:
        """The owner of a lock taken by this request: ``EXECUTION/ACTION@HOST:PID``."""
        execution = self.context.execution
        parts = (execution.workflow_execution_id, execution.action_execution_id)
        return f"{'/'.join(p or '-' for p in parts)}@{socket.gethostname()}:{os.getpid()}"

    @property
    def caller(self) -> str:
        """The name of the user, for the record of operators' decisions. Without authentication in
        Mistral there is none."""
        return plain(self.context.security.user_name or "an unknown user")

    def cloud(self, guard: Guard) -> Cloud:
        """The cloud with this request's rights."""
        return cloud_for(self.context.security, guard=guard, settings=self.runtime.settings)

    def caught(self, error: BaseException, doing: str) -> ErrorFacts:
        """Return an exception as ``runtime.errors.caught`` does, as one in this project's work."""
        return caught(error, doing, self.__dict__.get("project_id", ""))

    def refusal(self) -> CloudError | None:
        """Return why Keystone no longer accepts this request, TOKEN_EXPIRED or TRUST_GONE; None if
        it does, or cannot be asked."""
        return why_refused(self.context.security, self.runtime.settings)

    def channel(self, cloud: Cloud, guard: Guard) -> Channel:
        """Return the channel to the members' agents, guarded like the cloud."""
        settings = self.runtime.settings
        context = ChannelContext(cloud.session, guard, settings.agent_key_file)
        return ChannelOnDemand(settings.command_channel, context)


class ChannelOnDemand:
    """The configured channel, created when the first command is sent: most operations send none."""

    def __init__(self, url: str | None, context: ChannelContext) -> None:
        self._url = url
        self._context = context

    @cached_property
    def _channel(self) -> Channel:
        return channel_for(self._url, self._context)

    def run(self, command: Command) -> CommandResult:
        """See ``agent.channel.interface.Channel``. Raises ChannelError, CONFIG included."""
        return self._channel.run(command)

    def depose(self, to: Address, epoch: int) -> None:
        """See ``agent.channel.interface.Channel``."""
        self._channel.depose(to, epoch)

    def heard(self, to: Address) -> Heartbeat | None:
        """See ``agent.channel.interface.Channel``."""
        return self._channel.heard(to)
