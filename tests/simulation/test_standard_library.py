# SPDX-License-Identifier: Apache-2.0
"""Programs that use the standard library run on the simulated one as they are, in virtual time.
Each runs in a process of its own, because the library is replaced for good."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
_FRAME = """
from simulation.standard_library import install
from simulation.scheduler import BEGIN, Process, Scheduler
scheduler = Scheduler(7)
install(scheduler)
import queue, random, socket, threading, time, uuid, os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
said = []
def main():
{body}
scheduler.spawn(Process("host-a", 4711), main, "main")
scheduler.run(BEGIN + 3600)
print(said)
os._exit(0)
"""
PROGRAMS = {
    "a pool of threads": (
        """
        with ThreadPoolExecutor(3) as pool:
            def work(n):
                time.sleep(n)
                return n
            said.append(sorted(pool.map(work, [5, 3, 4])))
        said.append(time.time() - BEGIN)
        """,
        [[3, 4, 5], 5.0],
    ),
    "a condition with a limit": (
        """
        condition = threading.Condition()
        with condition:
            said.append(condition.wait_for(lambda: False, timeout=2.5))
        said.append(time.monotonic() - BEGIN)
        """,
        [False, 2.5],
    ),
    "a lock that another thread holds": (
        """
        lock = threading.RLock()
        def hold():
            with lock, lock:
                time.sleep(4)
        thread = threading.Thread(target=hold)
        thread.start()
        time.sleep(1)
        said.append(lock.acquire(timeout=1))
        with lock:
            said.append(time.time() - BEGIN)
        thread.join()
        said.append(thread.is_alive())
        """,
        [False, 4.0, False],
    ),
    "a queue": (
        """
        items = queue.Queue()
        def put():
            time.sleep(2)
            items.put("thing")
        threading.Thread(target=put).start()
        said.append(items.get(timeout=9))
        try:
            items.get(timeout=3)
        except queue.Empty:
            said.append(time.time() - BEGIN)
        """,
        ["thing", 5.0],
    ),
    "what each thread has of its own": (
        """
        class Own(threading.local):
            def __init__(self, first):
                self.seen = [first]
        own = Own("x")
        own.seen.append("main")
        def look():
            said.append(list(own.seen))
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        said.append(own.seen)
        """,
        [["x"], ["x", "main"]],
    ),
    "dates and the names of processes": (
        """
        time.sleep(60)
        said.append(datetime.now(UTC).isoformat())
        said.append(isinstance(datetime.now(), datetime))
        said.append((os.getpid(), socket.gethostname()))
        """,
        ["2027-01-15T08:01:00+00:00", True, (4711, "host-a")],
    ),
}


def _run(body: str) -> str:
    program = _FRAME.format(body=textwrap.indent(textwrap.dedent(body), "    "))
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_as_it_is(name: str) -> None:
    body, said = PROGRAMS[name]
    assert _run(body) == str(said)


def test_chance_comes_from_the_seed() -> None:
    body = "said.append((uuid.uuid4().hex, random.random(), os.urandom(4), random.choice('abc')))"
    assert _run(body) == _run(body)


def test_it_refuses_to_come_too_late() -> None:
    program = "import sqlalchemy; " + _FRAME.format(body="    pass")
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert "imported before the simulated library: sqlalchemy" in ended.stderr
