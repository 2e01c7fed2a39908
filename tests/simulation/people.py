# SPDX-License-Identifier: Apache-2.0
"""A person on call: reads status, and does what it says, in its order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from mistral_failover.actions import alarms, orders, recovery, suspensions
from mistral_failover.lab.emulator import faults, guests
from mistral_failover.model.remedies import Need
from mistral_failover.reports import advice
from simulation import moves
from simulation.moves import Play
from simulation.world import GROUP, Project, World

_WHY = "status says so"
_SERVERS = {
    "START_SERVER": {"os-start": None},
    "STOP_SERVER": {"os-stop": None},
    "REBOOT_SERVER": {"reboot": {"type": "HARD"}},
    "UNPAUSE_SERVER": {"unpause": None},
    "CONFIRM_RESIZE": {"confirmResize": None},
}


@dataclass
class OnCall:
    """A person who helps the group of a project in a play."""

    show: Play
    project: Project
    random: Random

    @property
    def world(self) -> World:
        """Where he is."""
        return self.show.world

    def order(self, action: Any, words: str = "") -> None:
        """Have an executor carry out an order."""
        self.show.order(self.random, action, words, self.project)

    def request(self, method: str, path: str, body: Any = None) -> None:
        """Send a request, at once."""
        self.show.later(0.0, lambda: self.world.request(method, path, body, self.project))


def follow(of: OnCall, status: Mapping[str, Any], *, otherwise: bool) -> list[str]:
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
        of.world.tell(f"a person {'does' if taken else 'reads'}: {need.code} {dict(need.fields)}")
        if taken and act is not None:
            tried.append(need.code)
            act(of, need)
        elif not need.instead:
            tried.append(f"({need.code})")
    return tried


def _start(of: OnCall, need: Need) -> None:
    lost, recovered = list(need.value("lost")), list(need.value("recovered"))
    begin = orders.Begin(GROUP, lost=lost or None, recovered=recovered, because=_WHY)
    of.order(begin, f"start {need.fields}")


def _recover(of: OnCall, need: Need) -> None:
    """Recover it where it is healthy: its server runs."""
    (member,) = need.value("member")
    guest = of.world.emulation.state.guests.get(of.project.servers[member])
    if guest is not None and guests.answers(of.world.emulation, guest):
        begin = orders.Begin(GROUP, lost=[], recovered=[member], because=_WHY)
        of.order(begin, f"recover {member}")


def _replace(of: OnCall, need: Need) -> None:
    (member,) = need.value("member")
    action = orders.ReplaceMember(GROUP, member=member, because=_WHY)
    of.order(action, f"replace {member}")


def _confirm(of: OnCall, need: Need) -> None:
    """Make sure first: the host is switched off, and comes back minutes later."""
    (member,) = need.value("member")
    world = of.world
    guest = world.emulation.state.guests.get(of.project.servers[member])
    if guest is not None:
        host = guest.host
        world.strike(faults.strike_host, host, "power_off")
        of.show.kept_off.add(host)
        of.show.later(400.0, lambda: _switch_on(of.show, host))
    of.order(orders.ConfirmFenced(GROUP, member, "I switched it off"), "confirm")


def _switch_on(show: Play, host: str) -> None:
    show.kept_off.discard(host)
    moves.revive_host(show, host)


def _refresh(of: OnCall, need: Need) -> None:
    (server,), (volume,) = need.value("server"), need.value("volume")
    body = {"server_id": server, "volume_id": volume}

    def once_it_is_stopped() -> None:
        for _ in range(30):
            found = of.world.emulation.state.servers.get(server)
            if found is None or found.status == "SHUTOFF":
                break
            of.world.scheduler.sleep(1.0)
        of.world.request("POST", "/emulator/attachments/refresh", body)

    of.show.later(0.0, once_it_is_stopped)


def _resume(of: OnCall, _need: Need) -> None:
    of.order(suspensions.Resume(GROUP, _WHY))


def _decide(of: OnCall, _need: Need) -> None:
    """Admit the held alarms if nothing serves, and dismiss them otherwise."""
    serves = len(of.project.serving()) == 1
    decide = alarms.DismissHeld if serves else alarms.AdmitHeld
    of.order(decide(_WHY, group=GROUP))


def _apply(of: OnCall, _need: Need) -> None:
    begin = orders.Begin(GROUP, lost=[], definition="defined", because=_WHY)
    of.order(begin)


def _sweep(of: OnCall, _need: Need) -> None:
    swept = recovery.Sweep(GROUP)
    of.show.on_executor(of.random, "sweep", lambda each: of.world.sweep(each, swept), of.project)


def _server(of: OnCall, need: Need) -> None:
    (server,) = need.value("server")
    of.request("POST", f"/compute/v2.1/servers/{server}/action", _SERVERS[need.code])


def _detach(of: OnCall, need: Need) -> None:
    (server,), (volume,) = need.value("server"), need.value("volume")
    # No person of this world attaches one: it was left there.
    of.show.oracle.breaks(f"left: volume {volume} on server {server}")
    path = f"/compute/v2.1/servers/{server}/os-volume_attachments/{volume}"
    of.request("DELETE", path)


def _delete(of: OnCall, need: Need) -> None:
    (server,) = need.value("server")
    of.request("DELETE", f"/compute/v2.1/servers/{server}")


_Act = Callable[[OnCall, Need], None]
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
