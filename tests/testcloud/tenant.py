# SPDX-License-Identifier: Apache-2.0
"""A tenant of the test cloud: what a user does with Heat, Mistral, Nova, Cinder and Aodh."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

from mistral_failover.lab.emulator.client import EmulatorClient
from testcloud.access import connect
from testcloud.errors import CloudError
from testcloud.settings import Settings

_ENDED = ("SUCCESS", "ERROR", "CANCELLED")
PAUSE, LONGEST_PAUSE = 0.1, 0.3
"""Seconds between two looks: they grow, because each costs the services processor time."""


class Tenant:
    """What the user of a project can do: ``demo`` or ``other``; ``admin`` for an operator."""

    def __init__(self, settings: Settings, user: str = "demo") -> None:
        self.settings = settings
        self.user = user

    @cached_property
    def cloud(self) -> Any:
        """openstacksdk's connection."""
        return connect(self.settings, self.user)

    @cached_property
    def guests(self) -> EmulatorClient:
        """The guests of all servers: their applications, faults, audit."""
        return EmulatorClient(self.settings.url("guests"))

    # -- Mistral

    def mistral(
        self, method: str, path: str, body: Any = None, *, text: str | None = None, **query: Any
    ) -> Any:
        """The answer of Mistral's API to a body of JSON, or to a definition, which is ``text``.
        Raises CloudError MISTRAL for one that is no success."""
        plain = {} if text is None else {"data": text, "headers": {"Content-Type": "text/plain"}}
        answer = self.cloud.session.request(
            f"/{path}",
            method,
            endpoint_filter={"service_type": "workflowv2", "interface": "public"},
            json=body,
            params=query,
            raise_exc=False,
            connect_retries=5,
            **plain,
        )
        if not answer.ok:
            raise CloudError("MISTRAL", f"{method} {path}: {answer.text[:500]}", "See its log.")
        return answer.json() if answer.content else None

    def action(self, name: str, /, **inputs: Any) -> Any:
        """The result of an action. Raises CloudError with the code that the action fails with."""
        answer = self.mistral(
            "POST",
            "action_executions",
            {
                "name": name,
                "input": json.dumps(inputs),
                "params": json.dumps({"run_sync": True, "save_result": True}),
            },
        )
        result = json.loads(answer["output"])["result"]
        if answer["state"] != "SUCCESS":
            if isinstance(result, Mapping):
                raise CloudError(result["code"], result["message"], result["remedy"])
            raise CloudError("ACTION_FAILED", str(result), f"See what {name} expects.")
        return result

    def upload(self, definition: str) -> None:
        """Create the project's own workflow of this definition, or replace it.

        Raises CloudError MISTRAL with what Mistral found wrong with it.
        """
        (name,) = yaml.safe_load(definition).keys() - {"version"}
        rows = self.mistral("GET", "workflows", name=name)["workflows"]
        mine = any(row["project_id"] == self.cloud.session.get_project_id() for row in rows)
        self.mistral("PUT" if mine else "POST", "workflows", text=definition)

    def start(self, workflow: str, /, **inputs: Any) -> str:
        """Start a workflow; returns its execution's id."""
        body = {"workflow_name": workflow, "input": json.dumps(inputs)}
        return str(self.mistral("POST", "executions", body)["id"])

    def execution(self, identity: str) -> dict[str, Any]:
        """An execution, its input and output read."""
        found: dict[str, Any] = self.mistral("GET", f"executions/{identity}")
        return found | {key: json.loads(found[key] or "{}") for key in ("input", "output")}

    def run(self, workflow: str, /, limit: float = 120, **inputs: Any) -> dict[str, Any]:
        """Run a workflow to its end; returns its execution."""
        identity = self.start(workflow, **inputs)

        def ended() -> dict[str, Any] | None:
            found = self.execution(identity)
            return found if found["state"] in _ENDED else None

        found: dict[str, Any] = until(ended, f"the end of {workflow}", limit)
        return found

    def executions(self, workflow: str) -> list[dict[str, Any]]:
        """The executions of a workflow, oldest first."""
        rows = self.mistral("GET", "executions", workflow_name=workflow, sort_keys="created_at")
        return [row | {"input": json.loads(row["input"] or "{}")} for row in rows["executions"]]

    # -- Heat

    def create_stack(
        self,
        name: str,
        template: str,
        limit: float = 180,
        files: Mapping[str, str] | None = None,
        **parameters: Any,
    ) -> None:
        """Create a stack and wait for it; ``files`` are templates that it names.

        Raises CloudError STACK with the reason it failed for.
        """
        self.cloud.orchestration.create_stack(
            name=name,
            template=template,
            files=dict(files or {}),
            parameters=parameters,
            timeout_mins=10,
        )
        self.wait_for_stack(name, limit)

    def stack(self, name: str) -> Any:
        """A stack, None where there is none."""
        return self.cloud.orchestration.find_stack(name, ignore_missing=True)

    def wait_for_stack(self, name: str, limit: float = 180) -> Any:
        """Wait until nothing is in progress. Raises CloudError STACK when it failed."""

        def settled() -> Any:
            found = self.stack(name)
            return found if "IN_PROGRESS" not in found.status else None

        found = until(settled, f"stack {name} to settle", limit)
        if "FAILED" in found.status:
            raise CloudError("STACK", f"{name}: {found.status_reason}", "See Heat's log.")
        return found

    def outputs(self, name: str) -> dict[str, Any]:
        """A stack's outputs by name."""
        # The detail, not the find: a list has no outputs.
        found = self.cloud.orchestration.get_stack(self.stack(name).id)
        return {row["output_key"]: row["output_value"] for row in found.outputs or ()}

    def delete_stack(self, name: str, limit: float = 180) -> None:
        """Delete a stack and wait until it is gone. Raises CloudError STACK."""
        found = self.stack(name)
        if found is None:
            return
        self.cloud.orchestration.delete_stack(found, ignore_missing=True)

        def gone() -> bool:
            now = self.stack(name)
            if now is not None and now.status == "DELETE_FAILED":
                raise CloudError("STACK", f"{name}: {now.status_reason}", "See Heat's log.")
            return now is None

        until(gone, f"stack {name} to be gone", limit)

    def patch_stack(self, name: str, **parameters: Any) -> None:
        """PATCH a stack's parameters, without waiting."""
        stack = self.stack(name)
        answer = self.cloud.orchestration.patch(
            f"/stacks/{stack.name}/{stack.id}", json={"parameters": parameters}
        )
        if not answer.ok:
            raise CloudError("STACK", f"{name}: {answer.text[:300]}", "See Heat's log.")

    # -- Nova and Cinder

    def holders(self, volume: str) -> list[str]:
        """The servers that a volume is attached to, where it is in use."""
        found = self.cloud.block_storage.get_volume(volume)
        if found.status != "in-use":
            return []
        return sorted(held["server_id"] for held in found.attachments)


@dataclass(frozen=True)
class ProtectedStack:
    """A stack of one of the examples, with all that protects it in it."""

    tenant: Tenant
    name: str

    def status(self) -> dict[str, Any]:
        """What failover.status says of its group."""
        found: dict[str, Any] = self.tenant.action("failover.status", group=self.name)
        return found

    def servers(self) -> dict[str, str]:
        """The server's id of each member."""
        outputs = self.tenant.outputs(self.name)
        members = outputs.get("members") or {
            name: outputs[name] for name in ("db_a", "db_b") if name in outputs
        }
        return dict(members)

    def volume(self) -> str:
        """The volume's id."""
        return str(self.tenant.outputs(self.name)["data_volume"])

    def active(self) -> str | None:
        """Who is active by the group's goal, once that is reached."""
        if self.name not in self.tenant.action("failover.status")["groups"]:
            return None
        status = self.status()
        return status["roles"].get("active") if status["status"] == "COMPLETE" else None

    def wait_until_active(self, *others: str, limit: float = 120) -> str:
        """Wait until the goal is reached and somebody other than ``others`` is active; who."""

        def somebody() -> str | None:
            active = self.active()
            return active if active not in (None, *others) else None

        return str(until(somebody, f"somebody other than {others} to be active", limit))

    def applications(self) -> dict[str, list[str]]:
        """What runs on each member."""
        guests = self.tenant.guests.guests()
        return {
            member: sorted(guests[server]["applications"])
            for member, server in self.servers().items()
            if server in guests
        }


def until(look: Callable[[], Any], what: str, limit: float, longest: float = LONGEST_PAUSE) -> Any:
    """Wait for a true answer, and return it; ``longest``: the longest pause between two looks.
    Raises CloudError TOO_LATE after ``limit`` seconds."""
    deadline = time.monotonic() + limit
    pause = PAUSE
    while not (found := look()):
        if time.monotonic() > deadline:
            raise CloudError("TOO_LATE", f"Waited {limit:g} s for {what}.", "See the logs.")
        time.sleep(pause)
        pause = min(pause * 1.2, longest)
    return found
