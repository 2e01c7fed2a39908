# SPDX-License-Identifier: Apache-2.0
"""What only real services can show. Runs with ``--cloud=real``, against the test cloud."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.cloud_audit import CloudAudit
from testcloud import settings, templates
from testcloud.errors import CloudError
from testcloud.settings import Settings
from testcloud.tenant import ProtectedStack, Tenant

_numbers = itertools.count(1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Nothing here can be run against the emulated cloud."""
    return None if config.getoption("--cloud") == "real" else True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the tests measured (``record_property``)."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            if report.when == "call" and "tests/real_cloud" in report.nodeid:
                for what, value in report.user_properties:
                    terminalreporter.write_line(f"{what}: {value}")


@pytest.fixture(scope="session")
def where() -> Settings:
    """The test cloud."""
    return settings.load()


@pytest.fixture(scope="session")
def demo(where: Settings) -> Tenant:
    """A tenant."""
    return Tenant(where, "demo")


@pytest.fixture(scope="session")
def other(where: Settings) -> Tenant:
    """Another tenant."""
    return Tenant(where, "other")


@pytest.fixture(scope="session")
def operator(where: Settings) -> Tenant:
    """Who runs the cloud."""
    return Tenant(where, "admin")


@pytest.fixture
def swept(demo: Tenant) -> Iterator[None]:
    """The sweep as production runs it: a cron trigger of Mistral's, under a trust that it makes."""
    name = f"sweep-{uuid.uuid4().hex[:6]}"
    trigger = {"name": name, "workflow_name": "failover.sweep", "pattern": "* * * * *"}
    demo.mistral("POST", "cron_triggers", trigger)
    yield
    demo.mistral("DELETE", f"cron_triggers/{name}")


@pytest.fixture(scope="module")
def audited(where: Settings, demo: Tenant, other: Tenant) -> Iterator[CloudAudit]:
    """Watches the module's groups; a test that makes one registers it."""
    made = CloudAudit(where, (demo, other))
    yield made
    made.close()


@pytest.fixture(scope="module")
def protect(
    demo: Tenant, where: Settings, audited: CloudAudit
) -> Iterator[Callable[..., ProtectedStack]]:
    """Create a stack of an example, and wait until it is active; deleted with the module's others,
    all at once, for that takes long. ``group``: further keys of its group, as
    `templates.protected` takes them."""
    made: list[tuple[Tenant, str]] = []

    def make(
        template: str = templates.SERVERS,
        *,
        path: str = "signed",
        tenant: Tenant = demo,
        name: str = "",
        volumes: int = 1,
        also: Mapping[str, Any] | None = None,
        workflow: str | None = None,
        **group: Any,
    ) -> ProtectedStack:
        name = name or f"real-{os.getpid()}-{next(_numbers)}"
        made.append((tenant, name))
        audited.watch(tenant, name)
        tenant.create_stack(
            name,
            templates.protected(template, volumes=volumes, also=also, workflow=workflow, **group),
            alarm_path=path,
            heat_url=where.url("heat-api") + "/v1",
        )
        protected = ProtectedStack(tenant, name)
        protected.wait_until_active()
        return protected

    yield make
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda stack: _tidy(*stack), made))


def _tidy(tenant: Tenant, name: str) -> None:
    """Delete a stack however a test left it: a second time where its group did not go."""
    try:
        tenant.delete_stack(name)
    except CloudError:
        if name in tenant.action("failover.status")["groups"]:
            for member in tenant.action("failover.status", group=name)["lost"]:
                tenant.run(
                    "failover.confirm_fenced", group=name, member=member, because="the test is over"
                )
        tenant.delete_stack(name)


@pytest.fixture(autouse=True)
def _audited(audited: CloudAudit) -> Iterator[None]:
    """After each test every invariant holds (docs/safety.md), by what the cloud, its guests
    and the state store have written down since the module began."""
    audited.look()
    yield
    audited.settle()
    assert audited.violations() == []
