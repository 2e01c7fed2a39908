# SPDX-License-Identifier: Apache-2.0
"""A scene that is set on what a drill left which was killed while it set it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover.cli import drill
from mistral_failover.lab.drill import examples
from mistral_failover.lab.drill.guest import DrillError
from mistral_failover.lab.drill.scene import Scene
from mistral_failover.lab.emulator import process
from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError
from mistral_failover.lab.emulator.server import EmulatedCloud

GROUP = "payments"
LATE = """
import sys, time
from mistral_failover.lab.emulator import __main__ as program

announce = program.announce
program.announce = lambda *given: time.sleep(1.5) or announce(*given)
sys.exit(program.main())
"""
"""An emulated cloud that holds its folder for a while before it says where it is."""


class OverACloud(Scene):
    """A scene whose cloud is there, and whose Mistral only notes which groups are defined."""

    def __init__(self, folder: Path, cloud: EmulatorClient, defined: dict[str, Any]) -> None:
        super().__init__(folder)
        self.cloud, self.defined = cloud, defined

    def action(self, name: str, /, **inputs: Any) -> Any:
        assert name == "failover.define"
        self.defined[inputs["name"]] = inputs["definition"]

    def groups(self) -> list[str]:
        return list(self.defined)


class Killed(BaseException):
    """What ends a drill in these tests, as SIGKILL would: nothing is cleaned up."""


@pytest.fixture
def cloud() -> Iterator[EmulatorClient]:
    with EmulatedCloud() as running:
        yield running.client


@pytest.fixture
def defined() -> dict[str, Any]:
    return {}


@pytest.fixture
def scene(tmp_path: Path, cloud: EmulatorClient, defined: dict[str, Any]) -> Scene:
    return OverACloud(tmp_path, cloud, defined)


def begin(cloud: EmulatorClient, template: dict[str, Any]) -> None:
    """Order a stack, and do not wait for it."""
    with pytest.raises(EmulatorError, match="IN_PROGRESS"):
        cloud.create_stack(GROUP, template, limit=0)


def servers(cloud: EmulatorClient) -> dict[str, str]:
    rows = cloud.resources(GROUP).items()
    return {n: r["physical_resource_id"] for n, r in rows if "Server" in r["resource_type"]}


@pytest.mark.parametrize("example", [examples.ONE, examples.TWO], ids=["one", "two"])
@pytest.mark.parametrize("step", ["create_stack", "add_application", "failover.define"])
def test_a_scene_that_was_set_up_to_a_step_is_set_from_there(
    step: str,
    example: examples.Example,
    scene: Scene,
    cloud: EmulatorClient,
    defined: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = scene if step.startswith("failover") else cloud
    name = "action" if step.startswith("failover") else step
    whole = getattr(target, name)

    def die_afterwards(*given: Any, **more: Any) -> Any:
        answer = whole(*given, **more)
        if step in (name, *given):
            raise Killed
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(target, name, die_afterwards)
        with pytest.raises(Killed):
            scene.add_group(GROUP, 2, example=example)
    before = servers(cloud)

    scene.add_group(GROUP, 2, example=example)

    assert servers(cloud) == before, "the stack that was there is used"
    assert defined[GROUP]["stack"] == GROUP
    assert cloud.violations() == []


def test_a_scene_set_twice_is_as_it_was(scene: Scene, cloud: EmulatorClient) -> None:
    scene.add_group(GROUP, 2)
    before = cloud.resources(GROUP)

    scene.add_group(GROUP, 2)

    assert cloud.resources(GROUP) == before


def test_a_stack_that_is_still_being_created_is_waited_for(
    scene: Scene, cloud: EmulatorClient, defined: dict[str, Any]
) -> None:
    cloud.set_latency(stack_create=2.0)
    begin(cloud, examples.stack(2))

    scene.add_group(GROUP, 2)

    (status,) = {row["resource_status"] for row in cloud.resources(GROUP).values()}
    assert status == "CREATE_COMPLETE"
    assert GROUP in defined


def test_a_stack_of_a_drill_with_fewer_volumes_is_refused_with_what_helps(
    scene: Scene, cloud: EmulatorClient, defined: dict[str, Any]
) -> None:
    cloud.create_stack(GROUP, examples.stack(1))

    with pytest.raises(DrillError, match="lacks .*: run with the options of that drill, or remove"):
        scene.add_group(GROUP, 2)
    assert defined == {}


def test_only_who_asks_for_it_gets_a_stack_that_was_there(cloud: EmulatorClient) -> None:
    cloud.create_stack(GROUP, examples.stack())

    with pytest.raises(EmulatorError) as refused:
        cloud.create_stack(GROUP, yaml.safe_dump(examples.stack()))

    assert refused.value.http_status == 409


def test_what_an_ended_drill_left_is_only_forgotten_as_ended_when_all_of_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(path: Path) -> None:
        raise Killed

    (tmp_path / "done").touch()
    (tmp_path / "failover.sqlite").touch()
    (tmp_path / "cloud").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("mistral_failover.cli.drill.shutil.rmtree", die)
        with pytest.raises(Killed):
            drill._clear(tmp_path)
    assert (tmp_path / "done").exists()

    drill._clear(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_cloud_whose_starter_was_killed_before_it_answered_is_waited_for(tmp_path: Path) -> None:
    options = ["--state-dir", str(tmp_path), "--latency", "zero"]
    starting = subprocess.Popen(
        [sys.executable, "-c", LATE, *options], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "audit.jsonl").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with process.running(tmp_path, latency="zero") as client:
            assert client.status()["hosts"]
            said = (tmp_path / "emulator.json").read_text()
            assert f'"pid": {starting.pid}' in said, "it is that one, not another beside it"
        starting.wait(timeout=30)
    finally:
        starting.kill()
        starting.wait()
