# SPDX-License-Identifier: Apache-2.0
"""Which cloud the tests of the contract run against, and how far properties are searched."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = (
    "support.browser",
    "support.cloud_order",
    "support.group_fixtures",
    "support.packages",
)

# What a user has exported for their own cloud or server is not for the tests: they name theirs.
for _name in [name for name in os.environ if name.startswith(("OS_", "FAILOVER_"))]:
    if _name != "FAILOVER_TEST_DATABASE":
        del os.environ[_name]

# Programs that the tests start run under this Python. The one on a user's path may be a script that
# looks for a Python first, which takes a tenth of a second each time.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def _keep_files_in_memory() -> None:
    """Write temporary files to memory: every commit of a state store waits for its disk. A power
    loss is tested elsewhere, on disks of guests."""
    memory = Path("/dev/shm")  # noqa: S108 - each run makes a folder of its own in it
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK):
        return
    if os.statvfs(memory).f_flag & os.ST_NOEXEC or shutil.disk_usage(memory).free < 2 << 30:
        return
    os.environ["TMPDIR"] = tempfile.tempdir = str(memory)


_keep_files_in_memory()

# The same examples in every run: what a change did not touch does not fail it.
settings.register_profile(
    "quick",
    max_examples=20,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("deep", settings.get_profile("quick"), max_examples=100)
settings.register_profile("random", settings.get_profile("quick"), derandomize=False)
settings.register_profile(
    "thorough", settings.get_profile("random"), max_examples=1000, stateful_step_count=60
)
settings.register_profile("mutants", settings.get_profile("quick"), max_examples=6)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


# Nothing that is imported and collected is garbage: a sixth of the collection's time.
gc.disable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """In the lanes that look for their mark everywhere, do not import what does not have it: each
    process of the tests would do so for seconds."""
    mark = config.option.markexpr
    if mark not in ("drills", "faults") or not fnmatch(collection_path.name, "test_*.py"):
        return None
    return mark not in collection_path.read_text("utf-8") or None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Spare the garbage collections to come what was imported and collected: it stays. That is a
    seventh of the CPU time of the tests."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Look once for exceptions in what is garbage. pytest does so five times over all that is
    still in use, seconds in each process."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --cloud, --record, --octavia, --designate and --keystone."""
    parser.addoption(
        "--cloud",
        choices=("emulated", "real"),
        default="emulated",
        help="what tests/contract and tests/real_cloud run against; real: the test cloud, up",
    )
    parser.addoption(
        "--record",
        metavar="FOLDER",
        default="",
        help="tests/contract writes the forms of what the cloud answers into this folder",
    )
    parser.addoption(
        "--octavia",
        action="store_true",
        help="tests/contract/test_load_balancers.py installs and starts a real Octavia",
    )
    parser.addoption(
        "--designate",
        action="store_true",
        help="tests/contract/test_dns_records.py installs and starts a real Designate",
    )
    parser.addoption(
        "--keystone",
        action="store_true",
        help="tests/contract/test_keystone.py installs and starts a real Keystone",
    )
