# SPDX-License-Identifier: Apache-2.0
"""Where a rehearsal cannot be isolated or limited, it is said why; none of this needs root."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mistral_failover.agent.daemon import limits
from mistral_failover.agent.daemon.isolation import TOOLS, Namespaces, NotIsolated
from mistral_failover.agent.daemon.limits import Scope, Unlimited, limits_for
from mistral_failover.agent.daemon.settings import RehearsalSettings


@pytest.fixture
def namespaces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Namespaces:
    """Those of a root whose tools are what a test writes, and without control groups."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(limits, "SYSTEMD", tmp_path / "none")
    monkeypatch.setattr(limits, "_mounts", list)
    for tool in TOOLS:
        write(tmp_path / tool, "exit 0")
    return Namespaces(RehearsalSettings())


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_only_root_isolates(namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    namespaces.try_it(["any"])

    assert namespaces.why_not() == "the agent does not run as root"
    with pytest.raises(NotIsolated, match="root"):
        namespaces.make("r1", lambda _process: None)


def test_a_tool_that_is_missing_is_named(namespaces: Namespaces, tmp_path: Path) -> None:
    (tmp_path / "nsenter").unlink()
    namespaces.try_it(["any"])

    assert namespaces.why_not() == "nsenter of util-linux is not installed"


def test_what_the_kernel_refuses_is_quoted(namespaces: Namespaces, tmp_path: Path) -> None:
    """A container without CAP_SYS_ADMIN."""
    write(
        tmp_path / "unshare", "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1"
    )
    namespaces.try_it(["any"])

    why = namespaces.why_not()
    assert why is not None
    assert why.startswith("no namespaces can be made: unshare")
    assert "Operation not permitted" in why


def test_without_anything_to_rehearse_nothing_is_tried(
    namespaces: Namespaces, tmp_path: Path
) -> None:
    write(tmp_path / "unshare", f"touch {tmp_path}/tried")
    namespaces.try_it([])

    assert namespaces.why_not() == "no command of its file has rehearse"
    assert not (tmp_path / "tried").exists()


def test_a_server_without_control_groups_has_no_limits(namespaces: Namespaces) -> None:
    del namespaces
    found = limits_for("r1", 50.0, 50.0)

    assert isinstance(found, Unlimited)
    assert "no controller for memory" in found.why


def test_where_systemd_runs_a_transient_scope_has_the_limits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(limits, "SYSTEMD", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    found = limits_for("r1", 50.0, 25.0)

    assert isinstance(found, Scope)
    words = found.prefix()
    assert words[:2] == ["systemd-run", "--scope"]
    assert "--unit=failover-rehearsal-r1.scope" in words
    assert "CPUQuota=100%" in words
    assert any(word.startswith("MemoryMax=") for word in words)
