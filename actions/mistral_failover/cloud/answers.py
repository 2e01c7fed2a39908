# SPDX-License-Identifier: Apache-2.0
"""Is an answer the service's own? A proxy, a gateway or a portal before a service answers as well,
with any status and any body. Such an answer says nothing about what was asked for.

A refusal has the mark of a service: its request id, the challenge of Keystone's middleware, or a
body in the form of OpenStack's errors. Success has a body of the form in `_FORMS`, and is about the
object that the path names. A status after which the request is repeated anyway needs no mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
import urllib3

from mistral_failover.model.documents import MAX_JSON_BYTES, load_json
from mistral_failover.model.errors import InvalidDocument

_PIECE = 64 * 1024
_ANYWAY = frozenset({408, 413, 429, 498})
"""Like those above 500, except 501: they say that the request was not carried out, or not yet."""
_OTHERS = "it is not from the service itself"
_CUT_OFF = "its body is cut off, or is no JSON"
_ROW, _ROWS = False, True
_TEMPLATE_VERSION = "heat_template_version|HeatTemplateFormatVersion|AWSTemplateFormatVersion"
_READ = (
    # The path, the key of the body ("": the body itself), what it is, and the fields that it, or
    # each of its rows, has; of names with | between them one. The first path that fits decides.
    # Those come first in which users choose names.
    # Heat
    ("/stacks/[^/]+/[^/]+/resources", "resources", _ROWS, ("resource_name", "resource_status")),
    ("/stacks/[^/]+/[^/]+/resources/[^/]+", "resource", _ROW, ()),
    ("/stacks/[^/]+/[^/]+(/resources/[^/]+)?/events", "events", _ROWS, ()),
    ("/stacks/[^/]+/[^/]+/environment", "", _ROW, ()),
    ("/stacks/[^/]+/[^/]+/template", "", _ROW, (_TEMPLATE_VERSION,)),
    ("/stacks/[^/]+/(?P<id>[^/]+)", "stack", _ROW, ("id", "stack_status")),
    ("/stacks/[^/]+", "stack", _ROW, ("id", "stack_status")),
    ("/stacks", "stacks", _ROWS, ("id", "stack_status")),
    # Mistral
    ("/executions", "executions", _ROWS, ("id",)),
    ("/executions/[^/]+", "", _ROW, ("state",)),
    ("/tasks", "tasks", _ROWS, ("id",)),
    ("/action_executions", "action_executions", _ROWS, ("id",)),
    ("/actions", "actions", _ROWS, ("id",)),
    ("/workflows/[^/]+", "", _ROW, ()),
    ("/actions/[^/]+", "", _ROW, ()),
    ("/cron_triggers/[^/]+", "", _ROW, ()),
    ("/workflows", "workflows", _ROWS, ("id",)),
    ("/cron_triggers", "cron_triggers", _ROWS, ("id",)),
    # Nova
    ("/servers(/detail)?", "servers", _ROWS, ("id",)),
    ("/servers/(?P<id>[^/]+)", "server", _ROW, ("id",)),
    ("/servers/[^/]+/os-volume_attachments", "volumeAttachments", _ROWS, ("volumeId",)),
    ("/servers/[^/]+/os-volume_attachments/[^/]+", "volumeAttachment", _ROW, ("volumeId",)),
    ("/servers/[^/]+/os-interface", "interfaceAttachments", _ROWS, ()),
    ("/servers/[^/]+/os-interface/[^/]+", "interfaceAttachment", _ROW, ()),
    ("/servers/[^/]+/os-instance-actions", "instanceActions", _ROWS, ()),
    ("/servers/[^/]+/os-instance-actions/[^/]+", "instanceAction", _ROW, ()),
    ("/os-services", "services", _ROWS, ("id",)),
    ("/os-migrations", "migrations", _ROWS, ("id",)),
    ("/os-availability-zone", "availabilityZoneInfo", _ROWS, ("zoneName",)),
    ("/limits", "limits", _ROW, ("absolute",)),
    ("/flavors", "flavors", _ROWS, ("id", "name")),
    ("/images", "images", _ROWS, ("id",)),
    ("/images/(?P<id>[^/]+)", "image", _ROW, ("id", "status")),
    # Cinder
    ("/volumes(/detail)?", "volumes", _ROWS, ("id",)),
    ("/volumes/(?P<id>[^/]+)", "volume", _ROW, ("id", "status", "attachments")),
    ("/snapshots(/detail)?", "snapshots", _ROWS, ("id", "status")),
    ("/snapshots/(?P<id>[^/]+)", "snapshot", _ROW, ("id", "status")),
    ("/attachments(/detail)?", "attachments", _ROWS, ("id",)),
    ("/attachments/(?P<id>[^/]+)", "attachment", _ROW, ("id",)),
    # Neutron
    ("/networks", "networks", _ROWS, ("id",)),
    ("/networks/(?P<id>[^/]+)", "network", _ROW, ("id",)),
    ("/ports", "ports", _ROWS, ("id",)),
    ("/ports/(?P<id>[^/]+)", "port", _ROW, ("id",)),
    ("/floatingips", "floatingips", _ROWS, ("id",)),
    ("/floatingips/(?P<id>[^/]+)", "floatingip", _ROW, ("id",)),
    # Octavia
    ("/loadbalancers", "loadbalancers", _ROWS, ("id",)),
    ("/loadbalancers/(?P<id>[^/]+)", "loadbalancer", _ROW, ("id",)),
    ("/pools", "pools", _ROWS, ("id",)),
    ("/pools/(?P<id>[^/]+)", "pool", _ROW, ("id",)),
    ("/pools/[^/]+/members", "members", _ROWS, ("id",)),
    ("/pools/[^/]+/members/(?P<id>[^/]+)", "member", _ROW, ("id",)),
    # Designate
    ("/zones", "zones", _ROWS, ("id", "name", "project_id")),
    ("/zones/[^/]+/recordsets", "recordsets", _ROWS, ("id", "name", "type")),
    ("/zones/[^/]+/recordsets/(?P<id>[^/]+)", "", _ROW, ("id",)),
    # Aodh
    ("/alarms", "", _ROWS, ("name",)),
    ("/alarms/[^/]+", "", _ROW, ("name",)),
    # Keystone
    ("/auth/tokens", "token", _ROW, ("expires_at",)),
    ("/auth/catalog", "catalog", _ROWS, ()),
    ("/auth/projects", "projects", _ROWS, ("id",)),
    ("/projects/(?P<id>[^/]+)", "project", _ROW, ("id",)),
    ("/trusts", "trusts", _ROWS, ("id",)),
    ("/trusts/(?P<id>[^/]+)", "trust", _ROW, ("id",)),
)
_CHANGED = (
    ("/executions", "", _ROW, ("id",)),
    ("/stacks/[^/]+/[^/]+/preview", "resource_changes", _ROW, ("updated", "replaced", "deleted")),
    ("/servers/[^/]+/os-volume_attachments", "volumeAttachment", _ROW, ()),
    ("/servers/[^/]+/os-interface", "interfaceAttachment", _ROW, ()),
    ("/attachments", "attachment", _ROW, ("id",)),
    ("/snapshots", "snapshot", _ROW, ("id",)),
    ("/volumes", "volume", _ROW, ("id",)),
    ("/ports/(?P<id>[^/]+)", "port", _ROW, ("id",)),
    ("/floatingips/(?P<id>[^/]+)", "floatingip", _ROW, ("id",)),
    ("/pools/[^/]+/members/(?P<id>[^/]+)", "member", _ROW, ("id",)),
    ("/auth/tokens", "token", _ROW, ("expires_at",)),
)


@dataclass(frozen=True)
class Form:
    """What a request is answered with. ``path``: of the request. ``key``: where the body has it;
    "": it is the body itself. ``several``: it is a list of rows, otherwise one row. ``fields``:
    what each row has."""

    path: re.Pattern[str]
    key: str
    several: bool
    fields: tuple[str, ...]

    def why_not(self, path: str, body: Any, asked: frozenset[str] = frozenset()) -> str:
        """Return in a few words why a body is no answer to a request for this path; empty if it
        is. ``asked``: the only fields that the request wanted; empty: all."""
        value = body if not self.key else body.get(self.key) if isinstance(body, dict) else None
        rows = value if self.several else [value]
        if not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
            return f'it has no "{self.key}"' if self.key else _OTHERS
        for field in self.fields:
            names = field.split("|")
            if asked and not asked.intersection(names):
                continue
            if not all(any(row.get(name) is not None for name in names) for row in rows):
                return f'it has no "{names[0]}"'
        found = self.path.fullmatch(path)
        named = found.groupdict().get("id") if found else None
        if named is not None and _plain(str(rows[0]["id"])) != _plain(named):
            return "it is about something else"
        return ""


def _forms(rows: Iterable[tuple[str, str, bool, tuple[str, ...]]]) -> tuple[Form, ...]:
    return tuple(
        Form(re.compile(f".*{path}"), key, several, fields) for path, key, several, fields in rows
    )


_FORMS = {"GET": _forms(_READ), **dict.fromkeys(("PATCH", "POST", "PUT"), _forms(_CHANGED))}


class Answer(requests.Response):
    """An answer whose JSON is read by `load_json`, once: callers of `json` share it."""

    def json(self, **_: Any) -> Any:
        """Return the body. Raises `requests.JSONDecodeError` if it is no JSON, or breaks a
        limit."""
        if not hasattr(self, "_failover_json"):
            try:
                self._failover_json = load_json(self.content, "answer")
            except InvalidDocument as error:
                raise requests.JSONDecodeError(error.message, "", 0) from None
        return self._failover_json


class ForeignAnswer(requests.RequestException):
    """An answer that is not the service's own."""


def bounded(answer: requests.Response) -> requests.Response:
    """Read an answer to its end, and make it an `Answer`.

    Raises `requests.RequestException`: `requests.ReadTimeout` if the rest does not arrive in time;
    also if it is longer than `MAX_JSON_BYTES`, as a short one may be when it is unpacked.
    """
    answer.__class__ = Answer
    if answer._content is False:  # it was not read yet
        body = bytearray()
        try:
            for piece in answer.iter_content(_PIECE):
                body += piece
                if len(body) > MAX_JSON_BYTES:
                    answer.close()
                    raise requests.exceptions.ContentDecodingError(
                        f"the answer is longer than {MAX_JSON_BYTES // 1024**2} MiB"
                    )
        except requests.ConnectionError as error:  # what requests makes of it in a body
            if any(isinstance(each, urllib3.exceptions.ReadTimeoutError) for each in error.args):
                raise requests.ReadTimeout(*error.args) from None
            raise
        answer._content = bytes(body)
    return answer


def why_foreign(answer: requests.Response) -> str:
    """Return in a few words why an answer is not the service's own; empty if it is, or if its
    status alone says that the request may be repeated."""
    status = answer.status_code
    if status in _ANYWAY or (status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED):
        return ""
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return _wrong_form(answer)
    return "" if _is_marked(answer) else _OTHERS


def form_of(method: str, path: str) -> Form | None:
    """Return what a request is answered with, None if nothing is said of it."""
    found = (form for form in _FORMS.get(method, ()) if form.path.fullmatch(path))
    return next(found, None)


def _is_marked(answer: requests.Response) -> bool:
    if "x-openstack-request-id" in answer.headers:
        return True
    if answer.headers.get("WWW-Authenticate", "").startswith("Keystone"):
        return True
    body = _json_of(answer)
    kind = answer.headers.get("Content-Type", "")
    if not isinstance(body, dict) or not kind.startswith("application/json"):
        return False
    parts = [each for each in body.values() if isinstance(each, dict)]
    return (
        "faultstring" in body  # pecan's: Mistral, Octavia, Aodh
        or {"code", "type", "message"} <= body.keys()  # Designate's
        or any("message" in each or "faultstring" in each for each in parts)
        or "versions" in body
    )


def _wrong_form(answer: requests.Response) -> str:
    """Return what is wrong with the body of an answer that says that the request succeeded."""
    request = answer.request
    method = str(request.method) if request is not None else ""
    if method != "GET" and not answer.content:
        return ""  # accepted
    body = _json_of(answer)
    address = urlsplit(str(answer.url))
    path = address.path.rstrip("/")
    asked = frozenset(",".join(parse_qs(address.query).get("fields", ())).split(",")) - {""}
    form = form_of(method, path)
    signed = "x-openstack-request-id" in answer.headers
    if not isinstance(body, dict | list):
        if form is None and method != "GET" and signed:
            return ""  # Heat says null
        if not answer.content:
            return "it is empty"
        return _CUT_OFF if signed else _OTHERS
    return form.why_not(path, body, asked) if form is not None else ""


def _json_of(answer: requests.Response) -> Any:
    try:
        return answer.json() if answer.content else None
    except ValueError:
        return None


def _plain(identifier: str) -> str:
    return identifier.replace("-", "").lower()
