# SPDX-License-Identifier: Apache-2.0
"""Octavia's API in one process, run with Octavia's own environment: ``octavia_api.py PORT CONFIG``.

Its provider is Octavia's own ``noop_driver``, which accepts everything and does nothing. A real
provider reports when its load balancer has a change. Here a thread does that, by Octavia's own code
for such reports.
"""

from __future__ import annotations

import socketserver
import sys
import threading
import time
from typing import Any
from wsgiref import simple_server

from octavia.api import app
from octavia.api.drivers.driver_agent.driver_updater import DriverUpdater
from octavia.db import api, models

PAUSE = 0.2
"""Seconds that a load balancer takes for a change, at most; Octavia's own code comes on top."""
_KINDS = {
    "members": models.Member,
    "pools": models.Pool,
    "listeners": models.Listener,
    "loadbalancers": models.LoadBalancer,
}


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    daemon_threads = True


def settle() -> None:
    """Report what is pending as done, for ever."""
    provider = DriverUpdater()
    while True:
        time.sleep(PAUSE)
        session = api.get_session()
        with session.begin():
            pending = {kind: _pending(session, model) for kind, model in _KINDS.items()}
        if any(pending.values()):
            provider.update_loadbalancer_status(pending)


def _pending(session: Any, model: Any) -> list[dict[str, str]]:
    rows = session.query(model).filter(model.provisioning_status.like("PENDING%"))
    return [
        {
            "id": str(row.id),
            "provisioning_status": (
                "DELETED" if row.provisioning_status == "PENDING_DELETE" else "ACTIVE"
            ),
        }
        for row in rows
    ]


def main() -> None:
    """Serve on loopback, for ever."""
    application = app.setup_app(argv=["octavia-api", "--config-file", sys.argv[2]])
    threading.Thread(target=settle, daemon=True).start()
    server = simple_server.make_server(
        "127.0.0.1", int(sys.argv[1]), application, server_class=_Server
    )
    server.serve_forever()


if __name__ == "__main__":
    main()
