# SPDX-License-Identifier: Apache-2.0
"""What a drill plays, and the groups that its stories are about."""

from __future__ import annotations

import pytest

from mistral_failover.cli.drill import FAULTS
from mistral_failover.drill import examples
from mistral_failover.drill.stories import STORIES, replicated, server_may_go
from mistral_failover.model.group import parse_group


def test_the_command_line_offers_every_story() -> None:
    assert set(FAULTS) == set(STORIES)


@pytest.mark.parametrize("volumes", [1, 2])
@pytest.mark.parametrize("name", STORIES)
def test_the_group_of_every_story_is_one(name: str, volumes: int) -> None:
    definition = STORIES[name].adapt(examples.group(volumes))

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
