# SPDX-License-Identifier: Apache-2.0
"""What the examples put on a node: one allow-list, wherever it is written down."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover.agent.daemon import config
from mistral_failover.agent.wire import group_key, member_key
from mistral_failover.model.group import parse_group

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "postgresql-on-a-volume"
TEMPLATES = ("protected-servers.yaml", "protected-group.yaml")
UNIT = EXAMPLES / "failover-agent.service"
GROUP_KEY = group_key(b"secret" * 8, "a group")
SERVER = "11111111-2222-4333-8444-555555555555"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def servers_of(name: str) -> list[dict[str, Any]]:
    """The properties of a template's servers."""
    resources = read(EXAMPLES / name)["resources"].values()
    inner = [r["properties"].get("resource", r) for r in resources]
    return [r["properties"] for r in inner if r["type"] == "OS::Nova::Server"]


def filled_in(properties: dict[str, Any]) -> str:
    """The user data that Heat makes of it when there is a broker."""
    condition, made, without = properties["user_data"]["if"]
    assert (condition, without) == ("with_agents", "")
    text = made["str_replace"]["template"]
    values = {
        "%BROKER%": "amqp://agent:secret@127.0.0.1/vhost",
        "%KEY%": GROUP_KEY.hex(),
        "%PROJECT%": "a project",
        "%GROUP%": "payments",
        "%MEMBER%": "db_a",
        "%PACKAGE%": "mistral-failover",
    }
    for token in made["str_replace"]["params"]:
        assert token in text
        text = text.replace(token, values[token])
    assert "%" not in text
    return text


def configurations() -> dict[str, dict[str, Any]]:
    """The agent's file, as each example has it."""
    texts = {"cloud-init.yaml": (EXAMPLES / "cloud-init.yaml").read_text("utf-8")}
    for name in TEMPLATES:
        for number, properties in enumerate(servers_of(name)):
            texts[f"{name}, server {number}"] = filled_in(properties)
    found = {"failover-agent.yaml": read(FOLDER / "failover-agent.yaml")}
    for name, text in texts.items():
        assert text.startswith("#cloud-config\n"), name
        (content,) = [
            file["content"]
            for file in yaml.safe_load(text)["write_files"]
            if file["path"] == "/etc/failover-agent.yaml"
        ]
        found[name] = yaml.safe_load(content)
    return found


@pytest.mark.parametrize("where", configurations())
def test_every_node_is_given_the_same_allow_list(where: str) -> None:
    document, wanted = configurations()[where], read(FOLDER / "failover-agent.yaml")
    for key in ("failover_agent_version", "on_deposed", "commands"):
        assert document[key] == wanted[key]


@pytest.mark.parametrize("where", configurations())
def test_an_agent_accepts_its_file(where: str, tmp_path: Path) -> None:
    document = configurations()[where]
    (tmp_path / "key").write_text(member_key(GROUP_KEY, "db_a").hex())
    (tmp_path / "broker").write_text("amqp://agent:secret@127.0.0.1/vhost")
    document["broker_file"] = str(tmp_path / "broker")
    document["key_file" if "key_file" in document else "group_key_file"] = str(tmp_path / "key")
    document["server"] = SERVER
    for command in document["commands"].values():
        if "user" in command:  # which this machine need not have
            command["user"] = getpass.getuser()
    for path in (tmp_path / "key", tmp_path / "broker"):
        path.chmod(0o600)
    file = tmp_path / "failover-agent.yaml"
    file.write_text(yaml.safe_dump(document))
    file.chmod(0o600)

    read_back = config.load(file)

    assert sorted(read_back.commands) == [
        *("pg-check", "pg-start", "pg-stop", "volume-down", "volume-up")
    ]
    assert read_back.rehearsable == sorted(read_back.commands)
    assert read_back.on_deposed == ("pg-stop", "volume-down")


def test_every_program_of_the_allow_list_is_installed_from_the_examples() -> None:
    commands = read(FOLDER / "failover-agent.yaml")["commands"].values()
    programs = {c[key][0] for c in commands for key in ("argv", "check") if key in c}
    for text in [
        (EXAMPLES / "cloud-init.yaml").read_text("utf-8"),
        *(filled_in(servers_of(name)[0]) for name in TEMPLATES),
    ]:
        (shell,) = [step[2] for step in yaml.safe_load(text)["runcmd"] if step[0] == "sh"]
        installed = [line.split() for line in shell.splitlines() if line.startswith("install")]
        assert programs <= {words[-1] for words in installed}
        assert all((EXAMPLES / words[-2]).is_file() for words in installed)
        subprocess.run(["sh", "-n", "-c", shell], check=True)


def user_data() -> dict[str, dict[str, Any]]:
    """What cloud-init is told, by example."""
    texts = {"cloud-init.yaml": (EXAMPLES / "cloud-init.yaml").read_text("utf-8")}
    texts |= {name: filled_in(servers_of(name)[0]) for name in TEMPLATES}
    return {name: yaml.safe_load(text) for name, text in texts.items()}


def files_of(document: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file["content"] for file in document["write_files"]}


METADATA = "/etc/systemd/system/failover-metadata.service"
RULES = "/etc/failover-metadata.nft"


@pytest.mark.parametrize("name", ["cloud-init.yaml", *TEMPLATES])
def test_user_data_with_secrets_is_kept_from_all_but_root_before_anything_else(name: str) -> None:
    document = user_data()[name]
    files, first = files_of(document), files_of(user_data()["cloud-init.yaml"])
    assert (files[METADATA], files[RULES]) == (first[METADATA], first[RULES])
    assert "nftables" in document["packages"]
    assert document["runcmd"][:2] == [
        ["systemctl", "daemon-reload"],
        ["systemctl", "enable", "--now", "failover-metadata.service"],
    ]
    secret = {"/etc/failover-agent.broker", "/etc/failover-agent.key", "/etc/failover-agent.yaml"}
    modes = {file["path"]: file.get("permissions") for file in document["write_files"]}
    assert {modes[path] for path in secret} == {"0600"}
    assert f"-f {RULES}" in files[METADATA]
    for address in ("ip daddr 169.254.169.254", "ip6 daddr fe80::a9fe:a9fe"):
        lines = [line.strip() for line in files[RULES].splitlines() if address in line]
        assert lines == [f"{address} meta skuid != 0 reject", f"{address} reject"]


ASK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 80), 5).close()
except ConnectionRefusedError as error:
    print("refused")
else:
    print("answered")
"""
INSIDE = """
ip link set lo up && ip addr add 169.254.169.254/32 dev lo
nft -f "$1" && nft -f "$1"
"$2" -c 'import socket, time
listening = socket.create_server(("", 80))
print("listening", flush=True)
time.sleep(60)' | {
  read -r _
  for user in root nobody; do
    for address in 169.254.169.254 127.0.0.1; do
      echo "$user $address $(setpriv --reuid=$user --clear-groups "$4" -c "$3" $address)"
    done
  done
  kill 0
}
"""


def why_no_rules() -> str:
    tools = ("nft", "unshare", "ip", "setpriv", "/usr/bin/python3")
    needed = [tool for tool in tools if shutil.which(tool) is None]
    if needed or os.geteuid() != 0:
        return f"needs {', '.join(['root', *needed])}"
    here = subprocess.run(["unshare", "-n", "nft", "list", "ruleset"], capture_output=True)
    return "" if here.returncode == 0 else "there are no rules in this kernel"


@pytest.mark.skipif(bool(why_no_rules()), reason=why_no_rules())
def test_root_alone_reaches_the_metadata_service(tmp_path: Path) -> None:
    rules = tmp_path / "rules.nft"
    rules.write_text(files_of(user_data()["cloud-init.yaml"])[RULES])
    argv = ["unshare", "-n", "sh", "-c", INSIDE, "sh", str(rules), sys.executable, ASK]
    done = subprocess.run(
        [*argv, "/usr/bin/python3"],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )
    assert done.stdout.splitlines() == [
        "root 169.254.169.254 answered",
        "root 127.0.0.1 answered",
        "nobody 169.254.169.254 refused",
        "nobody 127.0.0.1 answered",
    ], done.stderr


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_s_group_asks_for_what_the_node_allows(name: str) -> None:
    given = read(EXAMPLES / name)["resources"]["protection"]["properties"]["input"]["definition"]
    inside = parse_group(given["str_replace"]["template"].replace("STACK", "payments"))
    alone = parse_group((FOLDER / "group.yaml").read_text("utf-8"))
    assert inside.resources == alone.resources
    commands = read(FOLDER / "failover-agent.yaml")["commands"]
    for spec in alone.resources.values():
        if spec.type == "activation":
            assert {spec.properties["start"], spec.properties["stop"]} <= set(commands)
            given_arguments = set(spec.properties) - {"member", "start", "stop"}
            assert given_arguments == set(commands[spec.properties["start"]].get("arguments", {}))


def test_the_secrets_of_a_template_are_hidden() -> None:
    for name in TEMPLATES:
        parameters = read(EXAMPLES / name)["parameters"]
        secret = [p for p in parameters if p == "agent_broker" or "key" in p]
        assert len(secret) >= 2
        assert all(
            parameters[p]["hidden"] is True and parameters[p]["default"] == "" for p in secret
        )


def test_the_unit_gives_the_agent_no_mount_namespace_and_leaves_applications_alone() -> None:
    lines = UNIT.read_text("utf-8").splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    assert settings["KillMode"] == "process"
    assert settings["Restart"] == "always"
    assert (settings["Type"], settings["WatchdogSec"]) == ("notify", "180")
    assert settings["LimitCORE"] == "0:infinity", "an application may set its own"
    own = ("Protect", "Private", "ReadWrite", "ReadOnly", "Inaccessible", "Bind", "Root", "Dynamic")
    assert [name for name in settings if name.startswith((*own, "MountFlags", "LoadCred"))] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    rules = tmp_path / "failover-metadata.service"
    rules.write_text(
        files_of(user_data()["cloud-init.yaml"])[METADATA].replace("/usr/sbin/nft", "/bin/true")
    )
    unit = tmp_path / UNIT.name
    unit.write_text(
        UNIT.read_text("utf-8").replace("/opt/failover/bin/failover-agent", "/bin/true")
    )
    argv = ["systemd-analyze", "verify", str(unit), str(rules)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
