# SPDX-License-Identifier: Apache-2.0
"""The same loss of power, handled as the field does it: ``make bench-machines`` prints the outages.

The servers of the field start their database by themselves as soon as their volume is there, which
is what makes them dangerous without a fence, and what an evacuated server needs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from support import ledger, machines
from support.ledger import Ledger
from support.machines import HOST_POWER, QUIESCE, STOP, STORAGE, Alone, Service
from testcloud import seed, templates
from testcloud.errors import CloudError
from testcloud.machines import guests, power
from testcloud.settings import Settings
from testcloud.tenant import Tenant, until

pytestmark = pytest.mark.machines

LIMIT = 240.0
"""Seconds after which a service counts as down for good: twice what the slowest play needs."""
_START = """#cloud-config
write_files:
  - path: /etc/rc.local
    permissions: '0755'
    content: |
      #!/bin/sh
      export VOLUME_MOUNT=/srv/data VOLUME_FORMAT=ext4 VOLUME_OWNER=postgres VOLUME_WAIT=2
      export PG_INIT=yes PG_OPTIONS='-c listen_addresses=*'
      until failover-volume up %VOLUME% /dev/none &&
          su postgres -s /bin/sh -c 'failover-postgresql start'; do
        sleep 0.5
      done
"""


class Unprotected:
    """Two servers whose volume follows a parameter of their stack, and writers."""

    def __init__(self, tenant: Tenant, name: str, rack: str) -> None:
        self.tenant, self.name = tenant, name
        tenant.create_stack(name, _template(rack))
        outputs = tenant.outputs(name)
        self.servers = {member: outputs[member] for member in machines.MEMBERS}
        self.volume = outputs["volumes"][0]
        self.home = guests.host_of(tenant.settings, self.servers["db_a"])
        addresses = {
            member: str(tenant.cloud.compute.get_server(server).addresses["net1"][0]["addr"])
            for member, server in self.servers.items()
        }
        until(self._is_running, "the database of db_a", 180)
        machines.prepare(tenant.settings, self.servers["db_a"])
        self.ledger = Ledger(addresses)
        self.ledger.start()
        self.ledger.wait_for_rows("db_a", 60, 50)

    def _is_running(self) -> bool:
        try:
            where, server = self.tenant.settings, self.servers["db_a"]
            guests.execute(where, server, "failover-postgresql is-running")
        except CloudError:
            return False
        return True

    def outage(self, act: Callable[[], None], member: str) -> float | None:
        """Cut the power of db_a's host and act; the seconds until a member acknowledges rows, None
        if it does not within `LIMIT`. No acknowledged row may be lost."""
        begun = time.monotonic()
        power.off(self.tenant.settings, self.home)
        act()
        try:
            self.ledger.wait_for_rows(member, LIMIT)
        except AssertionError:
            return None
        finally:
            self.ledger.stop()
        assert self.ledger.missing(ledger.rows(self.ledger.addresses[member])) == []
        return self.ledger.outage(begun)


@pytest.fixture
def unprotected(
    where: Settings, demo: Tenant, operator: Tenant, rack: str
) -> Iterator[Callable[[str], Any]]:
    """Make what the field has. Afterwards hosts and stacks are as before."""
    made: list[Unprotected] = []

    def make(name: str) -> Unprotected:
        made.append(Unprotected(demo, f"{name}-{os.getpid()}", rack))
        return made[-1]

    yield make
    machines.restore_hosts(where, operator, rack)
    for service in made:
        service.ledger.stop()
        service.tenant.delete_stack(service.name, limit=300)


def test_the_outage_after_a_loss_of_power(
    protect: Callable[..., Service],
    unprotected: Callable[[str], Unprotected],
    where: Settings,
    operator: Tenant,
    rack: str,
) -> None:
    """Ours, after each of two fences, Nova's evacuate, and Heat's PATCH without a fence."""
    outages = []
    for rung in (STORAGE, HOST_POWER):
        service = protect(QUIESCE, rung, STOP)
        service.write()
        with service.fault(f"this project, {rung['kind']}"):
            machines.lose_power(service)
        outages.append(service.outages[-1])
        service.restore_hosts()
    ours = outages[-1]  # by the same fence as the others

    field = unprotected("field-evacuate")
    evacuated = field.outage(lambda: _evacuate(operator, field), "db_a")
    print(f"evacuate after the same fence: {_said(evacuated, ours)}")
    machines.restore_hosts(where, operator, rack)

    field = unprotected("field-patch")
    patched = field.outage(lambda: field.tenant.patch_stack(field.name, active="db_b"), "db_b")
    print(f"PATCH without a fence: {_said(patched, ours)}")


def test_the_outage_of_a_single_server_after_a_loss_of_power(
    protect: Callable[..., Service],
    unprotected: Callable[[str], Unprotected],
    operator: Tenant,
) -> None:
    """Ours, by `evacuate`, and Nova's own evacuate after the same fence."""
    service = protect(QUIESCE, HOST_POWER, tenant=operator, alone=Alone(("evacuate",)))
    service.write()
    with service.fault("this project, a single server, evacuate"):
        machines.lose_power(service)
    ours = service.outages[-1]
    machines.tidy(operator, service.name)
    service.restore_hosts()

    field = unprotected("field-single")
    evacuated = field.outage(lambda: _evacuate(operator, field), "db_a")
    print(f"Nova's evacuate after the same fence: {_said(evacuated, ours)}")


def _said(outage: float | None, ours: float) -> str:
    if outage is None:
        return f"no row within {LIMIT:.0f} s"
    return f"outage {outage:.1f} s, {outage / ours:.1f} times ours"


def _evacuate(operator: Tenant, field: Unprotected) -> None:
    """Fence the host as ours does, once Nova counts it as down. Then it may be evacuated."""
    operator.action("failover.fence_host", host=field.home, because="it does not answer")
    server = field.servers["db_a"]
    answer = operator.cloud.compute.post(
        f"/servers/{server}/action", json={"evacuate": {}}, microversion="2.29"
    )
    assert answer.ok, answer.text


def _template(rack: str) -> str:
    template = yaml.safe_load(templates.moved_by_heat(1))
    start = {
        "str_replace": {"template": _START, "params": {"%VOLUME%": {"get_resource": "volume1"}}}
    }
    for member in machines.MEMBERS:
        server = template["resources"][member]["properties"]
        server |= {"image": seed.GUEST, "flavor": seed.GUEST_FLAVOR, "availability_zone": rack}
        server |= {"user_data_format": "RAW", "user_data": start}
    return yaml.safe_dump(template, sort_keys=False)
