# SPDX-License-Identifier: Apache-2.0
"""Every interleaving of two or three engines on small groups, with all that may go wrong meanwhile.

``HYPOTHESIS_PROFILE=deep`` (in ``make test-deep``) and ``thorough`` explore far more scenarios.
``-rP`` shows how many states there were.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from support.explorer import Explorer
from support.samples import sample_resource
from support.states import ChosenGoal, RemainingEvents

pytestmark = pytest.mark.deep

EVERY_FAULT = RemainingEvents(crashes=1, freezes=1, doubles=1, losses=1, overlaps=1)
ACTIVE = {"get_param": "active"}
ECHO_OF_LOW = {"get_attr": ["low", "echo"]}

CHAIN = {
    "low": sample_resource("exclusive", value=ACTIVE),
    "high": sample_resource("shared", "low", value=ECHO_OF_LOW),
}
FORK = {
    "low": sample_resource("held", member=ACTIVE),
    "left": sample_resource("exclusive", "low", value=ACTIVE),
    "right": sample_resource("shared", "low", value=ACTIVE),
}
FAILOVER = {
    "volume": sample_resource("held", member=ACTIVE),
    "application": sample_resource("held", "volume", member=ACTIVE),
    "parameters": sample_resource("shared", "application", value=ACTIVE),
}
CREATE_FIRST = {
    "low": sample_resource("shared", key=ACTIVE),
    "high": sample_resource("shared", "low", value=ECHO_OF_LOW),
}
FOUND_LATE = {  # that "high" must be replaced shows only when "low" has its new value
    "low": sample_resource("shared", value=ACTIVE),
    "high": sample_resource("shared", "low", key=ECHO_OF_LOW),
}
CHANGED = {  # "low" is of another type, "high" is not wanted any more, "new" is
    "low": sample_resource("shared", value=ACTIVE),
    "new": sample_resource("exclusive", value=ACTIVE),
}


def there_and_back(resources: Mapping[str, Any]) -> list[ChosenGoal]:
    """A -> B -> A."""
    return [ChosenGoal(resources), ChosenGoal(resources, "b"), ChosenGoal(resources)]


TWO_FAILOVERS = [
    ChosenGoal(FAILOVER),
    ChosenGoal(FAILOVER, "b", ("a",)),
    ChosenGoal(FAILOVER, "c", ("a", "b")),
]
AWAY = [ChosenGoal(FAILOVER), ChosenGoal(FAILOVER, "b")]
AWAY_FORKED = [ChosenGoal(FORK), ChosenGoal(FORK, "b")]
REMOVAL = [ChosenGoal(FAILOVER), ChosenGoal(None)]
AWAY_AND_REMOVED = [ChosenGoal(CHAIN), ChosenGoal(CHAIN, "b"), ChosenGoal(None)]
FLIPS = [
    ChosenGoal({"one": sample_resource("exclusive", value=ACTIVE)}, active) for active in "abab"
]
CHANGE = [ChosenGoal(CHAIN), ChosenGoal(CHANGED), ChosenGoal(CHAIN)]

ON_OTHER_FEET = [
    ChosenGoal(
        {
            "left": sample_resource(),
            "right": sample_resource(),
            "high": sample_resource("exclusive", "left", value=1),
        }
    ),
    ChosenGoal(
        {
            "left": sample_resource(),
            "right": sample_resource(),
            "high": sample_resource("exclusive", "right", value=2),
        }
    ),
    ChosenGoal(None),
]

Scenario = Callable[[], Explorer]
SMALL: dict[str, Scenario] = {
    "one value flips, and the outcome is unknown": lambda: Explorer(
        *FLIPS, reached=1, faults=RemainingEvents(failures=2)
    ),
    "one value flips, while engines die": lambda: Explorer(
        *FLIPS, reached=1, faults=RemainingEvents(crashes=2)
    ),
    "a failover that fails stays where it is": lambda: Explorer(
        *AWAY, reached=1, faults=RemainingEvents(failures=1, freezes=1)
    ),
    "the group file is changed": lambda: Explorer(
        *CHANGE[:2], reached=1, faults=RemainingEvents(crashes=1, failures=1)
    ),
    "what is replaced create-first, there and back": lambda: Explorer(
        *there_and_back(CREATE_FIRST), reached=1, faults=RemainingEvents(crashes=1, doubles=1)
    ),
}
DEEP: dict[str, Scenario] = {
    "a request is given up, and the goal changes": lambda: Explorer(
        *there_and_back(FAILOVER)[:2],
        ChosenGoal(FAILOVER),
        reached=1,
        faults=RemainingEvents(lates=1),
    ),
    "a replacement that shows late, there and back": lambda: Explorer(
        *there_and_back(FOUND_LATE), reached=1, faults=RemainingEvents(crashes=1, overlaps=1)
    ),
    "a fork moves in the hands of three": lambda: Explorer(
        *AWAY_FORKED,
        reached=1,
        engines=3,
        faults=RemainingEvents(crashes=1, doubles=1, overlaps=1, strays=1),
    ),
    "it comes to stand on something else, and all is removed": lambda: Explorer(
        *ON_OTHER_FEET, reached=1, faults=RemainingEvents(crashes=1)
    ),
    "a fork moves, with steps in the middle of steps": lambda: Explorer(
        *AWAY_FORKED, reached=1, faults=RemainingEvents(freezes=1, doubles=1, overlaps=1)
    ),
    "a failover, with every fault": lambda: Explorer(*AWAY, reached=1, faults=EVERY_FAULT),
    "the target of a failover dies during it": lambda: Explorer(
        *TWO_FAILOVERS, reached=1, faults=RemainingEvents(doubles=1)
    ),
    "a failover that fails is rolled back": lambda: Explorer(
        *AWAY,
        reached=1,
        on_failure="rollback",
        faults=RemainingEvents(failures=1, crashes=1, doubles=1),
    ),
    "a failover is blocked, resumed, and overtaken": lambda: Explorer(
        *AWAY, ChosenGoal(FAILOVER, "c"), reached=1, faults=RemainingEvents(blocks=1)
    ),
    "the group is removed, with every fault": lambda: Explorer(
        *REMOVAL, reached=1, faults=EVERY_FAULT
    ),
    "a chain, there and back, with a crash and a freeze": lambda: Explorer(
        *there_and_back(CHAIN), reached=1, faults=RemainingEvents(crashes=1, freezes=1)
    ),
    "a chain, away and removed, with every fault": lambda: Explorer(
        *AWAY_AND_REMOVED, reached=1, faults=EVERY_FAULT._replace(overlaps=0)
    ),
    "a fork is made, moves, and moves back": lambda: Explorer(*there_and_back(FORK)),
    "a failover is taken back, with a freeze and a double": lambda: Explorer(
        *there_and_back(FAILOVER), reached=1, faults=RemainingEvents(freezes=1, doubles=1)
    ),
}
FURTHER: dict[str, Scenario] = {
    "a chain is made, moves, and moves back, with a crash and a freeze": lambda: Explorer(
        *there_and_back(CHAIN), faults=RemainingEvents(crashes=1, freezes=1)
    ),
    "a fork, there and back, with a crash and a freeze": lambda: Explorer(
        *there_and_back(FORK), reached=1, faults=RemainingEvents(crashes=1, freezes=1)
    ),
    "a fork, there and back, in the hands of three": lambda: Explorer(
        *there_and_back(FORK), reached=1, engines=3, faults=RemainingEvents(freezes=1, doubles=1)
    ),
    "the target of a failover dies during it, and an engine too": lambda: Explorer(
        *TWO_FAILOVERS, reached=1, faults=RemainingEvents(crashes=1, freezes=1)
    ),
    "a failover, with two of every fault": lambda: Explorer(
        *AWAY, reached=1, faults=RemainingEvents(crashes=2, freezes=2, doubles=2, losses=1)
    ),
    "a rollback that fails as well": lambda: Explorer(
        *AWAY,
        reached=1,
        on_failure="rollback",
        faults=RemainingEvents(failures=2, crashes=1, freezes=1),
    ),
    "a fork is rolled back, with a crash": lambda: Explorer(
        *AWAY_FORKED,
        reached=1,
        on_failure="rollback",
        faults=RemainingEvents(failures=2, crashes=1),
    ),
    "a failover is overtaken while it is rolled back": lambda: Explorer(
        *AWAY,
        ChosenGoal(FAILOVER, "c"),
        reached=1,
        on_failure="rollback",
        faults=RemainingEvents(failures=1, overlaps=1),
    ),
    "the group file is changed and changed back": lambda: Explorer(
        *CHANGE, reached=1, faults=RemainingEvents(crashes=1, freezes=1)
    ),
    "a replacement that shows late, with a failure": lambda: Explorer(
        *there_and_back(FOUND_LATE), faults=RemainingEvents(failures=1, freezes=1)
    ),
}
SCENARIOS = {
    "deep": DEEP,
    "thorough": DEEP | FURTHER,
}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), SMALL)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_in_any_order_the_newest_goal_is_reached(name: str) -> None:
    explored = SCENARIOS[name]().explore()
    print(f"{name}: {explored}")
    assert explored.rests
