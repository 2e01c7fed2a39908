# SPDX-License-Identifier: Apache-2.0
"""What people and other tools ordinarily do to a group's parts, on real services: wherever that
leaves the group, it ends right.

The cells that matter most of the emulated cloud's table
(tests/workflows/test_table_of_events.py), which says what the letters mean. A cell lists each that
is right: nothing stops the engine at an instant here, so what happens may come before or after the
step that it would stop. Of the table's letters, ``c`` is typed at the command line.
"""

from __future__ import annotations

import shlex
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import requests

from mistral_failover.cli.status_screen import help_lines
from support.commands import failover
from support.protected_stacks import holders, runs_again
from testcloud import templates
from testcloud.settings import Settings
from testcloud.tenant import ProtectedStack, Tenant, until

pytestmark = [pytest.mark.outages, pytest.mark.timeout(900)]

LIMIT = 240.0
"""Seconds within which a group has to be right: what has stopped is tried again within a minute."""
FLAVORS = ("m1.tiny", "m1.other")
BLOCKED = 3
"""The exit code of a command whose order waits for a person."""


class Scene:
    """A stack that serves, and who serves: ``active`` and ``standby`` as they were at first."""

    def __init__(self, stack: ProtectedStack, operator: Tenant) -> None:
        self.stack, self.operator = stack, operator
        self.compute, self.storage = operator.cloud.compute, operator.cloud.block_storage
        self.active, self.standby = holders(stack)
        self.volume = stack.volume()
        self.detached = ""

    def server(self, member: str) -> str:
        return self.stack.servers()[getattr(self, member)]

    def look(self) -> None:
        """A sweep of this group, however it ends."""
        self.stack.tenant.run("failover.sweep", group=self.stack.name)

    def order(self, workflow: str, **inputs: Any) -> str:
        return self.stack.tenant.start(f"failover.{workflow}", group=self.stack.name, **inputs)

    def fails_over(self) -> str:
        """Lose the active member, by hand; returns the execution."""
        return self.order("failover", lost=[self.active], because="the table")

    def wrong(self) -> str:
        """What is not right; empty if all is where the status says."""
        status, stack = self.stack.status(), self.stack
        if status["status"] != "COMPLETE":
            return f"{status['status']}: {status['reason']}"
        service = status["service"]
        if service["status"] not in ("SERVING", "DEGRADED"):
            return f"{service['status']}: {service['reasons']}"
        active = status["roles"]["active"]
        running = [each for each, names in stack.applications().items() if names]
        seen = (stack.tenant.holders(self.volume), running, stack.tenant.outputs(stack.name))
        if (seen[0], running, seen[2]["active"]) != ([stack.servers()[active]], [active], active):
            return f"volume, application, parameter: {seen}, not {active}"
        return ""

    def becomes_right(self, limit: float = LIMIT) -> str:
        """Look until all is right; what is still wrong at the end of the limit."""
        deadline = time.monotonic() + limit
        while wrong := self.wrong():
            if time.monotonic() > deadline:
                return wrong
            self.look()
            time.sleep(1)
        return ""

    def healthy(self) -> None:
        """Both servers run, and nobody is lost."""
        for member in self.stack.servers():
            runs_again(self.stack, self.operator, member)
        lost = self.stack.status()["lost"]
        if lost:
            said = {"lost": [], "recovered": lost, "because": "the table"}
            done = self.stack.tenant.run("failover.failover", group=self.stack.name, **said)
            assert done["state"] == "SUCCESS", done["output"]
        assert self.becomes_right() == ""


Deed = Callable[[Scene], object]
Moment = Callable[[Scene], str]


class Event(NamedTuple):
    """``cells``: the right letters, by moment; ``undo`` ends it."""

    cells: dict[str, str]
    do: Deed
    undo: Deed | None = None


def detaching(scene: Scene) -> bool:
    """Whether the volume is no longer where it was."""
    return bool(scene.stack.tenant.holders(scene.volume) != [scene.server("active")])


def patching(scene: Scene) -> bool:
    """Whether Heat updates the stack."""
    return "IN_PROGRESS" in str(scene.stack.tenant.stack(scene.stack.name).status)


MOMENTS: dict[str, Callable[[Scene], bool] | None] = {
    "at rest": None,
    "as it begins": lambda _scene: True,
    "between detach and attach": detaching,
    "during the PATCH": patching,
}
"""Each with what is seen then. At rest no member is lost at all."""


def acts(member: str, verb: str, *words: Any, status: str = "") -> Deed:
    """An action of Nova on a member's server, and its end: no task, and this status."""

    def do(scene: Scene) -> None:
        server = scene.server(member)
        getattr(scene.compute, verb)(server, *words)

        def ended() -> bool:
            found = scene.compute.get_server(server)
            return not found.task_state and status in ("", found.status)

        until(ended, f"{verb} of {member}", 120)

    return do


def resizes(member: str) -> Deed:
    """``openstack server resize``, to the flavor that it does not have."""

    def do(scene: Scene) -> None:
        flavor = scene.compute.get_server(scene.server(member)).flavor.original_name
        other = next(each for each in FLAVORS if each != flavor)
        acts(member, "resize_server", other, status="VERIFY_RESIZE")(scene)

    return do


def migrates(member: str) -> Deed:
    def do(scene: Scene) -> None:
        server = scene.server(member)
        scene.compute.live_migrate_server(server, host=None, block_migration="auto")
        until(lambda: not scene.compute.get_server(server).task_state, "its migration", 120)

    return do


def rebuilds(member: str) -> Deed:
    def do(scene: Scene) -> None:
        server = scene.server(member)
        image = scene.operator.cloud.image.find_image("tiny")
        scene.compute.rebuild_server(server, image=image.id)
        until(lambda: scene.compute.get_server(server).status == "ACTIVE", "its rebuild", 120)

    return do


def unshelved(member: str) -> Deed:
    return acts(member, "unshelve_server", status="ACTIVE")


def volume_is(word: str) -> Deed:
    """What ``openstack volume set --state`` makes of it."""
    return lambda scene: scene.storage.reset_volume_status(scene.volume, word, None, None)


def as_usual(scene: Scene) -> None:
    found = scene.storage.get_volume(scene.volume)
    volume_is("in-use" if found.attachments else "available")(scene)


def command(scene: Scene, name: str, server: str) -> None:
    """Run a command on a server by hand."""
    tenant, servers = scene.stack.tenant, scene.stack.servers()
    rows = scene.stack.status()["members"]
    (epoch,) = (row["epoch"] for row in rows if servers[row["name"]] == server)
    body = {"id": str(uuid.uuid4()), "name": name, "epoch": epoch, "args": {}, "timeout": 30}
    answer = requests.post(
        f"{tenant.guests.url}/emulator/guests/{server}/commands",
        json=body,
        headers={"X-Auth-Token": tenant.cloud.session.get_token()},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text


def detached(scene: Scene) -> None:
    """Stop the application and detach its volume, by hand, where they are."""
    (server,) = scene.stack.tenant.holders(scene.volume)
    scene.detached = server
    command(scene, "pg-stop", server)
    scene.compute.delete_volume_attachment(server, scene.volume)
    until(lambda: not scene.stack.tenant.holders(scene.volume), "its detach", 120)


def attached(scene: Scene) -> None:
    scene.compute.create_volume_attachment(scene.detached, volume_id=scene.volume)
    until(lambda: scene.stack.tenant.holders(scene.volume) == [scene.detached], "its attach", 120)
    command(scene, "pg-start", scene.detached)


def extended(scene: Scene) -> None:
    size = scene.storage.get_volume(scene.volume).size
    scene.storage.extend_volume(scene.volume, size + 1)


def drifts(scene: Scene) -> None:
    """``openstack stack update --existing --parameter active=none``, after any other update."""
    scene.stack.tenant.wait_for_stack(scene.stack.name)
    scene.stack.tenant.patch_stack(scene.stack.name, active="none")


def group_updated(scene: Scene) -> None:
    tenant, name = scene.stack.tenant, scene.stack.name
    shown = tenant.action("failover.status", group=name, definition=True)
    changed = shown["definition"]["document"] | {"description": "another"}
    tenant.action("failover.define", definition=changed, name=name)


def paused(scene: Scene) -> None:
    scene.stack.tenant.action("failover.pause", group=scene.stack.name, because="the table")


def resumed(scene: Scene) -> None:
    scene.stack.tenant.action("failover.resume", group=scene.stack.name, because="the table")


def ordered_again(scene: Scene) -> None:
    scene.order("failover", to=scene.standby, lost=[scene.active], because="again")


def rows(**cells: str) -> dict[str, str]:
    """Letters by moment: rest, begins, between, patch."""
    words = dict(zip(("rest", "begins", "between", "patch"), MOMENTS, strict=True))
    return {words[key]: letters for key, letters in cells.items()}


SHELVED = "SHELVED_OFFLOADED"
EVENTS: dict[str, Event] = {
    "active stopped": Event(
        rows(rest="c", begins="."), acts("active", "stop_server", status="SHUTOFF")
    ),
    "standby stopped": Event(
        rows(begins=".u", between=".u"),
        acts("standby", "stop_server", status="SHUTOFF"),
        acts("standby", "start_server", status="ACTIVE"),
    ),
    "active paused": Event(
        rows(rest="u", begins=".u"),
        acts("active", "pause_server", status="PAUSED"),
        acts("active", "unpause_server", status="ACTIVE"),
    ),
    "standby paused": Event(
        rows(rest=".u", begins=".u", between=".u", patch=".u"),
        acts("standby", "pause_server", status="PAUSED"),
        acts("standby", "unpause_server", status="ACTIVE"),
    ),
    "active suspended": Event(
        rows(rest="u", begins=".u"),
        acts("active", "suspend_server", status="SUSPENDED"),
        acts("active", "resume_server", status="ACTIVE"),
    ),
    "standby suspended": Event(
        rows(begins=".u", between=".u", patch=".u"),
        acts("standby", "suspend_server", status="SUSPENDED"),
        acts("standby", "resume_server", status="ACTIVE"),
    ),
    "active locked": Event(
        rows(rest=".", begins=".u"), acts("active", "lock_server"), acts("active", "unlock_server")
    ),
    "standby locked": Event(
        rows(begins=".u", between=".u"),
        acts("standby", "lock_server"),
        acts("standby", "unlock_server"),
    ),
    "standby shelved": Event(
        rows(begins=".u", between=".u"),
        acts("standby", "shelve_server", status=SHELVED),
        unshelved("standby"),
    ),
    "standby rescued": Event(
        rows(begins=".u", between=".u"),
        acts("standby", "rescue_server", status="RESCUE"),
        acts("standby", "unrescue_server", status="ACTIVE"),
    ),
    "active resized": Event(
        rows(rest="."),
        resizes("active"),
        acts("active", "confirm_server_resize", status="ACTIVE"),
    ),
    "standby resized": Event(
        rows(begins=".u", between=".u", patch=".u"),
        resizes("standby"),
        acts("standby", "confirm_server_resize", status="ACTIVE"),
    ),
    "active migrated": Event(rows(rest=".", begins="."), migrates("active")),
    "standby migrated": Event(rows(begins=".", between="."), migrates("standby")),
    "active rebuilt": Event(rows(rest="."), rebuilds("active")),
    "standby rebuilt": Event(rows(begins=".", between=".", patch="."), rebuilds("standby")),
    "volume detached": Event(rows(rest="u", patch=".u"), detached, attached),
    "volume backed up": Event(rows(begins=".u", between=".u"), volume_is("backing-up"), as_usual),
    "volume retyped": Event(rows(begins=".u"), volume_is("retyping"), as_usual),
    "volume extended": Event(rows(rest="."), extended),
    "stack drifts": Event(rows(rest=".", begins=".", patch="."), drifts),
    "group updated": Event(rows(begins=".", between="."), group_updated),
    "group paused": Event(rows(begins=".u", between=".u"), paused, resumed),
    "second order": Event(rows(begins=".", between="."), ordered_again),
}
CELLS = [
    pytest.param(name, moment, letters, id=f"{name}, {moment}")
    for name, event in EVENTS.items()
    for moment, letters in event.cells.items()
]


@pytest.fixture(scope="module")
def in_order(operator: Tenant) -> list[ProtectedStack]:
    """The stacks that cells left in order, for the next one; and the flavor for a resize."""
    _, other = FLAVORS
    if operator.cloud.compute.find_flavor(other) is None:
        operator.cloud.compute.create_flavor(id=other, name=other, ram=96, vcpus=1, disk=1)
    return []


@pytest.fixture
def scene(
    protect: Callable[..., ProtectedStack], in_order: list[ProtectedStack], operator: Tenant
) -> Iterator[Scene]:
    """A group that serves, with everything that moves."""
    stack = in_order.pop() if in_order else protect(templates.SERVERS)
    made = Scene(stack, operator)
    yield made
    made.healthy()
    in_order.append(stack)


def outcome(event: Event, scene: Scene, moment: str) -> str:
    """Play a cell; its letter, or what is wrong."""
    seen, running = MOMENTS[moment], ""
    if seen is not None:
        running = scene.fails_over()
        until(lambda: seen(scene), moment, 90, longest=0.1)
    event.do(scene)
    if not running:
        scene.look()
    pauses(scene, running)
    if not scene.wrong() or (event.undo is None and not scene.becomes_right()):
        if event.undo is not None:
            event.undo(scene)
        return scene.becomes_right() or "."
    assert says_what_it_waits_for(scene.stack.status()), scene.stack.status()
    if event.undo is not None:
        event.undo(scene)
        if not scene.becomes_right(90):
            return "u"
    obey(scene)
    return scene.becomes_right() or "c"


def pauses(scene: Scene, running: str) -> None:
    """Wait until the failover has ended, or waits for something."""

    def paused() -> bool:
        status = scene.stack.status()
        ended = not running or scene.stack.tenant.execution(running)["state"] != "RUNNING"
        return bool(status["waiting"]) or (ended and status["status"] != "IN_PROGRESS")

    until(paused, "the failover to pause", LIMIT)


def says_what_it_waits_for(status: Any) -> bool:
    """Whether the status says that and since when; and if it waits for a person, what to type."""
    if status["waiting"]:
        return all(row["waiting_for"] and row["since"] for row in status["waiting"])
    since = status["service"]["since"] or status["since"]
    said = status["reason"] or status["service"]["reasons"]
    return bool(since and said and help_lines(status))


def obey(scene: Scene) -> None:
    """Type the first command of this project that the status names."""
    status: Any = scene.stack.status()
    lines = help_lines(status)
    line = next(each for each in lines if each.startswith("failover "))
    words = shlex.split(line.partition("   (")[0])[1:]
    cloud = f"testcloud-{scene.stack.tenant.user}"
    yes = ["--yes"] if words[0] in ("start", "group") else []
    ran = failover("--os-cloud", cloud, *words, *yes)
    assert ran.returncode in (0, BLOCKED), (words, ran.stdout, ran.stderr)


@pytest.mark.parametrize(("name", "moment", "letters"), CELLS)
def test_whatever_happens_the_group_ends_right(
    scene: Scene,
    where: Settings,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    name: str,
    moment: str,
    letters: str,
) -> None:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(where.clouds_yaml))

    begun = time.monotonic()
    letter = outcome(EVENTS[name], scene, moment)

    record_property(f"{name}, {moment}", f"{letter} after {time.monotonic() - begun:.0f} s")
    assert letter in tuple(letters)
