# SPDX-License-Identifier: Apache-2.0
"""Guests of servers that somebody else's Nova has; here the emulator's stands for the real one."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import sqlalchemy as sa
import uvicorn

from lab.emulator.emulated_clients import PAIR, Clients, clients_of
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.latency import profile
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.operators import Operator
from support.waiting import until
from testcloud.guests.__main__ import emulation as guests_of
from testcloud.guests.cloud_reader import CloudReader, SeenServer, Unreachable
from testcloud.guests.nova_database import NovaDatabase
from testcloud.guests.service import application
from testcloud.settings import Settings

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmulatedCloud]:
    with EmulatedCloud() as running:
        yield running


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serves an application in a thread; yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@pytest.fixture(scope="module")
def guests(cloud: EmulatedCloud) -> Iterator[EmulatorClient]:
    sight = CloudReader(cloud.auth_url, "admin", "admin", "admin")
    with serving(application(Emulation(None, profile("zero")), sight)) as url:
        yield EmulatorClient(url)


@dataclass
class Home:
    """A stack of demo's: servers a and b, a volume, and whose they are."""

    cloud: EmulatedCloud
    guests: EmulatorClient
    demo: Clients
    stack: str
    a: str
    b: str
    data: str

    def attach(self, server: str) -> str:
        """Gives a server the volume; returns the device."""
        made = self.demo.compute.create_volume_attachment(server, volume_id=self.data)
        until(lambda: self.demo.volumes.volumes.get(self.data).status == "in-use")
        return str(made.device)

    def command(self, server: str, name: str, **more: Any) -> requests.Response:
        """Sends a command with demo's token, or another one."""
        token = more.pop("token", None) or self.demo.session.get_token()
        body = {"id": f"c{next(_numbers)}", "name": name, "epoch": 1, "timeout": 5, **more}
        url = f"{self.guests.url}/emulator/guests/{server}/commands"
        return requests.post(url, json=body, headers={"X-Auth-Token": token}, timeout=30)

    def agent(
        self, method: str, server: str, end: str, body: Any = None, token: str | None = None
    ) -> requests.Response:
        """Tells or asks an agent something with demo's token, or another one."""
        headers = {"X-Auth-Token": token or self.demo.session.get_token()}
        url = f"{self.guests.url}/emulator/guests/{server}/{end}"
        return requests.request(method, url, json=body, headers=headers, timeout=30)

    def rules(self) -> set[str]:
        """What was seen that must not happen here."""
        mine = {self.a, self.b, self.data}
        return {
            event["rule"]
            for event in self.guests.violations()
            if mine & {event.get("volume"), event.get("server"), *event.get("servers", ())}
        }


@pytest.fixture
def home(cloud: EmulatedCloud, guests: EmulatorClient) -> Home:
    name = f"home{next(_numbers)}"
    cloud.client.create_stack(name, PAIR)
    parts = {k: row["physical_resource_id"] for k, row in cloud.client.resources(name).items()}
    demo = clients_of(cloud.url)
    return Home(cloud, guests, demo, name, parts["a"], parts["b"], parts["data"])


def test_an_application_starts_on_what_nova_and_cinder_call_attached(home: Home) -> None:
    device = home.attach(home.a)

    answer = home.command(home.a, "pg-start", args={"data_device": device})

    assert answer.json()["exit_code"] == 0
    node = home.guests.guests()[home.a]
    assert node["applications"] == ["postgresql"]
    assert node["volumes"] == {home.data: device}
    assert home.guests.writers(home.data) == [home.a]


def test_who_is_deposed_stops_what_it_runs_and_its_agent_says_so(home: Home) -> None:
    home.command(home.a, "web-start", epoch=1)

    assert home.agent("POST", home.a, "epoch", {"epoch": 2}).json() == {"epoch": 2}

    assert home.guests.guests()[home.a]["applications"] == []
    said = home.agent("GET", home.a, "heartbeat").json()["heartbeat"]
    assert (said["epoch"], said["running"], said["stopping"]) == (2, [], False)
    assert said["deposed"].startswith("stopped before epoch 2 began: ")
    assert home.command(home.a, "web-start", epoch=1).json()["error"]["code"] == "OLD_EPOCH"
    assert home.agent("GET", home.a, "heartbeat", token="unknown").status_code == 401


def test_without_the_volume_the_mount_fails(home: Home) -> None:
    home.attach(home.a)

    answer = home.command(home.b, "pg-start", args={"data_device": "/dev/vdb"})

    assert answer.json()["exit_code"] == 32
    assert "/dev/vdb" in answer.json()["stderr"]


def test_the_same_id_again_runs_nothing_and_an_old_epoch_is_refused(home: Home) -> None:
    first = home.command(home.a, "web-start", id="once", epoch=5)
    again = home.command(home.a, "web-start", id="once", epoch=5)
    old = home.command(home.a, "web-stop", epoch=4)

    assert (first.json()["replayed"], again.json()["replayed"]) == (False, True)
    assert (old.status_code, old.json()["error"]["code"]) == (409, "OLD_EPOCH")


def test_a_token_that_keystone_does_not_know_is_turned_away(home: Home) -> None:
    assert home.command(home.a, "web-start", token="gAAAA").status_code == 401


def test_a_token_of_another_project_finds_no_such_server(home: Home) -> None:
    other = clients_of(home.cloud.url, "other").session.get_token()

    answer = home.command(home.a, "web-start", token=other)

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND")


def test_a_server_that_nova_does_not_have_is_no_node(home: Home) -> None:
    missing = "00000000-0000-4000-8000-000000000000"

    assert home.command(missing, "web-start").status_code == 404


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_guest_that_crashed_or_hangs_answers_nothing(home: Home, fault: str) -> None:
    home.guests.fault("server", home.a, fault)

    answer = home.command(home.a, "web-status", timeout=0.05)

    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "NO_ANSWER")
    home.guests.fault("server", home.a, "revive")
    assert home.command(home.a, "web-status").json()["exit_code"] == 3


def test_a_server_that_nova_stopped_has_no_running_guest(home: Home) -> None:
    assert home.command(home.a, "web-start").json()["exit_code"] == 0

    home.demo.compute.stop_server(home.a)

    until(lambda: not home.guests.guests()[home.a]["running"], limit=20)
    assert home.guests.guests()[home.a]["applications"] == []


@pytest.mark.parametrize(("begin", "end"), [("pause", "unpause"), ("suspend", "resume")])
def test_a_frozen_server_answers_nothing_and_goes_on_where_it_was(
    home: Home, begin: str, end: str
) -> None:
    operator = Operator(home.cloud.client)
    home.command(home.a, "web-start")

    operator.act(home.a, begin)
    assert home.command(home.a, "web-status", timeout=0.05).status_code == 504
    operator.act(home.a, end)

    assert home.command(home.a, "web-status").json()["exit_code"] == 0


def test_a_server_that_moves_while_it_runs_takes_its_application_along(home: Home) -> None:
    home.command(home.a, "web-start")
    before = home.guests.guests()[home.a]["host"]

    Operator(home.cloud.client).act(home.a, "os-migrateLive")

    until(lambda: home.guests.guests()[home.a]["host"] != before, limit=20)
    assert home.command(home.a, "web-status").json()["exit_code"] == 0


def test_one_application_on_both_servers_of_a_stack_is_a_violation(home: Home) -> None:
    home.command(home.a, "web-start")
    home.command(home.b, "web-start")

    assert home.rules() == {"application_on_two_servers"}


def test_the_same_application_in_two_stacks_is_two(home: Home, cloud: EmulatedCloud) -> None:
    name = f"home{next(_numbers)}"
    cloud.client.create_stack(name, PAIR)
    neighbour = cloud.client.resources(name)["a"]["physical_resource_id"]

    home.command(home.a, "web-start")
    home.command(neighbour, "web-start")

    assert home.rules() == set()


def test_a_volume_that_goes_while_it_is_written_on_is_seen(home: Home) -> None:
    device = home.attach(home.a)
    home.command(home.a, "pg-start", args={"data_device": device})

    home.demo.compute.delete_volume_attachment(home.a, home.data)

    until(lambda: home.rules() == {"detached_while_writing"}, limit=20)


def test_a_guest_that_lost_its_host_alone_writes_on_and_is_seen_as_second_writer(
    home: Home,
) -> None:
    home.command(home.a, "pg-start", args={"data_device": home.attach(home.a)})
    home.cloud.client.fault("host", "cmp1", "compute_down")
    try:
        # A deletion that no living compute service carries out is no fence.
        home.demo.compute.delete_server(home.a)
        until(lambda: home.demo.volumes.volumes.get(home.data).status == "available")
        home.command(home.b, "pg-start", args={"data_device": home.attach(home.b)})

        assert home.guests.writers(home.data) == [home.a, home.b]
        assert "two_writers" in home.rules()
    finally:
        home.cloud.client.fault("host", "cmp1", "revive")
    until(lambda: home.a not in home.guests.guests(), limit=20)


def test_a_cloud_that_does_not_answer_is_said_to(cloud: EmulatedCloud) -> None:
    sight = CloudReader("http://127.0.0.1:9/v3", "admin", "admin", "admin")
    with serving(application(Emulation(None, profile("zero")), sight)) as url:
        answer = requests.post(
            f"{url}/emulator/guests/x/commands",
            json={"id": "1", "name": "web-start", "epoch": 1},
            headers={"X-Auth-Token": "t"},
            timeout=30,
        )

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "CLOUD_UNREACHABLE")


def test_guests_outlive_their_process(cloud: EmulatedCloud, home: Home, settings: Settings) -> None:
    sight = CloudReader(cloud.auth_url, "admin", "admin", "admin")
    for expected in ("web started", "web is already running"):
        with serving(application(guests_of(settings.state, "zero"), sight)) as url:
            mine = Home(cloud, EmulatorClient(url), home.demo, home.stack, home.a, home.b, "")
            assert mine.command(home.a, "web-start").json()["stdout"] == expected


def test_guests_kept_by_another_version_are_put_aside(settings: Settings) -> None:
    (settings.state / "state.json").write_text("{}")

    assert guests_of(settings.state, "zero").state.guests == {}
    assert (settings.state / "state.json.unreadable").exists()


def test_nova_s_database_shows_the_servers_that_are_not_deleted_and_what_they_have(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'nova'}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE instances (uuid, display_name, project_id, host, vm_state, deleted)",
            "CREATE TABLE block_device_mapping (instance_uuid, volume_id, deleted)",
            "INSERT INTO instances VALUES ('a', 'db_a', 'p', 'cmp1', 'active', 0)",
            "INSERT INTO instances VALUES ('b', 'db_b', 'p', NULL, 'building', 0)",
            "INSERT INTO instances VALUES ('c', 'db_c', 'p', 'cmp1', 'deleted', 3)",
            "INSERT INTO block_device_mapping VALUES ('a', 'data', 0)",
            "INSERT INTO block_device_mapping VALUES ('a', 'former', 7)",
            "INSERT INTO block_device_mapping VALUES ('a', NULL, 0)",
        ):
            connection.execute(sa.text(statement))
    engine.dispose()

    found = NovaDatabase("http://127.0.0.1:9/v3", "u", "p", "p", database=url).servers()

    assert found == {
        "a": SeenServer("a", "db_a", "p", "cmp1", "ACTIVE", ("data",)),
        "b": SeenServer("b", "db_b", "p", "", "BUILDING", ()),
    }


def test_a_database_that_does_not_answer_is_said_to() -> None:
    away = "mysql+pymysql://nova@127.0.0.1:9/nova"
    with pytest.raises(Unreachable):
        NovaDatabase("http://127.0.0.1:9/v3", "u", "p", "p", database=away).servers()
