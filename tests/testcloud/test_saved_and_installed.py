# SPDX-License-Identifier: Apache-2.0
"""What is kept from one start to the next, and when it is not good any more."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from testcloud import hashes, initial_state, package_archive, packages
from testcloud.settings import Settings


@pytest.fixture
def initialised(settings: Settings) -> Settings:
    for part in initial_state.PARTS:
        path = settings.state / part
        if path.suffix:
            settings.secret("admin")
        else:
            path.mkdir(parents=True)
            (path / "file").write_text(part)
    return settings


def test_a_saved_state_comes_back_as_it_was(initialised: Settings) -> None:
    admin = initialised.secret("admin")
    initial_state.save(initialised)
    for part in initial_state.PARTS:
        path = initialised.state / part
        (path / "file" if path.is_dir() else path).unlink()
    initialised.forget_secrets()

    initial_state.restore(initialised)

    assert initialised.secret("admin") == admin
    assert (initialised.data / "mariadb" / "file").read_text() == "data/mariadb"


def test_a_saved_state_is_private_and_the_only_one(initialised: Settings) -> None:
    initialised.saved.mkdir()
    (initialised.saved / "older.tar").touch()

    initial_state.save(initialised)

    (only,) = initialised.saved.iterdir()
    assert stat.S_IMODE(only.stat().st_mode) == 0o600


def test_other_ports_need_another_saved_state(initialised: Settings) -> None:
    initial_state.save(initialised)

    assert initial_state.exists(initialised)
    assert not initial_state.exists(Settings(initialised.state, initialised.first_port + 100))
    assert not initial_state.exists(
        Settings(initialised.state, initialised.first_port, "a password")
    )


def test_other_versions_need_another_saved_state(
    initialised: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    initial_state.save(initialised)
    monkeypatch.setattr(packages, "key", lambda: "newer")

    assert not initial_state.exists(initialised)


def test_a_hash_sees_content_place_and_text_but_not_what_was_built(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "build").mkdir(parents=True)
    (source / "a.py").write_text("1")
    first = hashes.of_files([source])
    (source / "build" / "a.py").write_text("1")
    built = hashes.of_files([source])
    (source / "a.py").rename(source / "b.py")
    moved = hashes.of_files([source])

    assert built == first
    assert len({first, moved, hashes.of_files([source], "more")}) == 3


def test_nothing_is_installed_twice(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(packages, "DEBIAN", {})
    monkeypatch.setattr(packages, "run", lambda command, *rest: ran.append(command))

    packages.install(settings, print)
    packages.install(settings, print)

    assert [command[1] for command in ran] == ["venv", "pip"]


def test_the_packs_workflows_are_asked_for_again_when_the_pack_changed(settings: Settings) -> None:
    assert not package_archive.populated(settings)

    hashes.stamp_with(settings.venv / ".pack", "one")
    hashes.stamp_with(settings.data / "mistral" / "populated", "one")
    assert package_archive.populated(settings)

    hashes.stamp_with(settings.venv / ".pack", "two")
    assert not package_archive.populated(settings)
