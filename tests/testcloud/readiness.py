# SPDX-License-Identifier: Apache-2.0
"""Waits until every service answers and every agent has reported itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import requests

from testcloud.access import connect
from testcloud.errors import CloudError
from testcloud.instances import backend
from testcloud.processes import Processes
from testcloud.sections import CONTROLLER
from testcloud.service_processes import INFRASTRUCTURE, services
from testcloud.settings import Settings

LIMIT = 240.0
"""Seconds that a start may take."""


def answers(settings: Settings, name: str) -> bool:
    """Whether an HTTP service gives any answer."""
    try:
        with requests.Session() as http:
            http.trust_env = False
            return http.get(settings.url(name), timeout=5).status_code < 500
    except requests.RequestException:
        return False


def wait_for_api(settings: Settings, name: str) -> None:
    """Wait for one HTTP service's first answer."""
    _until(settings, name, lambda: answers(settings, name), (name,))


def wait_for_agents(settings: Settings) -> None:
    """Wait until Nova, Cinder and Heat see all their services, and lists of servers work.

    Neutron's first list of ports may be an error, which the lists of servers would repeat.
    """
    cloud = connect(settings)
    names = [process.name for process in services(settings)]
    for name, what in (
        ("nova", partial(_nova, hosts=settings.hosts)),
        ("cinder", partial(_cinder, volumes=f"{CONTROLLER}@{backend(settings)}")),
        ("heat", _heat),
        ("lists", _lists),
    ):
        _until(settings, name, partial(what, cloud), names)


def compute_state(settings: Settings, host: str) -> str:
    """What Nova sees of a hypervisor's compute service: up or down.

    :raises CloudError: NO_SUCH_HOST.
    """
    for service in connect(settings).compute.services(binary="nova-compute", host=host):
        return str(service.state)
    raise CloudError(
        "NO_SUCH_HOST", f"Nova has no compute service {host}.", f"One of {settings.hosts}."
    )


def wait_for_compute(settings: Settings, host: str, state: str, limit: float = 90.0) -> float:
    """Wait until Nova sees a compute service up or down; return the seconds it took.

    Down takes up to `service_down_time`, 30 s, after the last report.

    :raises CloudError: NOT_READY after `limit` seconds.
    """
    begun = time.monotonic()
    _until(
        settings,
        f"nova-compute on {host} {state}",
        lambda: compute_state(settings, host) == state,
        (),
        limit,
    )
    return time.monotonic() - begun


def _nova(cloud: Any, hosts: tuple[str, ...]) -> bool:
    up = {(s.binary, s.host) for s in cloud.compute.services() if s.state == "up"}
    wanted = {("nova-compute", host) for host in hosts}
    return up >= wanted | {("nova-conductor", CONTROLLER), ("nova-scheduler", CONTROLLER)}


def _cinder(cloud: Any, volumes: str) -> bool:
    up = {(s.binary, s.host) for s in cloud.block_storage.services() if s.state == "up"}
    return up >= {("cinder-volume", volumes), ("cinder-scheduler", CONTROLLER)}


def _heat(cloud: Any) -> bool:
    answer = cloud.orchestration.get("/services")
    return answer.ok and any(s["status"] == "up" for s in answer.json()["services"])


def _lists(cloud: Any) -> bool:
    list(cloud.network.ports())
    list(cloud.network.ports())
    list(cloud.compute.servers())
    return True


def _until(
    settings: Settings,
    what: str,
    true: Callable[[], bool],
    names: tuple[str, ...] | list[str],
    limit: float = LIMIT,
) -> None:
    """Ask until it is true; give up when one of the processes has died, or after `limit`."""
    processes = Processes(settings)
    deadline = time.monotonic() + limit
    pause, last = 0.1, ""
    while True:
        try:
            if true():
                return
        except Exception as error:  # noqa: BLE001  # a service that is starting says anything
            last = f" It last said: {type(error).__name__}: {str(error)[:200]}"
        for name in names:
            if processes.find(name) is None and name not in INFRASTRUCTURE:
                raise processes.died(name)
        if time.monotonic() > deadline:
            raise CloudError("NOT_READY", f"{what} not ready after {limit:g} s.{last}")
        time.sleep(pause)
        pause = min(1.0, pause * 1.3)
