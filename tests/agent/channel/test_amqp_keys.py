# SPDX-License-Identifier: Apache-2.0
"""The secret of an installation is read from a file that only Mistral can read."""

import os

import pytest

from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.agent.channel.keys import read_secret

SECRET = b"0123456789abcdef" * 2


@pytest.fixture
def write(tmp_path):
    def make(content, mode=0o600):
        path = tmp_path / "agents.key"
        path.write_bytes(content)
        path.chmod(mode)
        return str(path)

    return make


def refused(path):
    with pytest.raises(ChannelError) as raised:
        read_secret(path)
    assert raised.value.code == "CONFIG"
    assert SECRET.decode() not in f"{raised.value} {raised.value.remedy}"
    return raised.value


def test_white_space_around_the_secret_does_not_count(write):
    assert read_secret(write(b"  " + SECRET + b"\n")) == SECRET


def test_one_that_others_may_read_says_what_else_to_change(write):
    remedy = refused(write(SECRET, 0o644)).remedy
    assert "chmod 600" in remedy
    assert "new member keys" in remedy


def test_a_short_or_unnamed_one_says_how_to_make_it(write):
    for path in (write(SECRET[:31] + b"\n\n\n"), None, ""):
        remedy = refused(path).remedy
        assert "[failover] agent_key_file" in remedy
        assert "openssl rand" in remedy


def test_a_missing_one_is_first_looked_for_on_the_other_executors(tmp_path):
    remedy = refused(str(tmp_path / "none")).remedy
    assert remedy.index("another executor") < remedy.index("openssl rand")


def test_one_that_can_not_be_read_is_not_replaced(tmp_path):
    """A new secret would void the keys of all agents."""
    assert "openssl rand" not in refused(str(tmp_path)).remedy


def test_a_new_secret_is_found(write):
    path = write(SECRET)
    assert read_secret(path) == SECRET
    os.utime(write(b"y" * 40), ns=(1, 1))
    assert read_secret(path) == b"y" * 40
