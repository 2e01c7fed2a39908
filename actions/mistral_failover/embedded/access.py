# SPDX-License-Identifier: Apache-2.0
"""Access to the embedded Mistral's API: a token, and what a web page could send without it.

Mistral's own authentication needs Keystone. Without it every program that reaches the port could
give orders: any user of this machine, and any web page in a browser here, because a browser sends
forms and plain text to other sites without asking. So each request is checked before Mistral sees
it, in this order:

1. It is from no web page of another site (`loopback.foreign`), else 403: ``Host`` is a name of
   this API, ``Origin`` and ``Sec-Fetch-Site`` name no other site.
2. The token is in ``X-Auth-Token``, else 401. A caller whose ``X-Auth-Token`` is a cloud's, for the
   actions, sends it as ``Authorization: Bearer`` instead.
3. The path is none that this package has no use for, and every definition is checked (no
   ``skip_validation``), else 403.
4. The body is JSON, or plain text where Mistral reads definitions, else 415.
5. A JSON body is an object, else 400: to anything else Mistral answers 500.

The body is read only in the last step: without the token nothing is kept of it.
"""

from __future__ import annotations

import hmac
import io
import json
import logging
import secrets
from collections.abc import Callable, Collection, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from mistral_failover import private_files
from mistral_failover.embedded.wsgi import Application, Environ
from mistral_failover.errors import CodedError
from mistral_failover.http_server import RefusalLog
from mistral_failover.loopback import foreign
from mistral_failover.model.documents import load_json
from mistral_failover.model.errors import InvalidDocument

_REFUSALS = RefusalLog(logging.getLogger(__name__), "The API")
TOKEN_FILE = "api-token"  # noqa: S105 - its name
"""In the state directory. Remove it and restart to have a new one."""
LARGEST = 16 * 1024 * 1024
"""Maximum size of a body in bytes."""
_BYTES = 32
_BEARER = "bearer "
_DEFINITIONS = frozenset({"workflows", "workbooks", "actions"})
_CLOSED = frozenset({"code_sources", "dynamic_actions", "event_triggers"})


def token(folder: Path) -> str:
    """Return the token of a state directory; make it at the first call.

    Raises CodedError TOKEN_UNREADABLE, TOKEN_NOT_PRIVATE.
    """
    file = folder / TOKEN_FILE
    try:
        if not file.exists():
            private_files.write(file, secrets.token_hex(_BYTES) + "\n")
        found = private_files.read(file).decode("ascii").strip()
    except private_files.NotPrivate as error:
        raise CodedError("TOKEN_NOT_PRIVATE", error.message, error.remedy) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(file, str(error)) from None
    if len(found) < 2 * _BYTES:
        raise _unusable(file, f"it has fewer than {2 * _BYTES} characters")
    return found


def _unusable(file: Path, why: str) -> CodedError:
    return CodedError(
        "TOKEN_UNREADABLE",
        f"the token of the API in {file} is not usable: {why}",
        f"rm {file}, and start again: a new one is made",
    )


def make_private(folder: Path) -> None:
    """Make a state directory, or check that no other user may enter one that exists.

    Raises CodedError STATE_DIR_OPEN; OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        private_files.check_directory(folder)
    except private_files.NotPrivate as error:
        raise CodedError(
            "STATE_DIR_OPEN", f"{error.message}, which holds secrets", error.remedy
        ) from None


class AccessControl:
    """A WSGI application that lets requests through to another one; see the module.

    :param file: where the token is, for the messages. :param hosts: the names of this API, without
    ports: a tunnel has another port at its other end.
    """

    def __init__(
        self, application: Application, token: str, file: Path, hosts: Collection[str]
    ) -> None:
        self._application = application
        self._token = token.encode("ascii")
        self._file = file
        self._hosts = frozenset(host.lower() for host in hosts)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request, or hand it on without the token."""
        refused = self._checked(environ)
        if refused is None:
            return self._application(environ, start_response)
        status, reason = refused
        _REFUSALS.refused(f"{status.value} {status.phrase}", environ.get("REMOTE_ADDR", ""))
        # As Mistral's own errors look.
        body = json.dumps({"faultcode": "Client", "faultstring": reason}).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if status is HTTPStatus.UNAUTHORIZED:
            headers.append(("WWW-Authenticate", "Bearer"))
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def _checked(self, environ: Environ) -> tuple[HTTPStatus, str] | None:
        of_another = foreign(
            [environ.get("HTTP_HOST", "")],
            self._hosts,
            origin=environ.get("HTTP_ORIGIN"),
            site=environ.get("HTTP_SEC_FETCH_SITE"),
            scheme=environ.get("wsgi.url_scheme", "http"),
        )
        if of_another == "host":
            return HTTPStatus.FORBIDDEN, (
                "The Host header is no name of this API. It has these: "
                f"{', '.join(sorted(self._hosts))}. Add another one with --api-name."
            )
        if of_another == "site":
            return HTTPStatus.FORBIDDEN, "This request is from a web page of another site."
        if not self._authenticated(environ):
            return HTTPStatus.UNAUTHORIZED, (
                "The request has no X-Auth-Token, or a wrong one. The token is in the file "
                f"{self._file} on the machine of this server, where only its user can read it. Use "
                "failover --embedded there, or give the file with --mistral-token-file."
            )
        if _closed(environ):
            return HTTPStatus.FORBIDDEN, (
                "This server has no code sources, dynamic actions, event triggers or members of "
                "workflows."
            )
        if "skip_validation" in parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True):
            return HTTPStatus.FORBIDDEN, "This server checks every definition."
        if not _readable(environ):
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, (
                "Send the body as application/json; definitions of workflows, workbooks and "
                "actions as text/plain."
            )
        if not _is_object(environ):
            return HTTPStatus.BAD_REQUEST, "The body must be a JSON object."
        return None

    def _authenticated(self, environ: Environ) -> bool:
        """Whether the request has the token, which is taken from it: actions would use it as a
        token of the cloud."""
        given = environ.get("HTTP_AUTHORIZATION", "")
        if given[: len(_BEARER)].lower() == _BEARER:
            del environ["HTTP_AUTHORIZATION"]
            given = given[len(_BEARER) :].strip()
            if self._is_token(environ.get("HTTP_X_AUTH_TOKEN", "")):
                del environ["HTTP_X_AUTH_TOKEN"]
        else:
            given = environ.pop("HTTP_X_AUTH_TOKEN", "")
        return self._is_token(given)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)


def _readable(environ: Environ) -> bool:
    kind = str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower()
    if not kind:
        return environ.get("CONTENT_LENGTH", "") in ("", "0")
    if kind == "text/plain":
        return _of_definitions(environ)
    return kind == "application/json"


def _of_definitions(environ: Environ) -> bool:
    parts = str(environ.get("PATH_INFO", "")).split("/")
    known = parts[:2] == ["", "v2"] and len(parts) > 2 and parts[2] in _DEFINITIONS
    return known and str(environ["REQUEST_METHOD"]) in ("POST", "PUT")


def _closed(environ: Environ) -> bool:
    # Mistral ignores empty parts of a path, and an extension.
    parts = [part.partition(".")[0] for part in environ.get("PATH_INFO", "").split("/") if part]
    shared = parts[1:2] == ["workflows"] and parts[3:4] == ["members"]
    return parts[:1] == ["v2"] and (shared or not _CLOSED.isdisjoint(parts[1:2]))


def _is_object(environ: Environ) -> bool:
    """Whether the body, which is read here and put back, is a JSON object where Mistral expects
    one."""
    length = str(environ.get("CONTENT_LENGTH", ""))
    if not length.isdecimal() or not int(length):
        return True
    body = environ["wsgi.input"].read(int(length))
    environ["wsgi.input"] = io.BytesIO(body)
    if _of_definitions(environ):
        return True
    try:
        return isinstance(load_json(body, "body"), dict)
    except InvalidDocument:
        return False
