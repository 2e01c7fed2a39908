# SPDX-License-Identifier: Apache-2.0
"""What a drill plays, and the groups that its stories are about."""

from __future__ import annotations

import pytest

from mistral_failover.cli.drill import ALONE, FAULTS, RECOVERABLE
from mistral_failover.lab.drill import examples, run
from mistral_failover.lab.drill.scenarios import SCENARIOS, replicated, server_may_go
from mistral_failover.model.group import parse_group


def test_the_command_line_offers_every_story() -> None:
    assert set(FAULTS) == set(SCENARIOS)


def test_the_command_line_offers_active_active_with_what_a_member_comes_back_from() -> None:
    assert RECOVERABLE == run.FAULTS
    assert set(run.FAULTS) < set(SCENARIOS)
    assert ALONE == run.FAULTS_ALONE


@pytest.mark.parametrize("volumes", [1, 3])
def test_each_application_of_active_active_is_told_of_its_own_volumes(volumes: int) -> None:
    definition = examples.group(volumes, file=examples.TWO.group, told=True)

    group = parse_group(definition, name="payments")

    assert group.roles == ("orders", "reports")
    for role in group.roles:
        own = [f"{role}_data", *(f"{role}_data_{n}" for n in range(2, volumes + 1))]
        properties = group.resources[f"{role}_database"].properties
        devices = [v["get_attr"][0] for v in properties.values() if "get_attr" in v]
        assert devices == own
        assert set(group.resources[f"{role}_database"].depends_on) == set(own)
    stack = examples.stack(volumes, examples.TWO.stack)["resources"]
    attached = {
        r.properties["volume"] for r in group.resources.values() if "volume" in r.properties
    }
    assert attached == {n for n, r in stack.items() if r["type"] == "OS::Cinder::Volume"}


@pytest.mark.parametrize("volumes", [1, 2])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_group_of_every_story_is_one(name: str, volumes: int) -> None:
    definition = SCENARIOS[name].adapt(examples.group(volumes))

    assert "database" in parse_group(definition, name="payments").resources


def test_a_replicated_application_has_neither_volumes_nor_what_hangs_on_them() -> None:
    given = examples.group(2)

    definition = replicated(given)

    assert set(definition["resources"]) == {"database", "routing"}
    assert "data_device" not in definition["resources"]["database"]["properties"]
    assert "depends_on" not in definition["resources"]["database"]
    assert definition["resources"]["routing"]["depends_on"] == ["database"]
    assert "stop" not in definition["fence"]
    assert given == examples.group(2), "what was given is as it was"


def test_every_volume_s_server_may_go_where_a_dead_host_was_confirmed() -> None:
    resources = server_may_go(examples.group(2))["resources"]

    allowed = {n: r["properties"].get("when_host_is_down") for n, r in resources.items()}
    assert allowed == {
        "data": "delete_server",
        "data_2": "delete_server",
        "database": None,
        "routing": None,
    }
