# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.cloud_alarms [deliveries]``: alarms by the thousand on the real Mistral.

As the part ``admission`` of ``bench``, through the API of the test cloud: its engine and its two
executors over RabbitMQ, Keystone, the state in MariaDB. A hundred groups protect one stack of two
servers and nothing on it, so that what is measured is the alarms and not the cloud.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

from bench.admission import DELIVERIES, GROUPS, HEAD, THREADS, check, deliver
from mistral_failover.mistral.client import MistralClient
from testcloud import settings, templates
from testcloud.tenant import Tenant


def serve(client: MistralClient, stack: str, name: str) -> None:
    """Define a group over the stack and bring it up."""
    definition = {
        "failover_template_version": "2026-11-21",
        "stack": stack,
        "members": {"servers": ["db_a", "db_b"]},
        "resources": {},
        "limits": {"cooldown": 0, "per_hour": 1000},
    }
    client.run_action("failover.define", {"definition": definition, "name": name})
    ended = client.run("failover.activate_first", {"group": name}, timeout=300)
    if ended["state"] != "SUCCESS":
        raise RuntimeError(str(ended["output"]))


def main() -> int:
    """Measure, and print a row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("deliveries", nargs="?", type=int, default=DELIVERIES)
    deliveries = parser.parse_args().deliveries
    where = settings.load()
    demo = Tenant(where, "demo")
    tag = uuid.uuid4().hex[:6]
    stack = f"bench-alarms-{tag}"
    names = [f"alarmed-{tag}-{number}" for number in range(GROUPS)]
    demo.create_stack(stack, templates.moved_by_heat(0))
    try:
        token = demo.cloud.session.get_token()
        client = MistralClient(
            where.url("mistral-api") + "/v2", headers={"X-Auth-Token": token}, timeout=300
        )
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: serve(client, stack, name), names))
        print(HEAD, flush=True)
        print(check(deliver(client, names, deliveries, THREADS), names), flush=True)
    finally:
        demo.delete_stack(stack)
    return 0


if __name__ == "__main__":
    sys.exit(main())
