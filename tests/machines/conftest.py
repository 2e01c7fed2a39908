# SPDX-License-Identifier: Apache-2.0
"""What only real guests, disks and power switches can show: ``make test-machines``."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support import machines
from support.machines import Service
from testcloud import settings
from testcloud.machines import network
from testcloud.settings import Settings
from testcloud.tenant import Tenant

MEASURED = "measured"
_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the length and the seed of a soak, and whether the cloud may be taken down."""
    parser.addoption("--take-down", action="store_true")
    parser.addoption("--soak-minutes", type=float, default=0.0)
    parser.addoption("--soak-seed", type=int, default=None)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the outages of all plays: those of tests beside each other are not seen before."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            if report.when == "call":
                for what, line in report.user_properties:
                    if what == MEASURED:
                        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def where() -> Settings:
    """The machines' cloud, whose network this process uses from now on."""
    found = settings.load({**os.environ, "FAILOVER_CLOUD_MACHINES": "yes"})
    network.enter(found)
    return found


@pytest.fixture(scope="session")
def demo(where: Settings) -> Tenant:
    """A tenant."""
    return Tenant(where, "demo")


@pytest.fixture(scope="session")
def operator(where: Settings) -> Tenant:
    """Who runs the cloud."""
    return Tenant(where, "admin")


@pytest.fixture
def rack(request: pytest.FixtureRequest) -> str:
    """The availability zone whose hosts a test may take. A file has one, so that its tests run one
    after the other, and files beside each other (``--dist loadfile``)."""
    return str(getattr(request.module, "RACK", "rack1"))


@pytest.fixture
def start(demo: Tenant, rack: str, request: pytest.FixtureRequest) -> Callable[..., Service]:
    """Make a service with a ladder of fences, of the demo project unless another ``tenant`` is
    given. Its outages are printed now, and at the end of all tests; of one that could not be made
    nothing is left."""

    def started(*fence: Any, tenant: Tenant | None = None, **more: Any) -> Service:
        name = f"machines-{os.getpid()}-{next(_numbers)}"
        try:
            return Service(tenant or demo, name, fence, rack, _teller(request), **more)
        except BaseException:
            machines.tidy(tenant or demo, name)
            raise

    return started


@pytest.fixture
def protect(
    start: Callable[..., Service], where: Settings, operator: Tenant, rack: str
) -> Iterator[Callable[..., Service]]:
    """Make a service with a ladder of fences. Afterwards hosts and stacks are as before."""
    made: list[Service] = []

    def make(*fence: Any, **more: Any) -> Service:
        made.append(start(*fence, **more))
        return made[-1]

    yield make
    if not made:  # it was skipped: another test may be at work in the rack
        return
    for service in made:
        service.ledger.stop()
    # While it serves: a host that is restored may lose its power, and a single server with it.
    serving = [each for each in made if len(each.members) == 1 and each.group.active()]
    for service in serving:
        machines.tidy(service.tenant, service.name)
    machines.restore_hosts(where, operator, rack)
    for service in (each for each in made if each not in serving):
        machines.tidy(service.tenant, service.name)


@pytest.fixture(scope="module")
def kept(demo: Tenant) -> Iterator[dict[str, Service]]:
    """The services of a file that several of its tests use, by their ladders."""
    services: dict[str, Service] = {}
    yield services
    for service in services.values():
        machines.tidy(demo, service.name)


@pytest.fixture
def protected(
    start: Callable[..., Service],
    kept: dict[str, Service],
    where: Settings,
    demo: Tenant,
    operator: Tenant,
    rack: str,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Service]]:
    """A service with a ladder of fences: the one of an earlier test of the file, with a new server
    in place of the lost one, or a new one. Afterwards the hosts are as before; a test that fails
    leaves no service."""
    failed = request.session.testsfailed
    used: list[str] = []

    def find(*fence: Any) -> Service:
        ladder = repr(fence)
        used.append(ladder)
        if ladder in kept and not kept[ladder].runs():
            machines.tidy(demo, kept.pop(ladder).name)
        if (service := kept.get(ladder)) is None:
            service = kept[ladder] = start(*fence)
        else:
            service.make_whole(_teller(request))
        return service

    yield find
    services = {ladder: kept[ladder] for ladder in used if ladder in kept}
    for service in services.values():
        service.ledger.stop()
    machines.restore_hosts(where, operator, rack)
    if request.session.testsfailed > failed:
        for ladder, service in services.items():
            del kept[ladder]
            machines.tidy(demo, service.name)


def _teller(request: pytest.FixtureRequest) -> Callable[[str], None]:
    def tell(line: str) -> None:
        print(f"\n{line}", flush=True)
        request.node.user_properties.append((MEASURED, line))

    return tell
