# SPDX-License-Identifier: Apache-2.0
"""Installed systems in folders."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.waiting import until


class Root:
    """An installed Debian without anything else, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, folder: Path, suite: str) -> Root:
        """Make one: what every Debian of this name has that boots, and Python."""
        # The package itself brings Python's modules.
        packages = "--include=python3,init-system-helpers"
        make = ["mmdebstrap", "--quiet", "--variant=minbase", packages, suite, str(folder)]
        subprocess.run(make, check=True, timeout=300)
        return cls(folder)

    def command(self, *words: str) -> list[str]:
        """What runs a command in it, with its own processes and mounts."""
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child=SIGTERM"),
            *(f"--root={self.folder}", "--mount-proc=/proc", *words),
        ]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        )

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator[None]:
        """A program for as long as the block runs; then it gets SIGTERM and must end."""
        ended = self.folder / "tmp" / "ended"
        script = '"$@" & trap "kill $!" TERM; while ! wait; do :; done; touch /tmp/ended'
        process = subprocess.Popen(self.command("sh", "-c", script, "sh", *words))
        try:
            yield
        finally:
            process.kill()  # unshare itself ignores SIGTERM; its child gets one
            process.wait(10)
            until(ended.exists)
            ended.unlink()

    def install(self, package: Path) -> None:
        shutil.copy(package, self.folder / "tmp" / "agent.deb")
        done = self.run("dpkg", "--install", "--force-confold", "/tmp/agent.deb")
        assert done.returncode == 0, done.stdout + done.stderr

    def has(self, path: str) -> bool:
        return (self.folder / path.lstrip("/")).exists()
