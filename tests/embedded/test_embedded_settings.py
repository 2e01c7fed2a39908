# SPDX-License-Identifier: Apache-2.0
"""The configuration is safe by construction: no authentication, so loopback and no code."""

import stat
from pathlib import Path

import pytest
import sqlalchemy

from mistral_failover.embedded import settings, sqlite
from mistral_failover.embedded.server import EmbeddedMistral
from mistral_failover.errors import CodedError


def build(**kwargs: object) -> settings.Settings:
    given = {"state_dir": Path("/s"), "database": "sqlite://", "host": "127.0.0.1", "port": 0}
    return settings.build(**{**given, "threads": 8, **kwargs})


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "localhost", "::", ""])  # noqa: S104
def test_it_listens_on_loopback_only(host, tmp_path):
    with pytest.raises(CodedError) as caught:
        EmbeddedMistral(tmp_path, host=host)
    assert caught.value.code == "LOOPBACK_ONLY"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_any_ipv4_loopback_address_will_do(host):
    assert build(host=host)["api"]["host"] == host


@pytest.mark.parametrize(
    "name",
    [
        "api.host",
        "pecan.auth_enable",
        "action_providers.denylist",
        "action_providers.allowlist",
        "oslo_policy.policy_file",
    ],
)
def test_what_keeps_the_api_safe_cannot_be_overridden(name):
    with pytest.raises(CodedError) as caught:
        build(overrides={name: "x"})
    assert caught.value.code == "SETTING_PINNED"


def test_overrides_reach_any_group_as_text():
    built = build(
        overrides={"engine.x": False, "rpc_response_timeout": 5, "mistral_failover.a": [1, 2]}
    )
    assert built["engine"]["x"] == "false"
    assert built["DEFAULT"]["rpc_response_timeout"] == "5"
    assert built["mistral_failover"]["a"] == "1,2"


def test_keystones_url_is_where_actions_look_for_it():
    built = build(auth_url="http://127.0.0.1:5000/v3")
    assert built["keystone_authtoken"]["www_authenticate_uri"] == "http://127.0.0.1:5000/v3"


def test_the_file_is_for_its_owner_only_even_if_it_was_not(tmp_path):
    (tmp_path / "mistral.conf").touch(mode=0o644)
    file = settings.write(build(), tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "failover-inprocess" in file.read_text()


@pytest.mark.parametrize("database", ["sqlite://", "sqlite:///:memory:", "mysql+pymysql://u@h/d"])
def test_only_a_sqlite_file_gets_kept_connections(database):
    assert "connection_parameters" not in build(database=database)["database"]


def test_the_connections_to_a_sqlite_file_are_kept_and_do_not_wait_for_the_disk(tmp_path):
    url = f"sqlite:///{tmp_path / 'mistral.sqlite'}"
    assert build(database=url)["database"]["connection_parameters"] == f"plugin={sqlite.PLUGIN}"

    engine = sqlalchemy.create_engine(f"{url}?plugin={sqlite.PLUGIN}")
    with engine.connect() as connection:
        modes = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous")
        ]

    assert modes == ["wal", 1]
    assert engine.pool.checkedin() == 1
    engine.dispose()
