# SPDX-License-Identifier: Apache-2.0
"""A small client of Mistral's v2 REST API.

Values that the API carries as JSON text (``input``, ``output``, ``params``) are parsed here.
"""

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import requests
from keystoneauth1 import exceptions as keystone

from mistral_failover.embedded.errors import EmbeddedError

UNAUTHENTICATED = "<default-project>"
"""The project of everything in a Mistral without authentication."""
FINAL = frozenset({"SUCCESS", "ERROR", "CANCELLED"})
_AWAY = frozenset({502, 503, 504})  # what a proxy says of a Mistral that is away
_UNANSWERED = (
    requests.RequestException,
    # Of Keystone, which is asked for a new token now and then.
    keystone.ConnectionError,
    keystone.DiscoveryFailure,
    keystone.HttpServerError,
)
_JSON_TEXT = ("input", "output", "params", "result", "published", "runtime_context")


class MistralClient:
    """Speaks to one API; thread-safe, keeps connections.

    :param url: the base, ending in ``/v2``.
    :param headers: sent with every request, e.g. ``X-Auth-Token`` and ``X-Project-Id``, which
        actions find in ``context.security``.
    :param session: carries the requests, where they need more than headers: authentication,
        certificates. By default one that knows no proxy.
    :param project: tells, where requests are authenticated, whose they are.
    :param timeout: seconds for one request. Starting a workflow answers when it has begun; an
        action run synchronously, when it is done.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        session: requests.Session | None = None,
        project: Callable[[], str | None] = lambda: None,
        timeout: float = 60,
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._project = project
        self._session = session or requests.Session()
        self._session.headers.update(headers or {})
        if session is None:
            # A proxy of the environment has no business between two ends of one host.
            self._session.trust_env = False

    def owns(self, row: Mapping[str, Any]) -> bool:
        """Whether something that Mistral lists, with its ``project_id``, is of the caller's own
        project: administrators are shown everybody's."""
        return row["project_id"] in (UNAUTHENTICATED, self._project())

    def request(self, method: str, path: str, **kwargs: Any) -> Any:
        """One request; returns the parsed body, or None for an empty one.

        :raises EmbeddedError: ``MISTRAL_UNREACHABLE`` (no answer, from Keystone neither, or a 502,
            503 or 504: nobody knows whether it was done), ``NOT_FOUND`` (404), ``MISTRAL_REFUSED``
            (other errors, with Mistral's reason).
        """
        try:
            answer = self._session.request(
                method, f"{self.url}/{path}", timeout=self._timeout, **kwargs
            )
        except _UNANSWERED as e:
            raise EmbeddedError(
                "MISTRAL_UNREACHABLE",
                f"no answer from {self.url}: {type(e).__name__}",
                "check that Mistral is running there",
            ) from e
        if answer.status_code >= 400:
            raise _refusal(answer)
        return answer.json() if answer.content else None

    # --- workflows ------------------------------------------------------------------------------

    def workflows(self, **filters: Any) -> list[dict[str, Any]]:
        """The registered workflows: ``name``, ``input``, ``id``, ...; e.g. with
        ``name="has:failover."``, ``fields="name,definition"``. Mistral lists 1000 at most."""
        found: list[dict[str, Any]] = self.request("GET", "workflows", params=filters)["workflows"]
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
            that there is, whoever's it is.
        """
        self._send_workflows("PUT", text, namespace, scope, id)

    def delete_workflow(self, id: str, *, namespace: str = "") -> None:  # noqa: A002
        """Delete a workflow, by its id or its name."""
        self.request("DELETE", f"workflows/{_q(id)}", params={"namespace": namespace})

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
            f"workflows/{_q(id)}" if id else "workflows",
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
        except EmbeddedError as e:
            if "(409)" not in e.message:
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
    ) -> dict[str, Any]:
        """Start a workflow; returns the execution.

        :param id: a UUID of the caller's making. Where it exists already, that execution is
            returned and nothing is started, whatever else is given.
        :param namespace: in which the workflow is; those that it calls are looked for there first,
            then in the default one.
        """
        body: dict[str, Any] = {
            "workflow_name": workflow,
            "input": json.dumps(dict(input or {})),
            "description": description,
            "params": json.dumps(dict(params or {})),
        }
        if id is not None:
            body["id"] = id
        if namespace:
            body["workflow_namespace"] = namespace
        return _parsed(self.request("POST", "executions", json=body))

    def execution(self, id: str) -> dict[str, Any]:  # noqa: A002
        """One execution: ``state``, ``state_info``, ``input``, ``output``, ..."""
        return _parsed(self.request("GET", f"executions/{_q(id)}"))

    def executions(self, **filters: Any) -> list[dict[str, Any]]:
        """Executions without output, oldest first; e.g. ``state="RUNNING"``, ``limit=10``."""
        found = self.request("GET", "executions", params=filters)["executions"]
        return [_parsed(e) for e in found]

    def wait(self, id: str, timeout: float = 60) -> dict[str, Any]:  # noqa: A002
        """Wait until the execution has ended (or is PAUSED); ``timeout`` in seconds.

        :raises EmbeddedError: ``STILL_RUNNING`` when the time is over.
        """
        # A poll costs Mistral some 5 ms of the processor that the workflow needs.
        end, pause = time.monotonic() + timeout, 0.02
        while True:
            state = self.request("GET", f"executions/{_q(id)}", params={"fields": "state"})
            if state["state"] in FINAL or state["state"] == "PAUSED":
                return self.execution(id)
            if time.monotonic() > end:
                raise EmbeddedError(
                    "STILL_RUNNING",
                    f"execution {id} is {state['state']} after {timeout:g} s",
                    "wait longer, or look at its tasks",
                )
            time.sleep(pause)
            pause = min(pause * 1.2, 0.25)

    def run(
        self,
        workflow: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        timeout: float = 60,
        **start: Any,
    ) -> dict[str, Any]:
        """:meth:`start` and :meth:`wait`; returns the ended execution."""
        return self.wait(self.start(workflow, input, **start)["id"], timeout)

    def set_state(self, id: str, state: str, info: str = "") -> dict[str, Any]:  # noqa: A002
        """Set an execution PAUSED, RUNNING, CANCELLED, ERROR or SUCCESS."""
        body = {"state": state} | ({"state_info": info} if info else {})
        return _parsed(self.request("PUT", f"executions/{_q(id)}", json=body))

    def tasks(self, execution_id: str) -> list[dict[str, Any]]:
        """The tasks of an execution, in the order of their creation, without results."""
        path = f"executions/{_q(execution_id)}/tasks"
        return [_parsed(t) for t in self.request("GET", path)["tasks"]]

    def task(self, id: str) -> dict[str, Any]:  # noqa: A002
        """One task with ``result`` and ``published``."""
        return _parsed(self.request("GET", f"tasks/{_q(id)}"))

    def sub_executions(self, execution_id: str) -> list[dict[str, Any]]:
        """All executions below one (and itself), each with its ``task_execution_id``."""
        path = f"executions/{_q(execution_id)}/executions"
        return [_parsed(e) for e in self.request("GET", path)["executions"]]

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
            process, and does nothing else meanwhile. By default only without a record; else the
            engine goes on, and is asked for the result until it is there.
        :param forget: delete the record once it is read, where this Mistral lets one: by default
            it does not (``[api] allow_action_execution_deletion``).
        :raises EmbeddedError: with the action's own code, message and remedy where it has them,
            else ``ACTION_FAILED``; ``STILL_RUNNING`` when the time is over.
        """
        run_sync = not save_result if run_sync is None else run_sync
        body = {
            "name": name,
            "input": json.dumps(dict(input or {})),
            "params": json.dumps({"save_result": save_result, "run_sync": run_sync}),
        }
        answer = _parsed(self.request("POST", "action_executions", json=body))
        if answer["state"] == "RUNNING":
            answer = self._wait_action(answer["id"], name)
        if forget and answer.get("id"):
            self._forget_action(answer["id"])
        result = (answer.get("output") or {}).get("result")
        if answer["state"] != "SUCCESS":
            raise _failure(name, result)
        return result

    def complete_action(self, id: str, output: Any, state: str = "SUCCESS") -> None:  # noqa: A002
        """Report the result of an asynchronous action (``action_execution_id``)."""
        body = {"state": state, "output": json.dumps(output)}
        self.request("PUT", f"action_executions/{_q(id)}", json=body)

    def _forget_action(self, id: str) -> None:  # noqa: A002
        with contextlib.suppress(EmbeddedError):
            self.request("DELETE", f"action_executions/{_q(id)}")

    def _wait_action(self, id: str, name: str = "the action") -> dict[str, Any]:  # noqa: A002
        end, pause = time.monotonic() + self._timeout, 0.01
        while True:
            answer = _parsed(self.request("GET", f"action_executions/{_q(id)}"))
            if answer["state"] in FINAL:
                return answer
            if time.monotonic() > end:
                raise EmbeddedError(
                    "STILL_RUNNING",
                    f"{name} is {answer['state']} after {self._timeout:g} s, as {id}",
                    "is an executor running? Look at Mistral's executors and what they log",
                )
            time.sleep(pause)
            pause = min(pause * 1.2, 0.25)


def _q(value: str) -> str:
    return quote(value, safe="")


def _parsed(body: dict[str, Any]) -> dict[str, Any]:
    for key in _JSON_TEXT:
        if isinstance(body.get(key), str):
            try:
                body[key] = json.loads(body[key])
            except ValueError:
                continue
    return body


def _failure(action: str, error: Any) -> EmbeddedError:
    if isinstance(error, Mapping) and isinstance(error.get("code"), str):
        return EmbeddedError(
            error["code"], str(error.get("message", action)), str(error.get("remedy", ""))
        )
    return EmbeddedError("ACTION_FAILED", f"{action}: {error}", "see the action's error")


def _refusal(answer: requests.Response) -> EmbeddedError:
    if answer.status_code in _AWAY:
        return EmbeddedError(
            "MISTRAL_UNREACHABLE",
            f"no answer from Mistral: ({answer.status_code}) {answer.reason}",
            "check that Mistral is running there",
        )
    try:
        reason = str(answer.json().get("faultstring") or answer.text)
    except ValueError:
        reason = answer.text
    reason = " ".join(reason.split())[:500]
    if answer.status_code == 404:
        return EmbeddedError("NOT_FOUND", f"(404) {reason}", "check the name or id")
    return EmbeddedError(
        "MISTRAL_REFUSED", f"({answer.status_code}) {reason}", "correct the request"
    )
