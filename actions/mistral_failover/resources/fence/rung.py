# SPDX-License-Identifier: Apache-2.0
"""What a kind of rung consists of, and what it gets when it runs.

The module of a rung is imported wherever a group file is read, also by commands that talk to no
cloud. So it imports clients of services inside the functions that use them.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from mistral_failover.model.rungs import Rung, RungKind

if TYPE_CHECKING:
    from mistral_failover.agent.channel.interface import ChannelError
    from mistral_failover.cloud.errors import CloudError
    from mistral_failover.cloud.fields import Feature
    from mistral_failover.cloud.servers import Evidence
    from mistral_failover.mistral.operation_documents import OperationDocument
    from mistral_failover.model.group import Group
    from mistral_failover.resources.fence.devices import Devices
    from mistral_failover.resources.operation_context import OperationContext
    from mistral_failover.runtime.errors import Tried
    from mistral_failover.settings import Settings
    from mistral_failover.store.groups import MemberRow

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class FenceTarget:
    """The member to fence.

    ``servers``: every server that records of the member were made on, which may differ from its
    present one. ``stops``: (server, stop command) of each application there, dependents first.
    ``without_stop_command``: names of resources there that no stop command covers. ``confirmed``:
    an operator's confirmation, or None; it may come while the ladder is climbed. ``attached``:
    those of the servers that have volumes of the group. ``volumes``: the ids of these volumes.
    ``beside_volumes``: names of resources there that a fence of the volumes does not cover.
    ``ways``: those in which a lost member of the group comes back.
    """

    member: MemberRow
    servers: tuple[str, ...]
    stops: tuple[tuple[str, str], ...]
    without_stop_command: tuple[str, ...]
    confirmed: Callable[[], str | None]
    attached: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    beside_volumes: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()


@dataclass(frozen=True)
class FenceAttempt:
    """One climb of the ladder; ``tried`` has each rung without a proof, ``unasked`` the errors of
    rungs whose service was unreachable."""

    tools: OperationContext
    operation: OperationDocument
    target: FenceTarget
    tried: list[Tried] = field(default_factory=list)
    unasked: list[CloudError | ChannelError] = field(default_factory=list)


@dataclass(frozen=True)
class Examined:
    """What the doctor passes when it examines a rung."""

    group: Group
    settings: Settings
    lacks_workflow: Callable[[str], bool]
    """Whether Mistral shows no workflow of this name to the project; False if it cannot be asked.
    """
    project_id: str = ""
    """The project of the group."""


class Missing(NamedTuple):
    """Something without which a rung cannot prove anything, and what to do about it."""

    sentence: str
    remedy: str


class FenceRung(RungKind, ABC):
    """A kind of rung that does something to prove that the member no longer writes."""

    @abstractmethod
    def prove(self, attempt: FenceAttempt, rung: Rung) -> Evidence:
        """Try for ``rung["limit"]`` seconds, and return what was found. A repeat must be harmless.

        Wait only with ``slept(attempt.tools.cloud.pauses(probe, what=..., limit=rung["limit"]))``
        (``cloud.waits``): the wait ends when the lease is lost, and when an operator confirms the
        fence. A proof that does not come in time is its CloudError TIMEOUT.

        A proof counts for everything that the group has on the member. A rung that cuts off a part
        of it must not prove anything about a member that has more (``target.beside_volumes``).

        Raise a CloudError, ChannelError or ActionError if it fails: that is no proof, and the next
        rung is tried. If a CloudError or ChannelError is transient, the fence is retried unless
        another rung proves it. LeaseLost and errors of the state store end the climb. Any other
        error fails the fence, so translate what a library or a subprocess raises.
        """

    def missing(self, rung: Rung, examined: Examined) -> Iterable[Missing]:
        """Return what the rung needs and does not have, for the doctor."""
        return ()

    def features(self) -> Iterable[Feature]:
        """Return what Nova and Cinder must offer for the rung. A group file is refused if they do
        not."""
        return ()


class DeviceRung(FenceRung):
    """A rung that uses the operator's fence devices.

    ``needs``: the part of them that it uses, ``hosts`` or ``ceph``; ``without``: what is wrong if
    the operator's file has no such part.
    """

    needs: ClassVar[str]
    without: ClassVar[str]

    @abstractmethod
    def proven(self, attempt: FenceAttempt, rung: Rung, devices: Devices) -> Evidence:
        """Return the proof. Raises ``devices.NoDevices``, ``power.Unproven``, CloudError."""

    def prove(self, attempt: FenceAttempt, rung: Rung) -> Evidence:
        """Use the devices, if the project may use any. What another process may still prove is
        awaited like a service that does not answer: no operator has to confirm it."""
        from mistral_failover.cloud.errors import CloudError
        from mistral_failover.cloud.servers import Evidence
        from mistral_failover.resources.fence import devices, power

        request = attempt.tools.request
        try:
            known = devices.for_project(request.runtime.settings, request.project_id)
            return self.proven(attempt, rung, known)
        except power.Undecided as error:
            LOG.warning(
                "%s of %s is undecided: %s", self.kind, attempt.target.member.name, error.detail
            )
            raise error.awaited() from None
        except (devices.NoDevices, power.Unproven) as error:
            member = attempt.target.member.name
            LOG.warning("No proof by %s for %s: %s", self.kind, member, error.detail)
            return Evidence(False, self.kind, error.message)
        except CloudError as error:
            raise power.translated(error) from None

    def missing(self, rung: Rung, examined: Examined) -> Iterator[Missing]:
        """Require devices that this project may use."""
        from mistral_failover.resources.fence import devices

        nothing = f"the rung {self.kind} proves nothing"
        try:
            known = devices.for_project(examined.settings, examined.project_id)
        except devices.NoDevices as error:
            yield Missing(f"{nothing}: {error.message}", error.remedy)
            return
        if not getattr(known, self.needs):
            yield Missing(
                f"{nothing}: {self.without}",
                f"Ask the operator of the cloud to add {self.needs} to {devices.OPTION}.",
            )
        yield from self.also_missing(examined)

    def features(self) -> Iterable[Feature]:
        """Require the compute services, by which Nova shows where a server is, and is told."""
        from mistral_failover.cloud.hosts import COMPUTE_SERVICES

        return (COMPUTE_SERVICES,)

    def also_missing(self, examined: Examined) -> Iterable[Missing]:
        """Return what else the rung needs and does not have."""
        return ()
