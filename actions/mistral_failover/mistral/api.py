# SPDX-License-Identifier: Apache-2.0
"""What the actions ask of Mistral: which executions exist and how long they did nothing; and to end
or start one.

Mistral shows a caller the executions of its own project; nothing here asks for others.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from oslo_utils import timeutils

from mistral_failover import private_files
from mistral_failover.cloud.errors import CloudError, translate, translated
from mistral_failover.cloud.session import session_for
from mistral_failover.cloud.transport import Guard, GuardedSession, Unguarded, changes
from mistral_failover.mistral.client import (
    ENDED,
    MistralClient,
    MistralError,
    parsed,
)
from mistral_failover.mistral.definitions import FIELDS, Definition
from mistral_failover.runtime.request import Request
from mistral_failover.settings import Settings

_EXECUTION = (
    "id,workflow_name,state,root_execution_id,task_execution_id,input,created_at,updated_at"
)
_TASK = "id,name,state,processed,runtime_context,created_at,updated_at"
_OUTCOME = "id,workflow_name,state,state_info,output,created_at,updated_at"
_FAILED = "id,name,state_info"
_ANYTHING = "id,state,created_at,updated_at"
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Execution:
    """A workflow's execution. ``root`` is the id of the topmost execution of its tree, its own id
    if no task started it; ``task`` the id of the task that started it; ``changed`` when it last
    changed, and ``began`` when it was created, by Mistral's clock."""

    id: str
    workflow: str
    state: str
    root: str
    input: Mapping[str, Any]
    changed: datetime
    began: datetime
    task: str | None = None

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.state in ENDED


@dataclass(frozen=True)
class Task:
    """A task of an execution; times by Mistral's clock. ``processed``: it has ended, and Mistral
    has begun what comes after it. ``handles``: the ids of the tasks whose errors started it."""

    id: str
    name: str
    state: str
    processed: bool
    began: datetime
    changed: datetime
    handles: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outcome:
    """The outcome of an execution: ``output`` is empty while it runs; ``said`` is Mistral's own
    text about its state. ``ago``: seconds since it last changed, by Mistral's clock."""

    workflow: str
    state: str
    output: Mapping[str, Any]
    said: str
    ago: float = 0.0


@dataclass(frozen=True)
class Failure:
    """A task that failed. ``said``: Mistral's own text about it; of an expression which one, and
    why."""

    task: str
    said: str


class Mistral:
    """Mistral with the rights of one request. Every method raises CloudError."""

    def __init__(
        self,
        session: GuardedSession,
        url: str,
        token: str | None = None,
        *,
        project: Callable[[], str | None] = lambda: None,
    ) -> None:
        """``url``: the base, ending in ``/v2``; ``token``: of an embedded Mistral. ``session``
        bounds every call by its guard. ``project``: returns the project of the requests, if they
        are authenticated."""
        self._failure = partial(_failure, session)
        self._client = MistralClient(
            url,
            session=session,
            token=token,
            project=project,
            timeout=None,
            failure=self._failure,
        )

    @property
    def now(self) -> datetime:
        """Mistral's clock, to the second, from its last answer."""
        return self._client.now

    def state(self, execution_id: str) -> str | None:
        """Return the state of an execution, None if there is none."""
        found = self._client.find(self._client.path("executions", execution_id), fields="state")
        return str(found["state"]) if found else None

    def outcome(self, execution_id: str) -> Outcome | None:
        """Return the state and the output of an execution, None if there is none."""
        found = self._client.find(self._client.path("executions", execution_id), fields=_OUTCOME)
        if found is None:
            return None
        return Outcome(
            workflow=found["workflow_name"],
            state=found["state"],
            output=_mapping(parsed(found).get("output")),
            said=_essence(found.get("state_info")),
            ago=(self.now - _changed(found)).total_seconds(),
        )

    def failure(self, execution_id: str) -> Failure | None:
        """Return the task of an execution that failed last, None if none did."""
        rows = self._client.rows(
            "tasks", workflow_execution_id=execution_id, state="ERROR", fields=_FAILED
        )
        found = [Failure(row["name"], _essence(row.get("state_info"))) for row in rows]
        return found[-1] if found else None

    def running(self, prefix: str = "") -> Iterator[Execution]:
        """Return the RUNNING executions of workflows whose names have this prefix, the longest
        unchanged first."""
        named = {"workflow_name": f"has:{prefix}"} if prefix else {}
        for row in self._client.rows(
            "executions", state="RUNNING", sort_keys="updated_at", fields=_EXECUTION, **named
        ):
            if row["workflow_name"].startswith(prefix):
                yield _execution(row)

    def tree(self, root: str) -> list[Execution]:
        """Return an execution and all below it, oldest first; empty if there is none."""
        top = self.find(root)
        if top is None:
            return []
        below = self._client.rows("executions", root_execution_id=root, fields=_EXECUTION)
        return [top, *map(_execution, below)]

    def find(self, execution_id: str) -> Execution | None:
        """Return an execution, None if there is none."""
        found = self._client.find(self._client.path("executions", execution_id), fields=_EXECUTION)
        return None if found is None else _execution(found)

    def tasks(self, execution_id: str) -> list[Task]:
        """Return the tasks of an execution, oldest first."""
        rows = self._client.rows("tasks", workflow_execution_id=execution_id, fields=_TASK)
        return [
            Task(
                row["id"],
                row["name"],
                row["state"],
                bool(row["processed"]),
                timeutils.parse_isotime(row["created_at"]),
                _changed(row),
                _handled(row),
            )
            for row in rows
        ]

    def latest(self, workflow: str) -> Execution | None:
        """Return the latest execution of a workflow, None if there is none."""
        found = self._client.executions(
            workflow_name=workflow,
            sort_keys="created_at",
            sort_dirs="desc",
            limit=1,
            fields=_EXECUTION,
        )
        return _execution(found[0]) if found else None

    def actions(self, prefix: str) -> list[str]:
        """Return the names of the actions with this prefix."""
        rows = self._client.rows("actions", name=f"has:{prefix}", fields="id,name")
        return sorted(row["name"] for row in rows if row["name"].startswith(prefix))

    def lacking(self, names: Iterable[str]) -> set[str]:
        """Return those of these workflows that Mistral does not show to the caller's project."""
        return {name for name in names if not any(self._named(name))}

    def _named(self, name: str) -> Iterator[bool]:
        rows = self._client.rows("workflows", name=f"has:{name}", fields="id,name")
        return (row["name"] == name for row in rows)

    def definitions(self, prefix: str, project: str) -> list[Definition]:
        """Return all workflows that the caller can see and whose names begin so, in every
        namespace, those of other projects too. ``project``: the caller's."""
        return [
            Definition.read(row, project)
            for row in self._client.rows("workflows", name=f"has:{prefix}", fields=FIELDS)
            if row["name"].startswith(prefix)
        ]

    def has_workflow(self, name: str, namespace: str = "") -> bool:
        """Return whether there is a workflow of this name."""
        where = {"namespace": namespace} if namespace else {}
        return (
            self._client.find(self._client.path("workflows", name), fields="id", **where)
            is not None
        )

    def cron_triggers(self, workflow: str) -> list[dict[str, Any]]:
        """Return the cron triggers of a workflow, as Mistral has them."""
        rows = self._client.rows("cron_triggers", workflow_name=workflow)
        return [row for row in rows if row["workflow_name"] == workflow]

    def code_rules(self) -> list[str]:
        """Return the rules of Mistral's policy that let the caller bring Python code into Mistral.

        It sends the two requests without which no code of a user runs, each for something that does
        not exist, so nothing is changed where they are allowed. ``code_sources:update`` matters by
        itself: Mistral 23 lets a caller who has it replace the code of a public source of another
        project. ``code_sources:create`` cannot be asked without creating one.
        """
        requests: dict[str, tuple[str, str, dict[str, Any]]] = {
            "dynamic_actions:create": ("POST", "dynamic_actions", {"json": {}}),
            "code_sources:update": (
                "PUT",
                "code_sources",
                {"params": {"identifier": str(uuid.uuid4())}, "data": b""},
            ),
        }
        return [
            rule
            for rule, (method, path, given) in requests.items()
            if self._client.allows(method, path, **given)
        ]

    def changed_within(self, execution_id: str) -> datetime:
        """Return when a task of an execution, or an action of an unfinished task, last changed."""
        times = [datetime.min.replace(tzinfo=UTC)]
        for task in self._client.rows(
            "tasks", workflow_execution_id=execution_id, fields=_ANYTHING
        ):
            times.append(_changed(task))
            if task["state"] not in ENDED:
                actions = self._client.rows(
                    self._client.path("tasks", task["id"], "action_executions"), fields=_ANYTHING
                )
                times += map(_changed, actions)
        return max(times)

    def end(self, execution_id: str, state: str, why: str) -> None:
        """End an execution: as SUCCESS or ERROR only itself, as CANCELLED with all below it. An
        ended one stays as it is."""
        self._client.set_state(execution_id, state, why)

    def namespace_of(self, execution_id: str) -> str:
        """Return the namespace in which an execution's workflow was started; empty: the default
        one."""
        path = self._client.path("executions", execution_id)
        found = self._client.request("GET", path, params={"fields": "workflow_namespace"})
        return found.get("workflow_namespace") or ""

    def start(
        self,
        execution_id: str,
        workflow: str,
        input: Mapping[str, Any],
        why: str,
        namespace: str = "",
    ) -> None:
        """Start a workflow, unless an execution with this id exists, of whatever workflow. Raises
        CloudError WORKFLOW_SHADOWED too."""
        try:
            self._client.start(
                workflow, input, id=execution_id, description=why, namespace=namespace
            )
        except MistralError as error:
            raise self._failure(error, "POST") from None


def _failure(session: GuardedSession, error: Exception, method: str) -> CloudError:
    if isinstance(error, MistralError):  # of our own client, before it asked
        return CloudError(error.code, f"{error.message}.", remedy=f"{error.remedy}.")
    failure = translate(error, "ask Mistral", "Mistral", changes=changes(method))
    answer = getattr(error, "response", None)
    url = str(answer.url) if answer is not None else ""
    return session.explained(failure, method, url, "workflowv2")


def mistral_for(security: Any, settings: Settings, guard: Guard | None = None) -> Mistral | None:
    """Return Mistral for a request: by its token and the catalog, or without a token at
    ``settings.mistral_url``; None without either. ``security`` as for `session_for`. ``guard``:
    that of the operation that asks; none for calls outside of operations.

    Raises CloudError; CONFIG if the token file is not readable; NO_ENDPOINT if the catalog does
    not have Mistral; LeaseLost.
    """
    guard = guard or Unguarded(settings.http_timeout)
    if not getattr(security, "auth_token", None):
        if not settings.mistral_url:
            return None
        session = GuardedSession(guard=guard, timeout=settings.http_timeout)
        return Mistral(session, settings.mistral_url, _token(settings))
    session = session_for(security, guard=guard, settings=settings)
    with translated("find Mistral in the catalog", "Keystone"):
        found = session.get_endpoint(
            service_type="workflowv2", interface="public", region_name=session.region_name
        )
    if not found:
        raise CloudError("NO_ENDPOINT", "The catalog does not say where Mistral is.")
    url = str(found).rstrip("/")
    return Mistral(
        session, url if url.endswith("/v2") else f"{url}/v2", project=session.get_project_id
    )


def _token(settings: Settings) -> str | None:
    """The token of an embedded Mistral. Raises CloudError CONFIG."""
    if not settings.mistral_token_file:
        return None
    try:
        return private_files.read(Path(settings.mistral_token_file)).decode("ascii").strip()
    except private_files.NotPrivate as error:
        raise CloudError("CONFIG", error.message, remedy=error.remedy) from None
    except (OSError, UnicodeDecodeError):
        raise CloudError(
            "CONFIG",
            f"The token of Mistral in {settings.mistral_token_file} cannot be read.",
            remedy="Correct [failover] mistral_token_file.",
        ) from None


def mistral_of(request: Request, guard: Guard | None = None) -> Mistral | None:
    """Return Mistral's API with a request's rights, or None where its address is not known.

    ``guard``: as for :func:`mistral_for`. Raises CloudError.
    """
    return mistral_for(request.context.security, request.runtime.settings, guard)


def _execution(row: Any) -> Execution:
    return Execution(
        id=row["id"],
        workflow=row["workflow_name"],
        state=row["state"],
        root=row["root_execution_id"] or row["id"],
        input=_mapping(parsed(row).get("input")),
        changed=_changed(row),
        began=timeutils.parse_isotime(row["created_at"]),
        task=row.get("task_execution_id"),
    )


def _essence(state_info: str | None) -> str:
    """Return Mistral's text in one line, without the traceback of its own code that may follow."""
    before = (state_info or "").partition(_TRACEBACK)[0]
    return " ".join(before.split()).rstrip(" :'")


def _handled(task: dict[str, Any]) -> frozenset[str]:
    causes = _mapping(parsed(task).get("runtime_context")).get("triggered_by") or ()
    return frozenset(each["task_id"] for each in causes if each["event"] == "on-error")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _changed(row: Mapping[str, Any]) -> datetime:
    return timeutils.parse_isotime(row["updated_at"] or row["created_at"])
