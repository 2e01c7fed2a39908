# SPDX-License-Identifier: Apache-2.0
"""A release: its number is the same everywhere, and two builds have the same bytes."""

from __future__ import annotations

import configparser
import hashlib
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from deploy import release, wheels
from deploy.version import PLACES, version, write
from support.pages import ROOT

SINCE = "1767225600"


def test_the_version_is_the_same_in_each_place_and_nowhere_else(tmp_path: Path) -> None:
    found = {re.search(line, (ROOT / name).read_text("utf-8"))[2] for name, line in PLACES}  # type: ignore[index]

    assert found == {version()}
    for name in {name for name, _ in PLACES}:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    write("99.1.0rc1", tmp_path)
    for name, _ in PLACES:
        text = (tmp_path / name).read_text("utf-8")
        assert re.search(rf"(?<![\d.]){re.escape(version())}(?![\d.])", text) is None, name
    agent = tomllib.loads((tmp_path / "agent" / "pyproject.toml").read_text("utf-8"))
    assert (version(tmp_path), agent["project"]["version"]) == ("99.1.0rc1", "99.1.0rc1")


@pytest.mark.parametrize("wrong", ["1.0", "v1.0.0", "1.0.0-rc1"])
def test_a_version_in_another_form_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"Write it as 1\.0\.0"):
        write(wrong, tmp_path)


def test_every_package_is_in_the_wheel() -> None:
    """A checkout works without: it is installed as a folder."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    folders = {
        ".".join(path.parent.relative_to(ROOT / "actions").parts)
        for path in (ROOT / "actions" / "mistral_failover").rglob("__init__.py")
    }

    assert folders - set(setup["options"]["packages"].split()) == set()


def test_the_change_log_is_the_release_note() -> None:
    (note,) = (ROOT / "releasenotes" / "notes").glob("first-release-*.yaml")
    told = yaml.safe_load(note.read_text("utf-8"))

    text = release.changelog()

    assert text.startswith(f"# {version()}\n")
    words = re.sub(r"[\s`]+", " ", text)
    for part in (told["prelude"], *told["features"], *told["issues"]):
        assert re.sub(r"[\s`]+", " ", part).strip() in words


@pytest.mark.package
@pytest.mark.timeout(600)
def test_two_builds_of_a_release_have_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", SINCE)
    if shutil.which("cyclonedx-py", path=str(Path(wheels.sys.executable).parent)) is None:
        pytest.skip("needs the extra release")

    one, other = (release.build(tmp_path / name) for name in ("one", "other"))

    names = sorted(path.name for path in one)
    number = version()
    assert names == sorted(
        [
            f"mistral_failover-{number}-py3-none-any.whl",
            f"mistral_failover-{number}.tar.gz",
            f"mistral_failover_agent-{number}-py3-none-any.whl",
            f"mistral_failover_agent-{number}.tar.gz",
            f"mistral-failover-server-{number}.cdx.json",
            f"mistral-failover-agent-{number}.cdx.json",
            "CHANGELOG.md",
            "SHA256SUMS",
        ]
    )
    hashes = [{path.name: _hash(path) for path in made} for made in (one, other)]
    assert hashes[0] == hashes[1]
    subprocess.run(
        ["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path / "one", check=True
    )
    _pins_are_listed(tmp_path / "one")
    _the_sources_make_the_same_wheel(tmp_path)


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _pins_are_listed(folder: Path) -> None:
    for image, pins in release.PINS.items():
        found = json.loads((folder / f"mistral-failover-{image}-{version()}.cdx.json").read_text())
        listed = {(each["name"].lower(), each["version"]) for each in found["components"]}
        pinned = set(re.findall(r"(?m)^([A-Za-z0-9_.-]+)==([^ ;\\]+)", pins.read_text("utf-8")))
        assert listed == {(name.lower(), number) for name, number in pinned}


def _the_sources_make_the_same_wheel(folder: Path) -> None:
    """Whoever builds from the source distribution gets what we publish."""
    for archive in (folder / "one").glob("*.tar.gz"):
        name = archive.name.removesuffix(".tar.gz")
        shutil.unpack_archive(archive, folder / "sources", filter="data")
        pinned = ["--build-constraints", str(ROOT / "deploy" / "agent" / "build.txt")]
        uv = [wheels.sys.executable, "-m", "uv", "build", "--quiet", "--wheel", *pinned]
        out = folder / "again"
        subprocess.run([*uv, "--out-dir", str(out), str(folder / "sources" / name)], check=True)
        (again,) = out.glob(f"{name}-*.whl")
        (ours,) = (folder / "one").glob(f"{name}-*.whl")
        assert _hash(again) == _hash(ours), name
