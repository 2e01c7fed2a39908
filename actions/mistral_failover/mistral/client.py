# SPDX-License-Identifier: Apache-2.0
"""The one client of Mistral's v2 REST API, for the command line, the servers and the actions.

Every request goes over one keystoneauth adapter, is bounded in time and is sent once: a request
that changes something may take effect even without an answer. Answers are typed; values that
the API carries as JSON text (``input``, ``output``, ``params``) are parsed here.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Required, TypedDict

import requests
import urllib3
from keystoneauth1 import exceptions as keystone
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from mistral_failover.cloud.answers import ForeignAnswer, bounded, why_foreign
from mistral_failover.cloud.certificates import bundle
from mistral_failover.cloud.url_paths import is_segment, url_path
from mistral_failover.errors import CodedError
from mistral_failover.mistral import in_process
from mistral_failover.mistral.definitions import (
    FIELDS,
    UNAUTHENTICATED,
    Definition,
    trusted,
)
from mistral_failover.mistral.in_process import InProcessTransport
from mistral_failover.mistral.unix_transport import BASE, UnixTransport, socket_of
from mistral_failover.model.documents import load_json
from mistral_failover.model.errors import with_reasons

ENDED = frozenset({"SUCCESS", "ERROR", "CANCELLED"})
"""The states that an execution, a task or an action execution does not leave."""
PAGE = 100  # of Mistral's lists, which end at 1000 however much is asked for
_PAGES = 10
_RESTS = ENDED | {"PAUSED"}
_SILENT = 10.0  # seconds without an answer before a wait ends
_AWAY = frozenset({502, 503, 504})  # what a proxy says of a Mistral that is away
_FAILED = (
    "see the log of Mistral's API and engine: the request itself may be right. If Mistral runs as "
    "several processes (mistral-server --server all starts several), they need a broker as "
    "transport_url"
)
_FAILURES = (requests.RequestException, keystone.ClientException)
_UNANSWERED = (
    requests.RequestException,
    # Of Keystone too, which is asked for a new token now and then.
    keystone.ConnectionError,
    keystone.DiscoveryFailure,
    keystone.HttpServerError,
)
_JSON_TEXT = ("input", "output", "params", "result", "published", "runtime_context")


class ExecutionBody(TypedDict, total=False):
    """A workflow's execution as Mistral answers; with ``fields`` only those. Times are Mistral's,
    in UTC: ``2026-11-21 10:00:00``."""

    id: Required[str]
    workflow_name: Required[str]
    workflow_namespace: str | None
    state: Required[str]
    state_info: str | None
    input: Any
    output: Any
    params: Any
    description: str | None
    project_id: str
    root_execution_id: str | None
    task_execution_id: str | None
    created_at: str
    updated_at: str | None


class TaskBody(TypedDict, total=False):
    """A task of an execution as Mistral answers."""

    id: Required[str]
    name: Required[str]
    state: Required[str]
    workflow_execution_id: str
    result: Any
    published: Any
    created_at: str
    updated_at: str | None


class ActionExecutionBody(TypedDict, total=False):
    """An action that was run; ``output`` has its ``result``. Without a record it has no id."""

    id: str
    name: str
    state: Required[str]
    output: Any
    created_at: str
    updated_at: str | None


class WorkflowBody(TypedDict, total=False):
    """A workflow that is registered."""

    id: Required[str]
    name: Required[str]
    namespace: str | None
    project_id: str
    scope: str
    definition: str


class MistralError(CodedError):
    """A failed request, as a program outside of Mistral sees it.

    :ivar http_status: of Mistral's answer; None without one.
    :ivar problems: of a group file that an action refuses: ``field``, ``code``, ``message`` and
        ``remedy`` of each.
    """

    def __init__(
        self,
        code: str,
        message: str,
        remedy: str,
        http_status: int | None = None,
        problems: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(code, message, remedy)
        self.http_status = http_status
        self.problems = tuple(problems)


Failure = Callable[[Exception, str], Exception]
"""Makes what is raised of keystoneauth's exception and the HTTP method."""


class MistralClient:
    """Speaks to one API; thread-safe, keeps connections.

    :param url: the base, ending in ``/v2``; or ``unix:PATH``, an embedded Mistral's socket; or
        ``in_process.URL``, the embedded Mistral of this process, which needs no token.
    :param session: a keystoneauth session, where requests need authentication or certificates. By
        default one without authentication that knows no proxy.
    :param token: of an embedded Mistral, which requires it of every request.
    :param headers: sent with every request, e.g. ``X-Auth-Token`` and ``X-Project-Id``, which
        actions find in ``context.security``.
    :param project: returns the project of the requests, if they are authenticated.
    :param timeout: seconds for one request; None: the session's timeout. Starting a workflow is
        answered when it has begun; an action that is run synchronously, when it is done.
    :param failure: makes the exception that is raised in place of :class:`MistralError`.
    """

    def __init__(
        self,
        url: str,
        *,
        session: Session | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        project: Callable[[], str | None] = lambda: None,
        timeout: float | None = 60,
        failure: Failure | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.now = datetime.now(UTC)
        """Mistral's clock, to the second, from its last answer."""
        self._timeout = timeout
        self._project = project
        self._failure = failure or self._error
        self._shown = self.url
        session, base = session or _without_proxy(), self.url
        if url == in_process.URL:
            session.mount("http://localhost/", InProcessTransport())
            base, self._shown = BASE, "the Mistral of this process"
        elif (path := socket_of(url)) is not None:
            session.mount("http://localhost/", UnixTransport(path))
            base = BASE
        self._adapter = Adapter(
            session,
            endpoint_override=base.replace("%", "%%"),  # a format, for the adapter
            # Not as X-Auth-Token: that is the place of a cloud's token, which reaches the actions.
            additional_headers={
                **({"Authorization": f"Bearer {token}"} if token else {}),
                **(headers or {}),
            },
        )

    def owns(self, row: WorkflowBody) -> bool:
        """Return whether something that Mistral lists, with its ``project_id``, belongs to the
        caller's own project: administrators see those of all projects."""
        return row["project_id"] in (UNAUTHENTICATED, self._project())

    def is_of_operator(self, row: WorkflowBody) -> bool:
        """Return whether something that Mistral lists was installed by its operator, for all
        projects. In a Mistral without authentication nothing tells that from the caller's own."""
        return row["project_id"] == UNAUTHENTICATED and self._project() is not None

    def request(self, method: str, path: str, **kwargs: Any) -> Any:
        """One request; returns the parsed body, or None for an empty one.

        :raises MistralError: ``MISTRAL_UNREACHABLE`` (no answer from Mistral or Keystone, or a 502,
            503 or 504: the request may have been carried out), ``NOT_FOUND`` (404),
            ``UNAUTHORISED`` (401: no token, or a wrong one), ``MISTRAL_REFUSED`` (other errors,
            with Mistral's reason). Keystone's refusals are raised as they are.
        """
        try:
            return self._ask(method, path, **kwargs)
        except _FAILURES as error:
            raise self._failure(error, method) from None

    def path(self, *parts: str) -> str:
        """The path of a request, each part quoted. Raises MistralError BAD_REQUEST for what is no
        name or id."""
        if unusable := [part for part in parts if not is_segment(part)]:
            words = f"{unusable[0]!r:.100} is no name or id, so no request was sent"
            raise self._failure(MistralError("BAD_REQUEST", words, "correct it"), "GET")
        return url_path(*parts)[1:]

    def find(self, path: str, **query: Any) -> Any:
        """The answer to a GET, None if there is no such thing. Raises as :meth:`request`."""
        try:
            return self._ask("GET", path, params=query)
        except keystone.NotFound as error:
            if _of_mistral(error) and _has_mistral_s_shape(error):
                return None
            raise self._failure(error, "GET") from None
        except _FAILURES as error:
            raise self._failure(error, "GET") from None

    def allows(self, method: str, path: str, **kwargs: Any) -> bool:
        """Whether Mistral's policy lets the caller make a request. The request must lack something
        that Mistral checks after its policy (400, 404), so that it changes nothing if it is
        allowed. Raises as :meth:`request` for any other answer."""
        try:
            self._ask(method, path, **kwargs)
        except keystone.Forbidden as error:
            if _of_mistral(error):
                return False
            raise self._failure(error, method) from None
        except (keystone.BadRequest, keystone.NotFound) as error:
            if _of_mistral(error) and _has_mistral_s_shape(error):
                return True
            raise self._failure(error, method) from None
        except _FAILURES as error:
            raise self._failure(error, method) from None
        return True

    def rows(self, path: str, **query: Any) -> Iterator[Any]:
        """A list, asked for in pages, 1000 rows at most. Raises as :meth:`request`.

        If the row that ended a page is deleted before the next page is read, the list is read anew,
        once. Each row counts once.
        """
        key = path.rpartition("/")[2]
        seen: set[str] = set()
        marker: dict[str, str] = {}
        anew = False
        for _ in range(2 * _PAGES):
            asked = {"limit": PAGE, **query, **marker}
            if marker and not anew:
                answer = self.find(path, **asked)
            else:
                answer = self.request("GET", path, params=asked)
            if answer is None:  # Mistral does not find the marker
                marker, anew = {}, True
                continue
            rows = answer[key]
            yield from (row for row in rows if row["id"] not in seen)
            seen.update(row["id"] for row in rows)
            if len(rows) < PAGE or len(seen) >= PAGE * _PAGES:
                return
            marker = {"marker": rows[-1]["id"]}

    def _ask(self, method: str, path: str, **kwargs: Any) -> Any:
        headers = dict(kwargs.pop("headers", {}))
        # Keystone's middleware puts its own in the place of this one; where it is not in front of
        # Mistral, as on a developer's machine, nothing else says whose the request is.
        if project := self._project():
            headers["X-Project-Id"] = project
        if self._timeout is not None:
            kwargs["timeout"] = urllib3.Timeout(total=self._timeout)
        answer = self._adapter.request(
            f"/{path}",
            method,
            headers=headers,
            raise_exc=False,
            log=False,  # inputs of workflows may hold anything
            **kwargs,
        )
        self.now = _clock(answer.headers.get("Date"))
        if answer.status_code >= 400:
            refused = keystone.from_response(answer, method, f"{self.url}/{path}")
            # Keystone's own refusals look alike.
            refused.failover_service = "Mistral"  # type: ignore[union-attr]
            raise refused
        if why := why_foreign(bounded(answer)):
            raise ForeignAnswer(why)
        return answer.json() if answer.content else None

    def _error(self, error: Exception, _method: str) -> Exception:
        if _of_mistral(error):
            return _refusal(error.response)  # type: ignore[attr-defined]
        if isinstance(error, ForeignAnswer):
            return MistralError(
                "MISTRAL_UNREACHABLE",
                f"the service at {self._shown} is not Mistral: {error}",
                "check the URL of Mistral's API, which ends in /v2",
            )
        if not isinstance(error, _UNANSWERED):
            return error
        from mistral_failover.cloud.errors import cause  # slow to import, seldom needed

        said, _ = cause(error)
        return MistralError(
            "MISTRAL_UNREACHABLE",
            f"no answer from {self._shown}: {said}",
            "check that Mistral is running there",
        )

    # --- workflows ------------------------------------------------------------------------------

    def workflows(self, **filters: Any) -> list[WorkflowBody]:
        """The registered workflows: ``name``, ``input``, ``id``, ...; e.g. with
        ``name="has:failover."``, ``fields="name,definition"``. Mistral lists 1000 at most."""
        found: list[WorkflowBody] = self.request("GET", "workflows", params=filters)["workflows"]
        return found

    def create_workflows(self, text: str, *, namespace: str = "", scope: str = "private") -> None:
        """Register the workflows of a text, none of which may be there."""
        self._send_workflows("POST", text, namespace, scope)

    def update_workflows(
        self,
        text: str,
        *,
        id: str | None = None,  # noqa: A002
        namespace: str = "",
        scope: str = "private",
    ) -> None:
        """Replace workflows, which must be there; ``scope`` becomes theirs.

        :param id: of the only one in the text. Of names an administrator's request takes the first
            that it finds, of any project.
        """
        self._send_workflows("PUT", text, namespace, scope, id)

    def delete_workflow(self, id: str, *, namespace: str = "") -> None:  # noqa: A002
        """Delete a workflow, by its id or its name."""
        self.request("DELETE", self.path("workflows", id), params={"namespace": namespace})

    def _send_workflows(
        self,
        method: str,
        text: str,
        namespace: str,
        scope: str,
        id: str | None = None,  # noqa: A002
    ) -> None:
        self.request(
            method,
            self.path("workflows", id) if id else "workflows",
            data=text.encode("utf-8"),
            headers={"Content-Type": "text/plain"},
            params={"namespace": namespace, "scope": scope},
        )

    def upload(self, text: str) -> list[str]:
        """Register the workflows of a text, or update them if they exist; returns the names."""
        kwargs: dict[str, Any] = {
            "data": text.encode("utf-8"),
            "headers": {"Content-Type": "text/plain"},
        }
        try:
            answer = self.request("POST", "workflows", **kwargs)
        except MistralError as e:
            if e.http_status != 409:
                raise
            answer = self.request("PUT", "workflows", **kwargs)
        return [w["name"] for w in answer["workflows"]]

    # --- executions -----------------------------------------------------------------------------

    def start(
        self,
        workflow: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - Mistral's own word
        *,
        id: str | None = None,  # noqa: A002 - Mistral's own word
        description: str = "",
        params: Mapping[str, Any] | None = None,
        namespace: str = "",
    ) -> ExecutionBody:
        """Start a workflow; returns the execution. Where other projects could have published one of
        its name, the one to start is chosen first, and started by its id: see ``definitions``.

        :param id: a UUID of the caller's making. Where it exists already, that execution is
            returned and nothing is started, whatever else is given (measured with Mistral 23).
        :param namespace: in which the workflow is; those that it calls are looked for there first,
            then in the default one.
        :raises MistralError: ``WORKFLOW_SHADOWED`` if there is only one that is not trusted; and as
            :meth:`request`.
        """
        chosen = self._trusted(workflow, namespace)
        body: dict[str, Any] = {
            **({"workflow_name": workflow} if chosen is None else {"workflow_id": chosen}),
            "input": dict(input or {}),
            "description": description,
        }
        if params:
            body["params"] = dict(params)
        if id is not None:
            body["id"] = id
        if namespace:
            body["workflow_namespace"] = namespace
        found: ExecutionBody = parsed(self.request("POST", "executions", json=body))
        return found

    def _trusted(self, workflow: str, namespace: str) -> str | None:
        """The id of the definition to start, if the caller has a project; asked for each time,
        because definitions change."""
        try:
            project = self._project()
        except _FAILURES as error:
            raise self._failure(error, "GET") from None
        if project is None:
            return None
        rows = self.rows("workflows", name=workflow, namespace=namespace, fields=FIELDS)
        try:
            return trusted(workflow, [Definition.read(row, project) for row in rows])
        except CodedError as error:
            raise MistralError(error.code, error.message, error.remedy) from None

    def execution(self, id: str) -> ExecutionBody:  # noqa: A002
        """One execution: ``state``, ``state_info``, ``input``, ``output``, ..."""
        found: ExecutionBody = parsed(self.request("GET", self.path("executions", id)))
        return found

    def executions(self, **filters: Any) -> list[ExecutionBody]:
        """Executions without output, oldest first; e.g. ``state="RUNNING"``, ``limit=10``."""
        found = self.request("GET", "executions", params=filters)["executions"]
        return [parsed(e) for e in found]

    def wait(self, id: str, timeout: float = 60) -> ExecutionBody:  # noqa: A002
        """Wait until the execution has ended (or is PAUSED); ``timeout`` in seconds.

        A Mistral that does not answer for a few seconds is asked again: the execution continues.

        :raises MistralError: ``STILL_RUNNING`` when the time is over.
        """
        # A poll costs Mistral some 5 ms of the processor that the workflow needs.
        answered, pause = time.monotonic(), 0.02
        end = answered + timeout
        while True:
            try:
                execution = self._ended(id)
            except MistralError as error:
                silent = time.monotonic() - answered
                if error.code != "MISTRAL_UNREACHABLE" or silent > min(_SILENT, timeout):
                    raise
            else:
                answered = time.monotonic()
                if execution["state"] in _RESTS:
                    return execution
                if answered > end:
                    raise MistralError(
                        "STILL_RUNNING",
                        f"execution {id} is {execution['state']} after {timeout:g} s",
                        "wait longer, or check its tasks",
                    )
            time.sleep(pause)
            pause = min(pause * 1.2, 0.25)

    def _ended(self, id: str) -> ExecutionBody:  # noqa: A002
        """Return the execution if it has ended or is paused, otherwise only its state."""
        path = self.path("executions", id)
        found: ExecutionBody = self.request("GET", path, params={"fields": "state"})
        return self.execution(id) if found["state"] in _RESTS else found

    def run(
        self,
        workflow: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        timeout: float = 60,
        **start: Any,
    ) -> ExecutionBody:
        """:meth:`start` and :meth:`wait`; returns the ended execution."""
        return self.wait(self.start(workflow, input, **start)["id"], timeout)

    def set_state(self, id: str, state: str, info: str = "") -> ExecutionBody:  # noqa: A002
        """Set an execution PAUSED, RUNNING, CANCELLED, ERROR or SUCCESS."""
        body = {"state": state} | ({"state_info": info} if info else {})
        found: ExecutionBody = parsed(self.request("PUT", self.path("executions", id), json=body))
        return found

    def tasks(self, execution_id: str) -> list[TaskBody]:
        """The tasks of an execution, in the order of their creation, without results."""
        path = self.path("executions", execution_id, "tasks")
        return [parsed(t) for t in self.request("GET", path)["tasks"]]

    def task(self, id: str) -> TaskBody:  # noqa: A002
        """One task with ``result`` and ``published``."""
        found: TaskBody = parsed(self.request("GET", self.path("tasks", id)))
        return found

    def sub_executions(self, execution_id: str) -> list[ExecutionBody]:
        """All executions below one (and itself), each with its ``task_execution_id``."""
        path = self.path("executions", execution_id, "executions")
        return [parsed(e) for e in self.request("GET", path)["executions"]]

    # --- actions --------------------------------------------------------------------------------

    def actions(self) -> list[str]:
        """Names of the actions that this Mistral knows."""
        return [a["name"] for a in self.request("GET", "actions")["actions"]]

    def run_action(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        save_result: bool = True,
        run_sync: bool | None = None,
        forget: bool = False,
    ) -> Any:
        """Run one action and wait for it; returns its result.

        :param save_result: goes through an executor and leaves a record; False runs the action
            inside the engine and leaves none.
        :param run_sync: the engine itself waits for it, within a transaction under a lock of its
            process, and does nothing else during that time. By default only without a record;
            otherwise the engine continues, and is polled for the result.
        :param forget: delete the record once it is read, where this Mistral lets one: by default
            it does not (``[api] allow_action_execution_deletion``).
        :raises MistralError: with the action's own code, message and remedy where it has them,
            else ``ACTION_FAILED``; ``STILL_RUNNING`` when the time is over.
        """
        run_sync = not save_result if run_sync is None else run_sync
        body = {
            "name": name,
            "input": json.dumps(dict(input or {})),
            "params": json.dumps({"save_result": save_result, "run_sync": run_sync}),
        }
        found = self.request("POST", "action_executions", json=body)
        if not isinstance(found, Mapping) or not isinstance(found.get("state"), str):
            raise MistralError(
                "MISTRAL_REFUSED",
                f"the action {name} was answered without its state: {json.dumps(found)[:300]}",
                _FAILED,
            )
        answer: ActionExecutionBody = parsed(dict(found))
        if answer["state"] == "RUNNING":
            answer = self._wait_action(answer["id"], name)
        if forget and answer.get("id"):
            self._forget_action(answer["id"])
        result = (answer.get("output") or {}).get("result")
        if answer["state"] != "SUCCESS":
            raise _failure(name, result)
        return result

    def _forget_action(self, id: str) -> None:  # noqa: A002
        with contextlib.suppress(MistralError):
            self.request("DELETE", self.path("action_executions", id))

    def _wait_action(self, id: str, name: str = "the action") -> ActionExecutionBody:  # noqa: A002
        seconds = 60.0 if self._timeout is None else self._timeout
        end, pause = time.monotonic() + seconds, 0.01
        while True:
            found = self.request("GET", self.path("action_executions", id))
            answer: ActionExecutionBody = parsed(found)
            if answer["state"] in ENDED:
                return answer
            if time.monotonic() > end:
                raise MistralError(
                    "STILL_RUNNING",
                    f"{name} is {answer['state']} after {seconds:g} s, as {id}",
                    "is an executor running? Check Mistral's executors and their logs",
                )
            time.sleep(pause)
            pause = min(pause * 1.2, 0.25)


def parsed(body: dict[str, Any]) -> Any:
    """An answer in which JSON texts are values; what is no JSON stays as it is."""
    for key in _JSON_TEXT:
        if isinstance(body.get(key), str):
            with contextlib.suppress(ValueError):
                body[key] = load_json(body[key], key)
    return body


def _without_proxy() -> Session:
    session = Session(app_name="mistral-failover", verify=bundle())
    # A proxy of the environment has no business between two ends of one host.
    session.session.trust_env = False
    return session


def _of_mistral(error: Exception) -> bool:
    return getattr(error, "failover_service", None) == "Mistral"


def _has_mistral_s_shape(error: keystone.HttpError) -> bool:
    """Return whether the answer is one of Mistral's own errors, not of a proxy before it."""
    try:
        return error.response is not None and "faultstring" in error.response.json()
    except (ValueError, TypeError):
        return False


def _clock(date: str | None) -> datetime:
    """The time in an answer's header; ours where there is none."""
    try:
        found = parsedate_to_datetime(date or "")
    except ValueError:
        return datetime.now(UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _failure(action: str, error: Any) -> MistralError:
    if isinstance(error, Mapping) and isinstance(error.get("code"), str):
        message = with_reasons(str(error.get("message", action)), error.get("reasons") or {})
        problems = error.get("problems") or ()
        return MistralError(error["code"], message, str(error.get("remedy", "")), problems=problems)
    return MistralError("ACTION_FAILED", f"{action}: {error}", "see the action's error")


def _refusal(answer: requests.Response) -> MistralError:
    status = answer.status_code
    if status in _AWAY:
        code, message = "MISTRAL_UNREACHABLE", f"no answer from Mistral: ({status}) {answer.reason}"
        return MistralError(code, message, "check that Mistral is running there", status)
    reason = f"({status}) {_reason(answer)}"
    if status == 404:
        return MistralError("NOT_FOUND", reason, "check the name or id", status)
    if status == 401:
        remedy = "give the token of this Mistral, or authenticate with the cloud: --os-cloud"
        return MistralError("UNAUTHORISED", reason, remedy, status)
    remedy = _FAILED if status >= 500 else "correct the request"
    return MistralError("MISTRAL_REFUSED", reason, remedy, status)


def _reason(answer: requests.Response) -> str:
    try:
        body = bounded(answer).json()
    except ValueError:
        body = None
    said = body.get("faultstring") if isinstance(body, Mapping) else None
    return " ".join(str(said or answer.text).split())[:500]
