# SPDX-License-Identifier: Apache-2.0
"""Designate in one process, run with Designate's own environment: ``designate_api.py PORT CONFIG
POOLS``.

Its API, central, producer, worker and name server (mdns) are its own code. They talk by
oslo.messaging's driver for one process. The worker asks the name server, as it asks any other one,
before it calls a change ACTIVE.
"""

from __future__ import annotations

import socketserver
import sys
from wsgiref import simple_server

import designate.cmd  # noqa: F401 - it chooses threads, before anything else is imported
import designate.conf
from designate import utils
from designate.central import service as central
from designate.manage import pool
from designate.mdns import service as mdns
from designate.producer import service as producer
from designate.worker import service as worker
from oslo_log import log
from paste import deploy


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    daemon_threads = True


def main() -> None:
    """Serve on loopback, for ever."""
    port, config, pools = sys.argv[1:]
    conf = designate.conf.CONF
    conf.import_group("keystone_authtoken", "keystonemiddleware.auth_token")
    utils.read_config("designate", ["designate", "--config-file", config])
    log.setup(conf, "designate")
    central.Service().start()
    pool.PoolCommands().update(pools, delete=False)
    for service in (worker.Service(), mdns.Service(), producer.Service()):
        service.start()
    paste = conf["service:api"].api_paste_config
    application = deploy.loadapp(f"config:{paste}", name="osapi_dns")
    server = simple_server.make_server("127.0.0.1", int(port), application, server_class=_Server)
    server.serve_forever()


if __name__ == "__main__":
    main()
