# SPDX-License-Identifier: Apache-2.0
"""The files that browsers load: unchanged, small, with their licences, and all of them in the
wheel."""

from __future__ import annotations

import configparser
import hashlib
import re
from fnmatch import fnmatch
from pathlib import Path

from mistral_failover import ui
from support.pages import ROOT

UI = Path(str(ui.__file__)).parent
VENDOR = UI / "static" / "vendor"
SCRIPTS = sorted(VENDOR.glob("*.js"))


def test_vendored_scripts_are_those_of_their_packages() -> None:
    table = (VENDOR / "README.md").read_text("utf-8")
    sums = dict(re.findall(r"^\| `([^`]+\.js)` .* `([0-9a-f]{64})` \|$", table, re.MULTILINE))

    assert sums == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in SCRIPTS}
    assert {path.name for path in VENDOR.glob("LICENSE-*")} == {
        "LICENSE-htmx",
        "LICENSE-htmx-ext-sse",
        "LICENSE-idiomorph",
    }


def test_the_script_of_the_tests_is_that_of_its_package() -> None:
    folder = Path(__file__).parent / "vendor"
    table = (folder / "README.md").read_text("utf-8")
    ((name, expected),) = re.findall(r"^\| `([^`]+\.js)` .* `([0-9a-f]{64})` \|$", table, re.M)

    assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == expected
    assert {path.name for path in folder.glob("LICENSE-*")} == {
        "LICENSE-axe-core",
        "LICENSE-axe-core-3rd-party",
    }


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in SCRIPTS) < 70_000


def test_pages_load_what_is_there_and_nothing_from_elsewhere() -> None:
    frame = (UI / "templates" / "frame.html").read_text("utf-8")
    named = re.findall(r'(?:src|href)="/static/([^"]+)"', frame)

    assert sorted(name for name in named if name.endswith(".js")) == [
        "ui.js",
        *(f"vendor/{path.name}" for path in SCRIPTS),
    ]
    assert all((UI / "static" / name).is_file() for name in named)
    assert "url(" not in (UI / "static" / "ui.css").read_text("utf-8")
    for template in (UI / "templates").glob("*.html"):
        assert "http:" not in template.read_text("utf-8")
        assert "|safe" not in template.read_text("utf-8").replace(" ", "")


def test_every_file_is_in_the_wheel() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    patterns = setup["options.package_data"]["mistral_failover.ui"].split(", ")

    files = [
        path for path in UI.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert files
    for path in files:
        name = str(path.relative_to(UI))
        assert any(fnmatch(name, p) and name.count("/") == p.count("/") for p in patterns), name
