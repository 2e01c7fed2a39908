# SPDX-License-Identifier: Apache-2.0
"""What the services read at their start."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from oslo_config import cfg

from support import options_outside
from testcloud import configuration, ini, service_processes
from testcloud.instances import nova_compute
from testcloud.orchestration import mistral
from testcloud.settings import HOSTS, Settings


@pytest.fixture
def written(settings: Settings) -> Settings:
    for name in ("glance", "neutron", "nova", "cinder", "heat"):
        (settings.venv / "etc" / name).mkdir(parents=True)
        (settings.venv / "etc" / name / "brought.ini").write_text("as it came")
    configuration.write(settings)
    return settings


def read(text: str, settings: Settings) -> Callable[[str, str], str]:
    """What oslo.config makes of a text."""
    path = settings.state / "some.conf"
    path.write_text(text)
    conf = cfg.ConfigOpts()
    conf(["--config-file", str(path)], project="some")

    def value(section: str, option: str) -> str:
        if option not in conf or section != "DEFAULT":
            conf.register_opt(cfg.StrOpt(option), None if section == "DEFAULT" else section)
        return str(conf[option] if section == "DEFAULT" else conf[section][option])

    return value


def test_oslo_config_reads_what_was_meant(settings: Settings) -> None:
    text = ini.text({"DEFAULT": {"debug_it": True, "workers": 1}, "a": {"password": "p$word"}})
    value = read(text, settings)

    assert value("DEFAULT", "debug_it") == "true"
    assert value("DEFAULT", "workers") == "1"
    assert value("a", "password") == "p$word"


def test_a_value_cannot_begin_another_section() -> None:
    with pytest.raises(ValueError, match="more than one line"):
        ini.text({"a": {"b": "c\n[d]"}})


def test_a_later_part_wins_and_the_parts_stay_as_they_were() -> None:
    first = {"a": {"x": 1, "y": 1}}

    assert ini.merged(first, {"a": {"x": 2}}, {"b": {}}) == {"a": {"x": 2, "y": 1}, "b": {}}
    assert first == {"a": {"x": 1, "y": 1}}


def test_each_service_finds_its_file_in_its_home(written: Settings) -> None:
    home = written.etc / "home"

    for name, (_, file) in configuration.FILES.items():
        assert (home / f".{name}" / file).is_file()
    assert (home / ".nova" / "brought.ini").read_text() == "as it came"


def test_only_the_owner_reads_a_password(written: Settings) -> None:
    secrets = [written.secret(name) for name in ("service", "database", "messages")]
    holders = [
        path
        for path in written.etc.rglob("*.conf")
        if any(secret in path.read_text() for secret in secrets)
    ]

    assert len(holders) >= len(configuration.FILES)
    assert {stat.S_IMODE(path.stat().st_mode) for path in holders} == {0o600}
    assert stat.S_IMODE(written.etc.stat().st_mode) == 0o700


# Options whose defaults are below /etc, /var or /opt, and which the services here read or write.
# tests/real_cloud/test_its_own_folder.py finds more of them where the services are installed.
DEFAULTS_ELSEWHERE = [
    ("keystone", "fernet_tokens", "key_repository"),
    ("keystone", "fernet_receipts", "key_repository"),
    ("keystone", "credential", "key_repository"),
    ("keystone", "identity", "domain_config_dir"),
    ("glance", "glance_store", "filesystem_store_datadir"),
    ("glance", "fs", "filesystem_store_datadir"),
    ("glance", "os_glance_staging_store", "filesystem_store_datadir"),
    ("glance", "os_glance_tasks_store", "filesystem_store_datadir"),
    ("neutron", "DEFAULT", "state_path"),
    ("nova", "DEFAULT", "state_path"),
    ("nova", "DEFAULT", "instances_path"),
    ("nova", "DEFAULT", "rootwrap_config"),
    ("nova", "compute", "provider_config_location"),
    ("cinder", "DEFAULT", "state_path"),
    ("cinder", "DEFAULT", "rootwrap_config"),
    ("heat", "DEFAULT", "environment_dir"),
    ("heat", "DEFAULT", "template_dir"),
    ("heat", "DEFAULT", "plugin_dirs"),
    ("mistral", "event_engine", "event_definitions_cfg_file"),
    ("ceilometer", "DEFAULT", "rootwrap_config"),
    ("ceilometer", "DEFAULT", "pollsters_definitions_dirs"),
    ("ceilometer", "polling", "pollsters_definitions_dirs"),
    ("ceilometer", "meter", "meter_definitions_dirs"),
    *(
        (service, "oslo_concurrency", "lock_path")
        for service in ("glance", "neutron", "nova", "cinder", "heat", "mistral", "aodh")
    ),
]


@pytest.mark.parametrize(("service", "section", "option"), DEFAULTS_ELSEWHERE)
def test_what_would_be_elsewhere_by_default_is_in_the_state_folder(
    settings: Settings, service: str, section: str, option: str
) -> None:
    sections, _ = configuration.FILES[service]

    assert settings.state in Path(str(sections(settings)[section][option])).parents


def test_no_option_of_mistral_names_a_place_outside_of_the_state_folder(
    written: Settings,
) -> None:
    command = (options_outside.__file__, "mistral", str(written.etc / "mistral" / "mistral.conf"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command, str(written.state)],
        capture_output=True,
        text=True,
        check=True,
    )
    # Read by a way of authentication that is not used.
    unused = ["oslo_middleware", "http_basic_auth_user_file", "/etc/htpasswd"]

    assert [found for found in json.loads(done.stdout) if found != unused] == []


def test_the_processes_temporary_files_are_in_the_state_folder(written: Settings) -> None:
    assert service_processes.environment(written)["TMPDIR"] == str(written.temporary)
    assert written.temporary.is_dir()
    assert written.state in written.temporary.parents


def test_it_can_be_written_again(written: Settings) -> None:
    configuration.write(written)


def test_a_compute_service_does_not_know_the_databases(settings: Settings) -> None:
    for host in HOSTS:
        sections = nova_compute(settings, host)

        assert sections["DEFAULT"]["host"] == host
        assert not {"database", "api_database"} & set(sections)


def test_mistral_has_the_packs_section(settings: Settings) -> None:
    failover = mistral(settings)["failover"]

    assert "/failover?" in str(failover["database"])
    assert failover["command_channel"] == f"emulator+{settings.url('guests')}"
