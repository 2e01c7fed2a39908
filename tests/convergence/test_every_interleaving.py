# SPDX-License-Identifier: Apache-2.0
"""Every interleaving of two or three engines on small groups, with all that may go wrong meanwhile.

``HYPOTHESIS_PROFILE=thorough`` explores further. ``-rP`` shows how many states there were.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from support.explorer import Explorer, Left, Wish
from support.samples import thing

EVERY_FAULT = Left(crashes=1, freezes=1, doubles=1, losses=1, overlaps=1)
ACTIVE = {"get_param": "active"}
ECHO_OF_LOW = {"get_attr": ["low", "echo"]}

CHAIN = {
    "low": thing("exclusive", value=ACTIVE),
    "high": thing("shared", "low", value=ECHO_OF_LOW),
}
FORK = {
    "low": thing("held", member=ACTIVE),
    "left": thing("exclusive", "low", value=ACTIVE),
    "right": thing("shared", "low", value=ACTIVE),
}
FAILOVER = {
    "volume": thing("held", member=ACTIVE),
    "application": thing("held", "volume", member=ACTIVE),
    "parameters": thing("shared", "application", value=ACTIVE),
}
CREATE_FIRST = {
    "low": thing("shared", key=ACTIVE),
    "high": thing("shared", "low", value=ECHO_OF_LOW),
}
FOUND_LATE = {  # that "high" must be replaced shows only when "low" has its new value
    "low": thing("shared", value=ACTIVE),
    "high": thing("shared", "low", key=ECHO_OF_LOW),
}
CHANGED = {  # "low" is of another type, "high" is not wanted any more, "new" is
    "low": thing("shared", value=ACTIVE),
    "new": thing("exclusive", value=ACTIVE),
}


def there_and_back(resources: Mapping[str, Any]) -> list[Wish]:
    """A -> B -> A."""
    return [Wish(resources), Wish(resources, "b"), Wish(resources)]


TWO_FAILOVERS = [
    Wish(FAILOVER),
    Wish(FAILOVER, "b", ("a",)),
    Wish(FAILOVER, "c", ("a", "b")),
]
AWAY = [Wish(FAILOVER), Wish(FAILOVER, "b")]
AWAY_FORKED = [Wish(FORK), Wish(FORK, "b")]
REMOVAL = [Wish(FAILOVER), Wish(None)]
AWAY_AND_REMOVED = [Wish(CHAIN), Wish(CHAIN, "b"), Wish(None)]
FLIPS = [Wish({"one": thing("exclusive", value=ACTIVE)}, active) for active in "abab"]
CHANGE = [Wish(CHAIN), Wish(CHANGED), Wish(CHAIN)]

ON_OTHER_FEET = [
    Wish({"left": thing(), "right": thing(), "high": thing("exclusive", "left", value=1)}),
    Wish({"left": thing(), "right": thing(), "high": thing("exclusive", "right", value=2)}),
    Wish(None),
]

Scenario = Callable[[], Explorer]
SMALL: dict[str, Scenario] = {
    "one value flips, and the outcome is unknown": lambda: Explorer(
        *FLIPS, reached=1, faults=Left(failures=2)
    ),
    "one value flips, while engines die": lambda: Explorer(
        *FLIPS, reached=1, faults=Left(crashes=2)
    ),
    "a failover that fails stays where it is": lambda: Explorer(
        *AWAY, reached=1, faults=Left(failures=1, freezes=1)
    ),
    "the group file is changed": lambda: Explorer(
        *CHANGE[:2], reached=1, faults=Left(crashes=1, failures=1)
    ),
    "what is replaced create-first, there and back": lambda: Explorer(
        *there_and_back(CREATE_FIRST), reached=1, faults=Left(crashes=1, doubles=1)
    ),
    "a replacement that shows late, there and back": lambda: Explorer(
        *there_and_back(FOUND_LATE), reached=1, faults=Left(crashes=1, overlaps=1)
    ),
    "a fork moves in the hands of three": lambda: Explorer(
        *AWAY_FORKED, reached=1, engines=3, faults=Left(crashes=1, doubles=1, overlaps=1, strays=1)
    ),
}
MORE: dict[str, Scenario] = {
    "it comes to stand on something else, and all is removed": lambda: Explorer(
        *ON_OTHER_FEET, reached=1, faults=Left(crashes=1)
    ),
    "a chain, there and back, with a crash and a freeze": lambda: Explorer(
        *there_and_back(CHAIN), reached=1, faults=Left(crashes=1, freezes=1)
    ),
    "a chain, away and removed, with every fault": lambda: Explorer(
        *AWAY_AND_REMOVED, reached=1, faults=EVERY_FAULT._replace(overlaps=0)
    ),
    "a fork is made, moves, and moves back": lambda: Explorer(*there_and_back(FORK)),
    "a fork moves, with steps in the middle of steps": lambda: Explorer(
        *AWAY_FORKED, reached=1, faults=Left(freezes=1, doubles=1, overlaps=1)
    ),
    "a failover, with every fault": lambda: Explorer(*AWAY, reached=1, faults=EVERY_FAULT),
    "the target of a failover dies during it": lambda: Explorer(
        *TWO_FAILOVERS, reached=1, faults=Left(doubles=1)
    ),
    "a failover is taken back, with a freeze and a double": lambda: Explorer(
        *there_and_back(FAILOVER), reached=1, faults=Left(freezes=1, doubles=1)
    ),
    "a failover that fails is rolled back": lambda: Explorer(
        *AWAY, reached=1, on_failure="rollback", faults=Left(failures=1, crashes=1, doubles=1)
    ),
    "a failover is blocked, resumed, and overtaken": lambda: Explorer(
        *AWAY, Wish(FAILOVER, "c"), reached=1, faults=Left(blocks=1)
    ),
    "the group is removed, with every fault": lambda: Explorer(
        *REMOVAL, reached=1, faults=EVERY_FAULT
    ),
}
FURTHER: dict[str, Scenario] = {
    "a chain is made, moves, and moves back, with a crash and a freeze": lambda: Explorer(
        *there_and_back(CHAIN), faults=Left(crashes=1, freezes=1)
    ),
    "a fork, there and back, with a crash and a freeze": lambda: Explorer(
        *there_and_back(FORK), reached=1, faults=Left(crashes=1, freezes=1)
    ),
    "a fork, there and back, in the hands of three": lambda: Explorer(
        *there_and_back(FORK), reached=1, engines=3, faults=Left(freezes=1, doubles=1)
    ),
    "the target of a failover dies during it, and an engine too": lambda: Explorer(
        *TWO_FAILOVERS, reached=1, faults=Left(crashes=1, freezes=1)
    ),
    "a failover, with two of every fault": lambda: Explorer(
        *AWAY, reached=1, faults=Left(crashes=2, freezes=2, doubles=2, losses=1)
    ),
    "a rollback that fails as well": lambda: Explorer(
        *AWAY, reached=1, on_failure="rollback", faults=Left(failures=2, crashes=1, freezes=1)
    ),
    "a fork is rolled back, with a crash": lambda: Explorer(
        *AWAY_FORKED, reached=1, on_failure="rollback", faults=Left(failures=2, crashes=1)
    ),
    "a failover is overtaken while it is rolled back": lambda: Explorer(
        *AWAY,
        Wish(FAILOVER, "c"),
        reached=1,
        on_failure="rollback",
        faults=Left(failures=1, overlaps=1),
    ),
    "the group file is changed and changed back": lambda: Explorer(
        *CHANGE, reached=1, faults=Left(crashes=1, freezes=1)
    ),
    "a replacement that shows late, with a failure": lambda: Explorer(
        *there_and_back(FOUND_LATE), faults=Left(failures=1, freezes=1)
    ),
}
SCENARIOS = SMALL | MORE
if os.environ.get("HYPOTHESIS_PROFILE") == "thorough":
    SCENARIOS |= FURTHER
elif os.environ.get("HYPOTHESIS_PROFILE") == "mutants":
    SCENARIOS = SMALL


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_in_any_order_the_newest_goal_is_reached(name: str) -> None:
    explored = SCENARIOS[name]().explore()
    print(f"{name}: {explored}")
    assert explored.rests
