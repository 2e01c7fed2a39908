# SPDX-License-Identifier: Apache-2.0
"""A person on call: reads status, and does what it says, in its order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from mistral_failover.actions import alarms, orders, recovery, suspensions
from mistral_failover.lab.emulator import faults, guests
from mistral_failover.model.remedies import Need
from mistral_failover.reports import advice
from simulation import moves
from simulation.moves import Play
from simulation.world import GROUP

_WHY = "status says so"
_SERVERS = {
    "START_SERVER": {"os-start": None},
    "STOP_SERVER": {"os-stop": None},
    "REBOOT_SERVER": {"reboot": {"type": "HARD"}},
    "UNPAUSE_SERVER": {"unpause": None},
}


def follow(show: Play, status: Mapping[str, Any], random: Random, *, otherwise: bool) -> list[str]:
    """Do what status says; return the codes of the remedies that were tried, in parentheses of
    those that cannot be carried out in this world. ``otherwise``: take the other way that it
    names."""
    found = [each for each in advice.needs(status) if not each.remedy.optional]  # type: ignore[arg-type]
    if otherwise:
        found = [each for each in found if each.instead] or found
    tried = []
    for need in found:
        act = _ACTS.get(need.code) or (_server if need.code in _SERVERS else None)
        taken = act is not None and (otherwise or not need.instead)
        show.world.tell(f"a person {'does' if taken else 'reads'}: {need.code} {dict(need.fields)}")
        if taken and act is not None:
            tried.append(need.code)
            act(show, need, random)
        elif not need.instead:
            tried.append(f"({need.code})")
    return tried


def _start(show: Play, need: Need, random: Random) -> None:
    lost, recovered = list(need.value("lost")), list(need.value("recovered"))
    begin = orders.Begin(GROUP, lost=lost or None, recovered=recovered, because=_WHY)
    show.order(random, begin, f"start {need.fields}")


def _recover(show: Play, need: Need, random: Random) -> None:
    """Recover it where it is healthy: its server runs."""
    (member,) = need.value("member")
    guest = show.world.emulation.state.guests.get(show.world.mine.servers[member])
    if guest is not None and guests.answers(show.world.emulation, guest):
        begin = orders.Begin(GROUP, lost=[], recovered=[member], because=_WHY)
        show.order(random, begin, f"recover {member}")


def _replace(show: Play, need: Need, random: Random) -> None:
    (member,) = need.value("member")
    action = orders.ReplaceMember(GROUP, member=member, because=_WHY)
    show.order(random, action, f"replace {member}")


def _confirm(show: Play, need: Need, random: Random) -> None:
    """Make sure first: the host is switched off, and comes back minutes later."""
    (member,) = need.value("member")
    world = show.world
    guest = world.emulation.state.guests.get(world.mine.servers[member])
    if guest is not None:
        host = guest.host
        world.strike(faults.strike_host, host, "power_off")
        show.kept_off.add(host)
        show.later(400.0, lambda: _switch_on(show, host))
    show.order(random, orders.ConfirmFenced(GROUP, member, "I switched it off"), "confirm")


def _switch_on(show: Play, host: str) -> None:
    show.kept_off.discard(host)
    moves.revive_host(show, host)


def _refresh(show: Play, need: Need, _random: Random) -> None:
    (server,), (volume,) = need.value("server"), need.value("volume")
    body = {"server_id": server, "volume_id": volume}

    def once_it_is_stopped() -> None:
        for _ in range(30):
            found = show.world.emulation.state.servers.get(server)
            if found is None or found.status == "SHUTOFF":
                break
            show.world.scheduler.sleep(1.0)
        show.world.request("POST", "/emulator/attachments/refresh", body)

    show.later(0.0, once_it_is_stopped)


def _resume(show: Play, _need: Need, random: Random) -> None:
    show.order(random, suspensions.Resume(GROUP, _WHY))


def _decide(show: Play, _need: Need, random: Random) -> None:
    """Admit the held alarms if nothing serves, and dismiss them otherwise."""
    serves = len(show.world.mine.serving()) == 1
    decide = alarms.DismissHeld if serves else alarms.AdmitHeld
    show.order(random, decide(_WHY, group=GROUP))


def _apply(show: Play, _need: Need, random: Random) -> None:
    begin = orders.Begin(GROUP, lost=[], definition="defined", because=_WHY)
    show.order(random, begin)


def _sweep(show: Play, _need: Need, random: Random) -> None:
    show.on_executor(random, "sweep", lambda each: show.world.sweep(each, recovery.Sweep(GROUP)))


def _server(show: Play, need: Need, _random: Random) -> None:
    (server,) = need.value("server")
    moves.by_api(show, "POST", f"/compute/v2.1/servers/{server}/action", _SERVERS[need.code])


def _detach(show: Play, need: Need, _random: Random) -> None:
    (server,), (volume,) = need.value("server"), need.value("volume")
    path = f"/compute/v2.1/servers/{server}/os-volume_attachments/{volume}"
    moves.by_api(show, "DELETE", path, None)


def _delete(show: Play, need: Need, _random: Random) -> None:
    (server,) = need.value("server")
    moves.by_api(show, "DELETE", f"/compute/v2.1/servers/{server}", None)


_Act = Callable[[Play, Need, Random], None]
_ACTS: dict[str, _Act] = {
    **dict.fromkeys(
        ("MOVE", "MOVE_SILENT", "MOVE_TO_RECOVERED", "BRING_BACK", "FENCE_AGAIN", "START"), _start
    ),
    **dict.fromkeys(("SWEEP", "CONTINUE", "START_AGAIN", "START_OF_ALARM", "CLEAN_UP"), _sweep),
    "RECOVER": _recover,
    "REPLACE": _replace,
    "CONFIRM_FENCED": _confirm,
    "DELETE_SERVER": _delete,
    "DETACH_VOLUME": _detach,
    "REFRESH_ATTACHMENT": _refresh,
    "RESUME": _resume,
    "END_MAINTENANCE": _resume,
    "DECIDE_ALARMS": _decide,
    "APPLY": _apply,
}
"""What a person of this world can do, by the code of the remedy."""
