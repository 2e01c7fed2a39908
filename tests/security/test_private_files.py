# SPDX-License-Identifier: Apache-2.0
"""Every file with a secret is read under one rule: it belongs to this user or root, and no other
user has access. Of what an administrator installs for a service, the group may read a file of root,
and links of the two are followed."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover import private_files
from mistral_failover.agent.channel import keys
from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.agent.daemon import config
from mistral_failover.agent.daemon.config_reader import ConfigError
from mistral_failover.cli import connection
from mistral_failover.cloud.errors import CloudError
from mistral_failover.embedded import access
from mistral_failover.errors import CodedError
from mistral_failover.mistral import api
from mistral_failover.resources.fence import ceph, devices
from mistral_failover.resources.fence.power import Unproven
from mistral_failover.server import checks, options, secret
from mistral_failover.settings import Settings
from support.pages import MODULES

ROOT = os.geteuid() == 0
SECRET = "0123456789abcdef" * 4
AGENT = yaml.safe_dump(
    {
        "failover_agent_version": "2026-11-21",
        "broker": "amqps://u:p@h/v",
        "key": SECRET,
        "project": "p",
        "group": "g",
        "member": "m",
        "server": "4e0cbf5d-9a5f-4c66-8a9c-5c7f7b4c1234",
        "commands": {},
    }
)


# -- the rule


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440, 0o660, 0o644, 0o604, 0o620, 0o602])
@pytest.mark.parametrize("owner", ["root", "me", "another"])
@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.skipif(not ROOT, reason="only root gives a file away")
def test_who_may_own_and_reach_a_file_with_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str, mode: int, installed: bool
) -> None:
    """Root reads whatever the mode; what is tried here is the rule."""
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(mode)
    os.chown(file, {"root": 0, "me": 4711, "another": 4712}[owner], -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    private = not mode & 0o077 or (installed and owner == "root" and not mode & 0o037)

    if private and owner != "another":
        assert private_files.read(file, installed=installed).decode() == SECRET
        return
    with pytest.raises(private_files.NotPrivate) as refused:
        private_files.read(file, installed=installed)
    assert str(file) in refused.value.message
    assert ("chown" if owner == "another" else "chmod 600") in refused.value.remedy


@pytest.mark.parametrize("target", ["elsewhere", "{}/elsewhere", "again"])
def test_only_to_an_installed_file_a_link_is_followed_and_the_file_is_checked(
    tmp_path: Path, target: str
) -> None:
    """Kubernetes mounts secrets as links, ACME clients have one to the present key."""
    (tmp_path / "elsewhere").write_text(SECRET)
    (tmp_path / "again").symlink_to("elsewhere")
    (tmp_path / "key").symlink_to(target.format(tmp_path))

    (tmp_path / "elsewhere").chmod(0o600)
    assert private_files.read(tmp_path / "key", installed=True).decode() == SECRET
    with pytest.raises(private_files.NotPrivate, match="symbolic link"):
        private_files.read(tmp_path / "key")
    (tmp_path / "elsewhere").chmod(0o644)
    with pytest.raises(private_files.NotPrivate, match="other users may read"):
        private_files.read(tmp_path / "key", installed=True)


@pytest.mark.skipif(not ROOT, reason="only root gives a link away")
def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch(mode=0o600)
    (tmp_path / "again").symlink_to("elsewhere")
    (tmp_path / "key").symlink_to("again")
    os.chown(tmp_path / "again", 4712, -1, follow_symlinks=False)

    with pytest.raises(private_files.NotPrivate, match="symbolic link of another user"):
        private_files.read(tmp_path / "key", installed=True)


def test_what_is_no_file_is_neither_read_nor_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "loop").symlink_to("loop")

    for name, why in (
        ("fifo", "regular"),
        ("loop", "links"),
        ("none", "No such"),
        (".", "regular"),
    ):
        with pytest.raises(OSError, match=why):
            private_files.read(tmp_path / name, installed=True)


# -- every reader has it


def _ceph(file: Path) -> Any:
    made = ceph.Ceph(pools=("volumes",), keyring=str(file), ceph="/bin/true")
    client = ceph.Cluster.__new__(ceph.Cluster)
    client._ceph = made
    return client._check_keyring()


def _clouds_file(file: Path) -> None:
    for found in checks._clouds_file():
        raise CodedError(found.code, found.message, found.remedy)


READERS: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "agent_key_file": (lambda f: keys.read_secret(str(f)), ChannelError, SECRET),
    "mistral_token_file": (
        lambda f: api._token(Settings(mistral_token_file=str(f))),
        CloudError,
        SECRET,
    ),
    "fence_devices_file": (
        lambda f: devices.load(Settings(fence_devices_file=str(f))),
        devices.NoDevices,
        'projects: ["*"]',
    ),
    "a fence device's secret": (
        lambda f: devices._secret("password", f),
        devices.NoDevices,
        SECRET,
    ),
    "ceph.keyring": (_ceph, Unproven, SECRET),
    "the webhook's secret": (secret.read, CodedError, SECRET),
    "--config-file": (
        options.read_settings,
        CodedError,
        "[failover]\ncommand_channel = amqp://u:p@h/v\n",
    ),
    "--database-file": (options.read_url, CodedError, "mysql+pymysql://u:p@h/db"),
    "clouds.yaml": (_clouds_file, CodedError, "clouds: {}"),
    "api-token": (lambda f: access.token(f.parent), CodedError, SECRET),
    "--mistral-token-file": (connection._token_in, connection.CommandFailed, SECRET),
    "the agent's file": (config.load, ConfigError, AGENT),
    "key_file": (
        lambda f: config.load(_agent(f, "key")),
        ConfigError,
        SECRET,
    ),
    "broker_file": (
        lambda f: config.load(_agent(f, "broker")),
        ConfigError,
        "amqps://u:p@h/v",
    ),
}


def _agent(file: Path, key: str) -> Path:
    document = yaml.safe_load(AGENT)
    del document[key]
    document[f"{key}_file"] = str(file)
    made = file.with_name("failover-agent.yaml")
    made.write_text(yaml.safe_dump(document))
    made.chmod(0o600)
    return made


@pytest.mark.parametrize("what", READERS)
def test_every_secret_is_read_only_from_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    read, refusal, text = READERS[what]
    file = tmp_path / (what if what == "api-token" else "file.yaml")
    file.write_text(text)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))

    file.chmod(0o600)
    read(file)
    for mode in (0o644, 0o620, 0o604):
        file.chmod(mode)
        with pytest.raises(refusal) as refused:
            read(file)
        said = f"{refused.value} {getattr(refused.value, 'remedy', '')}"
        said += str(getattr(refused.value, "detail", ""))
        assert str(file) in said
        assert "chmod" in said
        assert SECRET not in said


# -- and a new one cannot do without

OPENING = {"open", "read_text", "read_bytes", "load_cert_chain", "fdopen"}
WITHOUT_SECRETS = {
    "agent/daemon/config.py": "cloud-init's instance id",
    "agent/daemon/isolation.py": "/proc: mounts and processes of a rehearsal",
    "agent/daemon/journal.py": "the id of the server's boot",
    "agent/daemon/keeper.py": "/proc, and what a rehearsal mounts",
    "agent/daemon/limits.py": "control groups",
    "agent/daemon/runner.py": "/proc, and whether a program can be run",
    "agent/local.py": "the emulated agents' own notes",
    "cli/alarms.py": "the body of an alarm",
    "cli/files.py": "group files",
    "cli/workflows.py": "workflow files",
    "cli/connection.py": "where a server runs",
    "embedded/server.py": "workflow files, the lock",
    "embedded/unix_socket.py": "a directory, and whether a file is a socket",
    "embedded/validate.py": "workflow files",
    "mistral/shipped_workflows.py": "workflow files",
    "model/types.py": "the types of the package",
    "private_files.py": "the rule",
    "resources/fence/programs.py": "whether a program can be run",
    "server/credential.py": "the project of the credential",
    "server/emulated.py": "an example of the package",
    "resources/fence/ceph.py": "a program of the package",
    "server/options.py": "read again if it has a secret",
    "server/state_dir.py": "the lock, and where a server runs",
    "served_certificate.py": "the certificate; the key is opened as a secret",
    "lab/testing/engine.py": "workflow files",
    "lab/testing/workflows.py": "workflow files",
    "ui/serving.py": "opens the page for browsers",
}
"""What opens files by itself, and which. Each says why it needs no such rule."""
DRILLS = ("lab/drill/", "lab/emulator/")
"""They invent their secrets, and look for them in what leaked."""


def opening() -> Iterator[str]:
    for name, path in MODULES.items():
        if name.startswith(DRILLS):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in OPENING:
                    yield name
            elif isinstance(node, ast.Attribute) and node.attr == "st_mode":
                yield name


def test_what_opens_files_by_itself_is_known_to_read_no_secret() -> None:
    assert set(opening()) == set(WITHOUT_SECRETS)
