# SPDX-License-Identifier: Apache-2.0
"""Which tests of the test cloud share a process, and which come first.

``make test-cloud-together`` runs its files beside each other. One of the cloud's hosts may die: the
scheduler puts no server on it that does not ask for it (`testcloud.instances`). All files that use
that host share a process, so that one at a time does.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

_VICTIM = "the host that may die"
_OF_VICTIM = (
    "real_cloud/test_dead_standby.py",
    "real_cloud/test_evacuating.py",
    "contract/test_dead_host.py",
    "contract/test_compute_services.py",
)
_LONG = ("real_cloud/", "contract/test_replacements.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Give each process files, or all files of the host that may die."""
    files = config.getoption("dist") == "loadfile" and config.getoption("--cloud") == "real"
    return _ByHost(config, log) if files else None


class _ByHost(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return _VICTIM if file.endswith(_OF_VICTIM) else file


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes minutes first, so that no process is left alone with it at the end."""
    if config.getoption("--cloud") == "real":
        items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    file = item.nodeid.split("::", 1)[0]
    if file.endswith(_OF_VICTIM):
        return 0
    return 1 if any(part in file for part in _LONG) else 2
