# SPDX-License-Identifier: Apache-2.0
"""Members of a real autoscaling group are replaced, and their role moved, with ``openstack
failover`` as an ordinary member of a project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cloud_audit import CloudAudit
from testcloud.settings import ROOT, Settings
from testcloud.tenant import ProtectedStack, Tenant

pytestmark = pytest.mark.timeout(1200)
CLIENT = Path(sys.executable).with_name("openstack")
STACK = ROOT / "examples" / "autoscaling-group-stack.yaml"
GROUP = ROOT / "examples" / "autoscaling-group.yaml"


@dataclass(frozen=True)
class Shop(ProtectedStack):
    """The stack and the group of the example, of two members."""

    where: Settings

    def failover(self, *words: str) -> Any:
        """What ``openstack failover ...`` shows; it must end well."""
        cloud = {
            "OS_CLIENT_CONFIG_FILE": str(self.where.clouds_yaml),
            "OS_CLOUD": f"testcloud-{self.tenant.user}",
        }
        ran = subprocess.run(
            [str(CLIENT), "failover", *words, "-f", "json"],
            env={**os.environ, **cloud},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return json.loads(ran.stdout)

    def holder(self) -> tuple[str, str]:
        """Who is active, and who is not; volume, application and stack say the same."""
        active = self.wait_until_active()
        servers = self.servers()
        (other,) = set(servers) - {active}
        assert self.tenant.holders(self.volume()) == [servers[active]]
        assert [m for m, running in self.applications().items() if running] == [active]
        assert self.tenant.outputs(self.name)["active"] == active
        return active, other

    def epochs(self) -> dict[str, tuple[str, int]]:
        """Each member's server and epoch."""
        return {row["name"]: (row["server"], row["epoch"]) for row in self.status()["members"]}


@pytest.fixture(scope="module")
def shop(
    demo: Tenant, where: Settings, audited: CloudAudit, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """The example, active on one of its members."""
    made = Shop(demo, f"shop-{os.getpid()}", where)
    audited.watch(demo, made.name)
    group = yaml.safe_load(GROUP.read_text("utf-8"))
    group |= {"stack": made.name, "limits": {"cooldown": 0, "per_hour": 1000}}
    file = tmp_path_factory.mktemp("shop") / "group.yaml"
    file.write_text(yaml.safe_dump(group), "utf-8")
    demo.create_stack(made.name, STACK.read_text("utf-8"), size=2)
    made.failover("group", "create", str(file))
    yield made
    demo.run("failover.remove", group=made.name)
    demo.delete_stack(made.name)


def gone(shop: Shop, servers: set[str]) -> bool:
    """Whether Nova has none of these servers any more."""
    return not servers & {server.id for server in shop.tenant.cloud.compute.servers()}


def test_a_member_is_replaced_while_the_other_one_serves(shop: Shop) -> None:
    active, other = shop.holder()
    before = shop.epochs()

    shown = shop.failover("replace", shop.name, other, "--because", "its disk is old", "--yes")

    assert shown["status"] == "COMPLETE"
    assert shop.holder() == (active, other)
    after = shop.epochs()
    assert after[active] == before[active]
    server, epoch = after[other]
    assert (server, epoch) == (shop.servers()[other], before[other][1] + 1)
    assert gone(shop, {before[other][0]})


def test_all_members_are_replaced_in_turn_and_the_role_moves_before_its_holder_goes(
    shop: Shop,
) -> None:
    active, other = shop.holder()
    before = shop.servers()

    shown = shop.failover("replace", shop.name, "--all", "--yes")

    assert shown["status"] == "COMPLETE"
    assert shop.holder() == (other, active)
    after = shop.servers()
    assert set(after) == set(before)
    assert not set(after.values()) & set(before.values())
    assert gone(shop, set(before.values()))


def test_a_role_is_switched_over_and_rolled_back(shop: Shop) -> None:
    active, other = shop.holder()
    servers = shop.servers()

    assert shop.failover("switchover", shop.name, "--to", other)["status"] == "COMPLETE"
    assert shop.holder() == (other, active)

    assert shop.failover("rollback", shop.name)["status"] == "COMPLETE"
    assert shop.holder() == (active, other)
    assert shop.servers() == servers
