# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.mutants [module ...]``: would the tests notice if the core were wrong?

mutmut changes one expression at a time in the modules that hold locks, count sync points, check
and conclude, and runs the tests of the store and of the core against each change. What survives
is printed as a diff, with the counts. Settings: ``[tool.mutmut]`` in pyproject.toml.

mutmut imports what it mutates from ``src``, so everything is copied below ``build/mutants`` first;
edits made meanwhile do not disturb it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAGE = ROOT / "build" / "mutants"
TESTS = ("store", "convergence")

COPIED = (*TESTS, "support")


def main() -> int:
    """Mutate the modules of ``[tool.mutmut]``, or those named, such as ``store.records``."""
    parser = argparse.ArgumentParser(prog="bench.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="such as store.records")
    parser.add_argument("--again", action="store_true", help="keep results of what did not change")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="default: all cores")
    chosen = parser.parse_args()
    begun = time.monotonic()
    _stage(fresh=not chosen.again)
    patterns = [f"mistral_failover.{module}.*" for module in chosen.modules]
    with tempfile.TemporaryDirectory(prefix="failover-mutants-") as scratch:
        children = str(chosen.processes)
        code = _mutmut("run", "--max-children", children, *patterns, scratch=scratch).returncode
    if code:
        print("mutmut failed; do the tests pass without any mutant?", file=sys.stderr)
        tests = [f"tests/{name}" for name in TESTS]
        # The package is the installed one here, which the copy was made from.
        _run([sys.executable, "-m", "pytest", "-x", "-q", *tests])
        return code
    _print_survivors()
    print(f"   ({time.monotonic() - begun:.0f} s)")
    return 0


def _stage(*, fresh: bool) -> None:
    if fresh:
        shutil.rmtree(STAGE, ignore_errors=True)
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    copies = {
        "src": ROOT / "actions",
        **{f"tests/{name}": ROOT / "tests" / name for name in COPIED},
    }
    for name, source in copies.items():
        # With new times, so that mutmut looks at every file again.
        shutil.copytree(
            source, STAGE / name, ignore=unwanted, dirs_exist_ok=True, copy_function=shutil.copy
        )
    shutil.copy2(ROOT / "tests" / "conftest.py", STAGE / "tests")
    shutil.copy2(ROOT / "pyproject.toml", STAGE)


def _mutmut(
    *arguments: str, scratch: str | None = None, capture: bool = False
) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("mutmut")
    return _run([str(tool), *arguments], scratch=scratch, capture=capture)


def _run(
    command: list[str], *, scratch: str | None = None, capture: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run something in the stage, as the mutants are run."""
    environment = {
        **os.environ,
        "HYPOTHESIS_PROFILE": "mutants",
        # Workers leave without tidying up, so their databases go with the whole folder.
        "TMPDIR": scratch or tempfile.gettempdir(),
    }
    environment.pop("FAILOVER_TEST_DATABASE", None)
    return subprocess.run(
        command, cwd=STAGE, env=environment, text=True, capture_output=capture, check=False
    )


def _print_survivors() -> None:
    for line in _mutmut("results", capture=True).stdout.splitlines():
        name, _, status = line.strip().partition(": ")
        if status and status not in ("killed", "timeout", "not checked"):
            print(_mutmut("show", name, capture=True).stdout)
    _mutmut("export-cicd-stats", capture=True)
    counts = json.loads((STAGE / "mutants" / "mutmut-cicd-stats.json").read_text())
    print("   mutants   killed   timeout   survived   not covered   not run")
    known = [counts[name] for name in ("total", "killed", "timeout", "survived", "no_tests")]
    not_run = known[0] - sum(known[1:])
    total, killed, timeout, survived, no_tests = known
    print(f"   {total:7} {killed:8} {timeout:9} {survived:10} {no_tests:13} {not_run:9}")


if __name__ == "__main__":
    sys.exit(main())
