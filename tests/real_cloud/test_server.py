# SPDX-License-Identifier: Apache-2.0
"""``failover server`` for a tenant without Mistral: by an application credential with the role
member and no more, against the real Heat, Nova, Cinder and Keystone."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import databases
from mistral_failover.cli.main import main
from mistral_failover.lab.drill import examples
from support import forked
from support.cloud_audit import CloudAudit
from support.servers import ServerProcess
from testcloud.settings import REGION, Settings
from testcloud.tenant import Tenant, until

pytestmark = pytest.mark.timeout(900)
LEASE = 10
SERVER = {
    "type": "OS::Nova::Server",
    "depends_on": "data_volume",  # so that Heat deletes the volume last, when no server has it
    "properties": {"image": "tiny", "flavor": "m1.tiny", "networks": [{"network": "net1"}]},
}
STACK = {
    "heat_template_version": "2021-04-16",
    "parameters": {"active": {"type": "string", "default": ""}},
    "resources": {
        "db_a": SERVER,
        "db_b": SERVER,
        "data_volume": {"type": "OS::Cinder::Volume", "properties": {"size": 1}},
    },
    "outputs": {
        name: {"value": {"get_resource": name}} for name in ("db_a", "db_b", "data_volume")
    },
}


@dataclass
class Pair:
    """Two servers of one tenant, the stacks that they protect, and their environment."""

    servers: tuple[ServerProcess, ServerProcess]
    stacks: list[str]
    environment: dict[str, str]


@pytest.fixture(scope="module")
def credential(demo: Tenant) -> Iterator[dict[str, str]]:
    """An application credential of an ordinary member."""
    identity, user = demo.cloud.identity, demo.cloud.session.get_user_id()
    made = identity.create_application_credential(
        user, name=f"failover-{uuid.uuid4().hex[:8]}", roles=[{"name": "member"}]
    )
    yield {"application_credential_id": made.id, "application_credential_secret": made.secret}
    identity.delete_application_credential(user, made)


@contextmanager
def stacks(demo: Tenant) -> Iterator[list[str]]:
    """Two stacks that know nothing of failovers."""
    names = [f"served-{os.getpid()}-{number}" for number in (1, 2)]
    text = yaml.safe_dump(json.loads(json.dumps(STACK)))  # without anchors
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: demo.create_stack(name, text), names))
        yield names
        list(pool.map(demo.delete_stack, names))


@pytest.fixture(scope="module")
def pair(
    where: Settings,
    demo: Tenant,
    credential: dict[str, str],
    audited: CloudAudit,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    """Both servers, on one MariaDB."""
    folder = tmp_path_factory.mktemp("servers")
    clouds = folder / "clouds.yaml"
    clouds.touch(0o600)
    entry = {
        "auth_type": "v3applicationcredential",
        "auth": {"auth_url": where.auth_url, **credential},
        "region_name": REGION,
    }
    clouds.write_text(yaml.safe_dump({"clouds": {"mine": entry}}))
    settings = {
        "command_channel": f"emulator+{where.url('guests')}",
        "lease": LEASE,
        "sweep_interval": 1,
        "sweep_after": 30,  # the other must not take over what is only slow
    }
    with databases.at_hand() as kinds:
        fresh = kinds.get("mariadb") or kinds["mysql"]
        database = folder / "database"
        database.touch(0o600)
        url = fresh()
        database.write_text(url)
        environment = {"OS_CLIENT_CONFIG_FILE": str(clouds), "OS_CLOUD": "mine"}
        words = ("--database-file", str(database))
        a, b = (
            ServerProcess(folder / name, *words, settings=settings, env=environment).launch()
            for name in "ab"
        )
        with stacks(demo) as names, a, b:
            for name in names:
                audited.watch(demo, name, url=url, logs=(a.log, b.log))
            yield Pair((a, b), names, environment)


def group_file(stack: str) -> dict[str, Any]:
    definition = examples.group(1, stack)
    return definition | {"limits": {"cooldown": 0, "per_hour": 1000}}


def bring_up(server: ServerProcess, stack: str) -> None:
    server.action("failover.define", definition=group_file(stack), name=stack)
    ended = server.client.run("failover.activate_first", {"group": stack}, timeout=120)
    assert ended["state"] == "SUCCESS", ended


def status(server: ServerProcess, group: str) -> dict[str, Any]:
    found: dict[str, Any] = server.action("failover.status", group=group)
    return found


def wait_until_moved(server: ServerProcess, group: str, limit: float) -> dict[str, Any]:
    """Wait until somebody is declared lost, and what follows from that has come to rest."""

    def rests() -> dict[str, Any] | None:
        found = status(server, group)
        ended = found["status"] in ("COMPLETE", "FAILED", "BLOCKED")
        return found if found["lost"] and ended else None

    found: dict[str, Any] = until(rests, "the failover to end", limit)
    return found


def lose(demo: Tenant, server: ServerProcess, group: str) -> tuple[str, dict[str, Any]]:
    """Crash the active member; its name, and what a watchdog says of it."""
    before = status(server, group)
    active = before["roles"]["active"]
    (lost,) = [row["server"] for row in before["members"] if row["name"] == active]
    demo.guests.fault("server", lost, "crash")
    return active, {"server": lost, "id": f"watchdog-{uuid.uuid4()}"}


def check_moved(demo: Tenant, group: str, found: dict[str, Any], lost: str) -> None:
    assert found["status"] == "COMPLETE", found
    assert found["roles"]["active"] != lost
    outputs = demo.outputs(group)
    (holder,) = demo.holders(outputs["data_volume"])
    assert holder == outputs[found["roles"]["active"]]
    assert demo.guests.guests()[holder]["applications"]
    assert (
        demo.cloud.orchestration.get_stack(demo.stack(group).id).parameters["active"]
        == (found["roles"]["active"])
    )


def test_the_check_finds_nothing_wrong_with_a_member_s_credential(
    pair: Pair, tmp_path: Path
) -> None:
    words = ServerProcess(tmp_path / "s", settings=pair.servers[0].settings).command
    done = forked.run(
        main, *words, "--check", "-f", "json", env=os.environ | pair.environment, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == []


def test_a_signed_alarm_leads_to_a_failover_and_a_second_delivery_to_none(
    pair: Pair, demo: Tenant
) -> None:
    (a, b), group = pair.servers, pair.stacks[0]
    bring_up(a, group)
    lost, alarm = lose(demo, a, group)

    # The sender tells both, since either may be dead.
    assert [each.send_signed(alarm).status_code for each in (a, b)] == [202, 202]

    check_moved(demo, group, wait_until_moved(b, group, 180), lost)
    rows = status(a, group)["incidents"]
    (told,) = [row for row in rows if row["decision"] == "ADMITTED" and "lost" in row["sentence"]]
    assert told["duplicates"] == 1


def test_one_of_two_servers_is_killed_in_mid_failover_and_the_other_ends_it(
    pair: Pair, demo: Tenant
) -> None:
    (a, b), group = pair.servers, pair.stacks[1]
    bring_up(b, group)
    lost, alarm = lose(demo, b, group)
    assert a.send_signed(alarm).status_code == 202
    pid = a.facts["pid"]
    row = until(lambda: next(iter(status(b, group)["under_way"]), None), "it to be under way", 60)
    assert row["owner"].endswith(f":{pid}")

    a.kill()
    killed = time.monotonic()
    try:
        found = wait_until_moved(b, group, 240)
        print(f"the other ended it {(time.monotonic() - killed) / LEASE:.1f} leases later")
    finally:
        a.launch()

    check_moved(demo, group, found, lost)
    a.wait()
    assert status(a, group)["roles"] == status(b, group)["roles"]
