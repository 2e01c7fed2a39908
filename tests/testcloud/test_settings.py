# SPDX-License-Identifier: Apache-2.0
"""Where the cloud lives, and who may read its secrets."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from testcloud.errors import CloudError
from testcloud.settings import FIRST_PORT, PORTS, ROOT, SECRETS, Settings, load


def test_nothing_need_be_given() -> None:
    settings = load({})

    assert settings.state == ROOT / ".cloud"
    assert settings.first_port == FIRST_PORT
    assert settings.password is None


def test_the_environment_moves_folder_and_ports() -> None:
    settings = load({"FAILOVER_CLOUD_STATE": "/srv/cloud", "FAILOVER_CLOUD_PORT": "31000"})

    assert settings.state == Path("/srv/cloud")
    assert settings.auth_url == "http://127.0.0.1:31000/v3"


def test_all_ports_lie_in_one_row_without_a_double() -> None:
    settings = load({})

    assert [settings.port(name) for name in PORTS] == [FIRST_PORT + i for i in range(len(PORTS))]


@pytest.mark.parametrize("port", ["80", "65530", "many", "-1"])
def test_a_port_that_cannot_be_is_refused(port: str) -> None:
    with pytest.raises(CloudError) as refused:
        load({"FAILOVER_CLOUD_PORT": port})

    assert refused.value.code == "BAD_SETTING"
    assert refused.value.remedy


def test_an_unknown_latency_is_refused() -> None:
    with pytest.raises(CloudError, match="BAD_SETTING"):
        load({"FAILOVER_CLOUD_LATENCY": "slow"})


def test_a_folder_too_deep_for_a_socket_is_refused() -> None:
    with pytest.raises(CloudError, match="too long"):
        load({"FAILOVER_CLOUD_STATE": "/" + "deep/" * 20})


def test_passwords_are_random_kept_and_private(settings: Settings) -> None:
    first = {owner: settings.secret(owner) for owner in SECRETS}
    again = Settings(settings.state)

    assert len(set(first.values())) == len(SECRETS)
    assert {owner: again.secret(owner) for owner in SECRETS} == first
    assert stat.S_IMODE(settings.secrets_file.stat().st_mode) == 0o600


def test_a_given_password_is_everybodys(settings: Settings) -> None:
    given = Settings(settings.state, password="open")

    assert given.secret("admin") == given.secret("demo") == "open"
    # Heat takes a key of 32 characters, not a password.
    assert len(given.secret("heat_key")) == 32


def test_secrets_that_came_with_saved_databases_are_read_anew(settings: Settings) -> None:
    settings.secret("admin")
    settings.secrets_file.write_text(json.dumps({"admin": "from the archive"}))

    settings.forget_secrets()

    assert settings.secret("admin") == "from the archive"
