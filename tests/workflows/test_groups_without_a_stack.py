# SPDX-License-Identifier: Apache-2.0
"""Groups whose servers and volumes were made without Heat: by Terraform, Ansible, the dashboard.

On the real engine with an emulated cloud.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.operators import Operator
from support.waiting import patiently, until

ACTIVE = {"get_param": "active"}


@pytest.fixture
def group(loose: Callable[..., Any]) -> Any:
    """A database that serves on db_a."""
    group = loose()
    assert "created" in group.define()
    assert group.activate()["status"] == "COMPLETE", group.told()
    return group


def test_a_failover_moves_the_volume_and_the_application(group: Any) -> None:
    assert (group.runs_on(), group.holders()) == (["db_a"], ["db_a"])
    alarm = group.fails()
    assert "group" not in alarm, "the alarm names the server only"

    patiently(group, "on_alarm", **alarm).assert_succeeded()

    status = group.status()
    assert (status["status"], status["roles"], status["stack"]) == (
        "COMPLETE",
        {"active": "db_b"},
        None,
    )
    assert (group.runs_on(), group.holders()) == (["db_b"], ["db_b"])
    assert status["lost"] == ["db_a"]


def test_it_fails_back_once_the_lost_member_is_well(group: Any) -> None:
    patiently(group, "on_alarm", **group.fails()).assert_succeeded()
    Operator(group.cloud).start_server(group.server("db_a"))
    until(lambda: group.cloud.guests()[group.server("db_a")]["running"])
    group.run("failover", group=group.name, lost=[], recovered=["db_a"]).assert_succeeded()

    group.run("failback", group=group.name).assert_succeeded()

    assert (group.runs_on(), group.holders()) == (["db_a"], ["db_a"])
