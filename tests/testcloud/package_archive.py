# SPDX-License-Identifier: Apache-2.0
"""The package in the cloud's Mistral: its wheel, installed as by an operator, and its workflows."""

from __future__ import annotations

import shutil
from pathlib import Path

from testcloud import hashes, infrastructure
from testcloud.databases import tool
from testcloud.packages import CONSTRAINTS, build_folder, run, uv
from testcloud.settings import HERE, ROOT, Settings

SOURCES = (
    "actions",
    "agent",
    "workflows",
    "examples",
    "setup.cfg",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
# These run in the checkout; the same stamp tells that they changed.
_BESIDE = HERE / "guests"
_STORE = ROOT / "actions" / "mistral_failover" / "store"
_SCHEMA = (_STORE / "tables.py", _STORE / "migrations")


def key() -> str:
    """A hash of the package's sources."""
    return hashes.of_files([*(ROOT / name for name in SOURCES), _BESIDE])


def installed(settings: Settings) -> bool:
    """Whether the cloud's environment has the package as it is now."""
    return hashes.stamped(settings.venv / ".pack", key())


def install(settings: Settings) -> None:
    """Build the wheels and install them, unless they are there."""
    now = key()
    if hashes.stamped(settings.venv / ".pack", now):
        return
    with build_folder(settings) as folder:
        agent, package = build(settings, folder)
        run(
            [
                *(uv(), "pip", "install", "--quiet", "--compile-bytecode"),
                *("--python", str(settings.venv / "bin" / "python")),
                *("--reinstall-package", "mistral-failover"),
                *("--reinstall-package", "mistral-failover-agent"),
                *("--constraint", str(CONSTRAINTS), str(agent), f"{package}[mysql]"),
            ],
            settings,
            {"TMPDIR": str(folder)},
        )
    hashes.stamp_with(settings.venv / ".pack", now)


def build(settings: Settings, folder: Path) -> tuple[Path, Path]:
    """Build the wheels of the agent and of the package in a folder and return their paths.

    :raises CloudError: INSTALL_FAILED.
    """
    # A copy, since setuptools would leave files in the checkout and take old ones from there.
    stage = folder / "pack"
    stage.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, stage / name, ignore=unwanted)
        else:
            shutil.copy2(source, stage / name)
    wheels = folder / "wheels"
    for place in (stage / "agent", stage):
        build = [uv(), "build", "--quiet", "--wheel", "--out-dir", str(wheels), str(place)]
        run(build, settings, {"TMPDIR": str(folder)})
    return next(wheels.glob("*_agent-*.whl")), next(wheels.glob("mistral_failover-*.whl"))


def prepare_database(settings: Settings) -> None:
    """Empty the package's database if its tables are others than those that it was made with.

    Between two releases the tables change without a migration, and a database of their old form
    would stay as it is.
    """
    stamp, now = settings.data / "mistral" / "migrations", hashes.of_files(_SCHEMA)
    if not hashes.stamped(stamp, now):
        infrastructure.sql(
            settings,
            ("DROP DATABASE IF EXISTS failover", ()),
            ("CREATE DATABASE failover CHARACTER SET utf8mb4", ()),
        )
        hashes.stamp_with(stamp, now)


def populated(settings: Settings) -> bool:
    """Whether Mistral's database has the workflows of the installed package."""
    stamp = settings.venv / ".pack"
    if not stamp.is_file():
        return False
    return hashes.stamped(_populated(settings), stamp.read_text(encoding="ascii"))


def populate(settings: Settings) -> None:
    """Put the package's workflows into Mistral's database, for every project, if they are missing.

    They become public workflows of the system: every project sees and runs them, nobody's own
    names are touched.
    """
    if populated(settings):
        return
    # They are checked elsewhere; Mistral would check its own JSON schema for each of their tasks.
    unchecked = {"OS_API__VALIDATION_MODE": "disabled"}
    tool(settings, "mistral-db-manage", "populate", secrets=unchecked)
    value = (settings.venv / ".pack").read_text(encoding="ascii")
    hashes.stamp_with(_populated(settings), value)


def _populated(settings: Settings) -> Path:
    return settings.data / "mistral" / "populated"
