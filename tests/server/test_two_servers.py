# SPDX-License-Identifier: Apache-2.0
"""Two servers of one tenant share a MariaDB, and one of them dies in the middle of a failover."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import databases
from mistral_failover.lab.drill import examples
from mistral_failover.lab.drill.audit import Secrets, audit, password_of, read_state
from mistral_failover.lab.emulator.client import write_clouds_yaml
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.server import secret
from mistral_failover.store.database import Database
from support.deployments import create_example
from support.servers import ServerProcess
from support.waiting import until

pytestmark = [pytest.mark.drills, pytest.mark.timeout(500)]
GROUP = "payments"
WEBHOOK = "webhook-secret"
ATTACHING = 12.0  # seconds of the cloud's, in which one is killed
SETTINGS = {
    "lease": 8,
    "lease_margin": 1,
    "sweep_interval": 0.5,
    "sweep_after": 30,  # the other must not take over what is only slow
    "poll_ceiling": 0.5,
}


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """An empty MariaDB."""
    with databases.at_hand() as kinds:
        fresh = kinds.get("mariadb") or kinds.get("mysql")
        if fresh is None:
            pytest.skip("needs mariadbd, or FAILOVER_TEST_DATABASE")
        yield fresh()


def test_of_two_servers_on_one_mariadb_one_is_killed_in_mid_failover_and_the_other_ends_it(
    database: str, tmp_path: Path
) -> None:
    with EmulatedCloud(tmp_path / "cloud") as cloud:
        clouds = tmp_path / "clouds.yaml"
        write_clouds_yaml(clouds, "emulated", cloud.url)
        create_example(cloud.client, GROUP)
        url = tmp_path / "database"
        url.touch(0o600)
        url.write_text(database)
        environment = {"OS_CLIENT_CONFIG_FILE": str(clouds), "OS_CLOUD": "emulated"}
        settings = SETTINGS | {"command_channel": f"emulator+{cloud.url}"}
        words = ("--database-file", str(url))
        a, b = (
            ServerProcess(tmp_path / name, *words, settings=settings, env=environment).launch()
            for name in "ab"
        )
        with a, b:
            a.action("failover.define", definition=examples.group(1, GROUP), name=GROUP)
            ended = b.client.run("failover.activate_first", {"group": GROUP}, timeout=100)
            assert ended["state"] == "SUCCESS", ended
            server = {row["name"]: row["server"] for row in status(b)["members"]}["db_a"]
            cloud.client.fault("server", server, "crash")
            cloud.client.set_latency(attach=ATTACHING)
            alarm = cloud.client.alarm_body(server)

            assert a.send_signed(alarm).status_code == 202
            owner = until(lambda: attaching(b))
            assert owner.endswith(f":{a.facts['pid']}"), (
                "the one that took the alarm carries it out"
            )
            a.kill()
            killed = time.monotonic()
            # Who told A of it tells B, too.
            assert b.send_signed(alarm).status_code == 202
            until(lambda: status(b)["status"] in ("COMPLETE", "FAILED", "BLOCKED"))

            print(f"ended {(time.monotonic() - killed) / SETTINGS['lease']:.1f} leases later")
            found = status(b)
            assert (found["status"], found["roles"]) == ("COMPLETE", {"active": "db_b"}), found
            (alarmed,) = [row for row in found["incidents"] if "server_lost" in row["sentence"]]
            assert (alarmed["decision"], alarmed["duplicates"]) == ("ADMITTED", 1)
            told = b.action("failover.history", group=GROUP)
            assert "steal" in {row["kind"] for row in told}, told
        store = Database(database)
        try:
            seen, state = cloud.client.audit(), read_state(store)
            files = [path for each in (a, b) for path in written(each)]
            hidden = secrets(cloud, database, a, b)
            assert audit(seen, state, files=files, secrets=hidden) == []
        finally:
            store.close()


def written(server: ServerProcess) -> list[Path]:
    """A server's files, but for those that are there for secrets."""
    own = {WEBHOOK, "mistral.conf"}
    return [p for p in server.folder.rglob("*") if p.is_file() and p.name not in own]


def secrets(cloud: EmulatedCloud, database: str, *servers: ServerProcess) -> Secrets:
    """What must stand in none of them."""
    named = {"the database's password": password_of(database)}
    for each in servers:
        name, file = each.folder.name, each.folder / WEBHOOK
        named[f"the webhook's secret of {name}"] = file.read_text("ascii").strip()
        named[f"the webhook's token of {name}"] = secret.read(file).token
    return Secrets(frozenset(cloud.emulation.state.tokens), named)


def status(server: ServerProcess) -> dict[str, Any]:
    found: dict[str, Any] = server.action("failover.status", group=GROUP)
    return found


def attaching(server: ServerProcess) -> str | None:
    """Who attaches the volume to the new member, while somebody does."""
    found = status(server)
    kinds = {row["id"]: row["type"] for row in found["resources"]}
    for row in found["under_way"]:
        if (row["verb"], kinds.get(row["resource_id"])) == ("create", "volume_attachment"):
            return str(row["owner"])
    return None
