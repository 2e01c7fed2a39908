# SPDX-License-Identifier: Apache-2.0
"""Workers of this version and of the one before its newest migration, on one store at once.

The earlier one is taken from this checkout's history, so there is nothing to compare with in a
checkout without history, or in an archive of the sources.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mistral_failover.store import schema
from mistral_failover.store.database import Database
from support.databases import fresh_url
from support.pages import ROOT

pytestmark = pytest.mark.faults

VERSIONS = "actions/mistral_failover/store/migrations/versions"
WORKER = ROOT / "tests" / "support" / "version_worker.py"
NEEDED = ("actions", "workflows", "examples", "tests/support")


def git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True).stdout


def names(commit: str) -> set[str]:
    """The migrations of a commit."""
    return set(git("ls-tree", "--name-only", f"{commit}:{VERSIONS}").decode().split())


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the latest commit without the newest migration."""
    now = {path.name for path in (ROOT / VERSIONS).glob("*.py")}
    newest = f"{schema.number(schema.head()):04}"
    before = {name for name in now if not name.startswith(newest)}
    try:
        commits = git("rev-list", "HEAD", "--", VERSIONS).decode().split()
        commit = next(commit for commit in commits if names(commit) == before)
    except (subprocess.CalledProcessError, FileNotFoundError, StopIteration):
        pytest.skip("the history has no commit before the newest migration")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, *NEEDED))) as archive:
        archive.extractall(folder, filter="data")
    # As setup.cfg puts them into the package.
    for name in ("workflows", "examples"):
        (folder / "actions" / "mistral_failover" / name).symlink_to(folder / name)
    return folder


class Worker:
    """A process that works with the sources in a folder."""

    def __init__(self, sources: Path, url: str, owner: str, log: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), url, owner, str(log)],
            env={"PYTHONPATH": f"{sources}/actions:{sources}/tests", "PYTHONSAFEPATH": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hears(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def url(kind: str) -> str:
    return fresh_url(kind, "at_work")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def workers(earlier: Path, url: str, log: Path) -> Iterator[tuple[Worker, Worker]]:
    """A worker of the earlier version that began a traversal, and then one of this version."""
    old = Worker(earlier, url, "old", log)
    old.hears("ready")
    old.say("start a")
    old.hears("done")
    database = Database(url)
    assert schema.revisions(database)[0] != schema.head()
    new = Worker(ROOT, url, "new", log)
    new.hears("ready")
    assert schema.revisions(database)[0] == schema.head()
    database.close()
    yield old, new
    for worker in (old, new):
        worker.close()


def work(workers: tuple[Worker, Worker]) -> None:
    """Both work off the current traversal."""
    for worker in workers:
        worker.say("work")
    for worker in workers:
        worker.hears("done")


def test_two_versions_carry_out_each_operation_once_between_them(
    workers: tuple[Worker, Worker], log: Path
) -> None:
    _, new = workers
    work(workers)  # began before the upgrade
    new.say("start b")
    new.hears("done")
    work(workers)  # begun by the new version

    lines = [line.split() for line in log.read_text().splitlines()]
    carried_out = Counter((traversal, name) for traversal, _, name, _ in lines)
    assert carried_out == {
        (traversal, f"r{number}"): 1
        for traversal in ("traversal-a", "traversal-b")
        for number in range(12)
    }
    assert {owner for *_, owner in lines} == {"old", "new"}
