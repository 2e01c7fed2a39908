# SPDX-License-Identifier: Apache-2.0
"""What is kept from one start to the next, and when it is not good any more."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from testcloud import hashes, package_archive, packages, saved_databases
from testcloud.settings import Settings


@pytest.fixture
def initialised(settings: Settings) -> Settings:
    for part in saved_databases.PARTS:
        path = settings.state / part
        if path.suffix:
            settings.secret("admin")
        else:
            path.mkdir(parents=True)
            (path / "file").write_text(part)
    return settings


def test_saved_databases_come_back_as_they_were(initialised: Settings) -> None:
    admin = initialised.secret("admin")
    saved_databases.save(initialised)
    for part in saved_databases.PARTS:
        path = initialised.state / part
        (path / "file" if path.is_dir() else path).unlink()
    initialised.forget_secrets()

    saved_databases.restore(initialised)

    assert initialised.secret("admin") == admin
    assert (initialised.data / "mariadb" / "file").read_text() == "data/mariadb"


def test_saved_databases_are_private_and_the_only_ones(initialised: Settings) -> None:
    initialised.saved.mkdir()
    (initialised.saved / "older.tar").touch()

    saved_databases.save(initialised)

    (only,) = initialised.saved.iterdir()
    assert stat.S_IMODE(only.stat().st_mode) == 0o600


def test_a_cloud_of_the_other_kind_and_with_other_ports_takes_the_same_databases(
    initialised: Settings,
) -> None:
    saved_databases.save(initialised)
    machines = Settings(initialised.state / "machines", initialised.first_port + 100, machines=True)

    assert saved_databases.exist(initialised)
    assert saved_databases.exist(machines)
    assert not saved_databases.exist(Settings(initialised.state, password="another"))


def test_other_versions_need_other_databases(
    initialised: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_databases.save(initialised)
    monkeypatch.setattr(packages, "key", lambda: "newer")

    assert not saved_databases.exist(initialised)


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

    packages.install_services(settings, print)
    packages.install_services(settings, print)

    assert [command[1] for command in ran] == ["venv", "pip"]


def test_the_packs_workflows_are_asked_for_again_when_the_pack_changed(settings: Settings) -> None:
    assert not package_archive.populated(settings)

    hashes.stamp_with(settings.venv / ".pack", "one")
    hashes.stamp_with(settings.data / "mistral" / "populated", "one")
    assert package_archive.populated(settings)

    hashes.stamp_with(settings.venv / ".pack", "two")
    assert not package_archive.populated(settings)
