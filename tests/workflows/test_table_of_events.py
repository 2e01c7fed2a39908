# SPDX-License-Identifier: Apache-2.0
"""What people and other tools ordinarily do to the parts of a group, and when they do it: wherever
that leaves the group, it says what it waits for and since when, and it ends right.

A table. Each row is something that happens, each column a moment; the letter says what follows:

    .   nothing is in the way: the failover ends right, or the group at rest serves on; what ended
        only the application is seen by a look, which starts it again
    u   it is in the way; once it is undone, the group ends right by itself
    c   it cannot be undone: the command that the status names is typed, and the group ends right
    -   the service refuses it at this moment
    ' ' not played

Who is lost is always db_a, which serves at first; db_b is the only standby. Each thing meets each
moment once, as far as that means something, with the member that it can then still stop: the lost
one until its fence, the standby from then on. To play the rest, put a letter there.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover import fault_points
from mistral_failover.actions import groups, reports, suspensions
from mistral_failover.cli.status_screen import help_lines
from mistral_failover.convergence import conclude
from mistral_failover.resources import commands
from support.activation import done
from support.commands import failover
from support.operators import Operator
from support.waiting import until

pytestmark = pytest.mark.faults

MOMENTS = {
    "at rest": "",
    "before the fence": "start.after",
    "between detach and attach": "attach.before",
    "during activation": "command.before",
    "during the PATCH": "patch.after",
}
"""Each with the point of the code at which it happens. At rest no member is lost at all."""

MEMBERS = ("db_a", "db_b")
LOOKS = 3
"""Looks within which what was undone has to be right again."""
PATIENCE = 30.0
"""Seconds for which a busy machine is looked at again."""
BLOCKED = 3
"""The exit code of a command whose order waits for a person."""
CONTEXT = ActionContext(SecurityContext(), ExecutionContext())
ACTIVE = {"get_param": "active"}
NET = {"network": "net1"}


def attached(volume: str) -> dict[str, Any]:
    """The resource of a volume that follows the role."""
    return {"type": "volume_attachment", "properties": {"volume": volume, "server": ACTIVE}}


RESOURCES: dict[str, Any] = {
    "data": attached("data_volume"),
    "inside": {"type": "port", "properties": {"port": "inside", "server": ACTIVE}},
    "database": {
        "type": "activation",
        "depends_on": ["data", "inside"],
        "properties": {
            "member": ACTIVE,
            "start": "start",
            "stop": "stop",
            "device": {"get_attr": ["data", "device"]},
        },
    },
    "routing": {
        "type": "stack_parameters",
        "depends_on": "database",
        "properties": {"parameters": {"active": ACTIVE}},
    },
}


def with_a_port(stack: dict[str, Any]) -> dict[str, Any]:
    """The template, with a port on no server, and one for each server."""
    for one in stack["resources"].values():
        if one["type"] == "OS::Nova::Server":
            one["properties"] = {**one["properties"], "networks": [NET]}
    stack["resources"] |= {"inside": {"type": "OS::Neutron::Port", "properties": NET}}
    return stack


class Scene:
    """A group that serves on db_a, with a volume and a port that follow it."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.operator = Operator(group.cloud)
        shown = group.cloud.resources(group.name)
        self.volume = str(shown["data_volume"]["physical_resource_id"])
        self.port = str(shown["inside"]["physical_resource_id"])
        self.stranger = ""
        self.detached = "db_a"
        self.orders: list[str] = []

    def holder(self) -> str | None:
        """The server that has the volume, by Cinder's word."""
        rows = self.operator.attachments(self.volume)
        return str(rows[0]["instance"]) if rows else None

    def order(self, workflow: str, **inputs: Any) -> None:
        """Give the group another order."""
        self.orders.append(self.group.start(workflow, group=self.group.name, **inputs))

    def sweep(self) -> None:
        self.group.run("sweep", group=self.group.name).assert_succeeded()

    def command(self, verb: str, member: str) -> None:
        """Run a command on a member by hand."""
        (epoch,) = (m["epoch"] for m in self.group.status()["members"] if m["name"] == member)
        said = {"command_id": f"{verb}-{self.group.name}", "epoch": epoch}
        self.group.cloud.run_command(self.group.server(member), verb, **said)

    def wrong(self) -> str:
        """What is not right; empty if all is where the status says."""
        group, status = self.group, self.group.status()
        if status["status"] != "COMPLETE":
            return f"{status['status']}: {status['reason']}"
        service = status["service"]
        if service["status"] == "OUT_OF_SERVICE":
            return f"the volume is on {self.holder()}" if self.holder() else ""
        if service["status"] not in ("SERVING", "DEGRADED"):
            return f"{service['status']}: {service['reasons']}"
        wanted, servers = group.server(status["roles"]["active"]), map(group.server, MEMBERS)
        guests = {key: each["applications"] for key, each in group.cloud.guests().items()}
        runs = [each for each in servers if group.name in guests.get(each, ())]
        seen = (self.holder(), runs, self.operator.server_of_port(self.port))
        if seen != (wanted, [wanted], wanted):
            return f"volume, application, address: {seen}, not {wanted}"
        return ""


Deed = Callable[[Scene], object]


class Event(NamedTuple):
    """``cells``: the letters, by moment. ``undo``: ends it. ``names``: how the command begins that
    must be named; ``obey``: what it asks for, if that is more than typing it."""

    cells: str
    do: Deed
    undo: Deed | None = None
    names: str = ""
    obey: Deed | None = None


def acts(member: str, action: str) -> Deed:
    return lambda scene: scene.operator.act(scene.group.server(member), action)


def server(begin: str, end: str | None, active: str, standby: str) -> dict[str, Event]:
    """What Nova does with a server, and what ends that: of the active member, of the standby."""
    return {
        of: Event(cells, acts(member, begin), acts(member, end) if end else None)
        for of, member, cells in (("active", "db_a", active), ("standby", "db_b", standby))
    }


def deleted(member: str) -> Deed:
    return lambda scene: scene.operator.delete_server(scene.group.server(member))


def made_again(member: str) -> Deed:
    return lambda scene: scene.operator.replace_server(scene.group.name, member)


def volume_is(word: str) -> Deed:
    return lambda scene: scene.operator.set_volume(scene.volume, word)


def volume_is_as_usual(scene: Scene) -> None:
    scene.operator.set_volume(scene.volume, "in-use" if scene.holder() else "available")


def detach_by_hand(scene: Scene) -> None:
    scene.detached = next(m for m in MEMBERS if scene.group.server(m) == scene.holder())
    scene.command("stop", scene.detached)
    scene.operator.detach(scene.volume, scene.group.server(scene.detached))


def attach_by_hand(scene: Scene) -> None:
    scene.operator.attach(scene.volume, scene.group.server(scene.detached))
    scene.command("start", scene.detached)


def delete_volume(scene: Scene) -> None:
    scene.operator.delete_volume(scene.volume)


def delete_server_and_volume(scene: Scene) -> None:
    server = scene.group.server("db_a")
    scene.operator.delete_server(server)
    until(lambda: scene.holder() != server)
    delete_volume(scene)


def name_another_volume(scene: Scene) -> None:
    scene.volume = scene.operator.make_volume()
    update_group(scene, resources=RESOURCES | {"data": attached(scene.volume)})
    scene.group.run("activate_first", group=scene.group.name)


def take_address(scene: Scene) -> None:
    scene.operator.free_port(scene.port)


def give_address(scene: Scene) -> None:
    take_address(scene)
    scene.stranger = scene.operator.boot_from(scene.operator.make_volume(bootable=True))
    scene.operator.give_port(scene.stranger, scene.port)


def give_address_back(scene: Scene) -> None:
    if scene.stranger:
        scene.operator.delete_server(scene.stranger)
    row = next(each for each in scene.group.status()["resources"] if each["name"] == "inside")
    if row["status"] == "CREATE_COMPLETE":
        scene.operator.give_port(scene.group.server(row["member"]), scene.port)


def update_stack(scene: Scene) -> None:
    changed = scene.group.cloud.template(scene.group.name) | {"description": "another"}
    scene.operator.update_template(scene.group.name, changed)


def drift(scene: Scene) -> None:
    scene.operator.update_stack(scene.group.name, active="none")


def delete_stack(scene: Scene) -> None:
    scene.operator.delete_stack(scene.group.name)


def update_group(scene: Scene, **changes: Any) -> None:
    shown = reports.Status(scene.group.name, definition=True).run(CONTEXT)
    changed = shown["definition"]["document"] | changes
    done(groups.Define(changed, name=scene.group.name).run(CONTEXT))


def pause(scene: Scene) -> None:
    done(suspensions.Pause(scene.group.name, because="we look at it").run(CONTEXT))


ANOTHER = "failover group update"
SERVERS = {
    #                                             active   standby
    "stopped": server("os-stop", "os-start", "c.   ", ".uu  "),
    "paused": server("pause", "unpause", "uu   ", ".uu  "),
    "suspended": server("suspend", "resume", "uu   ", ".uuu "),
    "locked": server("lock", "unlock", ".u.  ", ".uu ."),
    "shelved": server("shelve", "unshelve", "c.   ", ".uu  "),
    "rescued": server("rescue", "unrescue", "cu   ", ".uuu "),
    # Between detach and attach the port may be there already; else it waits for the confirmation.
    "resized": server("resize", "confirmResize", ".u   ", ".u .."),
    "migrated": server("os-migrateLive", None, "..   ", "....."),
    "rebuilt": server("rebuild", None, "..   ", "....."),
}
EVENTS = {f"{of} {name}": event for name, rows in SERVERS.items() for of, event in rows.items()} | {
    "active deleted": Event("c..  ", deleted("db_a")),
    "standby deleted": Event(".uuu ", deleted("db_b"), made_again("db_b")),
    "volume detached": Event("u  uu", detach_by_hand, attach_by_hand),
    "volume backed up": Event(".uu..", volume_is("backing-up"), volume_is_as_usual),
    "volume retyped": Event(".uu  ", volume_is("retyping"), volume_is_as_usual),
    "volume offered": Event("  u  ", volume_is("awaiting-transfer"), volume_is_as_usual),
    "volume extended": Event(".....", lambda scene: scene.operator.extend(scene.volume, 2)),
    "volume deleted": Event("--c--", delete_volume, names=ANOTHER, obey=name_another_volume),
    "server, then volume deleted": Event(
        " cc  ", delete_server_and_volume, names=ANOTHER, obey=name_another_volume
    ),
    # It moves beside the volume, so between detach and attach it may be there already, or not yet.
    "address taken": Event("u. uu", take_address, give_address_back),
    "address given to another": Event("uu uu", give_address, give_address_back),
    "stack updated": Event(".....", update_stack),
    "stack drifts": Event(".....", drift),
    "stack deleted": Event("c c c", delete_stack, names="failover group delete"),
    "group updated": Event(".....", lambda scene: update_group(scene, description="another")),
    "group paused": Event(".....", pause),
    "second order": Event(".....", lambda scene: scene.order("failover", to="db_b", lost=["db_a"])),
    "taken out of service": Event(".....", lambda scene: scene.order("remove")),
}
CELLS = [
    pytest.param(name, moment, letter, id=f"{name}, {moment}")
    for name, event in EVENTS.items()
    for moment, letter in zip(MOMENTS, event.cells, strict=True)
    if letter != " "
]


@pytest.fixture
def scene(protect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A group that serves, with everything that moves; each sweep tries again what has stopped."""
    monkeypatch.setattr(conclude, "next_look", lambda _since, now: now)
    monkeypatch.setattr(commands, "SILENCE", 0.5)
    group = protect(RESOURCES, limits={"cooldown": 0}, template=with_a_port)
    assert group.activate()["status"] == "COMPLETE"
    return Scene(group)


@contextlib.contextmanager
def happens(event: Event, scene: Scene, point: str) -> Iterator[threading.Event]:
    """While the block runs, let it happen when the failover reaches the point first; what is
    yielded says that it did. One thread stands there until it has."""
    reached, over, refused = threading.Lock(), threading.Event(), []

    def at(name: str) -> None:
        if name != point:
            return
        if name == "command.before" and scene.holder() != scene.group.server("db_b"):
            return  # it is a command of the fence
        if reached.acquire(blocking=False):
            try:
                event.do(scene)
            except AssertionError as error:
                refused.append(error)
            finally:
                over.set()

    fault_points.arm(at)
    try:
        yield over
    finally:
        fault_points.disarm()
    if refused:
        raise refused[0]


def fails_over(event: Event, scene: Scene, point: str) -> str:
    """Lose db_a, and let it happen at this point; returns the execution of the failover."""
    alarm = scene.group.fails("crash")
    with happens(event, scene, point) as over:
        execution = str(scene.group.start("on_alarm", **alarm))
        assert over.wait(60), f"{point} was never reached"
    return execution


def says_what_it_waits_for(status: dict[str, Any]) -> bool:
    """Whether the status says that and since when; and if it waits for a person, what to type."""
    if status["waiting"]:
        return all(row["waiting_for"] and row["since"] for row in status["waiting"])
    since = status["service"]["since"] or status["since"]
    said = status["reason"] or status["service"]["reasons"]
    return bool(since and said and help_lines(status))


def pauses(status: dict[str, Any]) -> bool:
    """Whether a failover has ended, or waits for something."""
    return bool(status["status"] != "IN_PROGRESS" or status["waiting"])


def obey(event: Event, scene: Scene, where: tuple[str, ...]) -> None:
    """Type the first command of failover that the status names; if that leaves it blocked, end what
    blocks."""
    status = scene.group.status()
    line = next(each for each in help_lines(status) if "failover " in each)
    words = shlex.split(line.partition("   (")[0].partition("failover ")[2])
    assert event.names in f"{line} {status['reason']}", (line, status["reason"])
    if event.obey is not None:
        event.obey(scene)
        return
    yes = ["--yes"] if words[0] in ("start", "group") else []
    ran = failover(*where, *words, *yes)
    assert ran.returncode in (0, BLOCKED), (words, ran.stdout, ran.stderr)
    if ran.returncode == BLOCKED:
        assert event.undo is not None, ran.stdout
        event.undo(scene)


def outcome(event: Event, scene: Scene, moment: str, expected: str, where: tuple[str, ...]) -> str:
    """Play a cell; its letter."""
    running, point = scene.orders, MOMENTS[moment]
    try:
        if point:
            running = [fails_over(event, scene, point), *running]
        else:
            event.do(scene)
            scene.sweep()
    except AssertionError as refused:
        if "code" not in str(refused):
            raise
        return "-"
    until(lambda: pauses(scene.group.status()))
    if event.undo is None:
        for each in running:
            scene.group.ended(each)
    if not scene.wrong() or (expected == "." and not looked_at(scene)):
        return "."
    assert says_what_it_waits_for(scene.group.status()), scene.group.status()
    if event.undo is not None and expected == "u":
        event.undo(scene)
        for each in running:
            scene.group.ended(each)
        return looked_at(scene) or "u"
    scene.group.observed()
    obey(event, scene, where)
    if event.names == "failover group delete":
        assert scene.group.name not in done(reports.Status().run(CONTEXT))["groups"]
        return "c"
    return looked_at(scene) or "c"


def looked_at(scene: Scene) -> str:
    """Look until all is right, at least `LOOKS` times, and for as long as a busy machine needs;
    what is still wrong then."""
    end = time.monotonic() + PATIENCE
    for looks in itertools.count(1):
        scene.sweep()
        if not scene.wrong():
            return ""
        if looks >= LOOKS and time.monotonic() > end:
            break
        time.sleep(0.1)
    scene.group.observed()  # which a sweep that tries again what has stopped leaves to the next
    return scene.wrong()


@pytest.mark.parametrize(("name", "moment", "letter"), CELLS)
def test_whatever_happens_the_group_ends_right(
    scene: Scene, mistral: Any, name: str, moment: str, letter: str
) -> None:
    where = ("--mistral-url", mistral.url, "--mistral-token-file", str(mistral.token_file))

    assert outcome(EVENTS[name], scene, moment, letter, where) == letter
