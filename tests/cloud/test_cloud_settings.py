# SPDX-License-Identifier: Apache-2.0
"""The options of [failover] are read from Mistral's configuration."""

import os
import subprocess
import sys

import pytest
from oslo_config import cfg

from mistral_failover.settings import Settings, load


@pytest.fixture
def parsed(tmp_path):
    def parse(text):
        path = tmp_path / "mistral.conf"
        path.write_text(text)
        conf = cfg.ConfigOpts()
        conf([], project="mistral", default_config_files=[str(path)])
        return conf

    return parse


def test_an_empty_configuration_gives_the_defaults(parsed):
    assert load(parsed("")) == Settings()


def test_the_section_of_the_parsed_configuration_counts(parsed):
    settings = load(parsed("[failover]\nlease = 12.5\ncloud = drill\n"))
    assert (settings.lease, settings.cloud) == (12.5, "drill")


def test_reading_twice_is_harmless(parsed):
    conf = parsed("[failover]\nlease = 12.5\n")
    assert load(conf) == load(conf)


def test_a_process_that_parsed_nothing_reads_the_environment():
    script = (
        "from oslo_config import cfg; from mistral_failover.settings import load; "
        "print(load().lease, 'config_file' in cfg.CONF)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "OS_FAILOVER__LEASE": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["7.0", "False"]


def test_a_value_out_of_range_is_refused(parsed):
    with pytest.raises(cfg.ConfigFileValueError):
        load(parsed("[failover]\nlease = 0\n"))


def test_settings_do_not_show_the_urls_that_carry_passwords():
    shown = repr(Settings(database="mysql://u:hidden@h/d", command_channel="amqp://u:hidden@h"))
    assert "hidden" not in shown


def test_keystone_s_address_is_the_middleware_s_unless_it_is_given(parsed):
    theirs = "[keystone_authtoken]\nwww_authenticate_uri = http://keystone/v3\n"
    assert load(parsed(theirs)).auth_url == "http://keystone/v3"
    assert load(parsed(f"{theirs}[failover]\nauth_url = http://other/v3\n")).auth_url == (
        "http://other/v3"
    )


def test_the_authority_of_the_cloud_is_the_middleware_s_unless_it_is_given(parsed):
    """The request of a cron trigger names none."""
    theirs = "[keystone_authtoken]\ncafile = /etc/ssl/cloud.pem\n"
    assert load(parsed(theirs)).cacert == "/etc/ssl/cloud.pem"
    own = load(parsed(f"{theirs}[failover]\ncacert = /etc/ssl/other.pem\n"))
    assert (own.cacert, own.auth_url) == ("/etc/ssl/other.pem", None)


def test_reading_keystone_s_address_leaves_the_configuration_as_it_was(parsed):
    conf = parsed("[keystone_authtoken]\nwww_authenticate_uri = http://keystone/v3\n")
    load(conf)
    assert "keystone_authtoken" not in conf


def test_files_that_were_taken_away_since_are_no_error(parsed, tmp_path):
    conf = parsed("[failover]\nlease = 12.5\n")
    (tmp_path / "mistral.conf").unlink()
    assert load(conf).auth_url is None
