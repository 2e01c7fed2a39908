# SPDX-License-Identifier: Apache-2.0
"""``failover server --emulated`` as its user meets it: with the commands that it prints."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from mistral_failover.cli.emulator import as_meant
from mistral_failover.cli.main import main
from mistral_failover.lab.emulator.client import EmulatorClient
from support import forked
from support.commands import heeds_ctrl_c
from support.pages import blocks, page, section
from support.servers import ServerProcess
from support.waiting import until

pytestmark = [pytest.mark.drills, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """An emulated cloud and its server."""
    folder = tmp_path_factory.mktemp("emulated") / "state"
    settings = {"lease": 6, "lease_margin": 1, "sweep_interval": 1, "sweep_after": 6}
    settings["storm_groups"] = 0  # groups of several tests fail within a minute
    also = ("--metrics-port", "0", "--ui", "127.0.0.1:0")
    with ServerProcess(folder, "--emulated", *also, settings=settings) as running:
        yield running


def done(server: ServerProcess, *words: str) -> Any:
    """What it answers, as JSON."""
    ran = server.failover(*words, "-f", "json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


def test_what_it_prints_leads_to_a_failover(server: ServerProcess) -> None:
    printed = [
        line.split()
        for line in server.log.read_text().splitlines()
        if line.startswith("  failover --embedded")
    ]
    commands = [words[words.index(str(server.folder)) + 1 :] for words in printed]
    assert [words[:2] for words in commands] == [
        ["group", "create"],
        ["emulator", "break"],
        ["watch", "payments"],
        ["status", "payments"],
    ]

    brought_up = server.failover(*commands[0])
    assert brought_up.returncode == 0, brought_up.stdout + brought_up.stderr
    broken = done(server, *commands[1])
    assert (broken["done"], broken["alarm"]) == ("crash", "server_lost")

    def moved() -> bool:
        found = server.action("failover.status", group="payments")
        return found["status"] == "COMPLETE" and found["roles"] == {"active": "db_b"}

    until(moved)
    assert server.failover(*commands[3]).returncode == 0
    (alarm,) = [
        row
        for row in server.action("failover.status", group="payments")["incidents"]
        if "server_lost" in row["sentence"]
    ]
    assert alarm["decision"] == "ADMITTED"
    repaired = done(server, *commands[1], "--repair")
    assert (repaired["done"], repaired["alarm"]) == ("revive", None)
    unknown = server.failover("emulator", "break", "payments", "unknown")
    assert (unknown.returncode, "UNKNOWN_MEMBER" in unknown.stderr) == (1, True)


def test_it_shows_what_it_does_before_it_is_ready(server: ServerProcess) -> None:
    shown = server.log.read_text()
    steps = ["Starting: ", "Starting the emulated cloud", "Starting Mistral", "Installing"]

    places = [shown.index(step) for step in (*steps, "Ready after", "Mistral: http://")]

    assert places == sorted(places)


def exported(server: ServerProcess) -> dict[str, str]:
    """The variables of the line that the server prints for OpenStack's own client."""
    (line,) = re.findall(r"^  export (OS_.*)$", server.log.read_text(), re.M)
    return dict(word.split("=", 1) for word in shlex.split(line))


def openstack(
    server: ServerProcess, *words: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run OpenStack's own client after the export that the server prints."""
    return subprocess.run(
        [str(Path(sys.executable).parent / "openstack"), *words],
        env=os.environ | exported(server) | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=200,
    )


SHOP_STACK = {
    "heat_template_version": "2021-04-16",
    "resources": {
        "data_volume": {"type": "OS::Cinder::Volume", "properties": {"size": 1}},
        **{
            name: {
                "type": "OS::Nova::Server",
                "properties": {"image": "debian-12", "flavor": "m1.tiny"},
            }
            for name in ("web_a", "web_b")
        },
    },
}
SHOP = {
    "failover_template_version": "2026-11-21",
    "stack": "shop",
    "members": {"servers": ["web_a", "web_b"]},
    "resources": {
        "data": {
            "type": "volume_attachment",
            "properties": {"volume": "data_volume", "server": {"get_param": "active"}},
        },
        "shop": {
            "type": "activation",
            "properties": {
                "member": {"get_param": "active"},
                "start": "shop-start",
                "stop": "shop-stop",
                "device": {"get_attr": ["data", "device"]},
            },
        },
    },
    "fence": [{"kind": "quiesce", "limit": 3}, {"kind": "stop", "limit": 10}, "confirm"],
}


def own_group(server: ServerProcess, name: str, folder: Path, **more: Any) -> None:
    """Create a stack, and a group over it, with these keys in its file."""
    template, file = folder / "shop-stack.yaml", folder / "shop.yaml"
    template.write_text(yaml.safe_dump(SHOP_STACK))
    file.write_text(yaml.safe_dump(SHOP | {"stack": name} | more))
    made = openstack(server, "stack", "create", "--wait", "-t", str(template), name)
    assert made.returncode == 0, made.stderr
    created = server.failover("group", "create", str(file), "-f", "json")
    assert created.returncode == 0, created.stdout + created.stderr
    assert "have learned: shop-start, shop-stop" in created.stderr


def active_on(server: ServerProcess, group: str, member: str) -> bool:
    """Whether the group is at rest, and this member is active."""
    found = server.action("failover.status", group=group)
    return bool(found["status"] == "COMPLETE" and found["roles"] == {"active": member})


def test_a_group_of_your_own_fails_over_with_its_own_commands(
    server: ServerProcess, tmp_path: Path
) -> None:
    own_group(server, "shop", tmp_path)
    done(server, "emulator", "break", "shop", "web_a")

    until(lambda: active_on(server, "shop", "web_b"))
    shown = openstack(server, "failover", "status", "shop", "-f", "json")
    assert json.loads(shown.stdout)["roles"] == {"active": "web_b"}, shown.stderr
    volumes = json.loads(openstack(server, "volume", "list", "--long", "-f", "json").stdout)
    (attached,) = [
        each["Attached to"] for each in volumes if each["Name"].startswith("shop-data_volume")
    ]
    servers = json.loads(openstack(server, "server", "list", "-f", "json").stdout)
    (web_b,) = [each["ID"] for each in servers if each["Name"].startswith("shop-web_b")]
    assert [each["server_id"] for each in attached] == [web_b]


def test_a_command_that_is_misspelt_is_refused_as_on_real_members(
    server: ServerProcess, tmp_path: Path
) -> None:
    own_group(server, "misspelt", tmp_path)
    file = tmp_path / "shop.yaml"
    file.write_text(file.read_text().replace("shop-stop", "shop-stpo"))

    refused = server.failover("group", "update", str(file))

    assert refused.returncode == 1
    assert "not offer the command shop-stpo" in refused.stderr
    assert "There is: shop-start, shop-stop." in refused.stderr


def test_a_command_that_is_misspelt_in_the_first_group_file_is_refused_as_well(
    server: ServerProcess, tmp_path: Path
) -> None:
    template, file = tmp_path / "stack.yaml", tmp_path / "first.yaml"
    template.write_text(yaml.safe_dump(SHOP_STACK))
    file.write_text(yaml.safe_dump(SHOP | {"stack": "first"}).replace("shop-stop", "shop-stpo"))
    made = openstack(server, "stack", "create", "--wait", "-t", str(template), "first")
    assert made.returncode == 0, made.stderr

    refused = server.failover("group", "create", str(file))

    assert refused.returncode == 1
    assert "not offer the command shop-stpo" in refused.stderr
    assert "There is: shop-start, shop-stop." in refused.stderr


def test_a_dry_run_and_a_refused_file_teach_the_emulated_agents_nothing(
    server: ServerProcess, tmp_path: Path
) -> None:
    name = "untaught"
    template, file = tmp_path / "stack.yaml", tmp_path / "untaught.yaml"
    template.write_text(yaml.safe_dump(SHOP_STACK))
    told = yaml.safe_dump(SHOP | {"stack": name}).replace("shop-st", f"{name}-st")
    made = openstack(server, "stack", "create", "--wait", "-t", str(template), name)
    assert made.returncode == 0, made.stderr

    file.write_text(told)
    for _ in range(2):
        dry = server.failover("group", "create", str(file), "--dry-run")
        assert dry.returncode == 0, dry.stdout + dry.stderr
        assert f"would learn: {name}-start, {name}-stop" in dry.stderr
        assert "have learned" not in dry.stderr
    file.write_text(told.replace("data_volume", "no_such_volume"))
    refused = server.failover("group", "create", str(file))
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "no_such_volume" in refused.stderr
    assert "learn" not in refused.stderr

    file.write_text(told)
    created = server.failover("group", "create", str(file), "-f", "json")
    assert created.returncode == 0, created.stdout + created.stderr
    assert f"have learned: {name}-start, {name}-stop" in created.stderr

    file.write_text(told.replace(f"{name}-st", "other-st"))
    changed = server.failover("group", "update", str(file), "--dry-run")
    assert changed.returncode == 0, changed.stdout + changed.stderr
    assert changed.stderr.count("learn") == 1, changed.stderr
    assert "would learn: other-start, other-stop" in changed.stderr
    file.write_text(told)
    same = server.failover("group", "update", str(file), "--dry-run")
    assert same.returncode == 0, same.stdout + same.stderr
    assert "learn" not in same.stderr


def test_the_host_that_was_broken_is_repaired_although_the_member_has_moved(
    server: ServerProcess, tmp_path: Path
) -> None:
    own_group(server, "powerless", tmp_path)
    announced = json.loads((server.folder / "cloud" / "emulator.json").read_text())
    cloud = EmulatorClient(announced["url"])
    strike = ("emulator", "break", "powerless", "web_b", "--fault", "compute")

    broken = done(server, *strike, "--no-alarm")
    assert not cloud.status()["hosts"][broken["host"]]["compute_up"]
    admin = {f"OS_{what}": "admin" for what in ("USERNAME", "PASSWORD", "PROJECT_NAME")}
    moved = openstack(server, "server", "evacuate", broken["server"], env=admin)
    assert moved.returncode == 0, moved.stderr
    until(lambda: cloud.guests()[broken["server"]]["host"] != broken["host"])
    repaired = done(server, *strike, "--repair")

    assert (repaired["done"], repaired["host"]) == ("revive", broken["host"])
    assert cloud.status()["hosts"][broken["host"]]["compute_up"]


@pytest.mark.parametrize(
    ("given", "learned"),
    [
        (("web-start", "web-stop"), ("web-start", "web-stop")),
        (("web-start", "web-stpo"), ("web-start", "web-stop")),
        (("web-start", "wbe-stop"), ("web-start", "web-stop")),
        (("web-strat", "web-stop"), ("web-start", "web-stop")),
        (("address-up", "adress-down"), ("address-up", "address-down")),
        (("start", "stop"), ("start", "stop")),
        (("web-start", "stop-web"), ("web-start", "stop-web")),
        (("start-web", "drain-web"), ("start-web", "drain-web")),
        (("run", "halt"), ("run", "halt")),
    ],
)
def test_emulated_members_learn_what_is_meant(
    given: tuple[str, str], learned: tuple[str, str]
) -> None:
    assert as_meant(*given) == learned


def test_a_cloud_without_room_can_be_tried(server: ServerProcess, tmp_path: Path) -> None:
    name = "crowded"
    own_group(server, name, tmp_path, members={"servers": ["web_a", "web_b"], "replace": "lost"})

    def quota() -> str:
        ran = server.failover("doctor", name, "-f", "json")
        return str(next(row["level"] for row in json.loads(ran.stdout) if row["check"] == "quota"))

    assert quota() == "ok"
    full = done(server, "emulator", "break", name, "web_b", "--fault", "full")
    assert (full["done"], full["alarm"]) == ("full", None)
    assert quota() != "ok"
    refused = server.failover("replace", name, "web_b", "--yes")
    assert refused.returncode == 1, refused.stdout + refused.stderr

    done(server, "emulator", "break", name, "web_b", "--fault", "full", "--repair")

    assert quota() == "ok"
    again = server.failover("start", name, "--timeout", "200")
    assert again.returncode == 0, again.stdout + again.stderr


def test_an_alarm_is_played_as_the_page_says(server: ServerProcess, tmp_path: Path) -> None:
    """The lines of docs/alarms.md; those for OpenStack's client as docs/server.md sets it up."""
    play, watch, start, back = blocks(section(page("alarms"), "Play an alarm"), "sh")
    own_group(server, "played", tmp_path)
    (lost,) = [
        row["server"]
        for row in done(server, "member", "list", "played")
        if row["member"] == "web_a"
    ]
    admin = {"OS_USERNAME": "admin", "OS_PASSWORD": "admin", "OS_PROJECT_NAME": "admin"}
    token = (server.folder / "api-token").read_text().strip()
    variables = {
        "openstack server": exported(server) | admin,
        "openstack workflow": {
            "OS_AUTH_TYPE": "admin_token",
            "OS_ENDPOINT": str(server.facts["url"]),
            "OS_TOKEN": token,
        },
        "failover": {"FAILOVER_EMBEDDED": "1", "FAILOVER_STATE_DIR": str(server.folder)},
    }
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def lines(block: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Each, and the environment of the shell in which it is typed."""
        for line in block.replace("\\\n", "").splitlines():
            line = line.replace("SERVER", lost).replace("db_a", "web_a")
            line = line.replace("payments", "played")
            (own,) = [own for start, own in variables.items() if line.startswith(start)]
            yield line, os.environ | {"PATH": programs} | own

    def typed(block: str) -> None:
        for line, environment in lines(block):
            ran = subprocess.run(
                ["bash", "-c", line],
                env=environment,
                input="y\n",
                capture_output=True,
                text=True,
                timeout=200,
            )
            assert ran.returncode == 0, (line, ran.stdout, ran.stderr)

    def watched_until(shown: str) -> bool:
        """Whether the watching shows it; then Ctrl-C is pressed."""
        ((line, environment),) = lines(watch)
        argv = ["bash", "-c", f"exec {line}"]
        with subprocess.Popen(
            argv,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=heeds_ctrl_c,
        ) as seen:
            assert seen.stdout is not None
            try:
                found = any(shown in told for told in seen.stdout)
                seen.send_signal(signal.SIGINT)
                seen.communicate(timeout=60)
            finally:
                seen.kill()
        return found

    def runs() -> bool:
        shown = openstack(server, "server", "show", lost, "-f", "json")
        return bool(json.loads(shown.stdout)["status"] == "ACTIVE")

    typed(play)
    assert watched_until("Done: web_b is active")
    until(lambda: active_on(server, "played", "web_b"))
    typed(start)
    until(runs)
    typed(back)
    assert active_on(server, "played", "web_a")


def test_its_metrics_are_served(server: ServerProcess) -> None:
    answer = requests.get(server.facts["metrics"], timeout=60)
    assert "failover_up" in answer.text


def test_its_page_is_served(server: ServerProcess) -> None:
    def link() -> str | None:
        printed = [line for line in server.log.read_text().splitlines() if "/login?" in line]
        return printed[-1].split(": ", 1)[1] if printed else None

    browser = requests.Session()
    page = browser.get(until(link, limit=30), timeout=60)

    assert page.status_code == 200
    assert "<h1>Groups</h1>" in page.text
    assert browser.get(f"{page.url}order?what=pause&group=payments", timeout=60).status_code == 404


def test_what_it_keeps_is_its_user_s_alone(server: ServerProcess) -> None:
    assert stat.S_IMODE(server.folder.stat().st_mode) == 0o700
    for name in ("server.json", "webhook-secret", "clouds.yaml", "mistral.conf", "project.json"):
        assert stat.S_IMODE((server.folder / name).stat().st_mode) == 0o600, name
    made = [each for each in server.folder.rglob("*") if each != server.log]
    assert server.folder / "failover.sqlite" in made
    assert [each for each in made if each.lstat().st_mode & 0o077] == []


def test_a_second_server_on_the_directory_is_refused(server: ServerProcess) -> None:
    second = forked.run(main, *server.command, "--emulated", timeout=120)
    assert (second.returncode, "STATE_DIR_IN_USE" in second.stderr) == (1, True), second.stderr
    assert server.facts["pid"]
    assert server.action("failover.status") is not None


def test_the_address_for_senders_that_can_not_sign_is_printed(server: ServerProcess) -> None:
    webhook = server.facts["webhook"].removeprefix("http://").partition("/")[0]
    words = ("--state-dir", str(server.folder), "--webhook-listen", webhook)
    printed = forked.run(main, "server", "--print-webhook", *words, timeout=60).stdout
    answer = requests.post(printed.strip(), json={"group": "unknown", "id": "1"}, timeout=60)
    assert answer.status_code == 202
    assert answer.json()["decisions"][0]["decision"] == "HELD"


def test_an_alarm_that_was_taken_right_before_a_death_is_admitted_by_the_next_server(
    tmp_path: Path,
) -> None:
    """And systemd is told how each of them is."""
    folder = tmp_path / "state"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(120)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
        with ServerProcess(folder, "--emulated", env=environment) as server:
            assert ear.recv(100) == b"READY=1"
            answered = server.send({"group": "unknown", "id": "last words"})
            server.kill()
            assert answered.status_code == 202
            server.launch().wait()
            assert [ear.recv(100) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]

            def held() -> Any:
                rows = server.action("failover.held")["held"]
                return [row for row in rows if "unknown" in row["sentence"]]

            until(held)
            assert server.stop() == 0
        assert not (folder / "server.json").exists()
        told = ear.recv(100)
        while told == b"WATCHDOG=1":
            told = ear.recv(100)
        assert told == b"STOPPING=1"
