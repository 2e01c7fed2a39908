# SPDX-License-Identifier: Apache-2.0
"""The hosts' power, and the boards that switch it: Debian's ``ipmi_sim``, one for each host.

``python -m testcloud.machines.power HOST WORDS...`` is what a board calls, as ipmi_sim's man page
says: ``get power`` prints ``power:0`` or ``power:1``, ``set power N`` switches it.
"""

from __future__ import annotations

import sys

from testcloud import service_processes, settings
from testcloud.machines import network, places
from testcloud.processes import Processes
from testcloud.settings import Settings


def is_on(settings: Settings, host: str) -> bool:
    """Whether a host has power."""
    return Processes(settings).find(places.process(host)) is not None


def off(settings: Settings, host: str) -> None:
    """Cut the power of a host: all that runs there ends at this instant."""
    Processes(settings).stop(places.process(host), kill=True)
    network.end_connections(settings, host)


def on(settings: Settings, host: str) -> None:
    """Switch a host on, unless it is."""
    service_processes.start(settings, places.process(host))


def main(host: str, words: list[str]) -> None:
    """Answer a board."""
    where = settings.load()
    while words:
        verb = words.pop(0)
        if verb == "get" and words[:1] == ["power"]:
            print(f"power:{int(is_on(where, host))}")
        elif verb == "set" and words[:1] == ["power"]:
            (on if words[1] == "1" else off)(where, host)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
