# SPDX-License-Identifier: Apache-2.0
"""An embedded Mistral as a service of the emulated cloud: requests with a token of that cloud reach
it, as keystonemiddleware would let them through, and the token reaches the actions."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_OF_THE_CONNECTION = {"connection", "host", "keep-alive", "transfer-encoding", "content-length"}


@contextmanager
def in_front_of(url: str, token: str) -> Iterator[str]:
    """Serve a Mistral's API at another address, without its own token; the address."""
    there = urlsplit(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _OF_THE_CONNECTION}
            headers["Authorization"] = f"Bearer {token}"
            mistral = http.client.HTTPConnection(str(there.hostname), there.port, timeout=120)
            mistral.request(self.command, self.path, body or None, headers)
            answer = mistral.getresponse()
            content = answer.read()
            mistral.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OF_THE_CONNECTION | {"date", "server"}:
                    self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _pass_on  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}{there.path}"
        server.shutdown()
