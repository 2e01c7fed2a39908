# SPDX-License-Identifier: Apache-2.0
"""The emulator's own interface under /emulator: seeds, faults, alarms, what happened."""

from collections.abc import Callable
from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator import (
    agents,
    alarming,
    attachments,
    faults,
    guests,
    identity,
    ports,
)
from mistral_failover.lab.emulator.state import CONFIG, Application, User
from mistral_failover.lab.emulator.web import Call, Service, endpoint, numbers, plain_error


def error_body(status: int, message: str) -> dict[str, Any]:
    """The emulator's error body."""
    return {"error": {"code": f"HTTP_{status}", "message": message, "remedy": ""}}


OPEN = Service("emulator", error_body, authenticated=False, delayed=False)
COMMANDS = Service("guests", error_body)


def _user(call: Call, name: str) -> User:
    for user in call.emulation.state.users.values():
        if user.name == name:
            return user
    known = ", ".join(sorted(user.name for user in call.emulation.state.users.values()))
    raise plain_error("NOT_FOUND", 404, f"There is no user {name}.", f"Users: {known}.")


def _number(call: Call, name: str, default: float, kind: Callable[[Any], Any] = float) -> Any:
    try:
        return kind(call.body.get(name, default))
    except (TypeError, ValueError):
        raise plain_error(
            "BAD_REQUEST", 400, f"{name} is not a number.", "Correct the request."
        ) from None


def _text(call: Call, name: str, default: str | None = None) -> str:
    value = call.body.get(name, default)
    if not isinstance(value, str) or not value:
        raise plain_error("BAD_REQUEST", 400, f"{name} is missing.", f"Give {name} as text.")
    return value


def _status(call: Call) -> Any:
    emulation = call.emulation
    return {
        "url": emulation.url,
        "hosts": {name: vars(host) for name, host in emulation.state.hosts.items()},
        "in_flight": len(emulation.state.timers),
        "waiting_for_hosts": sum(len(ts) for ts in emulation.state.deferred.values()),
        "latency": emulation.latency.all(),
        "profile": emulation.latency.profile,
    }


def _audit(call: Call) -> Any:
    since = call.query("since") or "0"
    if not since.isdigit():
        raise plain_error("BAD_REQUEST", 400, "since is not a number.", "Give a seq.")
    return {"events": call.emulation.audit.since(int(since), call.query("kind"))}


def _critical(call: Call) -> Any:
    return {"operations": call.emulation.critical()}


def _latency(call: Call) -> Any:
    try:
        call.emulation.latency.override({k: float(v) for k, v in call.body.items()})
    except (TypeError, ValueError) as error:
        raise plain_error("BAD_REQUEST", 400, str(error), "Correct the request.") from None
    call.emulation.changed()
    return {"latency": call.emulation.latency.all()}


def _offer(call: Call) -> Any:
    up_to, without = call.body.get("up_to"), call.body.get("without", [])
    try:
        if up_to is not None:
            numbers(up_to)
    except (AttributeError, ValueError):
        raise plain_error(
            "BAD_REQUEST", 400, "up_to is no microversion.", 'Give one such as "2.79".'
        ) from None
    call.emulation.state.offers[_text(call, "service")] = {"up_to": up_to, "without": without}
    call.emulation.changed()
    return {"offers": call.emulation.state.offers}


def _configure(call: Call) -> Any:
    if unknown := sorted(call.body.keys() - CONFIG.keys()):
        raise plain_error(
            "BAD_REQUEST", 400, f"There is no option {unknown[0]}.", f"One of {', '.join(CONFIG)}."
        )
    call.emulation.state.config.update(call.body)
    call.emulation.changed()
    return {"config": call.emulation.state.config}


def _mint(call: Call) -> Any:
    user = _user(call, _text(call, "user", "demo"))
    trust = None
    if call.body.get("trust"):
        trustee = _user(call, "admin")  # plays the service that the trust is made for
        parties = {"trustor": user.id, "trustee": trustee.id, "project_id": user.project_id}
        roles = ["admin" if user.admin else "member"]
        trust = identity.make_trust(call.emulation, **parties, expires_at=None, roles=roles)
    token = identity.issue(
        call.emulation,
        user,
        user.project_id,
        methods=["token", "password"] if trust else ["password"],
        lifetime=_number(call, "expires_in", identity.LIFETIME),
        trust_id=trust.id if trust else None,
    )
    return 201, {"token": token, "user_id": user.id, "project_id": user.project_id}


def _add_user(call: Call) -> Any:
    name = _text(call, "name")
    user = call.emulation.state.add_user(
        name,
        _text(call, "password", name),
        _text(call, "project", name),
        admin=bool(call.body.get("admin")),
    )
    call.emulation.changed()
    return 201, {"user_id": user.id, "project_id": user.project_id}


def _add_credential(call: Call) -> Any:
    user = _user(call, _text(call, "user", "demo"))
    credential = identity.add_credential(
        call.emulation,
        user.id,
        user.project_id,
        _text(call, "name", "emulated"),
        call.body.get("access_rules"),
    )
    return 201, {"id": credential.id, "secret": credential.secret}


def _add_application(call: Call) -> Any:
    stack = call.body.get("stack")
    application = Application(
        name=_text(call, "name"),
        start=_text(call, "start"),
        stop=_text(call, "stop"),
        status=call.body.get("status"),
        needs_volume=bool(call.body.get("needs_volume")),
        told_only=bool(call.body.get("told_only")),
        at_boot=bool(call.body.get("at_boot")),
        checks=list(call.body.get("checks", [])),
        rehearse=bool(call.body.get("rehearse", True)),
        stack_id=_stack_id(call, stack) if stack else None,
    )
    former = call.emulation.state.applications.get(application.name)
    so_far = {"former": None if former is None else vars(former)}
    known = _commands_of(call, application)
    new = {application.start, application.stop} - known
    if (
        call.body.get("unless_partly_known")
        and len(new) == 1
        and application.start != application.stop
    ):
        # As an agent whose allow-list lacks one of the two.
        return 200, {"application": vars(application), "learned": [], **so_far}
    call.emulation.state.applications[application.name] = application
    call.emulation.changed()
    return 201, {"application": vars(application), "learned": sorted(new), **so_far}


def _remove_application(call: Call) -> Any:
    """Guests forget an application and its commands; it may be gone already."""
    state, name = call.emulation.state, call.query("name") or ""
    if state.applications.pop(name, None) is not None:
        for guest in state.guests.values():
            guests.forget(guest, name)
        call.emulation.changed()
    return 204, None


def _commands_of(call: Call, application: Application) -> set[str]:
    """Return the commands that the guests of an application's stack know."""
    applications = call.emulation.state.applications.values()
    mine = [each for each in applications if each.stack_id in (None, application.stack_id)]
    return {name for each in mine for name in (each.start, each.stop)}


def _stack_id(call: Call, wanted: str) -> str:
    for stack in call.emulation.state.stacks.values():
        if wanted in (stack.id, stack.name) and stack.deleted is None:
            return stack.id
    raise plain_error("NOT_FOUND", 404, f"There is no stack {wanted}.", "Create it first.")


def _guests(call: Call) -> Any:
    state = call.emulation.state
    return {
        "guests": [
            {
                "server_id": guest.server_id,
                "host": guest.host,
                "running": guests.runs(call.emulation, guest),
                "answers": guests.answers(call.emulation, guest),
                "condition": guest.condition,
                "notice": guest.notice,
                "applications": sorted(guest.applications),
                "rehearsed": sorted(guest.rehearsed),
                "volumes": guest.volumes,
                "addresses": sorted({a for each in guest.interfaces.values() for a in each}),
                "known_to_nova": guest.server_id in state.servers,
            }
            for guest in state.guests.values()
        ]
    }


def _writers(call: Call) -> Any:
    volume_id = call.path("volume_id")
    return {"servers": guests.writers(call.emulation, volume_id)}


def _answering(call: Call) -> Any:
    return {"servers": ports.answering(call.emulation, call.path("address"))}


def _fault(call: Call) -> Any:
    target = _text(call, "target")
    if target == "server":
        faults.strike_server(call.emulation, _text(call, "id"), _text(call, "fault"))
    elif target == "host":
        member = str(call.body.get("member") or "")
        faults.strike_host(call.emulation, _text(call, "id"), _text(call, "fault"), member)
    elif target == "api":
        faults.inject(call.emulation, call.body)
    else:
        raise plain_error(
            "BAD_REQUEST", 400, f"There is no target {target!r}.", "One of server, host, api."
        )
    return 202, {}


def _clear_faults(call: Call) -> Any:
    call.emulation.state.api_faults.clear()
    call.emulation.changed()
    return 204, None


def _refresh_attachment(call: Call) -> Any:
    state, server = call.emulation.state, _text(call, "server_id")
    found = state.attachments_of(server_id=server, volume_id=_text(call, "volume_id"))
    if not found or state.servers[server].status != "SHUTOFF":
        raise plain_error("CONFLICT", 409, "It is refreshed on a stopped server.", "Stop it.")
    attachments.refresh(call.emulation, state.servers[server], found[0])
    return 202, {}


def _alarm_body(call: Call) -> Any:
    server_id = call.query("server_id")
    if not server_id:
        raise plain_error("BAD_REQUEST", 400, "server_id is missing.", "Give server_id.")
    return alarming.webhook_body(
        call.emulation, server_id, call.query("alarm_name") or "server_lost"
    )


def _alarm(call: Call) -> Any:
    alarming.emit(
        call.emulation,
        url=_text(call, "url"),
        server_id=_text(call, "server_id"),
        alarm_name=_text(call, "alarm_name", "server_lost"),
        times=_number(call, "times", 1, int),
        headers={str(k): str(v) for k, v in (call.body.get("headers") or {}).items()},
    )
    return 202, {}


GUESTS = (
    ("/audit", _audit, "GET"),
    ("/guests", _guests, "GET"),
    ("/volumes/{volume_id}/writers", _writers, "GET"),
    ("/applications", _add_application, "POST"),
    ("/faults", _fault, "POST"),
)
"""Path, handler and method of the routes about guests; a server that has only guests serves these
too."""

AGENTS = (
    ("commands", agents.command, "command", "POST"),
    ("epoch", agents.depose, "depose", "POST"),
    ("heartbeat", agents.heartbeat, "heard", "GET"),
)
"""The end of the path below a guest, handler, operation and method of the agent's notices and
heartbeats."""


def routes() -> list[Route]:
    """The emulator's own routes."""
    table = (
        *GUESTS,
        ("", _status, "GET"),
        ("/critical", _critical, "GET"),
        ("/applications", _remove_application, "DELETE"),
        ("/addresses/{address}/servers", _answering, "GET"),
        ("/latency", _latency, "POST"),
        ("/offers", _offer, "POST"),
        ("/config", _configure, "POST"),
        ("/tokens", _mint, "POST"),
        ("/users", _add_user, "POST"),
        ("/application-credentials", _add_credential, "POST"),
        ("/faults", _clear_faults, "DELETE"),
        ("/attachments/refresh", _refresh_attachment, "POST"),
        ("/alarm", _alarm, "POST"),
        ("/alarm-body", _alarm_body, "GET"),
    )
    return [
        *(
            endpoint(OPEN, f"/emulator{path}", handler, "control", [method])
            for path, handler, method in table
        ),
        *(
            endpoint(
                COMMANDS, f"/emulator/guests/{{server_id}}/{end}", handler, operation, [method]
            )
            for end, handler, operation, method in AGENTS
        ),
    ]
