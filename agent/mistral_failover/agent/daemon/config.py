# SPDX-License-Identifier: Apache-2.0
"""The agent's configuration file: the broker, the server's identity, and the commands it may run.

``docs/agent.md`` describes every key. Everything that can be checked is checked when the file is
read, so a running agent has a valid file. No message shows a value, since it may be a secret.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from mistral_failover import private_files
from mistral_failover.agent.broker import BadUrl, Broker
from mistral_failover.agent.daemon import patterns
from mistral_failover.agent.daemon.config_reader import (
    ConfigError,
    Section,
    read_secret,
)
from mistral_failover.agent.daemon.patterns import Pattern
from mistral_failover.agent.daemon.settings import (
    PLACE,
    Account,
    AgentConfig,
    CommandSpec,
    Identity,
    RehearsalSettings,
)
from mistral_failover.agent.wire import is_epoch
from mistral_failover.model import heartbeats
from mistral_failover.model.documents import load_yaml_1_1
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.ids import group_id
from mistral_failover.model.text import BIDI

VERSION = "2026-11-21"
DEFAULT_FILE = "/etc/failover-agent.yaml"
INSTANCE_FILES = ("/run/cloud-init/.instance-id", "/var/lib/cloud/data/instance-id")
"""Where cloud-init stores this instance's id; with OpenStack's metadata it is the server's id."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(rf"[^/\x00-\x1f\x7f-\x9f{BIDI}]{{1,255}}")

_KEYS = (
    "failover_agent_version", "broker", "broker_file", "project", "group", "member", "key",
    "key_file", "group_key", "group_key_file", "server", "epoch", "journal", "heartbeat",
    "on_deposed", "commands", "rehearsals",
)  # fmt: skip
_COMMAND_KEYS = (
    "argv", "check", "repeatable", "limit", "environment", "folder", "user", "lane", "arguments",
    "rehearse",
)  # fmt: skip
_REHEARSAL_KEYS = ("memory", "cpu", "private")


def load(path: str | Path) -> AgentConfig:
    """Read the agent's file. Raises `ConfigError` for the first fault found."""
    path = Path(path)
    # Its commands run with the agent's rights, so no other user may change it.
    document = _document(path, public=True)
    if isinstance(document, dict) and {"broker", "key", "group_key"} & document.keys():
        document = _document(path, public=False)
    return _config(Section("", document, _KEYS))


def _document(path: Path, *, public: bool) -> Any:
    """Return the YAML of a file; ``public``: everyone may read it. Raises `ConfigError`."""
    try:
        return load_yaml_1_1(private_files.read(path, public=public), "file")
    except private_files.NotPrivate as error:
        raise ConfigError(str(path), error.message, error.remedy) from None
    except OSError as error:
        raise ConfigError(
            str(path), f"it cannot be read: {error.strerror}", "Name the file with --config."
        ) from None
    except InvalidDocument as error:
        raise ConfigError(error.path or str(path), error.message, error.remedy) from None


def _config(section: Section) -> AgentConfig:
    if section.get("failover_agent_version") != VERSION:
        raise section.wrong(
            "failover_agent_version",
            ("this agent does not support this version"),
            f"Write {VERSION}.",
        )
    commands = {
        name: _command(name, section.section("commands", name, _COMMAND_KEYS))
        for name in section.names("commands", _NAME)
    }
    epoch = section.get("epoch", 1)
    if not is_epoch(epoch):
        raise section.wrong("epoch", "it is not a valid epoch", "Use a whole number, such as 1.")
    return AgentConfig(
        broker=_broker(section),
        identity=_identity(section),
        commands=commands,
        journal=_absolute(section, "journal", "/var/lib/failover-agent"),
        epoch=epoch,
        heartbeat=section.seconds("heartbeat", heartbeats.EVERY, 0.1, 3600.0),
        on_deposed=_on_deposed(section, commands),
        rehearsals=_rehearsals(section),
    )


def _rehearsals(section: Section) -> RehearsalSettings:
    found = section.optional("rehearsals", _REHEARSAL_KEYS)
    defaults = RehearsalSettings()
    private = found.words("private", defaults.private)
    if not all(map(_may_be_hidden, private)):
        raise found.wrong(
            "private",
            "it is not a list of folders",
            "Use absolute paths, but not / and nothing of /proc, /dev or /sys but /dev/shm.",
        )
    return RehearsalSettings(
        memory=found.percent("memory", defaults.memory),
        cpu=found.percent("cpu", defaults.cpu),
        private=private,
    )


def _may_be_hidden(folder: str) -> bool:
    path = Path(folder)
    return (
        path.is_absolute()
        and (
            folder == "/dev/shm"  # noqa: S108 - a folder that is hidden, not used
            or path.parts[1:2] not in ((), ("proc",), ("dev",), ("sys",))
        )
    )


def _broker(section: Section) -> str:
    given = section.one_of("broker", "broker_file")
    url = section.text(given)
    if given == "broker_file":
        url = read_secret(section, given, url)
    try:
        Broker(url)
    except BadUrl as error:
        raise section.wrong(
            given, str(error).rstrip("."), "Use amqps://USER:PASSWORD@HOST[:PORT]/VHOST."
        ) from None
    return url


def _identity(section: Section) -> Identity:
    given = section.one_of("key", "key_file", "group_key", "group_key_file")
    text = section.text(given)
    if given.endswith("_file"):
        text = read_secret(section, given, text)
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise section.wrong(given, "not a key", "The key must have 64 hexadecimal digits.")
    member = section.text("member", None, _NAME)
    of_group = given.startswith("group_key")
    if member is None and not of_group:
        raise section.wrong(
            "member",
            "it is missing",
            "Name the member that the key belongs to; only a group's key needs no name.",
        )
    group = section.text("group", pattern=_NAME)
    return Identity(
        group_id=group_id(section.text("project", pattern=_NAME), group),
        group=group,
        server_id=_server(section),
        member=member,
        member_key=None if of_group else key,
        group_key=key if of_group else None,
    )


def _server(section: Section) -> str:
    given = section.text("server", "auto")
    if given != "auto":
        found = _uuid(given)
        if found is None:
            raise section.wrong(
                "server", ("it is not a server id"), "Use the server's UUID, or auto."
            )
        return found
    for path in INSTANCE_FILES:
        try:
            found = _uuid(Path(path).read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError):
            continue
        if found is not None:
            return found
    raise section.wrong(
        "server",
        "cloud-init does not provide this server's id",
        "Set the server's UUID, as openstack server show prints it.",
    )


def _uuid(text: str) -> str | None:
    try:
        return str(UUID(text))
    except ValueError:
        return None


def _on_deposed(section: Section, commands: Mapping[str, CommandSpec]) -> tuple[str, ...]:
    names = section.words("on_deposed", ())
    for name in names:
        if name not in commands:
            raise section.unknown("on_deposed", name, commands)
        if commands[name].arguments:
            raise section.wrong(
                "on_deposed",
                f'"{name}" takes arguments, but on_deposed passes none',
                "Use only commands without arguments.",
            )
    return names


# -- commands


def _command(name: str, section: Section) -> CommandSpec:
    arguments = {
        key: _pattern(section, key, text)
        for key, text in section.texts("arguments", _VARIABLE).items()
    }
    check = section.get("check", None)
    rehearse = section.get("rehearse", None)
    argv = _argv(section, "argv", arguments)
    if rehearse is not None:
        rehearse = argv if rehearse == "same" else _argv(section, "rehearse", arguments)
    return CommandSpec(
        name=name,
        argv=argv,
        rehearse=rehearse,
        account=_account(section),
        check=None if check is None else _argv(section, "check", arguments),
        repeatable=section.flag("repeatable", False),
        limit=section.seconds("limit", 120.0, 0.1, 7 * 86400.0),
        environment=section.texts("environment", _VARIABLE),
        folder=str(_absolute(section, "folder", "/")),
        lane=section.text("lane", "default", _NAME),
        arguments=arguments,
    )


def _argv(section: Section, key: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    words = section.words(key)
    if not words or not words[0].startswith("/"):
        raise section.wrong(
            key, "it names no program", "Use a list that begins with a program's absolute path."
        )
    for word in words:
        for _, name in PLACE.findall(word):
            if name and name not in arguments:
                raise section.wrong(
                    key,
                    "{{name}} refers to an argument that is not declared",
                    f"Declare {name} under arguments, or use {{{{{name}}}}} for the literal text.",
                )
    return words


def _pattern(section: Section, name: str, text: str) -> Pattern:
    try:
        return patterns.compiled(text)
    except patterns.InvalidPattern as error:
        raise section.wrong(f"arguments.{name}", str(error), error.remedy) from None


def _absolute(section: Section, key: str, default: str) -> Path:
    path = Path(section.text(key, default))
    if not path.is_absolute():
        raise section.wrong(key, "it is not an absolute path", "The path must begin with a slash.")
    return path


def _account(section: Section) -> Account:
    """Return the account that a command runs as; only root may name another user than itself."""
    name = section.text("user", None)
    try:
        found = pwd.getpwuid(os.geteuid()) if name is None else pwd.getpwnam(name)
    except KeyError:
        if name is not None:
            raise section.wrong(
                "user", "this server has no such user", "Create the user, or name another."
            ) from None
        uid = os.geteuid()
        return Account(str(uid), uid, os.getegid(), tuple(os.getgroups()), "/")
    if found.pw_uid != os.geteuid() and os.geteuid() != 0:
        raise section.wrong(
            "user",
            "only root may run commands as another user",
            "Run the agent as root, or remove this key.",
        )
    groups = {*os.getgrouplist(found.pw_name, found.pw_gid), found.pw_gid}
    return Account(
        found.pw_name, found.pw_uid, found.pw_gid, tuple(sorted(groups)), found.pw_dir or "/"
    )
