# SPDX-License-Identifier: Apache-2.0
"""The services, over one guarded session: Heat and Cinder through their own clients, all others by
plain requests. The session raises what a service refuses, or does not answer, as `CloudError`.

The clients are imported here at module level: that takes over a second, which a process spends when
it starts and not in its first failover. Making a `Cloud` is cheap; a client is made at its first
use.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.parse import urlencode

import requests
from cinderclient import api_versions
from cinderclient.v3 import client as cinder
from heatclient.v1 import client as heat
from keystoneauth1.adapter import Adapter
from keystoneauth1.discover import version_to_string
from keystoneauth1.exceptions import DiscoveryFailure

from mistral_failover.cloud.errors import CloudError, if_there, translated
from mistral_failover.cloud.fields import Feature, Field, microversion
from mistral_failover.cloud.session import session_for, why_refused
from mistral_failover.cloud.transport import Guard, GuardedSession, LeaseLost, NoLongerNeeded
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
_SERVICES: dict[str, tuple[str, str | None, str | None]] = {
    "Aodh": ("alarming", None, None),
    "Cinder": ("block-storage", "3.0", "3.latest"),
    "Designate": ("dns", None, None),
    "Heat": ("orchestration", None, None),
    "Neutron": ("network", None, None),
    "Nova": ("compute", "2.1", "2.latest"),
    "Octavia": ("load-balancer", None, None),
}
"""How each service is found in the catalog: its type, and its versions. Without any, a path
names the version, or there is only one."""
_VERSION = re.compile(r"/v\d+(\.\d+)?/?$")
_NO_MARKER = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
"""What a service says of a marker that it does not know: Nova the first, Neutron and Cinder the
second."""

T = TypeVar("T")
_SLICE = 1.0
"""Seconds after which a waiting caller asks its guard again."""


class _Request:
    """A request, for all who asked before it is sent. ``sent``: when that was, on the monotonic
    clock. ``instead``: the one that replaces it for the other callers, because its outcome is valid
    only for its sender. ``changed``: wakes them, and no caller of another request."""

    def __init__(self, lock: threading.Lock) -> None:
        self.changed = threading.Condition(lock)
        self.sent: float | None = None
        self.done = False
        self.answer: Any = None
        self.error: Exception | None = None
        self.instead: _Request | None = None


class _SharedQuestion:
    """A question that at least one caller asks. ``next``: the request that is sent once none is
    under way."""

    def __init__(self, lock: threading.Lock) -> None:
        self.asking = 0
        self.busy = False
        self.next = _Request(lock)


class RequestCoalescer:
    """Sends a question that many operations of a process ask at the same time once. Safe for
    threads.

    A failover of 32 volumes asks 32 times at once which volumes the stack has, and whether the
    standby can take one. An answer is shared only with those who asked before its request was sent:
    no caller gets an answer that is older than the question.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: dict[Hashable, _SharedQuestion] = {}

    def ask(self, key: Hashable, send: Callable[[], T], guard: Guard, limit: float) -> T:
        """Return what ``send`` returns, or what it returned to another caller who sent the request
        after this call began. Callers must not change what they get.

        ``key``: the question, and with whose rights it is asked. ``limit``: seconds that a request
        may last. If another caller's takes longer, this sends one of its own. ``guard``: is asked
        while this waits.

        Raises what ``send`` or ``guard`` raises, or what ``send`` raised to that other caller; but
        `LeaseLost`, `NoLongerNeeded` and the timeout of a request that had less than ``limit``
        seconds are about its sender, so everybody else asks again.
        """
        with self._lock:
            question = self._questions.get(key)
            if question is None:
                question = self._questions[key] = _SharedQuestion(self._lock)
            question.asking += 1
        try:
            request = self._answered_or_ours(question, guard, limit)
            if request is None:
                return send()
            if not request.done:
                self._send(question, request, send, limit)
            if request.error is not None:
                error = request.error
                raise error.copy() if isinstance(error, CloudError) else error.with_traceback(None)
            answer: T = request.answer
            return answer
        finally:
            with self._lock:
                question.asking -= 1
                if not question.asking:
                    del self._questions[key]
                elif not question.busy:  # this may be the one that was woken to send
                    question.next.changed.notify()

    def asking(self, key: Hashable) -> int:
        """Return how many callers wait for an answer to the question."""
        with self._lock:
            question = self._questions.get(key)
            return question.asking if question else 0

    def _answered_or_ours(
        self, question: _SharedQuestion, guard: Guard, limit: float
    ) -> _Request | None:
        """Return a request that was sent after this call and has an answer, or one that this caller
        has to send; None if it has waited too long for others."""
        asked = time.monotonic()
        with self._lock:
            request = question.next
        while True:
            with self._lock:
                while request.instead is not None:
                    request = request.instead
                if request.done:
                    return request
                now = time.monotonic()
                if not question.busy:
                    question.busy, question.next = True, _Request(self._lock)
                    request.sent = now
                    return request
                # A slice longer than the request may last: its sender learns that first.
                end = (request.sent or asked) + limit + _SLICE
                if now >= end:
                    return None
                request.changed.wait(min(_SLICE, end - now))
            guard.permit("GET")

    def _send(
        self, question: _SharedQuestion, request: _Request, send: Callable[[], Any], limit: float
    ) -> None:
        answer, error, private = None, None, True
        try:
            answer = send()
            private = False
        except (LeaseLost, NoLongerNeeded):
            raise
        except Exception as failure:
            # A copy, before the sender adds to it.
            error = failure.copy() if isinstance(failure, CloudError) else failure
            lasted = time.monotonic() - (request.sent or 0.0)
            late = isinstance(failure, CloudError) and failure.code == "TIMEOUT"
            private = late and lasted < limit
            raise
        finally:
            with self._lock:
                request.done, request.answer, request.error = True, answer, error
                request.instead = question.next if private else None
                question.busy = False
                request.changed.notify_all()
                question.next.changed.notify()  # one of those who asked meanwhile sends it


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

    def send(
        self, service: str, method: str, path: str, body: Any = None, **options: Any
    ) -> requests.Response:
        """Send a service a plain request, and return the answer. ``service``: Nova, Neutron, ...;
        ``body``: what becomes the JSON of the request; ``options``: ``params``, ``headers``,
        ``microversion``, as keystoneauth has them."""
        if body is not None:
            options["json"] = body
        if service == "Nova" and "microversion" not in options:
            options["microversion"] = self._known_microversion
        answer: requests.Response = self._adapter(service).request(path, method, **options)
        return answer

    def read(self, service: str, path: str, **options: Any) -> Any:
        """Return what a service shows at a path. The parameters are those of `send`."""
        answer = self.send(service, "GET", path, **options)
        with translated(f"read {path.strip('/')} in {service}", service):
            return answer.json()

    def read_nova(self, path: str) -> dict[str, Any]:
        """As `read`; operations that ask at the same time share an answer, so callers must not
        change it."""
        return self.shared(("nova", path), lambda: dict(self.read("Nova", path)))

    def rows(
        self,
        service: str,
        kind: str,
        path: str,
        params: Mapping[str, str] | None = None,
        **options: Any,
    ) -> list[Mapping[str, Any]]:
        """Return the rows of a list, as `all_rows` does, by plain requests with these
        parameters, and ``options`` as of `send`."""

        def read(page: dict[str, str]) -> Any:
            return self.read(service, path, params={**(params or {}), **page}, **options)

        return all_rows(kind, read)

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
        with the same rights share a listing."""
        if most := _waits.rows(self._rights):
            rows, listed = self.shared(("volumes",), lambda: (most, self._listed(most)))
            found = listed.get(volume_id)
            if found is not None:
                return SimpleNamespace(**found)
            if len(listed) >= rows:
                _waits.too_many(self._rights)
        return SimpleNamespace(**self.read_cinder(url_path("volumes", volume_id))["volume"])

    def _listed(self, most: int) -> dict[str, dict[str, Any]]:
        """Return the first ``most`` volumes of the project by id. Cinder may list fewer at once."""

        def read(page: dict[str, str]) -> dict[str, Any]:
            return self.read_cinder(f"/volumes/detail?{urlencode({'limit': most, **page})}")

        return {str(volume["id"]): dict(volume) for volume in all_rows("volumes", read, most)}

    def listed_status(self, stack_id: str) -> str | None:
        """Return the status with which Heat lists a stack; None if it is not listed, as a stack in
        another one. Heat shows a stack by loading its template and all that is in it, which takes
        it much longer than to list it."""
        rows = self.rows("Heat", "stacks", "/stacks", {"id": stack_id})
        return next((str(row["stack_status"]) for row in rows if row["id"] == stack_id), None)

    def volume_ids(self) -> list[str]:
        """Return the ids of the project's volumes, in whatever state. Raises `CloudError`."""
        return [str(row["id"]) for row in self.cinder_rows("volumes", "/volumes")]

    def cinder_rows(self, kind: str, path: str, **filters: str) -> list[Mapping[str, Any]]:
        """Return the rows of a list of Cinder's, as `all_rows` does. Raises `CloudError`."""

        def read(page: dict[str, str]) -> dict[str, Any]:
            asked = {**filters, **page}
            return self.read_cinder(f"{path}?{urlencode(asked)}" if asked else path)

        return all_rows(kind, read)

    def read_cinder(self, path: str) -> dict[str, Any]:
        """Return what Cinder shows at a path. Not as cinderclient's objects: making one of each
        listed volume takes longer than reading them."""
        _, body = self.volumes.client.get(path)
        return dict(body)

    @cached_property
    def _known_microversion(self) -> str:
        return min(self.newest("Nova"), NOVA_MICROVERSION, key=microversion)

    def newest(self, service: str) -> str:
        """Return the newest microversion that Nova or Cinder offers. Raises `CloudError`, also if
        the service does not say it: keystoneauth would go on without one, and then the service
        leaves fields out of its answers."""
        doing = f"ask {service} for its microversions"
        adapter = self._adapter(service)
        with translated(doing, service):
            found = None
            with suppress(DiscoveryFailure):
                found = adapter.get_endpoint_data()
            if found is None or found.max_microversion is None:
                # keystoneauth does not say why it found none
                if_there(lambda: self._adapter(service, versions=False).get(""))
        if found is None or found.max_microversion is None:
            raise CloudError(
                "UNREACHABLE",
                f"Could not {doing}: its endpoint named none.",
                service=service,
                detail="its endpoint named no microversions",
            )
        return str(version_to_string(found.max_microversion))

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

    def _adapter(self, service: str, *, versions: bool = True) -> Adapter:
        service_type, least, most = _SERVICES[service]
        return Adapter(
            self.session,
            service_type=service_type,
            interface="public",
            region_name=self.session.region_name,
            min_version=least if versions else None,
            max_version=most if versions else None,
            endpoint_override=None if least else self._unversioned(service_type),
        )

    def _unversioned(self, service_type: str) -> str | None:
        """Return where a service is whose paths name the version; None if the catalog does not say
        it. Some catalogs name the version, too."""
        found = self._in_catalog(service_type)
        return _VERSION.sub("", found).replace("%", "%%") if found else None

    def endpoint(self, service: str) -> str | None:
        """Return the URL at which a service (Nova, ...) is asked, by the catalog and the settings;
        None if neither has one. Raises `CloudError`."""
        return self._in_catalog(_SERVICES[service][0])

    def base(self, service: str) -> str | None:
        """Return the URL at which the paths of requests to a service begin, which may be another
        one than the catalog's: a service names its versions. None if there is none. Raises
        `CloudError`."""
        with translated(f"find {service}", service):
            adapter = self._adapter(service)
            found = adapter.endpoint_override or adapter.get_endpoint()
        return str(found).replace("%%", "%") if found else None

    def _in_catalog(self, service_type: str) -> str | None:
        with translated("read the catalog", "Keystone"):
            found = self.session.get_endpoint(
                service_type=service_type,
                interface="public",
                region_name=self.session.region_name,
            )
        return str(found) if found else None

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
    return Cloud(session, settings, partial(why_refused, security, settings))


def all_rows(
    kind: str, read: Callable[[dict[str, str]], Mapping[str, Any]], most: int | None = None
) -> list[Mapping[str, Any]]:
    """Return the rows of a list (``servers``, ``volumes``, ``ports``), or at least the first
    ``most``, page by page.

    ``read`` gets the parameters of a page (``marker``) and returns the body of the answer. A page
    begins after the last row of the one before it: by that row's id, not by the service's link,
    which may lead elsewhere behind a proxy. If that row was deleted meanwhile, the service does not
    know where to go on: it refuses, or begins with the first page, as Neutron does for floating
    IPs. Both ways the list is read once more from there, and a row that is seen again counts once.
    Raises as ``read`` does, also if the service refuses a row that it lists.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    marker: str | None = None
    unknown: set[str] = set()
    while True:
        try:
            body = read({"marker": marker} if marker is not None else {})
        except CloudError as error:
            if marker is None or marker in unknown or error.http_status not in _NO_MARKER:
                raise
            unknown.add(marker)
            marker = None
            continue
        page = body[kind]
        rows.update((str(row["id"]), row) for row in page)
        links = body.get(f"{kind}_links") or ()
        more = page and any(link["rel"] == "next" for link in links)
        if not more or (most is not None and len(rows) >= most):
            return list(rows.values())
        marker = str(page[-1]["id"])
