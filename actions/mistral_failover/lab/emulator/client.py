# SPDX-License-Identifier: Apache-2.0
"""A client of the emulator's own interface, for tests, the drill and benchmarks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import yaml

from mistral_failover.cloud.answers import bounded
from mistral_failover.model.documents import load_yaml_1_1

STATE_KEY = "failover_server_state"
"""In an entry of clouds.yaml: the state directory of the ``failover server`` that acts in this
cloud. Its Mistral is not in the catalog, because no Keystone is in front of it."""


class EmulatorError(Exception):
    """The emulator refused; `code` is stable, `remedy` says what to do."""

    def __init__(self, code: str, message: str, remedy: str, http_status: int) -> None:
        super().__init__(message)
        self.code, self.message, self.remedy = code, message, remedy
        self.http_status = http_status


@dataclass(frozen=True)
class Learned:
    """What guests have learned of an application.

    ``commands``: those that are new to them; ``former``: what they knew by the application's name
    before, None if nothing.
    """

    application: str
    commands: tuple[str, ...]
    former: Mapping[str, Any] | None


class EmulatorClient:
    """Calls of /emulator/*.

    :param url: where the emulated cloud is, e.g. http://127.0.0.1:4567. :param user: the user that
    seeds stacks and runs commands.
    """

    def __init__(self, url: str, *, user: str = "demo", password: str = "demo") -> None:  # noqa: S107
        self.url = url.rstrip("/")
        self._credentials = (user, password)
        self._http = requests.Session()
        self._http.trust_env = False  # no proxy is needed between loopback and loopback
        self._token: str | None = None
        self._project_id = ""

    def _call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        options.setdefault("timeout", 30)
        response = self._http.request(method, self.url + path, json=body, **options)
        if response.status_code >= 400:
            raise _error(response)
        return bounded(response).json() if response.content else None

    def status(self) -> dict[str, Any]:
        """Hosts, latencies in effect, how much is in flight."""
        return dict(self._call("GET", "/emulator"))

    def audit(self, since: int = 0, kind: str | None = None) -> list[dict[str, Any]]:
        """The audit's events after number `since`, all or of one kind."""
        query = {"since": since, "kind": kind}
        return list(self._call("GET", "/emulator/audit", params=query)["events"])

    def violations(self) -> list[dict[str, Any]]:
        """The violations of invariants."""
        return self.audit(kind="violation")

    def critical(self) -> list[dict[str, Any]]:
        """Server-side operations: kind, ids, accepted_at, finished_at, outcome."""
        return list(self._call("GET", "/emulator/critical")["operations"])

    def set_latency(self, **seconds: float) -> dict[str, float]:
        """Sets single times; returns all."""
        return dict(self._call("POST", "/emulator/latency", seconds)["latency"])

    def mint_token(
        self, *, user: str = "demo", trust: bool = False, expires_in: float = 3600
    ) -> str:
        """A token of a user, trust-scoped or short-lived on request."""
        body = {"user": user, "trust": trust, "expires_in": expires_in}
        return str(self._call("POST", "/emulator/tokens", body)["token"])

    def add_user(self, name: str, *, project: str | None = None, admin: bool = False) -> str:
        """Adds a user (password: the name) and its project; returns the project's id."""
        body = {"name": name, "project": project or name, "admin": admin}
        return str(self._call("POST", "/emulator/users", body)["project_id"])

    def add_application_credential(
        self, user: str = "demo", access_rules: Sequence[Mapping[str, str]] | None = None
    ) -> tuple[str, str]:
        """An application credential's id and secret. ``access_rules``: as Keystone has them, each
        with service, method and path; None: it is for everything."""
        rules = None if access_rules is None else list(map(dict, access_rules))
        body = {"user": user, "access_rules": rules}
        made = self._call("POST", "/emulator/application-credentials", body)
        return str(made["id"]), str(made["secret"])

    def add_application(
        self,
        name: str,
        *,
        start: str,
        stop: str,
        status: str | None = None,
        needs_volume: bool = False,
        told_only: bool = False,
        at_boot: bool = False,
        checks: Sequence[str] = (),
        rehearse: bool = True,
        stack: str | None = None,
        unless_partly_known: bool = False,
    ) -> Learned:
        """Lets guests (of one stack, or all) run an application by named commands; returns what
        they learned, for `take_back`. ``told_only``: it writes only to the devices that its start
        names. ``unless_partly_known``: guests that know one of two commands do not learn the other.
        """
        body = {
            "name": name,
            "start": start,
            "stop": stop,
            "status": status,
            "needs_volume": needs_volume,
            "told_only": told_only,
            "at_boot": at_boot,
            "checks": list(checks),
            "rehearse": rehearse,
            "stack": stack,
            "unless_partly_known": unless_partly_known,
        }
        answer = self._call("POST", "/emulator/applications", body)
        return Learned(name, tuple(answer["learned"]), answer["former"])

    def take_back(self, learned: Learned) -> None:
        """Lets guests forget an application again, or has what they knew by its name before."""
        if learned.former is None:
            query = {"name": learned.application}
            self._call("DELETE", "/emulator/applications", params=query)
        else:
            body = {**learned.former, "stack": learned.former["stack_id"]}
            self._call("POST", "/emulator/applications", body)

    def guests(self) -> dict[str, dict[str, Any]]:
        """What each guest does, by server id."""
        return {row["server_id"]: row for row in self._call("GET", "/emulator/guests")["guests"]}

    def writers(self, volume_id: str) -> list[str]:
        """The servers that write to a volume now."""
        return list(self._call("GET", f"/emulator/volumes/{volume_id}/writers")["servers"])

    def answering(self, address: str) -> list[str]:
        """The servers that answer at an address now."""
        return list(self._call("GET", f"/emulator/addresses/{address}/servers")["servers"])

    def refresh_attachment(self, server_id: str, volume_id: str) -> None:
        """nova-manage volume_attachment refresh, by an administrator on the host."""
        body = {"server_id": server_id, "volume_id": volume_id}
        self._call("POST", "/emulator/attachments/refresh", body)

    def fault(self, target: str, name: str, fault: str, *, member: str = "") -> None:
        """server: booting, crash, hang, thaw, app, disk_full, disk_read_only, disk_writable,
        revive, and what breaks a standby: lacks_package, misconfigured, data_full,
        lacks_mount_point, denied, old_agent, not_isolated; repaired; host: compute_down,
        power_off, revive. ``member``: for whose sake a host is broken, as GROUP/MEMBER."""
        body = {"target": target, "id": name, "fault": fault, "member": member}
        self._call("POST", "/emulator/faults", body)

    def offer(self, service: str, *, up_to: str | None = None, without: Sequence[str] = ()) -> None:
        """Let a service offer no newer microversion than ``up_to`` (compute, volume), as an older
        release, and leave the fields ``without`` out of its answers, as by a policy."""
        body = {"service": service, "up_to": up_to, "without": list(without)}
        self._call("POST", "/emulator/offers", body)

    def configure(self, **options: Any) -> None:
        """Set what the cloud's operator has configured: `lab.emulator.state.CONFIG`."""
        self._call("POST", "/emulator/config", options)

    def api_fault(
        self,
        operation: str,
        fault: str = "error",
        *,
        status: int = 503,
        seconds: float = 0,
        times: int = 1,
        says: str = "",
    ) -> None:
        """Lets the next `times` uses of an operation fail; see `emulator.faults.inject`."""
        body = {
            "target": "api",
            "operation": operation,
            "fault": fault,
            "status": status,
            "seconds": seconds,
            "times": times,
            "says": says,
        }
        self._call("POST", "/emulator/faults", body)

    def clear_api_faults(self) -> None:
        """Removes the injected faults that are not used up."""
        self._call("DELETE", "/emulator/faults")

    def alarm_body(self, server_id: str) -> dict[str, Any]:
        """What Aodh would send about a server now."""
        query = {"server_id": server_id, "alarm_name": "server_lost"}
        return dict(self._call("GET", "/emulator/alarm-body", params=query))

    def alarm(
        self,
        url: str,
        server_id: str,
        *,
        alarm_name: str = "server_lost",
        times: int = 1,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Lets the cloud post the alarm to a loopback url."""
        body = {
            "url": url,
            "server_id": server_id,
            "alarm_name": alarm_name,
            "times": times,
            "headers": headers or {},
        }
        self._call("POST", "/emulator/alarm", body)

    def run_command(
        self,
        server_id: str,
        name: str,
        *,
        command_id: str,
        epoch: int = 1,
        arguments: dict[str, Any] | None = None,
        limit: float = 30,
        rehearsal: str | None = None,
    ) -> dict[str, Any]:
        """Runs a named command in a guest; raises EmulatorError NO_ANSWER, RUNNING, OLD_EPOCH,
        REFUSED. ``rehearsal``: the id of the rehearsal that it belongs to."""
        body = {
            "id": command_id,
            "name": name,
            "epoch": epoch,
            "args": arguments or {},
            "timeout": limit,
            "rehearsal": rehearsal,
        }
        path = f"/emulator/guests/{server_id}/commands"
        headers = {"X-Auth-Token": self.token()}
        return dict(self._call("POST", path, body, headers=headers, timeout=limit + 30))

    def token(self) -> str:
        """A token of this client's user, got once."""
        if self._token is None:
            name, password = self._credentials
            user = {"name": name, "domain": {"id": "default"}, "password": password}
            identity = {"methods": ["password"], "password": {"user": user}}
            url = f"{self.url}/identity/v3/auth/tokens"
            body: dict[str, Any] = {"auth": {"identity": identity}}
            response = self._http.post(url, json=body, timeout=30)
            if response.status_code >= 400:
                raise _error(response)
            self._project_id = bounded(response).json()["token"]["project"]["id"]
            self._token = response.headers["X-Subject-Token"]
        return self._token

    def create_stack(
        self,
        name: str,
        template: str | Path | dict[str, Any],
        *,
        parameters: dict[str, Any] | None = None,
        limit: float = 120,
        adopt: bool = False,
        **more: Any,
    ) -> dict[str, Any]:
        """Creates a stack from a template (a file, its text or an object) and waits for it.

        :param adopt: one of that name that is there, or is being created, is waited for instead.
        :param more: of Heat's request: files, environment.
        :returns: the stack as Heat shows it.
        :raises EmulatorError: STACK_FAILED or TIMEOUT; HTTP_409 for a name that is taken.
        """
        if isinstance(template, Path):
            template = template.read_text(encoding="utf-8")
        if isinstance(template, str):
            template = load_yaml_1_1(template, "template")
        headers = {"X-Auth-Token": self.token()}
        base = f"/orchestration/v1/{self._project_id}/stacks"
        text = yaml.safe_dump(template)
        body = {"stack_name": name, "template": text, "parameters": parameters or {}, **more}
        try:
            stack_id = self._call("POST", base, body, headers=headers)["stack"]["id"]
        except EmulatorError as error:
            if not adopt or error.http_status != 409:
                raise
            stack_id = self._call("GET", f"{base}/{name}", headers=headers)["stack"]["id"]
        deadline = time.monotonic() + limit
        while True:
            path = f"{base}/{name}/{stack_id}"
            stack = dict(self._call("GET", path, headers=headers)["stack"])
            if stack["stack_status"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
                return stack
            if stack["stack_status"].endswith("FAILED"):
                reason = stack["stack_status_reason"]
                raise EmulatorError("STACK_FAILED", reason, "Correct the template.", 500)
            if time.monotonic() > deadline:
                raise EmulatorError(
                    "TIMEOUT", f"{name} is {stack['stack_status']}.", "Wait longer.", 504
                )
            time.sleep(0.02)

    def template(self, stack: str) -> dict[str, Any]:
        """A stack's template."""
        headers = {"X-Auth-Token": self.token()}
        path = f"/orchestration/v1/{self._project_id}/stacks/{stack}/template"
        return dict(self._call("GET", path, headers=headers))

    def resources(self, stack: str) -> dict[str, dict[str, Any]]:
        """A stack's resources by name, those of nested stacks as `group/member`."""
        headers = {"X-Auth-Token": self.token()}
        path = f"/orchestration/v1/{self._project_id}/stacks/{stack}/resources?nested_depth=5"
        rows = self._call("GET", path, headers=headers)["resources"]
        return {
            "/".join(filter(None, (row.get("parent_resource"), row["resource_name"]))): row
            for row in rows
        }


def _error(response: requests.Response) -> EmulatorError:
    try:
        error = bounded(response).json()["error"]
        return EmulatorError(
            str(error["code"]), error["message"], error.get("remedy", ""), response.status_code
        )
    except (ValueError, KeyError, TypeError):
        status = response.status_code
        return EmulatorError(
            f"HTTP_{status}", f"HTTP {status}", ("Check the emulator's audit."), status
        )


def write_clouds_yaml(path: Path, name: str, url: str, *, server_state: Path | None = None) -> None:
    """Write a clouds.yaml whose one entry, ``name``, is the emulator's demo user.

    ``url``: the emulator's own, without a path; ``server_state``: that of a ``failover server``
    whose Mistral clients of this entry use. Readable by its owner only, as such files are.
    """
    auth = {
        "auth_url": f"{url}/identity/v3",
        "username": "demo",
        "password": "demo",
        "project_name": "demo",
        "user_domain_id": "default",
        "project_domain_id": "default",
    }
    path.touch(mode=0o600)
    entry: dict[str, Any] = {"auth": auth, "region_name": "RegionOne"}
    if server_state is not None:
        entry[STATE_KEY] = str(server_state)
    path.write_text(yaml.safe_dump({"clouds": {name: entry}}), encoding="utf-8")
