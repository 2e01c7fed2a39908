# SPDX-License-Identifier: Apache-2.0
"""The agent's file is read wholly or refused, with the place of the fault and what to do."""

from __future__ import annotations

import os
import pwd

import pytest
import yaml

from mistral_failover.agent.daemon import config
from mistral_failover.agent.daemon.config_reader import ConfigError
from mistral_failover.agent.wire import server_key
from support.agents import GROUP_ID, GROUP_KEY, MEMBER_KEY, PROJECT, SERVER
from support.pages import page, rows, section

KEY = MEMBER_KEY.hex()
PASSWORD = "Tr0ub4dor"
MINIMAL = {
    "failover_agent_version": "2026-11-21",
    "broker": f"amqps://node:{PASSWORD}@broker.example.org/failover",
    "project": PROJECT,
    "group": "payments",
    "member": "db_a",
    "key": KEY,
    "server": SERVER,
    "commands": {"pg-start": {"argv": ["/usr/local/sbin/pg-up"]}},
}


@pytest.fixture
def load(tmp_path):
    def write_and_load(document, mode=0o600):
        path = tmp_path / "failover-agent.yaml"
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        path.chmod(mode)
        return config.load(path)

    return write_and_load


def secret_file(tmp_path, text, mode=0o600):
    path = tmp_path / "a-secret"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def with_command(**command):
    return {**MINIMAL, "commands": {"pg-start": {"argv": ["/bin/true"], **command}}}


def test_a_minimal_file_gives_the_defaults(load):
    read = load(MINIMAL)
    assert read.identity.group_id == GROUP_ID
    assert (read.epoch, read.heartbeat, read.on_deposed) == (1, 10.0, ())
    assert str(read.journal) == "/var/lib/failover-agent"
    spec = read.commands["pg-start"]
    assert (spec.limit, spec.folder, spec.lane, spec.repeatable) == (120.0, "/", "default", False)
    assert spec.check is None
    assert spec.variables()["PATH"].startswith("/usr/local/sbin:")
    assert set(spec.variables()) == {"PATH", "LANG", "HOME", "USER"}


def test_a_full_file_is_read_wholly(load):
    read = load(
        """
failover_agent_version: 2026-11-21
broker: amqp://a:b@127.0.0.1/f
project: p
group: payments
member: db_a
key: KEY
server: SERVER
epoch: 4
journal: /tmp/j
heartbeat: 3
on_deposed: [stop]
commands:
  start:
    argv: [/bin/up, "{device}", 5432]
    check: [/bin/is-up, "{device}"]
    repeatable: true
    limit: 7
    environment: {PGDATA: /srv/pg, PORT: 5432}
    folder: /srv
    user: OWNER
    lane: own
    arguments: {device: "/dev/[a-z]+"}
  stop: {argv: [/bin/down]}
""".replace("KEY", KEY)
        .replace("SERVER", SERVER)
        .replace("OWNER", pwd.getpwuid(os.geteuid()).pw_name)
    )
    spec = read.commands["start"]
    assert spec.words(spec.argv, {"device": "/dev/vdb"}) == ["/bin/up", "/dev/vdb", "5432"]
    assert spec.variables()["PORT"] == "5432"
    assert spec.account.uid == os.geteuid()
    assert (spec.repeatable, spec.limit, spec.lane) == (True, 7.0, "own")
    assert (read.epoch, read.heartbeat, read.on_deposed) == (4, 3.0, ("stop",))


def test_what_is_shown_of_a_file_has_no_secret(load):
    shown = repr(load(MINIMAL))
    assert PASSWORD not in shown
    assert KEY not in shown
    assert repr(MEMBER_KEY) not in shown


def test_the_keys_are_the_executors(load):
    identity = load(MINIMAL).identity
    assert identity.key_for("notice", "db_a", 3) == server_key(MEMBER_KEY, SERVER)
    document = {**MINIMAL, "group_key": GROUP_KEY.hex()}
    del document["key"], document["member"]
    assert load(document).identity.key_of("db_a") == MEMBER_KEY


@pytest.mark.parametrize(
    ("change", "place", "said"),
    [
        ({"failover_agent_version": "2020-01-01"}, "failover_agent_version", "2026-11-21"),
        ({"heartbeats": 3}, "heartbeats", 'Did you mean "heartbeat"?'),
        ({"broker": None}, "broker", "text"),
        ({"broker": f"http://node:{PASSWORD}@b"}, "broker", "amqp"),
        ({"broker": "amqps://"}, "broker", "host"),
        ({"key": "abc"}, "key", "64 hexadecimal digits"),
        ({"key": 7}, "key", "quotes"),
        ({"group_key": KEY}, "key | key_file | group_key | group_key_file", "only one"),
        ({"server": "web-1"}, "server", "UUID"),
        ({"epoch": -1}, "epoch", "whole number"),
        ({"epoch": True}, "epoch", "whole number"),
        ({"heartbeat": 0}, "heartbeat", "0.1 to 3600"),
        ({"heartbeat": "often"}, "heartbeat", "number"),
        ({"journal": "here"}, "journal", "slash"),
        ({"group": "a/b"}, "group", "slashes"),
        ({"on_deposed": ["pg-strat"]}, "on_deposed", 'Did you mean "pg-start"?'),
        ({"on_deposed": "pg-start"}, "on_deposed", "list"),
        ({"commands": []}, "commands", "mapping"),
        ({"commands": {"a/b": {}}}, "commands", "name"),
        ({"commands": {"a": None}}, "commands.a", "mapping"),
        ({"commands": {"a": {}}}, "commands.a.argv", "missing"),
        ({"commands": {"a": {"argv": "/bin/true"}}}, "commands.a.argv", "list"),
        ({"commands": {"a": {"argv": []}}}, "commands.a.argv", "absolute path"),
        ({"commands": {"a": {"argv": ["true"]}}}, "commands.a.argv", "absolute path"),
        ({"commands": {"a": {"argv": ["/bin/true", True]}}}, "commands.a.argv", "quotes"),
    ],
)
def test_a_fault_is_named_with_its_place_and_a_remedy(load, change, place, said):
    with pytest.raises(ConfigError) as raised:
        load({**MINIMAL, **change})
    assert raised.value.field == place
    assert said in str(raised.value)
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize(
    ("command", "place", "said"),
    [
        ({"argv": ["/bin/echo", "{devise}"]}, "argv", "Declare devise under arguments"),
        ({"check": ["/bin/echo", "{x}"]}, "check", "Declare x"),
        ({"arguments": {"x": "("}}, "arguments.x", "regular expression"),
        ({"arguments": {"a b": ".*"}}, "arguments", "name"),
        ({"limit": 0}, "limit", "number"),
        ({"limit": float("nan")}, "limit", "number"),
        ({"repeatable": "yes"}, "repeatable", "true or false"),
        ({"environment": {"A=B": "x"}}, "environment", "name"),
        ({"environment": {"A": ["x"]}}, "environment.A", "text"),
        ({"user": "nobody-has-this-name"}, "user", "no such user"),
        ({"lane": ""}, "lane", "text"),
        ({"limits": 3}, "limits", 'Did you mean "limit"?'),
    ],
)
def test_a_fault_of_a_command_is_named_too(load, command, place, said):
    with pytest.raises(ConfigError) as raised:
        load(with_command(**command))
    assert raised.value.field == f"commands.pg-start.{place}"
    assert said in str(raised.value)


def test_a_command_with_arguments_is_none_for_on_deposed(load):
    document = with_command(argv=["/bin/echo", "{x}"], arguments={"x": ".*"})
    with pytest.raises(ConfigError, match="takes arguments"):
        load({**document, "on_deposed": ["pg-start"]})


def test_braces_may_be_meant_as_they_are(load):
    spec = load(with_command(argv=["/bin/echo", "{{x}}", "{ x }", "${y", '{"a": 1}'])).commands
    spec = spec["pg-start"]
    assert spec.words(spec.argv, {})[1:] == ["{x}", "{ x }", "${y", '{"a": 1}']


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_with_a_secret_that_others_may_read_is_refused(load, mode):
    with pytest.raises(ConfigError, match="chmod 600"):
        load(MINIMAL, mode)


def test_a_file_without_a_secret_may_be_read_by_all_and_written_by_none(load, tmp_path):
    document = {**MINIMAL, "key_file": secret_file(tmp_path, KEY)}
    del document["key"], document["broker"]
    document["broker_file"] = document["key_file"]
    with pytest.raises(ConfigError) as raised:
        load(document, 0o644)
    assert raised.value.field == "broker_file"
    assert KEY not in str(raised.value)
    with pytest.raises(ConfigError, match="chmod go-w"):
        load(document, 0o622)


def test_secrets_may_stand_in_files_of_their_own(load, tmp_path):
    document = {**MINIMAL, "key_file": secret_file(tmp_path, f"{KEY}\n")}
    del document["key"]
    assert load(document).identity.member_key == MEMBER_KEY


@pytest.mark.parametrize(
    ("text", "mode", "said"), [(KEY, 0o644, "chmod 600"), ("x", 0o600, "hexadecimal")]
)
def test_a_key_file_with_a_fault_is_refused(load, tmp_path, text, mode, said):
    document = {**MINIMAL, "key_file": secret_file(tmp_path, text, mode)}
    del document["key"]
    with pytest.raises(ConfigError, match=said):
        load(document)


def test_a_key_file_that_is_missing_is_named(load):
    document = {**MINIMAL, "key_file": "/nowhere/key"}
    del document["key"]
    with pytest.raises(ConfigError, match="/nowhere/key"):
        load(document)


def test_a_members_key_needs_the_members_name(load):
    document = {**MINIMAL}
    del document["member"]
    with pytest.raises(ConfigError) as raised:
        load(document)
    assert raised.value.field == "member"


def test_cloud_init_says_which_server_this_is(load, tmp_path, monkeypatch):
    place = tmp_path / "instance-id"
    monkeypatch.setattr(config, "INSTANCE_FILES", (str(tmp_path / "none"), str(place)))
    document = {**MINIMAL}
    del document["server"]
    with pytest.raises(ConfigError, match="openstack server show"):
        load(document)
    place.write_text("i-00000007\n")
    with pytest.raises(ConfigError, match="openstack server show"):
        load(document)
    place.write_text(f"{SERVER.upper()}\n")
    assert load(document).identity.server_id == SERVER


@pytest.mark.parametrize("text", ["{", "- a", "", "\x00", "a: &a [*a]\nb: *c"])
def test_what_is_no_such_file_at_all_is_refused(load, text):
    with pytest.raises(ConfigError):
        load(text)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match="--config"):
        config.load(tmp_path / "none.yaml")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_a_user_brings_its_groups(load):
    account = load(with_command(user="nobody")).commands["pg-start"].account
    assert account.uid == pwd.getpwnam("nobody").pw_uid
    assert account.gid in account.groups


def test_the_system_says_which_groups_a_user_is_in(load, monkeypatch):
    """Not a list of all groups: a directory service may not give one."""
    monkeypatch.setattr(os, "getgrouplist", lambda _name, gid: [4711, gid])
    account = load(MINIMAL).commands["pg-start"].account
    assert account.groups == tuple(sorted({4711, account.gid}))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
@pytest.mark.parametrize("which", ["failover-agent.yaml", "a-secret"])
def test_a_file_of_another_user_is_refused(load, tmp_path, which):
    given = secret_file(tmp_path, KEY)
    document = {**MINIMAL, "key_file": given, "broker_file": secret_broker(tmp_path)}
    del document["key"], document["broker"]
    load(document)
    os.chown(tmp_path / which, pwd.getpwnam("nobody").pw_uid, -1)
    with pytest.raises(ConfigError) as raised:
        config.load(tmp_path / "failover-agent.yaml")
    assert "another user" in str(raised.value)
    assert f"chown 0: {tmp_path / which}" in raised.value.remedy


def secret_broker(tmp_path):
    path = tmp_path / "broker"
    path.write_text(MINIMAL["broker"])
    path.chmod(0o600)
    return str(path)


def test_what_a_command_runs_in_a_rehearsal(load):
    arguments = {"arguments": {"word": "[a-z]+"}}
    same = load(with_command(rehearse="same"))
    other = load(with_command(rehearse=["/bin/echo", "{word}"], **arguments))

    assert load(with_command()).rehearsable == []
    assert same.rehearsable == ["pg-start"]
    assert same.commands["pg-start"].rehearse == ("/bin/true",)
    assert other.commands["pg-start"].rehearse == ("/bin/echo", "{word}")
    assert same.rehearsals.private == ("/run", "/tmp", "/var/tmp", "/var/spool", "/dev/shm")


def test_how_rehearsals_are_isolated(load):
    found = load({**MINIMAL, "rehearsals": {"memory": 25, "private": ["/run", "/srv/other"]}})

    assert (found.rehearsals.memory, found.rehearsals.cpu) == (25.0, 50.0)
    assert found.rehearsals.private == ("/run", "/srv/other")


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (with_command(rehearse="other"), "commands.pg-start.rehearse"),
        (with_command(rehearse=["true"]), "commands.pg-start.rehearse"),
        (with_command(rehearse=["/bin/echo", "{word}"]), "commands.pg-start.rehearse"),
        ({**MINIMAL, "rehearsals": {"memory": 0}}, "rehearsals.memory"),
        ({**MINIMAL, "rehearsals": {"cpu": "half"}}, "rehearsals.cpu"),
        ({**MINIMAL, "rehearsals": {"private": ["/"]}}, "rehearsals.private"),
        ({**MINIMAL, "rehearsals": {"private": ["/proc/sys"]}}, "rehearsals.private"),
        ({**MINIMAL, "rehearsals": {"private": ["run"]}}, "rehearsals.private"),
        ({**MINIMAL, "rehearsals": {"swap": 1}}, "rehearsals.swap"),
    ],
)
def test_a_wrong_form_for_rehearsals_is_named(load, document, field):
    with pytest.raises(ConfigError) as raised:
        load(document)

    assert raised.value.field == field
    assert raised.value.remedy


def test_every_key_is_documented_and_no_other():
    documented = list(rows(section(page("reference"), "The agent's file")))
    assert sorted(documented) == sorted(
        [*config._KEYS, *config._COMMAND_KEYS, *config._REHEARSAL_KEYS]
    )
