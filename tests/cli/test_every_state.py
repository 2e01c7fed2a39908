# SPDX-License-Identifier: Apache-2.0
"""Every state that ``failover status`` can show: how to get there, and that the command which it
names leads on. The table of docs/at-night.md has the same rows."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.conftest import Deployment
from mistral_failover.cli.status_screen import help_lines
from mistral_failover.lab.drill import examples
from support.deployments import deployed
from support.operators import Operator
from support.pages import page, section

IMPATIENT = [{"kind": "quiesce", "limit": 0.5}, "stop", "confirm"]
"""The example's ladder, which does not wait long for a guest that is dead."""


@dataclass
class Walk:
    """A group on its way into a state, and out of it."""

    deployment: Any
    operator: Operator
    group: str

    def status(self) -> dict[str, Any]:
        """What the status says after a look."""
        self.deployment.failover("sweep", self.group)
        return dict(self.deployment.status(self.group))

    def types(self, *words: str) -> int:
        """Type a command; returns its exit code."""
        return int(self.deployment.failover(*words).returncode)

    def shown(self) -> list[list[str]]:
        """The commands that the status shows, as they are typed."""
        lines = [re.sub(r"   \(.*", "", line) for line in help_lines(self.status())]
        return [shlex.split(line[line.index("failover ") :])[1:] for line in lines]

    def obeys(self, number: int = 0, *more: str) -> int:
        """Type one of the commands that are shown."""
        return self.types(*self.shown()[number], *more)

    def server(self, member: str) -> str:
        return str(self.deployment.cloud.resources(self.group)[member]["physical_resource_id"])

    def volume(self) -> str:
        found = self.deployment.cloud.resources(self.group)["data_volume"]
        return str(found["physical_resource_id"])

    def remedy(self, check: str) -> str:
        """What the doctor advises."""
        done = self.deployment.failover("doctor", self.group, "-f", "json")
        rows = json.loads(done.stdout)
        return next(r["remedy"] for r in rows if r["check"] == check and r["remedy"])


@pytest.fixture(scope="session")
def guarding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment whose storm guard holds every alarm."""
    folder = tmp_path_factory.mktemp("guarding")
    with deployed(folder, storm_groups="1", storm_share="0.0") as (mistral, cloud):
        yield Deployment(mistral, cloud, folder, "")


@pytest.fixture
def walk(request: pytest.FixtureRequest) -> Callable[..., Walk]:
    """Make a group that serves."""

    def make(where: str = "deployment", **more: Any) -> Walk:
        deployment = request.getfixturevalue(where)
        group = "state-" + re.sub(r"[^a-z]+", "-", request.node.callspec.id.lower()).strip("-")
        deployment.protect(group, **more)
        return Walk(deployment, Operator(deployment.cloud), group)

    return make


def defined(make: Callable[..., Walk]) -> Walk:
    walk = make()
    assert walk.types("group", "delete", walk.group, "--yes") == 0
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


def holder_off(make: Callable[..., Walk]) -> Walk:
    walk = make(fence=IMPATIENT)
    walk.operator.stop_server(walk.server("db_a"))
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
    """Name another volume in the group file, and type what the doctor advises."""
    remedy = walk.remedy("volumes")
    definition = examples.group(1, walk.group)
    definition["resources"]["data"]["properties"]["volume"] = walk.operator.make_volume()
    file = str(written(walk, definition))
    command = remedy[remedy.index("failover group update FILE") :].replace("FILE", file)
    assert walk.types(*shlex.split(command)[1:], "--yes") == 0


def alarm_deleted(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.operator.delete_alarm(watched(walk))
    return walk


def watched(walk: Walk) -> str:
    """Create an alarm by hand, and name it in the group file; its id."""
    alarm = walk.operator.make_alarm(walk.group, walk.group, walk.server("db_a"))
    definition = examples.group(1, walk.group)
    properties = {"alarm": alarm, "server": {"get_param": "active"}}
    definition["resources"]["watch"] = {"type": "alarm", "properties": properties}
    assert walk.types("group", "update", str(written(walk, definition))) == 0
    return alarm


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


def standby_started(walk: Walk) -> None:
    """Start the standby's server, and type what is shown."""
    command = walk.shown()[0]
    walk.operator.start_server(walk.server("db_b"))
    assert walk.types(*command) == 0


def after_a_failover(make: Callable[..., Walk]) -> Walk:
    walk = holder_off(make)
    assert walk.types("start", walk.group, "--lost", "db_a", "--yes") == 0
    walk.operator.start_server(walk.server("db_a"))
    return walk


def fence_unproven(make: Callable[..., Walk]) -> Walk:
    return fence_blocked(make, {"kind": "quiesce", "limit": 0.5}, "confirm")


def fence_unprovable(make: Callable[..., Walk]) -> Walk:
    return fence_blocked(make, "confirm")


def fence_blocked(make: Callable[..., Walk], *ladder: Any) -> Walk:
    walk = make(fence=list(ladder))
    walk.deployment.crash(walk.group)
    assert walk.types("start", walk.group, "--lost", "db_a", "--yes") == 3
    return walk


def volume_on_a_dead_host(make: Callable[..., Walk]) -> Walk:
    walk = make(fence=["confirm"])
    cloud = walk.deployment.cloud
    cloud.fault("host", cloud.guests()[walk.server("db_a")]["host"], "power_off")
    assert walk.types("start", walk.group, "--lost", "db_a", "--yes") == 3
    assert walk.obeys(0, "--yes") == 3
    return walk


def volume_freed(walk: Walk) -> None:
    """Do what the reason says, and then type what was shown."""
    server, shown, cloud = walk.server("db_a"), walk.shown()[0], walk.deployment.cloud
    assert f"openstack server delete {server}" in walk.status()["reason"]
    walk.operator.delete_server(server)
    assert walk.types(*shown) == 0
    for host in cloud.status()["hosts"]:
        cloud.fault("host", host, "revive")


LASTING = 10_000
"""Times of a fault whose cause is not gone: what failed is tried again by each look of these
tests."""


def removal_failed(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.deployment.cloud.api_fault("detach", status=400, times=LASTING)
    assert walk.types("group", "delete", walk.group, "--yes") == 1
    return walk


def deleted(walk: Walk) -> None:
    """Delete it, as it is shown, and define it anew."""
    command = walk.shown()[0]
    walk.deployment.cloud.clear_api_faults()
    assert walk.types(*command, "--yes") == 0
    define(walk)


def operation_failed(make: Callable[..., Walk]) -> Walk:
    walk = make()
    walk.deployment.cloud.api_fault("command_start", "fail", times=LASTING)
    assert walk.types("start", walk.group, "--lost", "", "--to", "db_b") == 1
    return walk


def started(walk: Walk) -> None:
    """Type what is shown, once the cause is gone."""
    command = walk.shown()[0]
    walk.deployment.cloud.clear_api_faults()
    assert walk.types(*command) == 0


def paused(make: Callable[..., Walk]) -> Walk:
    walk = make()
    assert walk.types("pause", walk.group, "--because", "a test") == 0
    return walk


def maintained(make: Callable[..., Walk]) -> Walk:
    walk = make()
    assert (
        walk.types("maintenance", "on", walk.group, "--minutes", "60", "--because", "a test") == 0
    )
    return walk


def guarded(make: Callable[..., Walk]) -> Walk:
    walk = make("guarding")
    body = {"group": walk.group, "member": "db_a", "id": "a test"}
    walk.deployment.mistral.client.run("failover.on_event", {"body": body})
    return walk


@dataclass(frozen=True)
class State:
    """``shows``: status and service. ``how``: how a group gets there. ``command``: what is shown,
    GROUP for its name. ``leave``: types it; afterwards the group shows ``then``."""

    enter: Callable[[Callable[..., Walk]], Walk]
    shows: tuple[str, str]
    how: str
    command: str
    leave: Callable[[Walk], object] = Walk.obeys
    then: tuple[str, str] = ("COMPLETE", "SERVING")


def repaired(check: str, repair: Callable[[Walk], object]) -> Callable[[Walk], object]:
    """Ask the doctor, as it is shown, and do what it advises."""

    def leave(walk: Walk) -> None:
        assert walk.obeys() in (0, 1)
        assert walk.remedy(check)
        repair(walk)

    return leave


def dismissed(walk: Walk) -> None:
    """List the held alarms, as it is shown, and dismiss the one that is listed."""
    assert walk.obeys() == 0
    (row,) = walk.deployment.shown("alarms", walk.group)
    assert row["rule"] == "storm"
    assert walk.types(*shlex.split(row["dismiss"])[1:]) == 0


STATES = {
    "defined": State(
        defined,
        ("DEFINED", "OUT_OF_SERVICE"),
        "defined and never activated",
        "failover group activate GROUP",
    ),
    "out of service": State(
        out_of_service,
        ("COMPLETE", "OUT_OF_SERVICE"),
        "taken out of service",
        "failover group activate GROUP",
    ),
    "server gone": State(
        holder_gone,
        ("COMPLETE", "DOWN"),
        "the server of the active member was deleted",
        "failover start GROUP --lost db_a",
        then=("COMPLETE", "DEGRADED"),
    ),
    "server off": State(
        holder_off,
        ("COMPLETE", "DOWN"),
        "the server of the active member was stopped",
        "failover start GROUP --lost db_a",
        then=("COMPLETE", "DEGRADED"),
    ),
    "volume detached": State(
        volume_detached,
        ("COMPLETE", "DOWN"),
        "a volume was detached by hand",
        "failover doctor GROUP",
        repaired("volumes", lambda walk: walk.operator.attach(walk.volume(), walk.server("db_a"))),
    ),
    "volume deleted": State(
        volume_deleted,
        ("COMPLETE", "DOWN"),
        "a volume was deleted",
        "failover doctor GROUP",
        repaired("volumes", another_volume),
    ),
    "alarm deleted": State(
        alarm_deleted,
        ("COMPLETE", "DEGRADED"),
        "an alarm of the group file was deleted",
        "failover doctor GROUP",
        repaired("alarms", watched),
    ),
    "no standby": State(
        no_standby,
        ("COMPLETE", "DEGRADED"),
        "no other member could take over",
        "failover doctor GROUP",
        repaired("members", lambda walk: walk.operator.start_server(walk.server("db_b"))),
    ),
    "admitted": State(
        admitted_without_a_standby,
        ("COMPLETE", "DOWN"),
        "an alarm was admitted, and no member could take over",
        "failover sweep GROUP",
        standby_started,
        then=("COMPLETE", "DEGRADED"),
    ),
    "member lost": State(
        after_a_failover,
        ("COMPLETE", "DEGRADED"),
        "after a failover, until the lost member is declared healthy",
        "failover recover GROUP db_a",
    ),
    "fence unproven": State(
        fence_unproven,
        ("BLOCKED", "DOWN"),
        "no rung of the fence proved that a lost member is off",
        "failover start GROUP --lost db_a",
        lambda walk: walk.obeys(1, "--yes"),
        then=("COMPLETE", "DEGRADED"),
    ),
    "fence unprovable": State(
        fence_unprovable,
        ("BLOCKED", "DOWN"),
        "the fence has no other rung than confirm",
        "failover confirm-fenced GROUP db_a --because '...'",
        lambda walk: walk.obeys(0, "--yes"),
        then=("COMPLETE", "DEGRADED"),
    ),
    "volume on a dead host": State(
        volume_on_a_dead_host,
        ("BLOCKED", "DOWN"),
        "the volume of a fenced member cannot be released",
        "failover sweep GROUP",
        volume_freed,
        then=("COMPLETE", "DEGRADED"),
    ),
    "removal failed": State(
        removal_failed,
        ("FAILED", "OUT_OF_SERVICE"),
        "it was not taken out of service completely",
        "failover group delete GROUP",
        deleted,
        then=("DEFINED", "OUT_OF_SERVICE"),
    ),
    "operation failed": State(
        operation_failed,
        ("FAILED", "DOWN"),
        "an operation failed",
        "failover start GROUP",
        started,
    ),
    "paused": State(
        paused,
        ("COMPLETE", "SERVING"),
        "alarms are held by a pause",
        "failover resume GROUP",
    ),
    "maintenance": State(
        maintained,
        ("COMPLETE", "SERVING"),
        "alarms are held by a maintenance",
        "failover maintenance off GROUP",
    ),
    "storm": State(
        guarded,
        ("COMPLETE", "DEGRADED"),
        "alarms are held by the storm guard",
        "failover alarms GROUP",
        dismissed,
    ),
}


def shows(status: dict[str, Any]) -> tuple[str, str]:
    return status["status"], status["service"]["status"]


@pytest.mark.drills
@pytest.mark.parametrize("name", STATES)
def test_the_command_that_is_shown_leads_out_of_the_state(
    walk: Callable[..., Walk], name: str
) -> None:
    state = STATES[name]
    walked = state.enter(walk)

    assert shows(walked.status()) == state.shows
    code = walked.types("status", walked.group, "--exit-code")
    assert code == {"DEGRADED": 5, "DOWN": 6}.get(state.shows[1], 0)
    first = walked.shown()[0]
    assert first == shlex.split(state.command.replace("GROUP", walked.group))[1:]

    state.leave(walked)

    after = walked.status()
    assert shows(after) == state.then
    assert first not in walked.shown(), "it is not asked for again"


def test_the_page_has_a_row_for_each_state() -> None:
    rows = [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for line in section(page("at-night"), "Every state, and the way out").splitlines()
        if line.startswith("| ") and not line.startswith(("| status", "|---"))
    ]

    assert rows == [[*state.shows, state.how, state.command] for state in STATES.values()]
