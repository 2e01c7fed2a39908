# SPDX-License-Identifier: Apache-2.0
"""A service on real guests: the shipped stack of two servers with PostgreSQL on a volume, or of one
of them."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from openstack import exceptions

from mistral_failover.agent import wire
from mistral_failover.agent.channel.keys import read_secret
from mistral_failover.model.ids import group_id
from support import ledger
from support.ledger import Ledger
from testcloud import seed, templates
from testcloud.errors import CloudError
from testcloud.machines import ceph, fences, guests, network, places, power
from testcloud.settings import RACKS, Settings
from testcloud.tenant import ProtectedStack, Tenant, until

Rung = dict[str, Any]
MEMBERS = ("db_a", "db_b")
QUIESCE: Rung = {"kind": "quiesce", "limit": 3}
HOST_POWER: Rung = {"kind": "host_power", "limit": 90}
STORAGE: Rung = {"kind": "storage", "limit": 30}
# libvirt asks the agent of a hung guest for 60 s before Nova cuts its power.
STOP: Rung = {"kind": "stop", "limit": 150}
_LIMIT = 300.0  # seconds for a stack, an activation, a failover: on a busy machine, too
_SOME = 50  # rows: a second or two of writing
_TRUST = "host all all 172.31.250.0/24 trust"


@dataclass(frozen=True)
class Proof:
    """What proves that a lost member writes no more."""

    rung: str
    observed: str


@dataclass(frozen=True)
class Alone:
    """A server without a standby: how it comes back, and whether its system is on a volume."""

    restart: tuple[str, ...]
    boots_from_a_volume: bool = False


class Service:
    """A group that serves, and its writers.

    ``tell`` gets the outage of each fault, a line. ``alone``: it has one member, which comes back.

    :ivar members: its members.
    :ivar rack: the availability zone of its hosts.
    :ivar group: the stack and its group.
    :ivar active: the member that serves.
    :ivar home: the host of each member.
    :ivar ledger: the writers; they begin with `write`, and go on with it after a `fault`.
    :ivar outages: the seconds without an acknowledged row at each `fault`.
    """

    def __init__(
        self,
        tenant: Tenant,
        name: str,
        fence: Sequence[Rung],
        rack: str,
        tell: Callable[[str], None],
        volume_type: str | None = None,
        alone: Alone | None = None,
    ) -> None:
        self.tenant = tenant
        self.where: Settings = tenant.settings
        self.name = name
        self.rack = rack
        self.members = MEMBERS if alone is None else MEMBERS[:1]
        self._tell = tell
        template = _template(fence, rack, volume_type, alone)
        tenant.create_stack(name, template, _LIMIT, **self._parameters())
        self.group = ProtectedStack(tenant, name)
        self.servers = self.group.servers()
        self.active = self._activate()
        self.home = {m: guests.host_of(self.where, s) for m, s in self.servers.items()}
        self._consoles = {member: [self._console(member)] for member in self.members}
        self.ledger = Ledger(self.addresses())
        self.outages: list[float] = []
        self._proofs: list[tuple[str, float]] = []
        prepare(self.where, self.servers[self.active])

    def _parameters(self) -> dict[str, Any]:
        project = self.tenant.cloud.current_project_id
        key = wire.group_key(
            read_secret(str(fences.agent_key(self.where))), group_id(project, self.name)
        )
        return {
            "image": seed.GUEST,
            "flavor": seed.GUEST_FLAVOR,
            "agent_broker": self.where.commands_url,
            **{f"agent_key_{name}": wire.member_key(key, name).hex() for name in self.members},
        }

    def _activate(self, limit: float = _LIMIT) -> str:
        """Wait until a member is active; the first activation waits for its agent."""
        with contextlib.suppress(CloudError):
            until(lambda: self.group.status()["status"] in ("COMPLETE", "FAILED"), "an end", limit)
        if (active := self.group.active()) is not None:
            return active
        consoles = "".join(
            f"\n{member}: {guests.console(self.where, server).read_text()[-800:]}"
            for member, server in self.servers.items()
        )
        raise AssertionError(f"not active: {self.group.status()['reason']}{consoles}")

    def addresses(self) -> dict[str, str]:
        """The address of each member."""
        found = {}
        for member, server in self.servers.items():
            # Nova shows none for a moment after the start of a guest.
            shown = until(partial(self._addresses, server), f"an address of {member}", 60)
            found[member] = str(shown[0]["addr"])
        return found

    def _addresses(self, server: str) -> list[dict[str, Any]]:
        return list(self.tenant.cloud.compute.get_server(server).addresses.get("net1", ()))

    def inside(self, member: str, script: str) -> str:
        """Run a script in a member's guest, without a network."""
        return guests.execute(self.where, self.servers[member], script)

    def write(self, *, inside: bool = False) -> None:
        """Have the writers write, and wait until rows were acknowledged."""
        self.ledger.start()
        if inside:
            self.inside(self.active, ledger.WRITE_INSIDE)
            until(lambda: self.written_inside(self.active) > 0, "a row of the writer inside", 60)
            self.ledger.watch(self.active, self._console(self.active))
        self.ledger.wait_for_rows(self.active, 60, _SOME)

    def standby(self) -> str:
        """The member that does not serve; the only one itself where it comes back."""
        return next((each for each in self.members if each != self.active), self.active)

    @contextmanager
    def fault(
        self, what: str, turns: Sequence[str] | None = None, untold: int = 0
    ) -> Iterator[None]:
        """Within it something happens to the service. Afterwards the data is checked: each row
        that was acknowledged, over the network or inside a guest, is there exactly once, the
        members acknowledged rows one after the other (``turns``, by default a failover's), and none
        acknowledged a row after it was proven to write no more; ``untold``: how many rows a guest
        that stood still may tell only then, though they were acknowledged before."""
        expected = turns or (self.active, self.standby())
        earlier = len(self.ledger.turns()) - 1
        begun, began = time.monotonic(), time.time()
        self._proofs.clear()
        yield
        # What an old server would write meanwhile is noticed.
        self.ledger.wait_for_rows(self.active, 60, _SOME)
        self.ledger.stop()
        found = ledger.rows(self.ledger.addresses[self.active])
        rows = self.ledger.acknowledged
        inside = [n for member in self.members for n in self._inside(member)]
        self.outages.append(self.ledger.outage(begun))
        self._tell(
            f"{what}: {len(rows) + len(inside)} rows acknowledged, outage {self.outages[-1]:.1f} s"
        )
        missing = self.ledger.missing(found)
        assert not missing, f"acknowledged, and not there exactly once: {missing}"
        wrong = {n: found[ledger.LOCAL, n] for n in inside if found[ledger.LOCAL, n] != 1}
        assert not wrong, f"acknowledged inside, and not there exactly once: {wrong}"
        turns = self.ledger.turns()[earlier:]
        assert turns == list(expected), f"acknowledged by turns: {turns}"
        for member, proven_at in self._proofs:
            assert proven_at > began, f"{member} was proven before the fault"
            late = self.ledger.late(proven_at, member)
            assert len(late) <= untold, f"acknowledged after {member} was proven: {late}"

    def note(self, line: str) -> None:
        """Print a line now, and at the end of all tests."""
        self._tell(line)

    def written_inside(self, member: str) -> int:
        """How many rows were acknowledged to the writer inside a member's guest."""
        return len(self._inside(member))

    def _inside(self, member: str) -> list[int]:
        consoles = [each for each in self._consoles[member] if each.exists()]
        return [number for each in consoles for number in ledger.acknowledged_inside(each)]

    def consoles(self, member: str) -> list[Path]:
        """The consoles of a member's guests, the present one's last."""
        return self._consoles[member]

    def console(self, member: str) -> str:
        """What a member's guest, also an earlier one, wrote on its console."""
        return self._console(member).read_text(encoding="utf-8", errors="replace")

    def _console(self, member: str) -> Path:
        return (
            places.instances(self.where, self.home[member]) / self.servers[member] / "console.log"
        )

    def proof(self) -> Proof:
        """What fenced the member that served before."""
        fence = f"fence:{self.standby()}"
        rows = self.group.status()["resources"]
        found = next(row["attributes"] for row in rows if row["name"] == fence)
        return Proof(found["rung"], found["observed"])

    def proven_at(self, member: str) -> float:
        """When the proof that a lost member writes no more was recorded, by the clock. The record
        of the fence itself is gone once the member is back."""
        told = self.tenant.action("failover.history", group=self.name, limit=1000)
        ends = [row for row in told if row["sentence"] == f"Fence {member}: done"]
        return float(ends[-1]["at"])

    def share_volume(self) -> None:
        """Attach the volume to the standby as well, and wait until both have it open."""
        volume, standby = self.group.volume(), self.servers[self.standby()]
        self.tenant.cloud.compute.create_volume_attachment(standby, volume_id=volume)
        until(
            lambda: len(self.clients()) == len(self.members),
            "both hosts to have the volume open",
            60,
        )

    def clients(self) -> set[str]:
        """The members that have the volume open, by the addresses of their hosts."""
        watching = ceph.watchers(self.where, self.group.volume())
        return {m for m, host in self.home.items() if _any_of(host, watching)}

    def blocked(self, before: Sequence[str] = ()) -> set[str]:
        """The members with a client on their hosts that Ceph refuses, and did not refuse before: it
        does so by itself, too, when a client takes over the lock of a dead one."""
        refused = [client for client in ceph.blocked(self.where) if client not in before]
        return {m for m, host in self.home.items() if _any_of(host, refused)}

    def start_failover(self) -> None:
        """Report the active member lost, and do not wait: see `failed_over`."""
        self.tenant.start("failover.failover", group=self.name, lost=[self.active])

    def failed_over(self, limit: float = _LIMIT) -> None:
        """Wait until the other member serves after a failover, or the only one again."""
        lost = self.active
        if lost == self.standby():
            self._follow(lost, limit)
        self.serves(self.standby(), limit)
        self._proofs.append((lost, self.proven_at(lost)))

    def _follow(self, member: str, limit: float) -> None:
        """Find the guest in which the only member comes back, and write to it there."""
        left, former, known = self.home[member], self.servers[member], self.ledger.addresses[member]

        def came() -> str | None:
            named = f"{self.name}-{member}-"
            shown = self.tenant.cloud.compute.servers(name=f"^{named}")
            new = [each.id for each in shown if each.id != former]
            with contextlib.suppress(CloudError):
                for server in (*new, former):
                    self.home[member] = guests.host_of(self.where, server, but=(left,))
                    return str(server)
            return None

        self.servers[member] = until(came, f"{member} to come back", limit, longest=1)
        self._consoles[member].append(self._console(member))
        if (address := self.addresses()[member]) != known:
            self.ledger.also(member, address)

    def fail_over(self, limit: float = _LIMIT) -> None:
        """Report the active member lost, and wait until the other one serves."""
        self.start_failover()
        self.failed_over(limit)

    def member_on(self, host: str) -> str:
        """The member whose server runs on a host."""
        return next(member for member, home in self.home.items() if home == host)

    def make_active(self, member: str) -> None:
        """Have a member serve, by a planned move unless it does."""
        if member != self.active:
            self.switch_over(member)
            self.group.wait_until_active(*(m for m in self.members if m != member))
            self.active = member

    def switch_over(self, to: str) -> None:
        """Order that the role moves to a member, and do not wait: see `serves`."""
        self.tenant.start("failover.switchover", group=self.name, to=to)

    def restore_hosts(self) -> None:
        """Bring every host of the rack back: cables, power, Ceph, Nova."""
        restore_hosts(self.where, Tenant(self.where, "admin"), self.rack)

    def runs(self) -> bool:
        """Whether the guests of the members that are not lost run. Another test of the rack may
        have taken the power of their hosts, and no server starts by itself when it is back."""
        lost = self.group.status()["lost"]
        return all(
            self.servers[member] in guests.running(self.where, self.home[member])
            for member in self.members
            if member not in lost
        )

    def make_whole(self, tell: Callable[[str], None]) -> None:
        """Have both members able to serve, for another test, which is told the outages."""
        self._tell = tell
        compute = self.tenant.cloud.compute
        for member in self.group.status()["lost"]:
            # First: a rack of two hosts has no room for three servers of a group.
            old = self.servers[member]
            compute.delete_server(old, ignore_missing=True)
            until(partial(lambda each: compute.find_server(each) is None, old), f"{old} to go", 120)
            self.replace_server(member)

    def replace_server(self, member: str) -> None:
        """Have Heat make the server of a member anew, as docs/volumes.md says, confirm that it is
        healthy, and wait until it could serve."""
        stack = self.tenant.stack(self.name)
        path = f"/stacks/{stack.name}/{stack.id}"
        heat = self.tenant.cloud.orchestration
        unhealthy = {"mark_unhealthy": True, "resource_status_reason": "its host lost its power"}
        for url, body in ((f"{path}/resources/{member}", unhealthy), (path, {})):
            answer = heat.patch(url, json=body)
            assert answer.ok, answer.text
        self.tenant.wait_for_stack(self.name)
        self.servers = self.group.servers()
        self.home[member] = guests.host_of(self.where, self.servers[member])
        self._consoles[member] = [self._console(member)]
        self.ledger.also(member, self.addresses()[member])
        done = self.tenant.run("failover.failover", group=self.name, lost=[], recovered=[member])
        assert done["state"] == "SUCCESS", done["output"]
        until(lambda: self._can_take(member), f"{member} to be able to serve", 180)

    def _can_take(self, member: str) -> bool:
        try:
            self.tenant.action("failover.plan", group=self.name, verb="switchover", to=member)
        except CloudError:
            return False
        return True

    def serves(self, member: str, limit: float = _LIMIT) -> None:
        """Wait until a member acknowledges rows and the group has reached its goal."""
        try:
            self.ledger.wait_for_rows(member, limit)
        except AssertionError as error:
            status = self.group.status()
            raise AssertionError(f"{error}: {status['status']}, {status['reason']}") from None
        self.group.wait_until_active(*(m for m in self.members if m != member), limit=60)
        self.active = member


def _any_of(host: str, clients: Sequence[str]) -> bool:
    return any(client.startswith(f"{places.storage(host)}:") for client in clients)


def lose_power(service: Service) -> None:
    """The host of the active member loses its power."""
    power.off(service.where, service.home[service.active])
    service.fail_over()


def power_returns(service: Service, operator: Tenant, host: str) -> None:
    """The host that lost its power has it again. Nova tidies up there, and the guest that it had
    does not run."""
    server = service.servers[service.active]
    power.on(service.where, host)
    until(partial(_allowed, operator, host), f"Nova to use {host} again", 120)
    until(partial(_is_up, operator, host), f"{host} to be up", 120)
    service.ledger.wait_for_rows(service.active, 60, _SOME)
    assert guests.running(service.where, host) == []
    assert service.servers[service.active] == server


def partition(service: Service) -> None:
    """The host is cut off. The writer inside writes on until the storage refuses it."""
    old = service.active
    console = service.consoles(old)[-1]
    network.plug(service.where, service.home[old], "management", connected=False)
    written = service.written_inside(old)
    until(lambda: service.written_inside(old) > written + 20, "the guest to write on", 60)
    service.fail_over()
    until(lambda: b"I/O error" in console.read_bytes(), "the old guest to notice it", 60)


def panic(service: Service) -> None:
    """The kernel of the active member panics."""
    guests.panic(service.where, service.servers[service.active])
    service.fail_over()


def freeze_and_thaw(service: Service) -> None:
    """The active member stands still, and runs on after the failover."""
    old = service.active
    guests.freeze(service.where, service.servers[old])
    service.fail_over()
    if service.servers[old] in guests.running(service.where, service.home[old]):
        guests.thaw(service.where, service.servers[old])


def hang_behind_a_partition(service: Service) -> None:
    """The QEMU of the active member stands still on a host that is cut off, for so long that Ceph
    has forgotten that it watches its volume. After the failover it runs on."""
    old = service.active
    volume = service.group.volume()
    guests.hang(service.where, service.servers[old])
    network.plug(service.where, service.home[old], "management", connected=False)
    until(lambda: not ceph.watchers(service.where, volume), "the watch of the volume to end", 90)
    service.fail_over()
    guests.go_on(service.where, service.servers[old])
    until(lambda: "I/O error" in service.console(old), "the old guest to notice it", 60)


def hang_until_the_host_is_fenced(service: Service, operator: Tenant) -> None:
    """The QEMU of the active member stands still. nova-compute waits for it without an end when it
    detaches the volume, and Nova counts the host as up, until an operator fences the host."""
    old = service.active
    guests.hang(service.where, service.servers[old])
    service.start_failover()
    volumes = service.tenant.cloud.block_storage
    volume = service.group.volume()
    until(lambda: volumes.get_volume(volume).status == "detaching", "Nova to detach it", 90)
    time.sleep(20)  # a guest that lives has released it by then
    assert volumes.get_volume(volume).status == "detaching"
    because, host = "QEMU hangs", service.home[old]
    operator.action("failover.fence_host", host=host, because=because, even_if_up=True)
    service.failed_over()


def cut_storage(service: Service) -> None:
    """The disks of the active member's host do not answer."""
    network.plug(service.where, service.home[service.active], "storage", connected=False)
    service.fail_over(limit=300)


def move(service: Service) -> None:
    """A planned switchover."""
    standby = service.standby()
    service.switch_over(standby)
    service.serves(standby)


def move_while_the_agent_is_killed(service: Service) -> None:
    """A planned switchover in which the standby's agent dies."""
    standby = service.standby()
    service.switch_over(standby)
    service.inside(standby, "sleep 2; pkill -9 -f '[f]ailover-agent run'")
    service.serves(standby)


def rehearse(service: Service, limit: float = _LIMIT) -> dict[str, Any]:
    """Rehearse the failover to the standby; its report, once nothing of it is left."""
    tenant, name = service.tenant, service.name
    done = tenant.run("failover.rehearse", limit, group=name)
    told: dict[str, Any] = tenant.action("failover.rehearsals", group=name)[0]
    assert done["state"] == "SUCCESS", (told["reason"], told["report"])
    until(
        lambda: tenant.action("failover.rehearsals", group=name)[0]["clean"],
        "nothing of the rehearsal to be left",
        limit,
    )
    return told


def prepare(where: Settings, server: str) -> None:
    """Have a database accept the writers' rows."""
    sql = (
        f"CREATE TABLE {ledger.TABLE} (writer text, number bigint)",
        "CREATE SEQUENCE numbers",
        "SELECT pg_reload_conf()",
    )
    # Unlike a row, a line is not on the disk when the command ends.
    guests.execute(where, server, f"echo '{_TRUST}' >> /srv/data/data/pg_hba.conf; sync")
    commands = " ".join(f"-c '{statement}'" for statement in sql)
    guests.execute(where, server, f'su postgres -s /bin/sh -c "psql -X -q {commands}"')


def _template(
    fence: Sequence[Rung], rack: str, volume_type: str | None, alone: Alone | None
) -> str:
    members = None
    if alone is not None:
        members = {"servers": ["db_a"], "replace": "lost", "restart": list(alone.restart)}
    made = templates.protected(templates.SERVERS, fence=list(fence), members=members)
    template = yaml.safe_load(made)
    if alone is not None:
        templates.alone(template, boots_from_a_volume=alone.boots_from_a_volume)
    if volume_type is not None:
        template["resources"]["data_volume"]["properties"]["volume_type"] = volume_type
    for member in MEMBERS if alone is None else MEMBERS[:1]:
        server = template["resources"][member]["properties"]
        server["availability_zone"] = rack
        text = server["user_data"]["if"][1]["str_replace"]
        # The writers are outside.
        text["template"] = re.sub(
            r"^( +)PG_LIMIT: .*$",
            r"\g<0>\n\1PG_OPTIONS: '-c listen_addresses=*'",
            text["template"],
            flags=re.MULTILINE,
        )
    group = template["resources"]["protection"]["properties"]["input"]["definition"]["str_replace"]
    definition = yaml.safe_load(group["template"])
    definition["resources"]["data"]["properties"]["when_host_is_down"] = "delete_server"
    if alone is None:
        definition["rehearsal"] = {"checks": ["pg-check"]}
    group["template"] = yaml.safe_dump(definition, sort_keys=False)
    return yaml.safe_dump(template, sort_keys=False)


def lift(where: Settings, operator: Tenant, host: str) -> None:
    """Lift what a storage fence left behind on a host: refused before the host was off."""
    network.plug(where, host, "management", connected=True)

    def blocked() -> list[str]:
        return [c for c in ceph.blocked(where) if c.startswith(f"{places.storage(host)}:")]

    def unfence(**how: Any) -> Any:
        return operator.action("failover.unfence_host", host=host, **how)

    kept = blocked()
    assert kept
    assert unfence(dry_run=True)["sentence"].startswith("Refused")
    with pytest.raises(CloudError) as refused:
        unfence(because="too early")
    assert refused.value.code == "FENCE_UNPROVEN"
    assert blocked() == kept
    operator.action("failover.fence_host", host=host, because="lift its block", even_if_up=True)
    assert not power.is_on(where, host)
    unfence(because="it was off")  # if no sweep was quicker
    assert blocked() == []
    assert _service(operator, host).is_forced_down
    power.on(where, host)
    until(lambda: not unfence(because="it is on")["down_in_nova"], "Nova to know it", 180)
    assert not _service(operator, host).is_forced_down


@contextmanager
def without(operator: Tenant, host: str) -> Iterator[None]:
    """Meanwhile Nova makes no server on a host."""
    compute = operator.cloud.compute
    compute.disable_service(_service(operator, host), host, "nova-compute", "a test")
    try:
        yield
    finally:
        compute.enable_service(_service(operator, host), host, "nova-compute")


def restore_hosts(where: Settings, operator: Tenant, rack: str) -> None:
    """Bring every host of a rack back as an operator does: cables, power, Ceph's blocklist,
    Nova."""
    for host in RACKS[rack]:
        for leg in ("management", "storage"):
            network.plug(where, host, leg, connected=True)
        addresses = [c for c in ceph.blocked(where) if c.startswith(f"{places.storage(host)}:")]
        forced = _service(operator, host).is_forced_down
        if addresses or forced:
            # What was blocked must not write again: it runs no more.
            power.off(where, host)
            ceph.unblock(where, places.storage(host))
        power.on(where, host)
        if forced:
            until(partial(_allowed, operator, host), f"Nova to use {host} again", 120)
    for host in RACKS[rack]:
        until(partial(_is_up, operator, host), f"{host} to be up", 120)


def _is_up(operator: Tenant, host: str) -> bool:
    return bool(_service(operator, host).state == "up")


def _service(operator: Tenant, host: str) -> Any:
    return next(iter(operator.cloud.compute.services(binary="nova-compute", host=host)))


def _allowed(operator: Tenant, host: str) -> bool:
    """Let Nova use a host again; whether it does. After an evacuation it refuses until nova-compute
    has started and tidied up."""
    compute = operator.cloud.compute
    try:
        compute.update_service_forced_down(
            _service(operator, host), host, "nova-compute", forced=False
        )
    except exceptions.BadRequestException:
        return False
    return True


def tidy(tenant: Tenant, name: str) -> None:
    """Delete a stack however a test left it: a second time where its group did not go."""
    try:
        tenant.delete_stack(name, limit=300)
    except CloudError:
        if name in tenant.action("failover.status")["groups"]:
            for member in tenant.action("failover.status", group=name)["lost"]:
                tenant.run(
                    "failover.confirm_fenced", group=name, member=member, because="the test is over"
                )
        tenant.delete_stack(name, limit=300)
