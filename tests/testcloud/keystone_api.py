# SPDX-License-Identifier: Apache-2.0
"""Keystone in one process, and services behind its middleware, run with Keystone's own environment:
``keystone_api.py PORT CONFIG PROJECT CLOUD TOKEN``.

Below ``/identity`` is Keystone. It gets a project with the id PROJECT. Every other first part of a
path is a service of the emulated CLOUD, behind keystonemiddleware as in front of a real service:
what the middleware lets through goes there with TOKEN.

A web server before a real Keystone verifies the tokens of an identity provider. Here the bearer's
token is the name of a user whom the provider vouches for.
"""

from __future__ import annotations

import socketserver
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref import simple_server

from keystone.cmd import bootstrap
from keystone.common import provider_api
from keystone.common.sql import upgrades
from keystone.server.flask import core
from keystonemiddleware import auth_token

Start = Callable[..., Any]
# By the first part of a path: the type of the service in the catalog.
KINDS = {
    "compute": "compute",
    "volume": "block-storage",
    "network": "network",
    "load-balancer": "load-balancer",
    "dns": "dns",
    "orchestration": "orchestration",
    "alarming": "alarming",
}


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    daemon_threads = True


class _Handler(simple_server.WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _PassedOn:
    """Passes on to the emulated cloud what the middleware let through."""

    def __init__(self, cloud: str, token: str) -> None:
        self._cloud, self._token = cloud, token

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        query = environ.get("QUERY_STRING")
        headers = {
            name[5:].replace("_", "-"): value
            for name, value in environ.items()
            if name.startswith(("HTTP_ACCEPT", "HTTP_OPENSTACK", "HTTP_X_OPENSTACK"))
            and name != "HTTP_ACCEPT_ENCODING"
            and value is not None
        }
        asked = urllib.request.Request(  # noqa: S310 - the cloud of this test
            self._cloud + environ["PATH_INFO"] + (f"?{query}" if query else ""),
            data=environ["wsgi.input"].read(length) if length else None,
            headers={
                **headers,
                "Content-Type": environ.get("CONTENT_TYPE") or "application/json",
                "X-Auth-Token": self._token,
            },
            method=environ["REQUEST_METHOD"],
        )
        try:
            answer: Any = urllib.request.build_opener(_NoRedirect).open(asked, timeout=20)
        except urllib.error.HTTPError as error:
            answer = error
        body = answer.read().replace(self._cloud.encode(), _outside(environ).encode())
        skipped = ("connection", "content-length", "transfer-encoding", "date", "server")
        kept = [
            (name, value.replace(self._cloud, _outside(environ)))
            for name, value in answer.headers.items()
            if name.lower() not in skipped
        ]
        start(f"{answer.status} {answer.reason}", [*kept, ("Content-Length", str(len(body)))])
        return [body]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none: the caller does."""


def _outside(environ: dict[str, Any]) -> str:
    return f"http://{environ['HTTP_HOST']}"


class _IdentityProvider:
    """Keystone below ``/identity``, with what a web server before it says of a bearer."""

    def __init__(self, keystone: Any) -> None:
        self._keystone = keystone

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        scheme, _, name = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme == "Bearer":
            environ["OIDC_NAME"] = name
        answer: Iterable[bytes] = self._keystone(environ, start)
        return answer


def _bootstrap() -> None:
    """Make the administrator, as ``keystone-manage bootstrap`` does."""
    bootstrap.backends.load_backends = lambda: None  # they are
    first = bootstrap.Bootstrapper()
    first.admin_username = first.admin_password = first.project_name = "admin"
    first.admin_role_name = "admin"
    first.bootstrap()


def main() -> None:
    """Serve on loopback, for ever."""
    port, config, project, cloud, token = sys.argv[1:]
    sys.argv[1:] = []
    keystone = core.initialize_application(name="public", config_files=[config])
    upgrades.offline_sync_database_to_version()
    _bootstrap()
    made = {"id": project, "name": "demo", "domain_id": "default", "enabled": True}
    resources = provider_api.ProviderAPIs.resource_api
    if project not in {each["id"] for each in resources.list_projects()}:
        resources.create_project(project, made)
    identity = _IdentityProvider(keystone)
    url = f"http://127.0.0.1:{port}/identity/v3"
    services = {
        part: auth_token.AuthProtocol(
            _PassedOn(cloud, token),
            {
                "auth_type": "password",
                "auth_url": url,
                "username": "admin",
                "password": "admin",
                "project_name": "admin",
                "user_domain_id": "default",
                "project_domain_id": "default",
                "www_authenticate_uri": url,
                "service_type": kind,
                "service_token_roles_required": "true",
            },
        )
        for part, kind in KINDS.items()
    }

    def application(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        part, _, rest = environ["PATH_INFO"].lstrip("/").partition("/")
        if part in services:
            versions = not environ.get("HTTP_X_AUTH_TOKEN") and environ["REQUEST_METHOD"] == "GET"
            open_ = versions and rest.strip("/") in ("", "v2.1", "v3", "v2.0", "v2", "v1")
            chosen = _PassedOn(cloud, token) if open_ else services[part]
            return chosen(environ, start)
        if part != "identity":
            start("200 OK", [])
            return []
        environ["SCRIPT_NAME"], environ["PATH_INFO"] = "/identity", f"/{rest}"
        return identity(environ, start)

    server = simple_server.make_server("127.0.0.1", int(port), application, _Server, _Handler)
    server.serve_forever()


if __name__ == "__main__":
    main()
