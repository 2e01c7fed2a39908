# SPDX-License-Identifier: Apache-2.0
"""Every remedy leads out: for each there is a play that gets a group into the state, reads the
commands on the screen of ``failover status``, types them as they are printed, ``openstack`` ones
with the real client, and sees the group out of it. The table of docs/reference.md has the same
rows."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.conftest import Deployment
from mistral_failover import workflows
from mistral_failover.lab.drill import examples
from mistral_failover.model.remedies import REMEDIES, Need, Remedy
from mistral_failover.reports.advice import needs
from support.deployments import create_example, deployed
from support.operators import Operator
from support.pages import page, section
from support.waiting import until

IMPATIENT = [{"kind": "quiesce", "limit": 0.5}, "stop", "confirm"]
"""The example's ladder, which does not wait long for a guest that is dead."""
OPENSTACK = Path(sys.executable).parent / "openstack"
MOST = 8
"""Commands that lead out of a state at most."""


@dataclass
class Walk:
    """A group on its way into a state, and out of it. ``file``: what ``FILE`` in a command is;
    ``sweeps``: a look repairs, as one that an operator asks for."""

    deployment: Any
    operator: Operator
    group: str
    file: Path | None = None
    sweeps: bool = True

    def look(self) -> None:
        """Look at the group now."""
        if self.sweeps:
            self.deployment.failover("sweep", self.group)
        else:
            self.deployment.mistral.client.run_action("failover.observe", {"group": self.group})

    def status(self) -> dict[str, Any]:
        """What the status says after a look."""
        self.look()
        return dict(self.deployment.status(self.group))

    def needs(self) -> list[Need]:
        """The remedies that the status names, after a look."""
        self.look()
        inputs = {"group": self.group, "agents": True}
        status: Any = self.deployment.mistral.client.run_action("failover.status", inputs)
        return needs(status)

    def printed(self) -> list[str]:
        """The commands below ``Next:`` on the screen, after a look; those that are another way than
        the ones before them are left out."""
        self.look()
        screen = self.deployment.failover("status", self.group).stdout
        after = screen.partition("Next:\n")[2].partition("\n\n")[0]
        rows = re.split(r"^  \d+\. ", after, flags=re.MULTILINE)[1:]
        return [row.strip().splitlines()[-1].strip() for row in rows if not row.startswith("Or")]

    def types(self, command: str) -> int:
        """Type a command as it is printed, and yes if it asks; returns its exit code."""
        program, *words = shlex.split(command.replace("FILE", str(self.file)))
        if program == "failover":
            return int(self.deployment.failover(*words, typed="yes\n").returncode)
        if program == "nova-manage":  # on the server's host, as an administrator
            self.deployment.cloud.refresh_attachment(*words[2:4])
            return 0
        assert program == "openstack", command
        env = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        env["OS_CLIENT_CONFIG_FILE"] = str(self.deployment.folder / "clouds.yaml")
        administrates = {"volume set", "server set"} & {" ".join(words[:2])}
        who = [f"--os-{each}=admin" for each in ("username", "password", "project-name")]
        words = [str(OPENSTACK), "--os-cloud=emulated", *(who if administrates else ()), *words]
        done = subprocess.run(
            words, env=env, input="y\n", capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, done.stderr
        return done.returncode

    def follows(self) -> None:
        """Type what is printed first, until nothing is; what is printed again is a circle."""
        typed: list[str] = []
        while rows := self.printed():
            assert rows[0] not in typed, "it is asked for again"
            assert len(typed) < MOST, typed
            assert self.types(rows[0]) == 0, rows[0]
            typed.append(rows[0])
            until(lambda: self.printed()[:1] != typed[-1:], typed[-1], limit=120, pause=0.5)

    def obeys(self, code: str) -> int:
        """Type the command of one remedy that is shown."""
        (one,) = (each for each in self.needs() if each.code == code)
        return self.types(one.command(self.group))

    def server(self, member: str) -> str:
        return str(self.deployment.cloud.resources(self.group)[member]["physical_resource_id"])

    def volume(self, name: str = "data_volume") -> str:
        return str(self.deployment.cloud.resources(self.group)[name]["physical_resource_id"])

    def advised(self, check: str) -> str:
        """What the doctor advises."""
        done = self.deployment.failover("doctor", self.group, "-f", "json")
        rows = json.loads(done.stdout)
        found = (str(r["remedy"]) for r in rows if r["check"] == check and r["remedy"])
        return next(found, "")


@pytest.fixture(scope="session")
def guarding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment whose storm guard holds every alarm."""
    folder = tmp_path_factory.mktemp("guarding")
    with deployed(folder, storm_groups="1", storm_share="0.0") as (mistral, cloud):
        yield Deployment(mistral, cloud, folder, "")


@pytest.fixture
def walk(request: pytest.FixtureRequest) -> Callable[..., Walk]:
    """Make a group that serves; ``prepare``: what its file names beside its stack."""

    def make(
        where: str = "deployment",
        prepare: Callable[[Operator], object] = lambda operator: None,
        **more: Any,
    ) -> Walk:
        deployment = request.getfixturevalue(where)
        prepare(Operator(deployment.cloud))
        group = "state-" + re.sub(r"[^a-z]+", "-", request.node.callspec.id.lower()).strip("-")
        deployment.protect(group, **more)
        return Walk(deployment, Operator(deployment.cloud), group)

    return make


def defined(make: Callable[..., Walk]) -> Walk:
    walk = make()
    assert walk.types(f"failover group delete {walk.group}") == 0
    define(walk)
    return walk


def define(walk: Walk) -> None:
    """Define the group that has just been deleted, with its stack."""
    given = {"definition": examples.group(1, walk.group), "name": walk.group}
    walk.deployment.mistral.client.run_action("failover.define", given)


def out_of_service(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.deployment.run("remove", group=walk.group)
    return walk


def holder_gone(make: Callable[..., Walk]) -> Walk:
    walk = make(fence=IMPATIENT)
    walk.operator.delete_server(walk.server("db_a"))
    return walk


def single_off(make: Callable[..., Walk]) -> Walk:
    walk = make(file="single-server.yaml", fence=IMPATIENT)
    walk.operator.stop_server(walk.server("db"))
    return walk


def holder_hung(make: Callable[..., Walk]) -> Walk:
    """The guest is dead, and no alarm says so."""
    walk = make(fence=IMPATIENT)
    walk.deployment.crash(walk.group)
    until(lambda: "MOVE_SILENT" in codes(walk), limit=120, pause=2)
    return walk


def standby_hung(make: Callable[..., Walk]) -> Walk:
    """The standby's guest is dead."""
    walk = make(fence=IMPATIENT)
    walk.deployment.cloud.fault("server", walk.server("db_b"), "crash")
    until(lambda: "REBOOT_SERVER" in codes(walk), limit=120, pause=2)
    return walk


def not_rehearsed(make: Callable[..., Walk]) -> Walk:
    """A rehearsal found that the standby lacks a package."""
    walk = make()
    cloud, server = walk.deployment.cloud, walk.server("db_b")
    cloud.fault("server", server, "lacks_package")
    assert walk.types(f"failover rehearse {walk.group}") == 1
    cloud.fault("server", server, "repaired")
    return walk


def holder_off(make: Callable[..., Walk]) -> Walk:
    walk = make(fence=IMPATIENT)
    walk.operator.stop_server(walk.server("db_a"))
    return walk


def holder_restarted(make: Callable[..., Walk]) -> Walk:
    """In a group that starts nothing by itself."""
    walk = make(heal="report")
    walk.sweeps = False
    walk.operator.act(walk.server("db_a"), "reboot")
    return walk


def detach_volume(walk: Walk) -> None:
    """Stop the application and detach its volume by hand."""
    server = walk.server("db_a")
    (epoch,) = (m["epoch"] for m in walk.status()["members"] if m["name"] == "db_a")
    walk.deployment.cloud.run_command(
        server, "pg-stop", command_id=f"by-hand-{walk.group}", epoch=epoch
    )
    walk.operator.detach(walk.volume(), server)


def volume_detached(make: Callable[..., Walk]) -> Walk:
    walk = make()
    detach_volume(walk)
    return walk


def volume_deleted(make: Callable[..., Walk]) -> Walk:
    walk = make()
    detach_volume(walk)
    walk.operator.delete_volume(walk.volume())
    return walk


def another_volume(walk: Walk) -> None:
    """Name another volume in the group file, and type what is shown."""
    assert walk.advised("volumes").endswith(REMEDIES["ANOTHER_VOLUME"].command)
    definition = examples.group(1, walk.group)
    definition["resources"]["data"]["properties"]["volume"] = walk.operator.make_volume()
    walk.file = written(walk, definition)
    walk.follows()


def alarm_deleted(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.operator.delete_alarm(watched(walk))
    return walk


def watched(walk: Walk) -> str:
    """Create an alarm by hand, and define the group with it; its id."""
    alarm, file = with_alarm(walk)
    assert walk.types(f"failover group update {file}") == 0
    return alarm


def with_alarm(walk: Walk) -> tuple[str, Path]:
    """Create an alarm by hand, and name it in the group file; its id, and the file."""
    alarm = walk.operator.make_alarm(walk.group, walk.group, walk.server("db_a"))
    definition = examples.group(1, walk.group)
    properties = {"alarm": alarm, "server": {"get_param": "active"}}
    definition["resources"]["watch"] = {"type": "alarm", "properties": properties}
    return alarm, written(walk, definition)


def written(walk: Walk, definition: dict[str, Any]) -> Path:
    """The group file."""
    file = Path(walk.deployment.folder) / f"{walk.group}.yaml"
    file.write_text(yaml.safe_dump(definition), encoding="utf-8")
    return file


def no_standby(make: Callable[..., Walk], **more: Any) -> Walk:
    walk = make(**more)
    walk.operator.stop_server(walk.server("db_b"))
    return walk


def admitted_without_a_standby(make: Callable[..., Walk]) -> Walk:
    walk = no_standby(make, fence=IMPATIENT)
    walk.deployment.crash(walk.group)
    walk.deployment.hear(walk.group, "a test", member="db_a")
    return walk


def all_off(make: Callable[..., Walk]) -> Walk:
    """Neither server runs: one is started, and takes the role."""
    walk = no_standby(make, fence=IMPATIENT)
    walk.operator.stop_server(walk.server("db_a"))
    return walk


def after_a_failover(make: Callable[..., Walk]) -> Walk:
    walk = holder_off(make)
    assert walk.types(f"failover start {walk.group} --lost db_a") == 0
    return walk


def fence_unproven(make: Callable[..., Walk]) -> Walk:
    return fence_blocked(make, {"kind": "quiesce", "limit": 0.5}, "confirm")


def fence_unprovable(make: Callable[..., Walk]) -> Walk:
    return fence_blocked(make, "confirm")


def fence_blocked(make: Callable[..., Walk], *ladder: Any) -> Walk:
    walk = make(fence=list(ladder))
    walk.deployment.crash(walk.group)
    assert walk.types(f"failover start {walk.group} --lost db_a") == 3
    return walk


def volume_on_a_dead_host(make: Callable[..., Walk]) -> Walk:
    walk = make(fence=["confirm"])
    cloud = walk.deployment.cloud
    cloud.fault("host", cloud.guests()[walk.server("db_a")]["host"], "power_off")
    assert walk.types(f"failover start {walk.group} --lost db_a") == 3
    assert walk.obeys("CONFIRM_FENCED") == 3
    return walk


def evacuation_failed(make: Callable[..., Walk]) -> Walk:
    """An evacuation that found no host has left the server in ERROR on the dead one."""
    walk = make(fence=["confirm"])
    cloud, server = walk.deployment.cloud, walk.server("db_a")
    cloud.fault("host", cloud.guests()[server]["host"], "power_off")
    walk.operator.reset_server(server, "error")
    assert walk.types(f"failover start {walk.group} --lost db_a") == 3
    assert walk.obeys("CONFIRM_FENCED") == 3
    return walk


def volume_going_along(make: Callable[..., Walk]) -> Walk:
    """The group allows the deletion of the server, which would delete its volume, too."""
    resources = examples.group()["resources"]
    resources["data"]["properties"]["when_host_is_down"] = "delete_server"
    walk = make(fence=["confirm"], resources=resources)
    cloud, server = walk.deployment.cloud, walk.server("db_a")
    walk.operator.let_go_along(server, walk.volume())
    cloud.fault("host", cloud.guests()[server]["host"], "power_off")
    assert walk.types(f"failover start {walk.group} --lost db_a") == 3
    assert walk.obeys("CONFIRM_FENCED") == 3
    return walk


def volume_freed(walk: Walk) -> None:
    """Type what is shown; afterwards the host is repaired."""
    cloud = walk.deployment.cloud
    for command in walk.printed():
        assert walk.types(command) == 0
    for host in cloud.status()["hosts"]:
        cloud.fault("host", host, "revive")
    walk.follows()


def moved_in_vain(walk: Walk, code: int = 3) -> Walk:
    """Order a planned move, which cannot be carried out: BLOCKED, or else FAILED."""
    assert walk.types(f"failover start {walk.group} --lost '' --to db_b") == code
    return walk


def volume_in(make: Callable[..., Walk], state: str) -> Walk:
    walk = make()
    walk.operator.set_volume(walk.volume(), state)
    return moved_in_vain(walk)


def volume_stuck(make: Callable[..., Walk]) -> Walk:
    """A volume is reserved for no server, and nothing works on it."""
    walk = out_of_service(make)
    walk.operator.set_volume(walk.volume(), "reserved")
    assert walk.types(f"failover group activate {walk.group}") == 3
    return walk


def backup_ended(walk: Walk) -> None:
    """The volume is as before: type what is shown."""
    (command,) = walk.printed()
    walk.operator.set_volume(walk.volume(), "in-use")
    assert walk.types(command) == 0


def attachment_unknown(make: Callable[..., Walk]) -> Walk:
    """Cinder has an attachment for a server that does not exist, and a host was told of it."""
    walk = make()
    volume = walk.volume()
    walk.operator.set_volume(volume, "available")
    walk.operator.reserve(volume, STRANGER, connected=True)
    walk.operator.set_volume(volume, "in-use")
    return moved_in_vain(walk)


def server_in_error(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.operator.reset_server(walk.server("db_a"), "error")
    return moved_in_vain(walk)


def detach_torn(make: Callable[..., Walk]) -> Walk:
    """A compute service died at the end of a planned detach, and is there again: Cinder has
    released the volume, and Nova lists it."""
    walk = make()
    cloud = walk.deployment.cloud
    cloud.api_fault("detach", "torn")
    moved = moved_in_vain(walk)
    cloud.fault("host", cloud.guests()[walk.server("db_a")]["host"], "revive")
    return moved


def copies_left(make: Callable[..., Walk]) -> Walk:
    """Cinder refuses to delete the copies of a rehearsal."""
    walk = make()
    walk.deployment.cloud.api_fault("volume_delete", times=1000, status=400)
    walk.deployment.failover("rehearse", walk.group)
    return walk


def copies_deleted(walk: Walk) -> None:
    (shown,) = (each for each in walk.needs() if each.code == "CLEAN_UP")
    walk.deployment.cloud.clear_api_faults()
    assert walk.types(shown.command(walk.group)) == 0


def floating_elsewhere(make: Callable[..., Walk]) -> Walk:
    """Another port has the floating IP, and a move must take it from there."""
    walk = with_addresses(make)
    walk.operator.give_floating_ip(walk.volume("entry"), walk.volume("reserved"))
    return moved_in_vain(walk, code=1)


def balanced(make: Callable[..., Walk]) -> Walk:
    """The pool of the group's load balancer also leads to the standby."""
    properties = {"pool": "pool", "server": {"get_param": "active"}}
    entry = {"type": "load_balancer_member", "depends_on": "database", "properties": properties}
    resources = examples.group()["resources"] | {"entry": entry}
    walk = make(template=behind_a_balancer, resources=resources)
    walk.operator.set_pool_member(
        walk.volume("pool"), walk.volume("db_b_in_pool"), admin_state_up=True
    )
    return walk


def behind_a_balancer(template: dict[str, Any]) -> dict[str, Any]:
    """The template with a load balancer, and a member of its pool for each server."""
    members = {
        f"{name}_in_pool": {
            "type": "OS::Octavia::PoolMember",
            "properties": {
                "pool": {"get_resource": "pool"},
                "address": {"get_attr": [name, "networks", "net1", 0]},
                "protocol_port": 5432,
                "admin_state_up": False,
            },
        }
        for name in ("db_a", "db_b")
    }
    balancer = {"type": "OS::Octavia::LoadBalancer", "properties": {"vip_subnet": "inner"}}
    pool = {"loadbalancer": {"get_resource": "balancer"}, "protocol": "TCP"}
    properties = {**pool, "lb_algorithm": "ROUND_ROBIN"}
    return {
        **template,
        "resources": {
            **template["resources"],
            "balancer": balancer,
            "pool": {"type": "OS::Octavia::Pool", "properties": properties},
            **members,
        },
    }


def name_taken(make: Callable[..., Walk]) -> Walk:
    """Somebody has made the name their own, and a move must change it."""
    zone = "taken.example.org."
    where = {"zone": zone, "name": f"db.{zone}", "ttl": 30, "server": {"get_param": "active"}}
    entry = {"type": "dns_record", "depends_on": "database", "properties": where}
    resources = examples.group()["resources"] | {"name": entry}
    walk = make(prepare=lambda operator: operator.make_zone(zone), resources=resources)
    zone_id = walk.operator.zone(zone)
    (record,) = (each for each in walk.operator.recordsets(zone_id) if each["name"] == f"db.{zone}")
    walk.operator.set_recordset(zone_id, record["id"], description="mine")
    return moved_in_vain(walk, code=1)


LASTING = 10_000
"""Times of a fault whose cause is not gone: what failed is tried again by each look of these
tests."""


def removal_failed(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.deployment.cloud.api_fault("detach", status=400, times=LASTING)
    assert walk.types(f"failover group delete {walk.group}") == 1
    return walk


def deleted(walk: Walk) -> None:
    """Delete it, as it is shown, and define it anew."""
    (command,) = walk.printed()
    walk.deployment.cloud.clear_api_faults()
    assert walk.types(command) == 0
    define(walk)


def operation_failed(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.deployment.cloud.api_fault("command_start", "fail", times=LASTING)
    assert walk.types(f"failover start {walk.group} --lost '' --to db_b") == 1
    return walk


def once_corrected(walk: Walk) -> None:
    """Type what is shown, once the cause is gone."""
    (command,) = walk.printed()
    walk.deployment.cloud.clear_api_faults()
    assert walk.types(command) == 0


def paused(make: Callable[..., Walk]) -> Walk:
    walk = make()
    assert walk.types(f"failover pause {walk.group} --because 'a test'") == 0
    return walk


def maintained(make: Callable[..., Walk]) -> Walk:
    walk = make()
    work = f"failover maintenance on {walk.group} --minutes 60 --because 'a test'"
    assert walk.types(work) == 0
    return walk


def guarded(make: Callable[..., Walk]) -> Walk:
    walk = make("guarding")
    body = {"group": walk.group, "member": "db_a", "id": "a test"}
    walk.deployment.mistral.client.run("failover.on_event", {"body": body})
    return walk


def stand_by(make: Callable[..., Walk], action: str) -> Walk:
    """The standby's server is in a state of Nova's in which its guest does not run."""
    walk = make()
    walk.operator.act(walk.server("db_b"), action)
    return walk


def standby_soft_deleted(make: Callable[..., Walk]) -> Walk:
    walk = make()
    cloud = walk.deployment.cloud
    cloud.configure(reclaim_instance_interval=3600)
    try:
        walk.operator.delete_server(walk.server("db_b"))
    finally:
        cloud.configure(reclaim_instance_interval=0)
    return walk


def standby_locked_and_off(make: Callable[..., Walk]) -> Walk:
    walk = no_standby(make)
    until(lambda: "START_SERVER" in codes(walk))
    walk.operator.act(walk.server("db_b"), "lock")
    return walk


def standby_deleted(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.operator.delete_server(walk.server("db_b"))
    return walk


def without_a_stack(walk: Walk, **servers: str) -> dict[str, Any]:
    """The example's group file without its stack, with these servers as members."""
    definition = examples.group(1, walk.group)
    del definition["stack"], definition["resources"]["routing"]
    definition["members"] = {"servers": {name: {"id": each} for name, each in servers.items()}}
    definition["resources"]["data"]["properties"]["volume"] = {"id": walk.volume()}
    return definition


def loose_standby_deleted(make: Callable[..., Walk]) -> Walk:
    walk = make()
    servers = {member: walk.server(member) for member in ("db_a", "db_b")}
    walk.file = written(walk, without_a_stack(walk, **servers))
    assert walk.types(f"failover group update FILE --name {walk.group}") == 0
    walk.operator.delete_server(servers["db_b"])
    return walk


def another_named(walk: Walk) -> None:
    """Make another server, name it in the group file, and type what is shown."""
    made = walk.operator.make_server(f"{walk.group}-another")
    walk.deployment.cloud.add_application(
        f"loose-{walk.group}", start="pg-start", stop="pg-stop", needs_volume=True
    )
    walk.file = written(walk, without_a_stack(walk, db_a=walk.server("db_a"), db_b=made))
    walk.follows()


def codes(walk: Walk) -> list[str]:
    return [each.code for each in walk.needs()]


def both_gone(make: Callable[..., Walk]) -> Walk:
    """After a failover, and before the lost member was declared healthy, the other one is lost."""
    walk = after_a_failover(make)
    walk.operator.stop_server(walk.server("db_b"))
    return walk


def volume_elsewhere(make: Callable[..., Walk]) -> Walk:
    walk = volume_detached(make)
    walk.operator.attach(walk.volume(), walk.server("db_b"))
    return walk


def with_addresses(make: Callable[..., Walk]) -> Walk:
    return make(file="addresses.yaml", fence=["stop", "confirm"])


def with_port(make: Callable[..., Walk]) -> Walk:
    properties = {"port": "reserved", "server": {"get_param": "active"}}
    resources = examples.group()["resources"]
    del resources["routing"]
    resources["wire"] = {"type": "port", "properties": properties}
    return make(file="addresses.yaml", resources=resources, fence=["stop", "confirm"])


def port_away(make: Callable[..., Walk]) -> Walk:
    walk = with_port(make)
    walk.operator.free_port(walk.volume("reserved"))
    return walk


def port_elsewhere(make: Callable[..., Walk]) -> Walk:
    walk = port_away(make)
    walk.operator.give_port(walk.server("db_b"), walk.volume("reserved"))
    return walk


def address_away(make: Callable[..., Walk], name: str) -> Walk:
    walk = with_addresses(make)
    rows = walk.deployment.status(walk.group)["resources"]
    address = next(row["attributes"]["address"] for row in rows if row["name"] == name)
    walk.operator.take_address(walk.server("db_a"), address)
    return walk


def another_alarm(walk: Walk) -> None:
    """Create an alarm, name it in the group file, and type what is shown."""
    walk.file = with_alarm(walk)[1]
    walk.follows()


def given_again(walk: Walk) -> None:
    """Define what is in force again."""
    walk.file = written(walk, examples.group(1, walk.group))
    assert walk.obeys("REDEFINE") == 0


def backup_loaded(make: Callable[..., Walk]) -> Walk:
    """The last line of a backup is as docs/backup.md has it."""
    walk = make()
    walk.file = written(walk, examples.group(1, walk.group))
    (statement,) = set(re.findall(r"UPDATE failover_groups[^;]*;", page("backup")))
    mine = statement.replace(";", " WHERE name = ?")
    file = Path(walk.deployment.folder) / "failover.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(mine, (walk.group,))
    return walk


def deleted_again(walk: Walk) -> None:
    fenced_again(walk)
    define(walk)


def alarm_disabled(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.operator.set_alarm(watched(walk), enabled=False)
    return walk


def defined_otherwise(make: Callable[..., Walk], **limits: Any) -> Walk:
    walk = make()
    definition = examples.group(1, walk.group) | {"description": "another one"}
    definition["limits"] = {"cooldown": 60, "per_hour": 7}
    assert walk.types(f"failover group update --no-activate {written(walk, definition)}") == 0
    return walk


def stack_deleted(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.operator.delete_stack(walk.group)
    return walk


def stack_made_again(make: Callable[..., Walk]) -> Walk:
    walk = stack_deleted(make)
    create_example(walk.deployment.cloud, walk.group)
    return walk


def in_progress(make: Callable[..., Walk]) -> Walk:
    """The fence waits for an agent that does not answer: long enough for a busy machine to look
    at it several times."""
    walk = make(fence=[{"kind": "quiesce", "limit": 20}, "stop"])
    walk.deployment.crash(walk.group)
    assert walk.types(f"failover start {walk.group} --lost db_a --timeout 0") in (0, 4)
    return walk


CHAIN = Path(workflows.__file__).parent / "converge.yaml"


def install_chain(walk: Walk, chain: str, check: str) -> None:
    """Install a chain that checks something after the fence."""
    text = CHAIN.read_text(encoding="utf-8").replace("failover.converge", chain)
    text = text.replace("through: fence}", "through: fence, hold: true}")
    text = text.replace("- quiesce: <%", "- check: <%", 1)
    task = f"    check:\n      action: {check}\n      on-success: quiesce\n\n    quiesce:\n"
    file = Path(walk.deployment.folder) / f"{chain}.yaml"
    file.write_text(text.replace("    quiesce:\n", task, 1), encoding="utf-8")
    assert walk.types(f"failover workflows install {file}") == 0


def chain_ended(make: Callable[..., Walk]) -> Walk:
    walk = make()
    install_chain(walk, "house.chain", "std.noop")
    definition = examples.group(1, walk.group) | {"workflow": "house.chain"}
    assert walk.types(f"failover group update {written(walk, definition)}") == 0
    install_chain(walk, "house.chain", "std.fail")
    walk.types(f"failover start {walk.group} --lost '' --to db_b --timeout 5")
    return walk


def chain_repaired(walk: Walk) -> None:
    command = walk.printed()[0]
    install_chain(walk, "house.chain", "std.noop")
    assert walk.types(command) == 0


def watched_to_the_end(walk: Walk) -> None:
    """Watch it, as it is shown; Ctrl-C would end that otherwise."""
    (command,) = walk.printed()
    assert walk.types(f"{command} --until-rest") == 0
    walk.follows()


def removal_unproven(make: Callable[..., Walk]) -> Walk:
    walk = make(fence=[{"kind": "quiesce", "limit": 0.5}, "confirm"])
    walk.deployment.crash(walk.group)
    assert walk.types(f"failover group delete {walk.group} --lost db_a") == 3
    return walk


def fenced_again(walk: Walk) -> None:
    """The guest answers again: what is shown proves that nothing of the group runs there."""
    command = walk.printed()[0]
    walk.deployment.cloud.fault("server", walk.server("db_a"), "revive")
    assert walk.types(command) == 0


def fenced_and_healthy(walk: Walk) -> None:
    fenced_again(walk)
    walk.follows()


def confirmed(walk: Walk) -> None:
    """Confirm that the member is off, as it is shown; then its guest boots."""
    (command,) = walk.printed()
    assert walk.types(command) == 0
    walk.deployment.cloud.fault("server", walk.server("db_a"), "revive")
    walk.follows()


STRANGER = "11111111-2222-4333-8444-555555555555"


def stranger_watched(make: Callable[..., Walk]) -> Walk:
    """An alarm that nobody named in the group file watches a server that does not exist."""
    walk = make()
    walk.operator.make_alarm(walk.group, walk.group, STRANGER)
    return walk


def alarm_pointed(walk: Walk) -> None:
    """Ask the doctor, as it is shown, and do what it says."""
    (command,) = walk.printed()
    assert walk.types(command) in (0, 1)
    done = walk.deployment.failover("doctor", walk.group, "-f", "json")
    said = [row["sentence"] for row in json.loads(done.stdout) if row["check"] == "service"]
    assert any("change it where it is defined" in each for each in said)
    rows = walk.operator.alarms()
    (alarm,) = (row["alarm_id"] for row in rows if row["name"] == walk.group)
    walk.operator.point_alarm(alarm, walk.server("db_a"))


def locked_holder(make: Callable[..., Walk]) -> Walk:
    """A planned move cannot take the port from the server."""
    walk = with_port(make)
    walk.operator.act(walk.server("db_a"), "lock")
    assert walk.types(f"failover start {walk.group} --lost '' --to db_b") == 3
    return walk


def holder_acted_on(make: Callable[..., Walk], action: str) -> Walk:
    walk = make()
    walk.operator.act(walk.server("db_a"), action)
    return walk


def fence_refused(make: Callable[..., Walk]) -> Walk:
    """The guest crashed, and Nova refuses to stop its server."""
    walk = make(fence=IMPATIENT)
    walk.deployment.crash(walk.group)
    walk.operator.act(walk.server("db_a"), "lock")
    assert walk.types(f"failover start {walk.group} --lost db_a") == 3
    assert codes(walk)[-1] == "CONFIRM_FENCED"
    return walk


def resized_holder(make: Callable[..., Walk]) -> Walk:
    walk = with_port(make)
    walk.operator.act(walk.server("db_a"), "resize")
    assert walk.types(f"failover start {walk.group} --lost '' --to db_b") == 3
    return walk


def in_maintenance(make: Callable[..., Walk]) -> Walk:
    walk = make()
    work = f"failover maintenance on {walk.group} db_b --minutes 60 --because 'a test'"
    assert walk.types(work) == 0
    return walk


def dismissed(walk: Walk) -> None:
    """List the held alarms, as it is shown, and dismiss the one that is listed."""
    (command,) = walk.printed()
    assert walk.types(command) == 0
    (row,) = walk.deployment.shown("alarms", walk.group)
    assert row["rule"] == "storm"
    assert walk.types(row["dismiss"]) == 0


def only(code: str) -> Callable[[Walk], object]:
    """Type the command of a remedy that is another way than the ones before it, once the cause of
    the state is gone."""

    def leave(walk: Walk) -> None:
        (one,) = (each for each in walk.needs() if each.code == code)
        walk.deployment.cloud.clear_api_faults()
        assert walk.types(one.command(walk.group)) == 0

    return leave


def reset(walk: Walk) -> None:
    """Type the other way; the next look continues."""
    assert walk.obeys("RESET_SERVER") == 0
    walk.follows()


def looked_first(walk: Walk) -> None:
    """What the plan shows changes nothing."""
    before = walk.status()["traversal"]
    assert walk.obeys("PLAN_MOVE") == 0
    assert walk.status()["traversal"] == before
    walk.follows()


def group_ended(walk: Walk) -> None:
    """End the group, as it is shown, and define it anew."""
    assert walk.obeys("END_GROUP") == 0
    assert walk.deployment.failover("status", walk.group).returncode == 1
    create_example(walk.deployment.cloud, walk.group)
    define(walk)


def adopted(walk: Walk) -> None:
    create_example(walk.deployment.cloud, walk.group)
    (one,) = REMEDIES["ADOPT_LATER"].command.format(group=walk.group).splitlines()
    assert walk.types(one) == 0


def first(code: str, walk: Walk) -> None:
    """What is shown first is this, and leads out."""
    assert codes(walk)[0] == code
    walk.follows()


@dataclass(frozen=True)
class Play:
    """``code``: the remedy. ``shows``: status and service, once a group has been brought into the
    state. ``leave``: types what is shown; afterwards the group shows ``then``, and nothing to
    do unless it is ``unfinished``."""

    code: str
    enter: Callable[[Callable[..., Walk]], Walk]
    shows: tuple[str, str]
    leave: Callable[[Walk], object] = Walk.follows
    then: tuple[str, str] = ("COMPLETE", "SERVING")


DOWN, DEGRADED = ("COMPLETE", "DOWN"), ("COMPLETE", "DEGRADED")
OUT, DEFINED = ("COMPLETE", "OUT_OF_SERVICE"), ("DEFINED", "OUT_OF_SERVICE")
SERVING = ("COMPLETE", "SERVING")
PLAYS = {
    "defined": Play("ACTIVATE", defined, DEFINED),
    "out of service": Play("ACTIVATE", out_of_service, OUT),
    "backup": Play("BEGIN_AGAIN", backup_loaded, ("DEFINED", "UNKNOWN")),
    "server gone": Play("MOVE", holder_gone, DOWN),
    "server off": Play("MOVE", holder_off, DOWN),
    "single server off": Play("BRING_BACK", single_off, DOWN),
    "server hung": Play("MOVE_SILENT", holder_hung, DEGRADED),
    "standby hung": Play("REBOOT_SERVER", standby_hung, DEGRADED),
    "server off looked": Play("PLAN_MOVE", holder_off, DOWN, looked_first),
    "only lost": Play("MOVE_TO_RECOVERED", both_gone, DOWN),
    "all off": Play("START_SERVER", all_off, DOWN),
    "member lost": Play("RECOVER", after_a_failover, DEGRADED),
    "standby deleted": Play("REPLACE", standby_deleted, DEGRADED),
    "standby without a stack deleted": Play(
        "NAME_SERVER", loose_standby_deleted, DEGRADED, another_named
    ),
    "standby not rehearsed": Play("REHEARSE", not_rehearsed, DEGRADED),
    "standby off": Play("START_SERVER", no_standby, DEGRADED),
    "standby locked and off": Play("UNLOCK_SERVER", standby_locked_and_off, DEGRADED),
    **{
        f"standby {action}": Play(code, partial(stand_by, action=action), DEGRADED)
        for action, code in {
            "pause": "UNPAUSE_SERVER",
            "suspend": "RESUME_SERVER",
            "rescue": "UNRESCUE_SERVER",
            "shelve": "UNSHELVE_SERVER",
        }.items()
    },
    "standby locked": Play("UNLOCK_SERVER", partial(stand_by, action="lock"), DEGRADED),
    "standby resized": Play("CONFIRM_RESIZE", partial(stand_by, action="resize"), DEGRADED),
    "standby soft deleted": Play("RESTORE_SERVER", standby_soft_deleted, DEGRADED),
    "port of a locked server": Play("UNLOCK_SERVER", locked_holder, ("BLOCKED", "DOWN")),
    "fence refused": Play(
        "UNLOCK_SERVER", fence_refused, ("BLOCKED", "DOWN"), partial(first, "UNLOCK_SERVER")
    ),
    "holder locked": Play(
        "UNLOCK_SERVER",
        partial(holder_acted_on, action="lock"),
        DEGRADED,
        partial(first, "UNLOCK_SERVER"),
    ),
    "holder paused": Play(
        "UNPAUSE_SERVER",
        partial(holder_acted_on, action="pause"),
        DOWN,
        partial(first, "UNPAUSE_SERVER"),
    ),
    "port of a resized server": Play("CONFIRM_RESIZE", resized_holder, ("BLOCKED", "DOWN")),
    "server restarted": Play("START_AGAIN", holder_restarted, DOWN),
    "volume detached": Play("ATTACH_VOLUME", volume_detached, DOWN),
    "volume elsewhere": Play("DETACH_VOLUME", volume_elsewhere, DOWN),
    "volume deleted": Play("ANOTHER_VOLUME", volume_deleted, DOWN, another_volume),
    "port away": Play("ATTACH_PORT", port_away, DOWN),
    "port elsewhere": Play("DETACH_PORT", port_elsewhere, DOWN),
    "floating away": Play("ASSIGN_FLOATING_IP", partial(address_away, name="outside"), DOWN),
    "virtual away": Play("ALLOW_ADDRESS", partial(address_away, name="inside"), DOWN),
    "alarm deleted": Play("ANOTHER_ALARM", alarm_deleted, DEGRADED, another_alarm),
    "alarm disabled": Play("ENABLE_ALARM", alarm_disabled, DEGRADED),
    "admitted": Play("START_OF_ALARM", admitted_without_a_standby, DOWN),
    "storm": Play("DECIDE_ALARMS", guarded, DEGRADED, dismissed),
    "paused": Play("RESUME", paused, SERVING),
    "maintenance": Play("END_MAINTENANCE", maintained, SERVING),
    "standby in maintenance": Play("END_MAINTENANCE", in_maintenance, DEGRADED),
    "fence unproven": Play("FENCE_AGAIN", fence_unproven, ("BLOCKED", "DOWN"), fenced_and_healthy),
    "removal unproven": Play(
        "FENCE_AND_DELETE", removal_unproven, ("BLOCKED", "OUT_OF_SERVICE"), deleted_again, DEFINED
    ),
    "fence unprovable": Play("CONFIRM_FENCED", fence_unprovable, ("BLOCKED", "DOWN"), confirmed),
    "volume on a dead host": Play(
        "DELETE_SERVER", volume_on_a_dead_host, ("BLOCKED", "DOWN"), volume_freed
    ),
    "server in ERROR on a dead host": Play(
        "DELETE_SERVER", evacuation_failed, ("BLOCKED", "DOWN"), volume_freed
    ),
    "volume going along": Play(
        "KEEP_VOLUME", volume_going_along, ("BLOCKED", "DOWN"), volume_freed
    ),
    "volume backed up": Play(
        "SWEEP", partial(volume_in, state="backing-up"), ("BLOCKED", "DOWN"), backup_ended
    ),
    "volume in error": Play("SET_VOLUME", partial(volume_in, state="error"), ("BLOCKED", "DOWN")),
    "volume stuck": Play("MARK_VOLUME", volume_stuck, ("BLOCKED", "DOWN")),
    "attachment unknown": Play("DELETE_ATTACHMENT", attachment_unknown, ("BLOCKED", "DOWN")),
    "copies left": Play("CLEAN_UP", copies_left, SERVING, copies_deleted),
    "detach torn": Play("REFRESH_ATTACHMENT", detach_torn, ("BLOCKED", "DOWN")),
    "server in error": Play("STOP_SERVER", server_in_error, ("BLOCKED", "DOWN")),
    "healthy server in error": Play("RESET_SERVER", server_in_error, ("BLOCKED", "DOWN"), reset),
    "floating elsewhere": Play("FREE_FLOATING_IP", floating_elsewhere, ("FAILED", "DOWN")),
    "pool shared": Play("DISABLE_POOL_MEMBER", balanced, DOWN),
    "name taken": Play("GIVE_RECORDSET", name_taken, ("FAILED", "DOWN")),
    "operation failed": Play("START", operation_failed, ("FAILED", "DOWN"), once_corrected),
    "back": Play("ROLLBACK", operation_failed, ("FAILED", "DOWN"), only("ROLLBACK")),
    "removal failed": Play(
        "DELETE", removal_failed, ("FAILED", "OUT_OF_SERVICE"), deleted, DEFINED
    ),
    "removal taken back": Play(
        "ACTIVATE_INSTEAD", removal_failed, ("FAILED", "OUT_OF_SERVICE"), only("ACTIVATE_INSTEAD")
    ),
    "chain ended": Play("CONTINUE", chain_ended, ("IN_PROGRESS", "SERVING"), chain_repaired),
    "at work": Play("WATCH", in_progress, ("IN_PROGRESS", "DOWN"), watched_to_the_end),
    "not in force": Play("APPLY", defined_otherwise, SERVING),
    "wrong file": Play("REDEFINE", defined_otherwise, SERVING, given_again),
    "stack deleted": Play("END_GROUP", stack_deleted, DOWN, group_ended, DEFINED),
    "stack to be made": Play("ADOPT_LATER", stack_deleted, DOWN, adopted),
    "stack made again": Play("ADOPT_STACK", stack_made_again, DOWN),
    "stranger watched": Play("DIAGNOSE", stranger_watched, DEGRADED, alarm_pointed),
}


@dataclass(frozen=True)
class Diagnosis:
    """A play of a remedy that only the doctor shows. ``check``: the doctor's; ``enter`` as of a
    `Play`."""

    code: str
    enter: Callable[[Callable[..., Walk]], Walk]
    check: str


def standby_marked(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.operator.mark(walk.group, "db_b")
    return walk


def stack_failed(make: Callable[..., Walk]) -> Walk:
    """An update of the stack failed once."""
    walk = make()
    walk.deployment.cloud.api_fault("stack_patch", "fail")
    with pytest.raises(AssertionError, match="UPDATE_FAILED"):
        walk.operator.update_stack(walk.group)
    return walk


DIAGNOSES = {
    "marked": Diagnosis("UNMARK", standby_marked, "members"),
    "stack failed": Diagnosis("UPDATE_STACK", stack_failed, "stack"),
}


@pytest.mark.drills
@pytest.mark.parametrize("name", DIAGNOSES)
def test_what_the_doctor_says_leads_out_of_the_state(walk: Callable[..., Walk], name: str) -> None:
    diagnosis = DIAGNOSES[name]
    walked = diagnosis.enter(walk)
    words = REMEDIES[diagnosis.code].command.partition("{")[0].strip()

    advised = walked.advised(diagnosis.check)
    command = advised[advised.index(words) :]
    assert walked.types(command) == 0

    until(lambda: words not in walked.advised(diagnosis.check), diagnosis.code, limit=60)


def typed(remedy: Remedy) -> str:
    """The command as the page has it."""
    return re.sub(
        r"\{(\w+)\}", lambda field: WRITTEN.get(field[1], field[1].upper()), remedy.command
    )


WRITTEN = {"lost": "--lost MEMBER", "recovered": "--recovered MEMBER"}


def shows(status: dict[str, Any]) -> tuple[str, str]:
    return status["status"], status["service"]["status"]


@pytest.mark.drills
@pytest.mark.parametrize("name", PLAYS)
def test_the_commands_that_are_shown_lead_out_of_the_state(
    walk: Callable[..., Walk], name: str
) -> None:
    play = PLAYS[name]
    walked = play.enter(walk)

    until(lambda: shows(walked.status()) == play.shows, str(play.shows), limit=120)
    code = walked.types(f"failover status {walked.group} --exit-code")
    assert code == {"DEGRADED": 5, "DOWN": 6, "UNKNOWN": 7}.get(play.shows[1], 0)
    assert play.code in codes(walked)

    play.leave(walked)

    until(lambda: shows(walked.status()) == play.then, str(play.then), limit=120, pause=0.5)
    assert play.code not in codes(walked), "it is not asked for again"


def test_every_remedy_has_a_play() -> None:
    played = {each.code for each in (*PLAYS.values(), *DIAGNOSES.values())}
    assert played == REMEDIES.keys()


def test_the_page_has_a_row_for_each_remedy() -> None:
    rows = [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for line in section(page("reference"), "Remedies").splitlines()
        if line.startswith("| ") and not line.startswith(("| remedy", "|---"))
    ]

    assert rows == [
        [each.code, each.state, typed(each), each.leads_to] for each in REMEDIES.values()
    ]
