# SPDX-License-Identifier: Apache-2.0
"""The plays, and which of them reaches which fault point."""

from __future__ import annotations

import json
import uuid
from functools import partial
from typing import Any

import sqlalchemy as sa

from faults.drill import Drill, Play
from faults.slot import LEASE, Fault
from mistral_failover.lab.emulator.state import User
from mistral_failover.mistral.event_hooks import event_id
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import hooks, host_fences, rehearsals
from mistral_failover.store.groups import group_id
from mistral_failover.store.tables import journal
from support.alarm_bodies import ALERT, WEBHOOK
from support.fencing import AGENT, PASSWORD, Machines, private, shown_up
from support.operators import Operator


def alarm(member: str, fault: str) -> Any:
    """Something happens to a member, and Aodh tells of it; again in the same words."""

    def act(drill: Drill) -> None:
        body = drill.facts.get("alarm")
        if body is None:
            server = drill.server(member)
            drill.slot.cloud.client.fault("server", server, fault)
            drill.facts["struck"] = server
            body = drill.facts["alarm"] = drill.slot.cloud.client.alarm_body(server)
        drill.start("failover.on_alarm", **body)

    return act


def event(drill: Drill) -> None:
    """The active member's guest dies, and one webhook tells of that and of what is over."""
    if "struck" not in drill.facts:
        server = drill.facts["struck"] = drill.server("db_a")
        drill.slot.cloud.client.fault("server", server, "crash")
    lost = {**ALERT, "labels": {"instance_id": drill.facts["struck"]}, "fingerprint": drill.group}
    over = {**lost, "status": "resolved", "fingerprint": f"{drill.group}, something else"}
    drill.start("failover.on_event", body={**WEBHOOK, "alerts": [lost, over]})


def move(drill: Drill) -> None:
    """A person moves the group."""
    drill.start("failover.failover", group=drill.group, to="db_b", lost=[])


def wait_for_a_word(drill: Drill) -> None:
    """The active member's guest dies, and the ladder has no other rung than a person's word."""
    server = drill.server("db_a")
    drill.slot.cloud.client.fault("server", server, "crash")
    drill.run("failover.on_alarm", **drill.slot.cloud.client.alarm_body(server))
    assert drill.where()[0] == "BLOCKED"


def confirm(drill: Drill) -> None:
    """A person vouches for it."""
    drill.start(
        "failover.confirm_fenced", group=drill.group, member="db_a", because="its plug is pulled"
    )


def have_an_alarm_held_back(drill: Drill) -> None:
    """A second alarm within the cooldown."""
    cloud = drill.slot.cloud.client
    for member in ("db_a", "db_b"):
        server = drill.server(member)
        cloud.fault("server", server, "app")
        drill.run("failover.on_alarm", **cloud.alarm_body(server))
    held = [i for i in drill.status()["incidents"] if i["decision"] == "HELD"]
    drill.facts["incident"] = held[0]["id"]


def admit_it(drill: Drill) -> None:
    """A person admits what was held back."""
    incident = drill.facts["incident"]
    drill.start("failover.failover", group=drill.group, incident=incident, recovered=["db_a"])


def install_fence_devices(drill: Drill) -> None:
    """The operator has a board for each host."""
    folder = drill.slot.folder / drill.group
    folder.mkdir()
    machines = drill.facts["machines"] = Machines(folder)
    hosts = drill.slot.cloud.emulation.state.hosts
    for host in hosts:
        machines.add(host)
    port, secret = machines.board(), private(folder / "secret", PASSWORD)

    def device(host: str) -> dict[str, Any]:
        options = {"ipport": port, "username": "fence", "plug": host}
        secrets = {"password": str(secret)}
        return {"agent": AGENT, "options": options, "secrets": secrets, "limit": 5}

    document = {
        "projects": ["*"],
        "cloud": "operator",
        "listen": 0,
        "hosts": {host: [[device(host)]] for host in hosts},
    }
    private(drill.slot.fence_devices, json.dumps(document))


def host_dies(drill: Drill) -> None:
    """The host of the active member dies, and Aodh tells of it; again in the same words."""
    cloud = drill.slot.cloud
    body = drill.facts.get("alarm")
    if body is None:
        server = drill.server("db_a")
        drill.facts["host"] = cloud.emulation.state.servers[server].host
        cloud.client.fault("host", drill.facts["host"], "power_off")
        body = drill.facts["alarm"] = cloud.client.alarm_body(server)
    drill.start("failover.on_alarm", **body)


def the_host_is_off(drill: Drill) -> None:
    """The machine is off, Nova knows it, and the proof is there for other groups."""
    host = drill.facts["host"]
    assert drill.facts["machines"].power(host) == "off"
    assert drill.slot.cloud.emulation.state.hosts[host].forced_down
    found = drill.slot.database.reading(lambda tx: host_fences.of_host(tx, host))
    assert (found.owner, found.proof is None) == (None, False)


def repair_the_host(drill: Drill) -> None:
    """The operator puts it back into service, and takes the boards away."""
    cloud = drill.slot.cloud
    for host in cloud.emulation.state.hosts.values():
        if host.forced_down or not host.up:
            host.forced_down = False
            cloud.client.fault("host", host.name, "revive")
            drill.slot.database.atomically(partial(shown_up, host=host.name))
    if machines := drill.facts.get("machines"):
        machines.stop()


def own_it_as_an_operator(drill: Drill) -> None:
    """The group's user is an administrator, and has a board for each host."""
    _the_user(drill).admin = True
    install_fence_devices(drill)


def own_it_no_more(drill: Drill) -> None:
    """As before."""
    _the_user(drill).admin = False
    repair_the_host(drill)


def _the_user(drill: Drill) -> User:
    users = drill.slot.cloud.emulation.state.users.values()
    return next(user for user in users if user.name == "demo")


def serves_elsewhere(drill: Drill) -> None:
    """The machine is off, and the same server is on another one with its disks: evacuated once,
    never deleted."""
    the_host_is_off(drill)
    client, server = drill.slot.cloud.client, drill.server("db_a")
    guest = client.guests()[server]
    assert guest["host"] != drill.facts["host"]
    disk = client.resources(drill.group)["system"]["physical_resource_id"]
    assert disk in guest["volumes"]
    actions = drill.slot.cloud.emulation.state.server_actions.values()
    assert [a.action for a in actions if a.server_id == server].count("evacuate") == 1


def slow_down(drill: Drill) -> None:
    """Attaching takes longer than a third of a lease."""
    drill.slot.cloud.client.set_latency(attach=LEASE / 2)


def speed_up(drill: Drill) -> None:
    """As before."""
    drill.slot.cloud.client.set_latency(attach=0)


def leave_a_reservation(drill: Drill) -> None:
    """Somebody reserved the volume for a server that is no more, and Nova knows nothing of it."""
    client = drill.slot.cloud.client
    volume = client.resources(drill.group)["data_volume"]["physical_resource_id"]
    operator = Operator(client)
    operator.set_volume(volume, "available")
    operator.reserve(volume, str(uuid.uuid4()))
    operator.set_volume(volume, "in-use")


def take_out_of_service(drill: Drill) -> None:
    """As its stack does before it goes."""
    drill.run("failover.unprotect", name=drill.group)


def protect(drill: Drill) -> None:
    """A stack brings its group up; db_a was fenced when it went out of service, and stays so."""
    drill.start("failover.protect", name=drill.group, definition=drill.definition())


POWER_OFF = """
version: '2.0'
house.power_off:
  input: [group, member, servers, because]
  output:
    proof: <% $.said %>
  tasks:
    switch_off:
      action: std.echo
      input:
        output: the power of <% $.member %> is off
      publish:
        said: <% task().result %>
"""


def teach_to_switch_off(drill: Drill) -> None:
    """The house has a workflow that switches hosts off."""
    for child in drill.slot.mistrals:
        child.client.upload(POWER_OFF)


LISTEN = """
version: '2.0'
house.listen:
  input: [event]
  tasks:
    only:
      action: std.noop
"""


def teach_to_listen(drill: Drill) -> None:
    """The house has a workflow that wants to know of everything, and knows of what was so far."""
    for child in drill.slot.mistrals:
        child.client.upload(LISTEN)
    drill.run("failover.sweep", group=drill.group)
    drill.until(lambda: not untold(drill), "told of what was before")


def untold(drill: Drill) -> bool:
    """Whether something happened to the group that its workflow was not told."""
    waiting = drill.slot.database.for_project(DEFAULT_PROJECT).reading(
        lambda tx: hooks.waiting(tx, quiet=0.0)
    )
    return group_id(DEFAULT_PROJECT, drill.group) in waiting


def was_told_of_everything(drill: Drill) -> None:
    """In one of the two Mistrals there is an execution for each event, now or after a sweep."""
    drill.slot.survivor.client.run("failover.sweep", {"group": drill.group})
    drill.until(lambda: not untold(drill), "told of everything")
    identity = group_id(DEFAULT_PROJECT, drill.group)
    events = sa.select(journal.c.id, journal.c.at).where(
        journal.c.group_id == identity, journal.c.kind.in_(hooks.EVENTS)
    )
    expected = {
        event_id(identity, number, at)
        for number, at in drill.slot.database.reading(
            lambda tx: tx.connection.execute(events).all()
        )
    }
    for child in drill.slot.mistrals:
        expected -= {e["id"] for e in child.client.executions(workflow_name="house.listen")}
    assert not expected, expected


def together(drill: Drill) -> None:
    """The same, and a second executor advances the traversal as well, from its beginning on."""
    alarm("db_a", "crash")(drill)
    begun = drill.until(
        lambda: (
            (drill.status()["traversal"] or {}).get("id") != drill.facts["before"]
            and drill.status()["traversal"]["id"]
        ),
        "a traversal begins",
    )
    drill.slot.survivor.client.start("failover.converge", {"traversal": begun})


def stop_the_standby(drill: Drill) -> None:
    """No other member can take over, and Heat is away: the lost one does not come back first."""
    client = drill.slot.cloud.client
    Operator(client).stop_server(drill.server("db_b"))
    client.api_fault("stack_patch", status=503, times=10_000)


def start_the_standby(drill: Drill) -> None:
    """The active member's guest dies, and the standby is started while that is brought back. Heat
    answers again when the standby serves."""
    alarm("db_a", "crash")(drill)
    drill.until(lambda: drill.has_told("Bring back db_a: started"), "brought back")
    if "started" not in drill.facts:
        drill.facts["started"] = drill.server("db_b")
        Operator(drill.slot.cloud.client).start_server(drill.facts["started"])
    drill.sweep_until(lambda: drill.has_told("Start database on db_b: done"), "taken over")
    let_heat_go_on(drill)


def let_heat_go_on(drill: Drill) -> None:
    """Heat answers again."""
    drill.slot.cloud.client.clear_api_faults()


def took_over(drill: Drill) -> None:
    """The standby serves, which was not lost for an instant, and the lost one has a new server."""
    assert drill.server("db_b") == drill.facts["started"]
    assert drill.server("db_a") != drill.facts["struck"]
    assert not drill.has_told("Start database on db_a: done", times=2)


def boots_from_the_same_disk(drill: Drill) -> None:
    """The new server has the disk of the old one, which was deleted once."""
    client = drill.slot.cloud.client
    disk = client.resources(drill.group)["system"]["physical_resource_id"]
    now, former = drill.server("db_a"), drill.facts["struck"]
    assert [s for s, guest in client.guests().items() if disk in guest["volumes"]] == [now]
    gone = [e for e in client.audit(drill.since, kind="server_deleted") if e["server"] == former]
    assert len(gone) == 1
    assert now != former


def remember_the_traversal(drill: Drill) -> None:
    """Which one has brought the group up."""
    drill.facts["before"] = drill.status()["traversal"]["id"]


def rehearse(drill: Drill) -> None:
    """A person rehearses the failover."""
    drill.start("failover.rehearse", group=drill.group)


def was_rehearsed(drill: Drill) -> bool:
    """Whether a rehearsal of the group is recorded."""
    identity = group_id(DEFAULT_PROJECT, drill.group)
    project = drill.slot.database.for_project(DEFAULT_PROJECT)
    return bool(project.reading(lambda tx: rehearsals.of_group(tx, identity)))


def nothing_is_left_of_it(drill: Drill) -> None:
    """Nothing of the rehearsal is left, and the group never served elsewhere."""
    state = drill.slot.cloud.emulation.state
    assert not state.snapshots
    assert not [each.name for each in state.volumes.values() if "rehearsal" in each.name]
    assert not [server for server, guest in state.guests.items() if guest.rehearsed]
    assert not [row for row in drill.told() if row["kind"] == "traversal"][1:]


def have_it_rehearsed(drill: Drill) -> None:
    """The application of a rehearsal is being started on the standby."""
    drill.slot.cloud.client.set_latency(command_start=LEASE)
    server = drill.server("db_b")
    rehearse(drill)
    drill.until(
        lambda: [e for e in drill.slot.events(drill.since) if _starts(e, server)],
        "a rehearsal starts the application",
    )


def _starts(event: dict[str, Any], server: str) -> bool:
    return event["kind"] == "command_started" and event["server"] == server


def start_at_once(drill: Drill) -> None:
    """As before."""
    drill.slot.cloud.client.set_latency(command_start=0)


def the_rehearsal_is_gone(drill: Drill) -> None:
    """Nothing of the rehearsal that the failover ended is left, sooner or later."""
    state = drill.slot.cloud.emulation.state

    def gone() -> bool:
        drill.slot.survivor.client.run("failover.sweep", {"group": drill.group}, timeout=60)
        copies = [each for each in state.volumes.values() if "rehearsal" in each.name]
        return not (state.snapshots or copies)

    drill.until(gone, "its copies are removed")
    assert not [server for server, guest in state.guests.items() if guest.rehearsed]


TOGETHER = Play("together", together, volumes=3, prepare=remember_the_traversal)
CRASH = Play("crash", alarm("db_a", "crash"))
WIDE = Play("wide", alarm("db_a", "crash"), volumes=3)
APPLICATION = Play(
    "application", alarm("db_a", "app"), ladder=({"kind": "quiesce", "limit": 5}, "stop")
)
DELETED = Play("deleted", alarm("db_a", "crash"), ladder=("delete",))
SWITCHED_OFF = Play(
    "switched off",
    alarm("db_a", "crash"),
    prepare=teach_to_switch_off,
    ladder=({"workflow": "house.power_off", "limit": 20},),
)
EVENT = Play("event", event)
MOVED = Play("moved", move)
CONFIRMED = Play("confirmed", confirm, prepare=wait_for_a_word, ladder=("confirm",))
HELD = Play(
    "held",
    admit_it,
    prepare=have_an_alarm_held_back,
    ladder=({"kind": "quiesce", "limit": 5},),
    active="db_a",
)
SLOW = Play("slow", alarm("db_a", "crash"), prepare=slow_down, tidy=speed_up)
ORPHANED = Play("orphaned", alarm("db_a", "crash"), prepare=leave_a_reservation)
HEALED = Play(
    "healed",
    alarm("db_a", "crash"),
    more={"members": {"servers": ["db_a", "db_b"], "replace": "lost", "restart": ["replace"]}},
)
SINGLE = Play(
    "single",
    alarm("db_a", "crash"),
    more={"members": {"servers": ["db_a"], "replace": "lost"}},
    active="db_a",
)
RELIEVED = Play(
    "relieved",
    start_the_standby,
    prepare=stop_the_standby,
    tidy=let_heat_go_on,
    check=took_over,
    more={"members": {"servers": ["db_a", "db_b"], "replace": "lost", "restart": ["replace"]}},
)
BOOT_DISK = Play(
    "boot disk",
    alarm("db_a", "crash"),
    more={"members": {"servers": ["db_a"], "replace": "lost", "restart": ["replace"]}},
    check=boots_from_the_same_disk,
    active="db_a",
    boots_from_a_volume=True,
)
TOLD = Play(
    "told",
    alarm("db_a", "crash"),
    prepare=teach_to_listen,
    check=was_told_of_everything,
    more={"on_event": {"workflow": "house.listen"}},
)
HOST_DIED = Play(
    "host died",
    host_dies,
    prepare=install_fence_devices,
    tidy=repair_the_host,
    check=the_host_is_off,
    ladder=({"kind": "host_power", "limit": 60},),
    host_dies=True,
)
EVACUATED = Play(
    "evacuated",
    host_dies,
    prepare=own_it_as_an_operator,
    tidy=own_it_no_more,
    check=serves_elsewhere,
    ladder=({"kind": "host_power", "limit": 60},),
    more={"members": {"servers": ["db_a"], "replace": "lost", "restart": ["evacuate"]}},
    active="db_a",
    host_dies=True,
    boots_from_a_volume=True,
)
REHEARSED = Play(
    "rehearsed", rehearse, happened=was_rehearsed, check=nothing_is_left_of_it, active="db_a"
)
OVERTAKEN = Play(
    "overtaken",
    alarm("db_a", "crash"),
    prepare=have_it_rehearsed,
    tidy=start_at_once,
    check=the_rehearsal_is_gone,
)
PROTECTED = Play("protected", protect, prepare=take_out_of_service)
TAKEN_OVER = Play(
    "taken over", alarm("db_a", "crash"), preceding=(Fault("conclude.before", "lose"),)
)

_CRASH = (
    "admit.before admit.recorded admit.after members.after link.before link.after "
    "start.before start.swapped start.after check.before check.locked check.after "
    "conclude.before conclude.released conclude.reported conclude.after "
    "attach.before attach.after detach.before detach.after depose.before depose.after "
    "stop.before stop.after "
    "patch.before patch.after report.before report.after"
)
# The calls of a failover: stop the server, detach, attach, start the application, PATCH.
CALLS = 5
# The commands of one whose application died: stop it for the fence, stop it, start it.
COMMANDS = 3

DRILLS: list[tuple[str, int, Play]] = [
    *((point, 1, CRASH) for point in _CRASH.split()),
    *((f"call.{when}", nth, CRASH) for when in ("before", "after") for nth in range(1, CALLS + 1)),
    *(
        (f"command.{when}", nth, APPLICATION)
        for when in ("before", "after")
        for nth in range(1, COMMANDS + 1)
    ),
    *((point, 1, SWITCHED_OFF) for point in ("workflow.before", "workflow.after")),
    *((point, 1, DELETED) for point in ("delete.before", "delete.after")),
    *((point, 1, CONFIRMED) for point in ("confirm.before", "confirm.recorded", "confirm.after")),
    *((point, 1, SLOW) for point in ("renew.before", "renew.after")),
    *((point, 1, TAKEN_OVER) for point in ("sweep.after", "check.stolen")),
    *((point, 1, ORPHANED) for point in ("orphan.before", "orphan.after")),
    *((f"power.{when}", 1, HOST_DIED) for when in ("before", "after", "proven")),
    *(
        (f"{what}.{when}", 1, REHEARSED)
        for what in ("snapshot", "copy", "uncopy")
        for when in ("before", "after")
    ),
    *((f"rehearsal.{when}", 1, REHEARSED) for when in ("before", "begun", "ending")),
    *(("rehearsal.ended", nth, REHEARSED) for nth in (1, 2)),
    *(
        (f"{what}.{when}", nth, REHEARSED)
        for what, times in (("attach", (1,)), ("command", (1, 2)), ("detach", (1,)))
        for nth in times
        for when in ("before", "after")
    ),
    *(
        (f"{what}.{when}", nth, OVERTAKEN)
        for what, times in (("command", (1, 2)), ("detach", (1, 2)), ("uncopy", (1, 2)))
        for nth in times
        for when in ("before", "after")
    ),
    *((f"{what}.after", 1, OVERTAKEN) for what in ("start", "check", "attach")),
    *((point, 1, PROTECTED) for point in ("launch.before", "launch.after")),
    ("patch.after", 2, HEALED),  # the first is that of the stack's parameters
    ("replaced.before", 1, HEALED),
    *((point, 1, SINGLE) for point in ("vacant.before", "vacant.after")),
    *((point, 1, RELIEVED) for point in ("vacant.before", "vacant.after")),
    *((point, 1, SINGLE) for point in ("attach.before", "attach.after")),
    *((point, 1, SINGLE) for point in ("restart.before", "restart.after", "replaced.before")),
    *((f"delete.{when}", 1, BOOT_DISK) for when in ("before", "after")),
    *((f"patch.{when}", 1, BOOT_DISK) for when in ("before", "after")),
    ("replaced.before", 1, BOOT_DISK),
    *((f"evacuate.{when}", 1, EVACUATED) for when in ("before", "after")),
    *((f"restart.{when}", 1, EVACUATED) for when in ("before", "after")),
    *((point, 1, EVACUATED) for point in ("detach.before", "detach.after", "replaced.before")),
    *((point, 1, TOLD) for point in ("event.before", "event.after")),
    ("advance.before", 1, CRASH),
    ("advance.after", 1, CRASH),
    ("work.next", 1, WIDE),
    ("admit.next", 1, EVENT),
    ("order.after", 1, MOVED),
    ("held.after", 1, HELD),
]
"""(point, at which time it is reached, play)."""

ENDING = ("kill", "freeze")
"""Modes that take a process away."""
STAYING = ("exception", "duplicate")
"""Modes that need no second process. They try one call and one command: those that follow have
points of their own (stop.*, detach.*, attach.*, patch.*), while a process can die in any of
them."""
MODES = (*ENDING, *STAYING)

INSIDE = {
    "admit.recorded": "admit.before",
    "start.swapped": "start.before",
    "check.stolen": "check.before",
    "check.locked": "check.before",
    "conclude.released": "conclude.before",
    "conclude.reported": "conclude.before",
}
"""Points within a transaction, each with the last point before that begins.

The database undoes the transaction of a process that dies, and nothing else happens in one. So a
kill there leaves what a kill at the point before leaves, and that is tried. One of them is tried
all the same, for the database's part: ``conclude.reported``, where the most is written (the lock,
the ledger, the record, the sync points). A frozen process is another matter: it keeps its
transaction, and with SQLite everybody else from writing."""
KILLED_INSIDE = "conclude.reported"


def scenarios(*modes: str) -> list[tuple[str, int, Play, str]]:
    """Every drill in each of these modes that tells something new: point, at which time, play,
    mode. A rehearsal that is overtaken makes the calls of one that is not."""
    return [
        (point, nth, play, mode)
        for point, nth, play in DRILLS
        for mode in modes
        if not (mode in STAYING and nth > 1 and point.partition(".")[0] in ("call", "command"))
        if not (mode in STAYING and play is OVERTAKEN)
        if not (mode == "kill" and point in INSIDE and point != KILLED_INSIDE)
    ]
