# SPDX-License-Identifier: Apache-2.0
"""A state directory holds the API's token, the webhook's secret and the state store: whatever runs
on one refuses a directory that another user may enter."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mistral_failover import private_files
from mistral_failover.agent.daemon import journal_file
from mistral_failover.embedded import access
from mistral_failover.errors import CodedError
from mistral_failover.lab.drill.scene import Scene
from mistral_failover.server import state_dir

OPEN = [0o755, 0o750, 0o770, 0o701, 0o777]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _server(folder: Path) -> None:
    with state_dir.claimed(folder):
        pass


def _scene(folder: Path) -> None:
    Scene(folder).__enter__()


STARTS: dict[str, Callable[[Path], None]] = {
    "failover server": _server,
    "failover server --check": state_dir.check_free,
    "the embedded Mistral": access.make_private,
    "failover drill": _scene,
}


@pytest.mark.parametrize("what", STARTS)
@pytest.mark.parametrize("bits", OPEN)
def test_a_directory_that_others_may_enter_is_refused_by_whatever_starts_there(
    tmp_path: Path, what: str, bits: int
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(bits)

    with pytest.raises(CodedError) as refused:
        STARTS[what](folder)

    assert refused.value.code == "STATE_DIR_OPEN"
    assert str(folder) in refused.value.message
    assert f"{bits:04o}" in refused.value.message
    assert refused.value.remedy == f"Run: chmod 700 {folder}"
    assert list(folder.iterdir()) == [], "nothing was written into it"


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Give a file to another user, neither this one nor root."""

    def give(path: Path) -> None:
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        if me == 0:
            os.chown(path, 12345, -1)

    return give


def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, give_away: Callable[[Path], None]
) -> None:
    give_away(tmp_path)

    with pytest.raises(CodedError) as refused:
        access.make_private(tmp_path)

    assert refused.value.code == "STATE_DIR_OPEN"
    assert "belongs to another user" in refused.value.message
    assert "chown " in refused.value.remedy


def test_a_directory_that_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        access.make_private(tmp_path / "state")
    finally:
        os.umask(old)

    assert mode(tmp_path / "state") == 0o700


@pytest.mark.drills
@pytest.mark.parametrize("words", [["-m", "mistral_failover.embedded"], ["server", "--emulated"]])
def test_a_program_says_what_helps_and_starts_nothing(tmp_path: Path, words: list[str]) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o755)
    start = [sys.executable, "-m", "mistral_failover.cli.main"] if words[0] == "server" else []
    argv = [*(start or [sys.executable]), *words]
    argv += ["--state-dir", str(folder)] if start else [str(folder)]

    done = subprocess.run(argv, capture_output=True, text=True, timeout=100)

    assert done.returncode == 1
    assert f"chmod 700 {folder}" in done.stderr
    assert list(folder.iterdir()) == []


# -- the files in it


def test_a_link_in_the_place_of_a_lock_or_a_journal_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    for name in ("server.lock", "lock", "journal.sqlite"):
        (folder / name).symlink_to(victim)

    with pytest.raises(CodedError) as server:
        _server(folder)
    with pytest.raises(CodedError) as held:
        journal_file.hold_folder(folder)
    with pytest.raises(CodedError) as opened:
        journal_file.open_file(folder)

    for said in (str(server.value), str(held.value), str(opened.value)):
        assert "symbolic link" in said
    assert victim.read_text() == "precious"


def test_a_journal_s_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    if me == 0:
        os.chown(tmp_path, 12345, -1)

    with pytest.raises(CodedError, match="belongs to another user"):
        journal_file.make_folder(tmp_path)


def test_a_private_file_is_written_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    file.chmod(0o644)
    (tmp_path / "secret.new").symlink_to(tmp_path / "victim")

    private_files.write(file, "new")

    assert (file.read_text(), mode(file)) == ("new", 0o600)
    assert not (tmp_path / "victim").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
def test_root_sends_the_token_of_a_server_that_runs_as_another_user(tmp_path: Path) -> None:
    token = access.token(tmp_path)
    file = tmp_path / access.TOKEN_FILE
    os.chown(file, 12345, -1)

    assert private_files.read(file, for_root=True).decode().strip() == token
    with pytest.raises(private_files.NotPrivate):
        private_files.read(file)
