# SPDX-License-Identifier: Apache-2.0
"""The services, through their own clients, over one guarded session.

The clients are imported here at module level: that takes over a second, which a process spends when
it starts and not in its first failover. Making a `Cloud` is cheap; a client is made at its first
use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.parse import urlencode

import requests
from cinderclient import api_versions
from cinderclient.v3 import client as cinder
from heatclient.v1 import client as heat
from keystoneauth1.adapter import Adapter
from keystoneauth1.discover import version_to_string
from keystoneauth1.exceptions import DiscoveryFailure, NotFound
from openstack import connection, exceptions
from openstack.compute.v2._proxy import Proxy as Compute

from mistral_failover.cloud.coalescing import RequestCoalescer
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.fields import Feature, Field, microversion
from mistral_failover.cloud.guard import Guard
from mistral_failover.cloud.paging import all_rows
from mistral_failover.cloud.session import GuardedSession, refusal, session_for
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.cloud.waits import (
    ConcurrentWaits,
    Pauses,
    ProbeResult,
    ResendPolicy,
    pauses_until,
    slept,
)
from mistral_failover.settings import Settings

NOVA_MICROVERSION = "2.96"
"""The newest microversion of Nova whose bodies are known here."""
COMPLETED_ATTACHMENT = Feature("Cinder", "completing attachments", since="3.44")
"""Nova needs it, too."""
_PROJECT_ID = Field("the service", "project_id")
_VERSIONED = {"Nova": ("compute", 2), "Cinder": ("block-storage", 3)}
"""Service type and major version of the services that have microversions."""

T = TypeVar("T")

_waits = ConcurrentWaits()
_questions = RequestCoalescer()


class Cloud:
    """Access to the cloud for one request, or one operation, within its project."""

    def __init__(
        self,
        session: GuardedSession,
        settings: Settings | None = None,
        refused: Callable[[], CloudError | None] = lambda: None,
    ) -> None:
        """``refused``: returns why Keystone no longer accepts the request, or None if it does."""
        self.session = session
        self.settings = settings or Settings()
        self._refused = refused

    @property
    def guard(self) -> Guard:
        """Return the guard that is asked before every call."""
        return self.session.guard

    @cached_property
    def project_id(self) -> str:
        """Return the id of the project whose rights the session has."""
        with translated("authenticate", "Keystone"):
            return str(self.session.get_project_id())

    def own(self, row: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        """Return a row of Neutron, Octavia or Aodh that was read by its id, unless it belongs to
        another project: an administrator is shown those, too. ``what``: its name, to begin a
        sentence. Raises `CloudError` FORBIDDEN."""
        if _PROJECT_ID.of(row) != self.project_id:
            raise CloudError(
                "FORBIDDEN",
                f"{what} belongs to another project.",
                remedy="Name one of the group's own project in the group file.",
            )
        return row

    @cached_property
    def compute(self) -> Compute:
        """Nova, as openstacksdk's proxy, for requests whose answers decide nothing: if Nova's
        versions could not be read, it uses the oldest one, whose answers lack fields."""
        with translated("find the compute service", "Nova"):
            return connection.Connection(
                session=self.session, region_name=self.session.region_name
            ).compute

    def nova(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send Nova a plain request and return the body of the answer. For what is asked often:
        openstacksdk takes 3 ms of CPU to make an object of a server. Raises as openstacksdk does.
        """
        answer = self.send_nova(method, path, body)
        return dict(answer.json()) if answer.content else {}

    def send_nova(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> requests.Response:
        """As `nova`, for the whole answer."""
        answer: requests.Response = self._nova.request(path, method, json=body, raise_exc=False)
        exceptions.raise_from_response(answer)
        return answer

    def read_nova(self, path: str) -> dict[str, Any]:
        """As `nova` with GET; operations that ask at the same time share an answer, so callers must
        not change it."""
        return self.shared(("nova", path), lambda: self.nova("GET", path))

    def shared(self, question: tuple[Hashable, ...], send: Callable[[], T]) -> T:
        """Return what ``send`` reads; operations that ask the same question with the same rights at
        the same time share an answer (`RequestCoalescer.ask`), so callers must not change it."""
        limit = self.settings.http_timeout
        return _questions.ask((self._rights, *question), send, self.guard, limit)

    @property
    def _rights(self) -> Hashable:
        """The same for operations that may see each other's answers."""
        return self.session.auth, self.session.region_name

    def volume(self, volume_id: str) -> Any:
        """Return a volume as Cinder shows it, to read its attributes only: many waits for volumes
        with the same rights share a listing. Raises as cinderclient does."""
        if most := _waits.rows(self._rights):
            rows, listed = self.shared(("volumes",), lambda: (most, self._listed(most)))
            found = listed.get(volume_id)
            if found is not None:
                return SimpleNamespace(**found)
            if len(listed) >= rows:
                _waits.too_many(self._rights)
        return SimpleNamespace(**self._read_cinder(url_path("volumes", volume_id))["volume"])

    def _listed(self, most: int) -> dict[str, dict[str, Any]]:
        """Return the first ``most`` volumes of the project by id. Cinder may list fewer at once."""

        def read(page: dict[str, str]) -> dict[str, Any]:
            return self._read_cinder(f"/volumes/detail?{urlencode({'limit': most, **page})}")

        return {str(volume["id"]): dict(volume) for volume in all_rows("volumes", read, most)}

    def _read_cinder(self, path: str) -> dict[str, Any]:
        """Return the body of an answer. Not as cinderclient's objects: making one of each listed
        volume takes longer than reading them."""
        _, body = self.volumes.client.get(path)
        return dict(body)

    @cached_property
    def _nova(self) -> Adapter:
        adapter = self._versioned(*_VERSIONED["Nova"])
        adapter.default_microversion = min(self.newest("Nova"), NOVA_MICROVERSION, key=microversion)
        return adapter

    def newest(self, service: str) -> str:
        """Return the newest microversion that Nova or Cinder offers. Raises `CloudError`, also if
        the service does not say it: keystoneauth would go on without one, and then the service
        leaves fields out of its answers."""
        service_type, major = _VERSIONED[service]
        doing = f"ask {service} for its microversions"
        with translated(doing, service):
            found = None
            with suppress(DiscoveryFailure):
                found = self._versioned(service_type, major).get_endpoint_data()
            if found is None or found.max_microversion is None:
                with suppress(NotFound):  # keystoneauth does not say why it found none
                    self._adapter(service_type).get("")
        if found is None or found.max_microversion is None:
            raise CloudError(
                "UNREACHABLE",
                f"Could not {doing}: its endpoint named none.",
                service=service,
                detail="its endpoint named no microversions",
            )
        return str(version_to_string(found.max_microversion))

    def _versioned(self, service_type: str, major: int) -> Adapter:
        least = "2.1" if major == 2 else f"{major}.0"
        return self._adapter(service_type, min_version=least, max_version=f"{major}.latest")

    @cached_property
    def volumes(self) -> cinder.Client:
        """Cinder v3."""
        return cinder.Client(
            session=self.session,
            region_name=self.session.region_name,
            api_version=api_versions.APIVersion(COMPLETED_ATTACHMENT.since),
        )

    @cached_property
    def heat(self) -> heat.Client:
        """Heat v1: openstacksdk only PUTs, and a failover needs PATCH (``existing=True``)."""
        # heatclient would send the header X-Region-Name: None.
        region = {"region_name": name} if (name := self.session.region_name) else {}
        return heat.Client(session=self.session, **region)

    @cached_property
    def network(self) -> Adapter:
        """Neutron, by plain requests: it has had the one version 2.0 since its beginning."""
        return self._adapter("network")

    @cached_property
    def balancing(self) -> Adapter:
        """Octavia, by plain requests: an endpoint has no version in its path, and there is only
        v2."""
        return self._adapter("load-balancer")

    @cached_property
    def naming(self) -> Adapter:
        """Designate, by plain requests: an endpoint has no version in its path, and there is only
        v2."""
        return self._adapter("dns")

    @cached_property
    def alarming(self) -> Adapter:
        """Aodh, by plain requests: openstacksdk has no proxy of it."""
        return self._adapter("alarming")

    def _adapter(self, service_type: str, **versions: Any) -> Adapter:
        return Adapter(
            self.session,
            service_type=service_type,
            interface="public",
            region_name=self.session.region_name,
            **versions,
        )

    def wait(
        self, probe: Callable[[], ProbeResult], *, what: str, limit: float, for_volume: bool = False
    ) -> Any:
        """`pauses_until` in this thread, with the configured pauses and this cloud's guard.
        ``for_volume``: the probe reads a volume each time; many such waits share what they read
        (`volume`)."""
        return slept(self.pauses(probe, what=what, limit=limit, for_volume=for_volume))

    def pauses(
        self, probe: Callable[[], ProbeResult], *, what: str, limit: float, for_volume: bool = False
    ) -> Pauses[Any]:
        """As :meth:`wait`, for a caller that sleeps itself."""
        with _waits.waiting(self._rights if for_volume else None):
            return (
                yield from pauses_until(
                    probe,
                    what=what,
                    limit=limit,
                    first=self.settings.poll_first,
                    growth=self.settings.poll_growth,
                    ceiling=self.settings.poll_ceiling,
                    guard=self.guard,
                    refused=self._refused,
                    concurrent=_waits,
                )
            )

    def carry_out(
        self, repeats: ResendPolicy, step: Callable[[], ProbeResult], what: str, limit: float
    ) -> Any:
        """`wait` until a step is done. A request without an answer may take effect after this
        call: then the error says that the outcome is unknown."""
        try:
            return self.wait(step, what=what, limit=limit)
        except CloudError as error:
            error.unknown = error.unknown or repeats.unanswered is not None
            raise


def cloud_for(security: Any, *, guard: Guard, settings: Settings) -> Cloud:
    """Make the cloud of a request; parameters and errors as in `session_for`."""
    session = session_for(security, guard=guard, settings=settings)
    return Cloud(session, settings, partial(refusal, security, settings))
