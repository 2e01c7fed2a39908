# SPDX-License-Identifier: Apache-2.0
"""A gateway before a cloud, also one with TLS and a certificate of an authority of its own."""

from __future__ import annotations

import http.server
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OF_THE_CONNECTION = {
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "accept-encoding",
}
LOST = "http://127.0.0.1:9"
_PATHS = {
    "compute": "/compute/v2.1",
    "volumev3": "/volume/v3/{project}",
    "block-storage": "/volume/v3/{project}",
    "network": "/network",
    "orchestration": "/orchestration/v1/{project}",
    "alarming": "/alarming",
    "load-balancer": "/load-balancer",
    "dns": "/dns",
}


def endpoints(url: str) -> dict[str, str]:
    """Return what a catalog names where a gateway is before every service but Keystone."""
    return {kind: url + path for kind, path in _PATHS.items()}


@dataclass(frozen=True)
class Authority:
    """A certificate authority: its certificate, and what it signed for ``localhost``."""

    certificate: Path
    served: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Return what a server of TLS needs."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.served, self.key)
        return made


def authority(folder: Path) -> Authority:
    """Make an authority, and a certificate of it for localhost and 127.0.0.1."""
    own, own_key = folder / "ca.pem", folder / "ca.key"
    served, key, asked = folder / "served.pem", folder / "served.key", folder / "served.csr"
    names = folder / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl("req", "-x509", *new, "-days", "2", "-subj", "/CN=Operator", "-keyout", own_key,
             "-out", own)  # fmt: skip
    _openssl("req", *new, "-subj", "/CN=localhost", "-keyout", key, "-out", asked)
    _openssl("x509", "-req", "-in", asked, "-CA", own, "-CAkey", own_key, "-CAcreateserial",
             "-days", "2", "-extfile", names, "-out", served)  # fmt: skip
    return Authority(own, served, key)


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@contextmanager
def gateway(inside: str, trusted: Authority | None = None) -> Iterator[str]:
    """Pass on to the cloud at ``inside`` what comes below the URL that this yields, and that only.
    Links in bodies lead to where no client outside gets. ``trusted``: serve TLS."""
    handler = type("Gateway", (_Gateway,), {"inside": inside})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        scheme = "http"
        if trusted is not None:
            scheme = "https"
            server.socket = trusted.context().wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"{scheme}://localhost:{server.server_port}/gw"
        server.shutdown()


class _Gateway(http.server.BaseHTTPRequestHandler):
    inside = ""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _pass_on(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        asked = urllib.request.Request(  # noqa: S310 - the cloud of this test
            self.inside + self.path.removeprefix("/gw"),
            data=self.rfile.read(length) if length else None,
            headers={k: v for k, v in self.headers.items() if k.lower() not in _OF_THE_CONNECTION},
            method=self.command,
        )
        without = urllib.request.ProxyHandler({})
        try:
            answer: Any = urllib.request.build_opener(_NoRedirect, without).open(asked, timeout=20)
        except urllib.error.HTTPError as error:
            answer = error
        body = answer.read().replace(self.inside.encode(), LOST.encode())
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _OF_THE_CONNECTION:
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none: the caller does."""
